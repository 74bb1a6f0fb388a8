"""Finding rows by any of several values: `in`, and `or` of equalities, as the union of lookups."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from omnigraph.catalog.types import PropertyType
from omnigraph.engine.read.columns.tables import TableView
from omnigraph.engine.read.context import Context
from omnigraph.engine.read.operators.lookup import (
    INDEXABLE,
    NOTHING,
    Access,
    Found,
    choose_access,
    equal_positions,
    equality,
)
from omnigraph.engine.storage.sorted_unique import sorted_unique
from omnigraph.plan.operators import And, InList, Literal, Or, ParameterRef, Predicate, PropertyRef, Value

ALTERNATIVES_MAX = 64
"""More values than this are tested over whole columns."""
NO_PREDICATE: Predicate = Or(())
"""Stands for a lookup that found more than satisfies its predicate, so that none is left out when they are tested."""


def any_equal_positions(context: Context, view: TableView, predicate: Predicate) -> Found | None:
    """The rows that hold one of the values a predicate asks for, perhaps among others; None where a scan is better."""
    values = _alternatives(context, predicate)
    if values is None or len(values) > ALTERNATIVES_MAX:
        return None
    parts, how = [], NOTHING.how
    for reference, value in values:
        if choose_access(view, reference, asking=False) is Access.SCAN:
            equal_positions(context, view, reference, value)  # counts as asked for, so that it is sorted next time
            return None
    for reference, value in values:
        found = equal_positions(context, view, reference, value)
        if found is None:
            return None
        parts.append(found.positions)
        how = f"{found.how}, {len(values)} times"
    if not parts:
        return NOTHING
    return Found(sorted_unique(np.concatenate(parts)), how)


def is_union(predicate: Predicate) -> bool:
    """Whether the union of the lookups is all the predicate asks for."""
    match predicate:
        case InList():
            return True
        case Or(parts=parts):
            return all(equality(part) is not None or is_union(part) for part in parts)
    return False


def _alternatives(context: Context, predicate: Predicate) -> list[tuple[PropertyRef, Value]] | None:
    """Pairs of which a row must satisfy one, as property and value, for the predicate to be true."""
    match predicate:
        case InList(value=PropertyRef() as reference, items=(Literal() | ParameterRef()) as items):
            if reference.type.scalar not in INDEXABLE:
                return None
            given = items.value if isinstance(items, Literal) else context.parameter(items)
            kind = PropertyType(items.type.scalar)
            return [(reference, Literal(item, kind)) for item in given or () if item is not None]
        case Or(parts=parts):
            found: list[tuple[PropertyRef, Value]] = []
            for part in parts:
                more = _alternatives(context, part)
                if more is None:
                    return None
                found += more
            return found
        case And(parts=parts):
            return next(_known(context, parts), None)
    pair = equality(predicate)
    return None if pair is None else [pair]


def _known(context: Context, parts: tuple[Predicate, ...]) -> Iterator[list[tuple[PropertyRef, Value]]]:
    for part in parts:
        found = _alternatives(context, part)
        if found is not None:
            yield found
