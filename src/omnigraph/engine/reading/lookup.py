"""Finding rows by an equal value without testing every row.

A column that has been asked for twice is sorted, group by group, and searched from then on. A large one that is not in
memory is left where it is for longer, if the table has an index to ask instead.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from enum import Enum
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog import arrays
from omnigraph.catalog.types import INTEGERS, Scalar
from omnigraph.dataclass import dataclass
from omnigraph.engine.reading.context import Context
from omnigraph.engine.reading.kernels import Ints
from omnigraph.engine.reading.tables import Group, TableView
from omnigraph.engine.reading.values import as_numpy
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
INDEXED_ROWS_MIN = 512
INDEXABLE = INTEGERS | {Scalar.STRING, Scalar.DATE, Scalar.DATETIME}
"""Types whose values are looked up."""
Rows = npt.NDArray[np.int32]
_SORTED = "sorted values of "


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

    @cached_property
    def _numbers(self) -> memoryview:
        """The same numbers, for a search that asks for one: an array would make an array of the question first."""
        return self.leads.data

    @classmethod
    def of(cls, column: pa.Array) -> SortedTexts:
        """Sort one column of one group."""
        order = arrays.to_numpy(pc.sort_indices(column))[: len(column) - column.null_count]
        return cls._ordered(column.take(arrays.array(order)), order.astype(np.int32))

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
        sought, skip, leads = value.encode(), len(self.shared), self._numbers
        if not sought.startswith(self.shared):
            return self.rows[:0]
        lead = int.from_bytes(sought[skip : skip + 8].ljust(8, b"\0"), "big")
        low, count = bisect_left(leads, lead), len(leads)
        if low == count or leads[low] != lead:
            return self.rows[:0]
        if low + 1 == count or leads[low + 1] != lead:
            return self.rows[low : low + (self.values[low].as_py() == value)]
        part = self.values.slice(low, bisect_right(leads, lead, low) - low)
        wanted = arrays.scalar(value, part.type)
        first = low + pc.search_sorted(part, wanted, side="left").as_py()
        return self.rows[first : low + pc.search_sorted(part, wanted, side="right").as_py()]

    def followed_by(self, more: SortedTexts, start: int) -> SortedTexts:
        """With further rows, numbered from `start`, put into their places."""
        if not len(more.rows):
            return self
        places = arrays.to_numpy(pc.search_sorted(self.values, more.values, side="right")).astype(np.int64)
        order = np.insert(np.arange(len(self.values)), places, len(self.values) + np.arange(len(more.values)))
        values = pa.concat_arrays([self.values, more.values]).take(arrays.array(order))
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


@dataclass(frozen=True)
class Found:
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
    indexes: list[SortedValues] | None = view.handle.memo.get(_SORTED + reference.property)
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
    if _SORTED + column in view.handle.memo:
        return Access.SORTED
    if view.position_count < INDEXED_ROWS_MIN:
        return Access.SCAN
    field_id = view.handle.field_ids.get(column, column)
    if all(view.cache.get(("sorted", group.files, field_id)) is not None for group in view.groups):
        return Access.SORTED
    asked = (view.cache.get(("asked", view.handle.uri, field_id)) or 0) + 1
    if asking:
        view.cache.put(("asked", view.handle.uri, field_id), asked, 64)
    if asked * INDEX_LOOKUP_ROWS < view.position_count and _has_index(view, reference):
        return Access.INDEX
    return Access.SORTED if asked >= ASKED_BEFORE_INDEXING else Access.SCAN


def _has_index(view: TableView, reference: PropertyRef) -> bool:
    if reference.type.scalar is not Scalar.STRING and reference.type.scalar not in INTEGERS:
        return False
    known: frozenset[str] | None = view.handle.memo.get("looked up")
    if known is None:
        kinds = [index for index in view.handle.indexes() if index.kind.upper() == "BTREE"]
        known = view.handle.memo["looked up"] = frozenset(i.columns[0] for i in kinds if len(i.columns) == 1)
    return reference.property in known


def _from_index(view: TableView, reference: PropertyRef, value: Any) -> Ints:
    """Ask the table's own index, which also looks at rows written after it was built and leaves out deleted ones."""
    literal = "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
    found = view.handle.scan([], f"`{reference.property}` = {literal}", with_row_address=True)
    addresses = arrays.to_numpy(found["_rowaddr"]).astype(np.uint64)
    places = {fragment.id: place for place, fragment in enumerate(view.fragments)}
    owner = np.array([places[i] for i in (addresses >> np.uint64(32)).tolist()], dtype=np.int64)
    positions = view.starts[owner] + (addresses & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return np.sort(positions)


def _sorted_column(view: TableView, column: str) -> list[SortedValues]:
    """Sort every group, and keep the result with the version."""
    found = view.handle.memo[_SORTED + column] = [_sorted_group(view, group, column) for group in view.groups]
    view.recipes[_SORTED + column] = lambda later: _sorted_column(later, column)
    return found


def _sorted_group(view: TableView, group: Group, column: str) -> SortedValues:
    field_id = view.handle.field_ids.get(column, column)

    def join(held: SortedValues, more: SortedValues) -> SortedValues:
        return held.followed_by(more, group.physical_rows - group.fragments[-1].physical_rows)

    return view.derived(
        group, lambda part: ("sorted", part.files, field_id), lambda part: sort_values(view.chunk(part, column)), join
    )


def equality(predicate: Predicate) -> tuple[PropertyRef, Value] | None:
    """The property and the value of an equality that can be looked up."""
    if not isinstance(predicate, Comparison) or predicate.operator is not ComparisonOperator.EQ:
        return None
    for one, other in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
        if isinstance(one, PropertyRef) and isinstance(other, ParameterRef | Literal | Now):
            return (one, other) if one.type.scalar in INDEXABLE and not one.type.is_list else None
    return None
