"""Finding rows by an equal value without testing every row.

A column that has been asked for twice is sorted, group by group, and searched from then on. A large one that is not in
memory is left where it is for longer, if the table has an index to ask instead.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from omnigraph.catalog.types import INTEGERS, Scalar
from omnigraph.engine.read.columns.tables import Group, TableView
from omnigraph.engine.read.context import Context
from omnigraph.engine.read.kernels import Ints
from omnigraph.engine.storage.cache import sorted_key
from omnigraph.engine.storage.literals import literal
from omnigraph.engine.storage.sorted_values import SortedValues, sort_values
from omnigraph.plan.operators import (
    Comparison,
    ComparisonOperator,
    Literal,
    Now,
    ParameterRef,
    Predicate,
    PropertyRef,
    Value,
)

ASKED_BEFORE_INDEXING = 2
INDEX_LOOKUP_ROWS = 2_500
"""A lookup in the index of a table takes as long as reading and sorting so many rows."""
DELETED_BESIDE_SHARE = 20
"""And as one in so many of the rows of fragments with deletions, for Lance numbers the live ones of these each time."""
INDEXED_ROWS_MIN = 512
INDEXABLE = INTEGERS | {Scalar.STRING, Scalar.DATE, Scalar.DATETIME}
"""Types whose values are looked up."""


class Found(NamedTuple):
    """The positions a lookup selects, how they were found, and whether deleted rows may be among them."""

    positions: Ints
    how: str
    may_be_deleted: bool = True


NOTHING = Found(np.empty(0, dtype=np.int64), "no row can hold the value")


def equal_positions(context: Context, view: TableView, reference: PropertyRef, other: Value) -> Found | None:
    """The rows whose property equals a constant, or None when a scan is the way to find out."""
    if not context.options.use_value_indexes:
        return None
    value = context.physical(other)
    if value is None or not view.groups:
        return NOTHING
    if type(value) is not str and reference.type.scalar in INTEGERS:
        if isinstance(value, float):
            if not value.is_integer():
                return NOTHING
            value = int(value)
        kind = np.iinfo(view.handle.schema.field(reference.property).type.to_pandas_dtype())
        if not kind.min <= value <= kind.max:
            return NOTHING
    indexes = view.sorted_values.get(reference.property)
    if indexes is None:
        access = choose_access(view, reference, asking=True)
        if access is Access.INDEX:
            return Found(_from_index(view, reference, value), access.value, may_be_deleted=False)
        if access is Access.SCAN:
            return None
        indexes = _sorted_column(view, reference.property)
    if len(indexes) == 1:
        return Found(indexes[0].equal(value).astype(np.int64), _FROM_SORTED)
    found = [index.equal(value) for index in indexes]
    holding = [place for place, rows in enumerate(found) if len(rows)]
    if len(holding) == 1:
        place = holding[0]
        return Found(found[place] + view.group_starts[place], _FROM_SORTED)
    parts = [found[place] + view.group_starts[place] for place in holding]
    return Found(np.concatenate(parts) if parts else NOTHING.positions, _FROM_SORTED)


# --- which way --------------------------------------------------------------------------------------------------------


class Access(Enum):
    """How the rows that hold a value are found."""

    SORTED = "from sorted values"
    INDEX = "from the index of the table, as the column is not in memory"
    SCAN = "by testing whole columns"


_FROM_SORTED = Access.SORTED.value
"""Asking a member of an enumeration for its value takes longer than it should, where every query does."""


def choose_access(view: TableView, reference: PropertyRef, *, asking: bool) -> Access:
    """The way to find a value; `asking` counts, because a column that is asked for again and again gets sorted.

    A lookup in the index of the table costs as much as sorting a few thousand rows, so a large column is sorted only
    when it has been asked for often, and a small one the second time.
    """
    column = reference.property
    if column in view.sorted_values:
        return Access.SORTED
    if view.position_count < INDEXED_ROWS_MIN:
        return Access.SCAN
    field_id = view.handle.field_ids.get(column, column)
    if all(view.cache.get(sorted_key(group.files, field_id)) is not None for group in view.groups):
        return Access.SORTED
    asked = (view.cache.get(("asked", view.handle.uri, field_id)) or 0) + 1
    if asking:
        view.cache.put(("asked", view.handle.uri, field_id), asked, 64)
    if asked * _lookup_rows(view) < view.position_count and _has_index(view, reference):
        return Access.INDEX
    return Access.SORTED if asked >= ASKED_BEFORE_INDEXING else Access.SCAN


def _lookup_rows(view: TableView) -> int:
    """How many rows could be sorted while the index of the table is asked once."""
    return INDEX_LOOKUP_ROWS + sum([f.physical_rows for f in view.fragments if f.deleted_rows]) // DELETED_BESIDE_SHARE


def _has_index(view: TableView, reference: PropertyRef) -> bool:
    if reference.type.scalar is not Scalar.STRING and reference.type.scalar not in INTEGERS:
        return False
    return reference.property in view.indexed_columns


def _from_index(view: TableView, reference: PropertyRef, value: Any) -> Ints:
    """Ask the table's own index, which also looks at rows written after it was built and leaves out deleted ones."""
    found = view.handle.scan([], f"`{reference.property}` = {literal(value)}", with_row_address=True)
    addresses = found["_rowaddr"].to_numpy(zero_copy_only=False).astype(np.uint64)
    places = {fragment.id: place for place, fragment in enumerate(view.fragments)}
    owner = np.array([places[i] for i in (addresses >> np.uint64(32)).tolist()], dtype=np.int64)
    positions = view.starts[owner] + (addresses & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return np.sort(positions)


def _sorted_column(view: TableView, column: str) -> list[SortedValues]:
    """Sort every group, and keep the result with the version."""
    found = view.sorted_values[column] = [_sorted_group(view, group, column) for group in view.groups]
    view.remake(_sorted_column, column)
    return found


def _sorted_group(view: TableView, group: Group, column: str) -> SortedValues:
    field_id = view.handle.field_ids.get(column, column)

    def join(held: SortedValues, more: SortedValues, start: int) -> SortedValues:
        return held.followed_by(more, start)

    return view.derived(
        group, lambda part: sorted_key(part.files, field_id), lambda part: sort_values(view.chunk(part, column)), join
    )


def equality(predicate: Predicate) -> tuple[PropertyRef, Value] | None:
    """The property and the value of an equality that can be looked up."""
    if not isinstance(predicate, Comparison) or predicate.operator is not ComparisonOperator.EQ:
        return None
    for one, other in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
        if isinstance(one, PropertyRef) and isinstance(other, ParameterRef | Literal | Now):
            return (one, other) if one.type.scalar in INDEXABLE and not one.type.is_list else None
    return None
