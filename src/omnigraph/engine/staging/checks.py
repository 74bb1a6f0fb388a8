"""The rules one row can break by itself: required values, enums, `@range` and `@check`.

Pure Arrow over one batch, so the engine and the Spark executors run the very same function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import CheckRule, EntityType, RangeRule
from omnigraph.dataclass import dataclass
from omnigraph.engine.staging.values import PROBLEMS_MAX


@dataclass(frozen=True)
class Violation:
    """A broken rule: the position of the row in its batch, and the sentence for the user."""

    row: int
    message: str


def check_rows(entity: EntityType, rows: pa.Table) -> list[Violation]:
    """Every rule the rows break by themselves, by ascending row; nulls pass all rules but "required"."""
    found: list[Violation] = []
    for prop in entity.properties.values():
        column = rows.column(prop.name)
        if not prop.type.nullable and column.null_count:
            found += _hits(pc.is_null(column), _required(entity, prop.name))
        if prop.type.enum_values is not None:
            found += _check_enum(entity, prop.name, prop.type.enum_values, column)
    for rule in entity.ranges:
        found += _check_range(entity, rule, rows.column(rule.property))
    for check in entity.checks:
        found += _check_pattern(entity, check, rows.column(check.property))
    return sorted(found, key=lambda violation: violation.row)


def _check_enum(entity: EntityType, name: str, allowed: Iterable[str], column: pa.ChunkedArray) -> list[Violation]:
    values = pa.array(list(allowed), pa.string())
    outside = pc.and_(pc.is_valid(column), pc.invert(pc.is_in(column, value_set=values)))
    listed = ", ".join(values.to_pylist())
    return _hits(outside, lambda row: f"enum violation: {entity.name}.{name} '{column[row]}' is not one of {listed}")


def _check_range(entity: EntityType, rule: RangeRule, column: pa.ChunkedArray) -> list[Violation]:
    numbers = pc.cast(column, pa.float64(), safe=False)
    inside = pc.is_valid(numbers)
    # A comparison with NaN is false, so NaN fails whichever bound is given.
    if rule.low is not None:
        inside = pc.and_(inside, pc.greater_equal(numbers, rule.low))
    if rule.high is not None:
        inside = pc.and_(inside, pc.less_equal(numbers, rule.high))
    outside = pc.and_(pc.is_valid(numbers), pc.invert(inside))
    low = "" if rule.low is None else _shown(rule.low)
    high = "" if rule.high is None else _shown(rule.high)
    return _hits(
        outside,
        lambda row: f"@range violation: {entity.name}.{rule.property} {column[row]} is not within {low}..{high}",
    )


def _check_pattern(entity: EntityType, rule: CheckRule, column: pa.ChunkedArray) -> list[Violation]:
    matches = pc.match_substring_regex(column, pattern=rule.pattern)
    return _hits(
        pc.invert(matches),
        lambda row: f"@check violation: {entity.name}.{rule.property} '{column[row]}' does not match {rule.pattern}",
    )


def _shown(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


def _hits(mask: pa.ChunkedArray, message: Callable[[int], str]) -> list[Violation]:
    rows = np.flatnonzero(np.asarray(pc.fill_null(mask, False)))
    return [Violation(int(row), message(int(row))) for row in rows[:PROBLEMS_MAX]]


def _required(entity: EntityType, name: str) -> Callable[[int], str]:
    return lambda row: f"{entity.name}.{name} is required"
