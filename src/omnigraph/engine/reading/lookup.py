"""Finding rows by an equal value without testing every row.

A column that has been asked for twice is sorted, group by group, and searched from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.types import INTEGERS, Scalar
from omnigraph.engine.reading.context import Context
from omnigraph.engine.reading.kernels import Ints
from omnigraph.engine.reading.tables import Group, TableView
from omnigraph.engine.reading.values import as_numpy
from omnigraph.plan.operators import Comparison, ComparisonOperator, Literal, Now, ParameterRef, Predicate, PropertyRef

ASKED_BEFORE_INDEXING = 2
INDEXED_ROWS_MIN = 512
INDEXABLE = INTEGERS | {Scalar.STRING, Scalar.DATE, Scalar.DATETIME}
"""Types whose values are looked up."""


@dataclass(frozen=True)
class SortedValues:
    """The non-null values of one column of one group, ascending, with the row of each."""

    values: Any
    rows: npt.NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """What the arrays occupy."""
        return int(self.values.nbytes + self.rows.nbytes)

    def equal(self, value: Any) -> npt.NDArray[np.int32]:
        """The rows that hold a value."""
        if isinstance(self.values, pa.Array):
            wanted = pa.scalar(value, self.values.type)
            low = pc.search_sorted(self.values, wanted, side="left").as_py()
            if low == len(self.values) or self.values[low] != wanted:
                return self.rows[:0]
            if low + 1 == len(self.values) or self.values[low + 1] != wanted:
                return self.rows[low : low + 1]
            high = pc.search_sorted(self.values, wanted, side="right").as_py()
        else:
            low = int(np.searchsorted(self.values, value, side="left"))
            high = int(np.searchsorted(self.values, value, side="right"))
        return self.rows[low:high]

    def followed_by(self, more: SortedValues, start: int) -> SortedValues:
        """With further rows, numbered from `start`, put into their places."""
        if isinstance(self.values, pa.Array):
            places = pc.search_sorted(self.values, more.values, side="right").to_numpy()
            order = np.insert(np.arange(len(self.values)), places, len(self.values) + np.arange(len(more.values)))
            values = pa.concat_arrays([self.values, more.values]).take(pa.array(order))
        else:
            places = np.searchsorted(self.values, more.values, side="right")
            values = np.insert(self.values, places, more.values)
        return SortedValues(values, np.insert(self.rows, places, more.rows + np.int32(start)))


def sort_values(column: pa.Array) -> SortedValues:
    """Sort one column of one group."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        order = pc.sort_indices(column).to_numpy()[: len(column) - column.null_count]
        return SortedValues(column.take(pa.array(order)), order.astype(np.int32))
    numbers, valid = as_numpy(column)
    order = np.argsort(numbers, kind="stable")
    if valid is not None:
        order = order[valid[order]]
    return SortedValues(numbers[order], order.astype(np.int32))


def equal_positions(context: Context, view: TableView, predicate: Predicate) -> Ints | None:
    """The positions an equality with a constant selects, or None when a scan is the way to find out."""
    if not context.options.use_value_indexes:
        return None
    parsed = _equality(predicate)
    if parsed is None or view.position_count < INDEXED_ROWS_MIN:
        return None
    reference, other = parsed
    value = context.constant(other).value
    if value is None or not view.groups:
        return np.empty(0, dtype=np.int64)
    if reference.type.scalar in INTEGERS:
        if isinstance(value, float):
            if not value.is_integer():
                return np.empty(0, dtype=np.int64)
            value = int(value)
        kind = np.iinfo(view.handle.schema.field(reference.property).type.to_pandas_dtype())
        if not kind.min <= value <= kind.max:
            return np.empty(0, dtype=np.int64)
    indexes = _sorted_column(view, reference.property)
    if indexes is None:
        return None
    found = [index.equal(value) + start for start, index in zip(view.group_starts, indexes, strict=False)]
    return np.asarray(found[0] if len(found) == 1 else np.concatenate(found), dtype=np.int64)


def _sorted_column(view: TableView, column: str) -> list[SortedValues] | None:
    """The sorted values of every group; made when the column is asked for the second time."""
    memo: dict[str, list[SortedValues]] = view.handle.memo.setdefault("sorted values", {})
    ready = memo.get(column)
    if ready is not None:
        return ready
    field_id = view.handle.field_ids.get(column, column)
    keys = [("sorted", group.files, field_id) for group in view.groups]
    if any(view.cache.get(key) is None for key in keys):
        asked_key = ("asked", view.handle.uri, field_id)
        asked = (view.cache.get(asked_key) or 0) + 1
        view.cache.put(asked_key, asked, 64)
        if asked < ASKED_BEFORE_INDEXING:
            return None
    found = memo[column] = [_sorted_group(view, group, column) for group in view.groups]
    return found


def _sorted_group(view: TableView, group: Group, column: str) -> SortedValues:
    field_id = view.handle.field_ids.get(column, column)

    def join(held: SortedValues, more: SortedValues) -> SortedValues:
        return held.followed_by(more, group.physical_rows - group.fragments[-1].physical_rows)

    return view.derived(
        group, lambda part: ("sorted", part.files, field_id), lambda part: sort_values(view.chunk(part, column)), join
    )


def _equality(predicate: Predicate) -> tuple[PropertyRef, ParameterRef | Literal | Now] | None:
    if not isinstance(predicate, Comparison) or predicate.operator is not ComparisonOperator.EQ:
        return None
    for one, other in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
        if isinstance(one, PropertyRef) and isinstance(other, ParameterRef | Literal | Now):
            return (one, other) if one.type.scalar in INDEXABLE and not one.type.is_list else None
    return None
