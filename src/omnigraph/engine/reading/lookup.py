"""Finding rows by an equal value without testing every row.

A column that has been asked for twice is sorted, group by group, and searched from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

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
Rows = npt.NDArray[np.int32]


class SortedValues(Protocol):
    """The non-null values of one column of one group, ascending, with the row of each."""

    @property
    def nbytes(self) -> int:
        """What the arrays occupy."""
        ...

    def equal(self, value: Any) -> Rows:
        """The rows that hold a value."""
        ...

    def followed_by(self, more: Any, start: int) -> SortedValues:
        """With further rows, numbered from `start`, put into their places."""
        ...


@dataclass(frozen=True)
class SortedNumbers:
    """Values of fixed width in order."""

    values: npt.NDArray[Any]
    rows: Rows

    @classmethod
    def of(cls, column: pa.Array) -> SortedNumbers:
        """Sort one column of one group."""
        numbers, valid = as_numpy(column)
        order = np.argsort(numbers, kind="stable")
        if valid is not None:
            order = order[valid[order]]
        return cls(numbers[order], order.astype(np.int32))

    @property
    def nbytes(self) -> int:
        """What the arrays occupy."""
        return int(self.values.nbytes + self.rows.nbytes)

    def equal(self, value: Any) -> Rows:
        """The rows that hold a value."""
        low = int(self.values.searchsorted(self.values.dtype.type(value)))
        high = int(self.values.searchsorted(self.values.dtype.type(value), side="right"))
        return self.rows[low:high]

    def followed_by(self, more: SortedNumbers, start: int) -> SortedNumbers:
        """With further rows, numbered from `start`, put into their places."""
        if not len(more.rows):
            return self
        places = np.searchsorted(self.values, more.values, side="right")
        rows = np.insert(self.rows, places, more.rows + np.int32(start))
        return SortedNumbers(np.insert(self.values, places, more.values), rows)


@dataclass(frozen=True)
class SortedTexts:
    """Texts in order, found by the eight bytes that follow what all of them begin with.

    Comparing integers is many times quicker than comparing texts one call at a time; where several texts share their
    eight bytes, they are compared as texts.
    """

    values: pa.Array
    rows: Rows
    shared: bytes
    """What every text begins with."""
    leads: npt.NDArray[np.uint64]
    """The bytes after it as numbers that order as the texts do."""

    @classmethod
    def of(cls, column: pa.Array) -> SortedTexts:
        """Sort one column of one group."""
        order = pc.sort_indices(column).to_numpy()[: len(column) - column.null_count]
        return cls._ordered(column.take(pa.array(order)), order.astype(np.int32))

    @classmethod
    def _ordered(cls, values: pa.Array, rows: Rows) -> SortedTexts:
        shared = b""
        if len(values):
            first, last = values[0].as_py().encode(), values[len(values) - 1].as_py().encode()
            differing = (place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
            shared = first[: next(differing, min(len(first), len(last)))]
        return cls(values, rows, shared, _leads(values, len(shared)))

    @property
    def nbytes(self) -> int:
        """What the arrays occupy."""
        return int(self.values.nbytes + self.rows.nbytes + self.leads.nbytes)

    def equal(self, value: str) -> Rows:
        """The rows that hold a text."""
        sought, skip, leads = value.encode(), len(self.shared), self.leads
        if not sought.startswith(self.shared):
            return self.rows[:0]
        lead = np.uint64(int.from_bytes(sought[skip : skip + 8].ljust(8, b"\0"), "big"))
        low = int(leads.searchsorted(lead))
        if low == len(leads) or leads[low] != lead:
            return self.rows[:0]
        if low + 1 == len(leads) or leads[low + 1] != lead:
            return self.rows[low : low + (self.values[low].as_py() == value)]
        part = self.values.slice(low, int(leads.searchsorted(lead, side="right")) - low)
        wanted = pa.scalar(value, part.type)
        first = low + pc.search_sorted(part, wanted, side="left").as_py()
        return self.rows[first : low + pc.search_sorted(part, wanted, side="right").as_py()]

    def followed_by(self, more: SortedTexts, start: int) -> SortedTexts:
        """With further rows, numbered from `start`, put into their places."""
        if not len(more.rows):
            return self
        places = pc.search_sorted(self.values, more.values, side="right").to_numpy().astype(np.int64)
        order = np.insert(np.arange(len(self.values)), places, len(self.values) + np.arange(len(more.values)))
        values = pa.concat_arrays([self.values, more.values]).take(pa.array(order))
        return self._ordered(values, np.insert(self.rows, places, more.rows + np.int32(start)))


def _leads(values: pa.Array, skip: int) -> npt.NDArray[np.uint64]:
    """Eight bytes of each text after the first `skip`, as numbers; a text that ends earlier is filled up with zeros."""
    texts = values.cast(pa.large_string())
    if not len(texts):
        return np.empty(0, dtype=np.uint64)
    _, offset_buffer, content_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    content = np.frombuffer(content_buffer or b"", dtype=np.uint8)
    leads = np.zeros(len(texts), dtype=np.uint64)
    for place in range(8):
        at = offsets[:-1] + (skip + place)
        inside = at < offsets[1:]
        leads <<= np.uint64(8)
        leads[inside] |= content[at[inside]]
    return leads


def sort_values(column: pa.Array) -> SortedValues:
    """Sort one column of one group."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return SortedTexts.of(column)
    return SortedNumbers.of(column)


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
