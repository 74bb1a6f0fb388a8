"""The values of a column in order, each with its row: one search for readers and writers.

A data file never changes, so what is sorted from it stays right for ever and for every version that has the file; the
cache keeps it by the files and the field number it was made from (`cache.sorted_key`), whoever asked first. Deleted
rows are among the rows: which of them live belongs to a version.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog import wide

Rows = npt.NDArray[np.int32]
LEADS_ROWS_MIN = 4_096
"""Shorter columns are sorted as texts."""
FEW_VALUES = 16
"""So many values are looked up one by one, which is quicker than one search for all."""
_NO_LEAD = np.uint64((1 << 64) - 1)
"""Eight bytes that no text of Unicode has."""


class SortedValues(Protocol):
    """The non-null values of one column of one group, ascending, with the row of each."""

    @property
    def nbytes(self) -> int:
        """What the arrays occupy."""
        ...

    def equal(self, value: Any) -> Rows:
        """The rows that hold a value."""
        ...

    def among(self, wanted: pa.Array) -> Rows:
        """The rows that hold one of some values, none of them null; a row may be there twice."""
        ...

    def followed_by(self, more: Any, start: int) -> SortedValues:
        """With further rows, numbered from `start`, put into their places."""
        ...


class SortedNumbers(Struct, frozen=True):
    """Values of fixed width in order."""

    values: npt.NDArray[Any]
    rows: Rows

    @classmethod
    def of(cls, column: pa.Array) -> SortedNumbers:
        """Sort one column of one group."""
        numbers, valid = _numbers(column)
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

    def among(self, wanted: pa.Array) -> Rows:
        """The rows that hold one of some values; the two zeros of a float count as one here."""
        sought = _numbers(wanted)[0]
        left = self.values.searchsorted(sought)
        return _spans(self.rows, left, self.values.searchsorted(sought, side="right"))

    def followed_by(self, more: SortedNumbers, start: int) -> SortedNumbers:
        """With further rows, numbered from `start`, put into their places."""
        if not len(more.rows):
            return self
        places = np.searchsorted(self.values, more.values, side="right")
        rows = np.insert(self.rows, places, more.rows + np.int32(start))
        return SortedNumbers(np.insert(self.values, places, more.values), rows)


class SortedTexts(Struct, frozen=True, dict=True):
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
        order = _order_by_leads(column)
        if order is None:
            order = pc.sort_indices(column).to_numpy(zero_copy_only=False)[: len(column) - column.null_count]
        return cls._ordered(wide.take(column, order), order.astype(np.int32))

    @classmethod
    def _ordered(cls, values: pa.Array, rows: Rows) -> SortedTexts:
        shared = _shared(values[0], values[len(values) - 1]) if len(values) else b""
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
        wanted = pa.scalar(value, part.type)
        first = low + pc.search_sorted(part, wanted, side="left").as_py()
        return self.rows[first : low + pc.search_sorted(part, wanted, side="right").as_py()]

    def among(self, wanted: pa.Array) -> Rows:
        """The rows that hold one of some texts."""
        if len(wanted) <= FEW_VALUES:
            return np.concatenate([self.rows[:0], *(self.equal(text) for text in wanted.to_pylist())])
        sought = wanted.cast(self.values.type)
        leads = _leads(sought, len(self.shared))
        low = self.leads.searchsorted(leads)
        begun = np.asarray(pc.starts_with(_as_bytes(sought), self.shared), dtype=np.bool_)
        hit = np.flatnonzero(begun & (self._leads_at(low) == leads))
        is_only = self._leads_at(low[hit] + 1) != leads[hit]
        alone, among = hit[is_only], hit[~is_only]
        places = low[alone]
        same = pc.equal(wide.take(self.values, places), wide.take(sought, alone))
        found = self.rows[places[np.asarray(same, dtype=np.bool_)]]
        return np.concatenate([found, self._among_texts(wide.take(sought, among))]) if len(among) else found

    def _leads_at(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """The number at each place; behind the last there is one that only texts of all bits have."""
        if not len(self.leads):
            return np.full(len(places), _NO_LEAD)
        return np.where(places < len(self.leads), self.leads[np.minimum(places, len(self.leads) - 1)], _NO_LEAD)

    def _among_texts(self, wanted: pa.Array) -> Rows:
        """The same by comparing texts alone, which tells those apart whose eight bytes are the same."""
        held, sought = wide.alike(self.values, wanted)
        left = pc.search_sorted(held, sought, side="left").to_numpy(zero_copy_only=False)
        return _spans(self.rows, left, pc.search_sorted(held, sought, side="right").to_numpy(zero_copy_only=False))

    def followed_by(self, more: SortedTexts, start: int) -> SortedTexts:
        """With further rows, numbered from `start`, put into their places."""
        if not len(more.rows):
            return self
        held, added = wide.alike(self.values, more.values)
        places = pc.search_sorted(held, added, side="right").to_numpy(zero_copy_only=False).astype(np.int64)
        order = np.insert(np.arange(len(self.values)), places, len(self.values) + np.arange(len(more.values)))
        values = wide.take(wide.concat([held, added]), order)
        return self._ordered(values, np.insert(self.rows, places, more.rows + np.int32(start)))


def _shared(first: pa.Scalar, last: pa.Scalar) -> bytes:
    """What two texts begin with, and so every text between them."""
    one, other = first.as_py().encode(), last.as_py().encode()
    differing = (place for place, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return bytes(one[: next(differing, min(len(one), len(other)))])


def _order_by_leads(column: pa.Array) -> npt.NDArray[np.int64] | None:
    """The order of a long column of short texts, which numbers have too and are sorted by sooner; None for others."""
    if len(column) < LEADS_ROWS_MIN or column.null_count:
        return None
    ends = pc.min_max(column)
    skip = len(_shared(ends["min"], ends["max"]))
    lengths = pc.binary_length(column).to_numpy(zero_copy_only=False)
    if int(lengths.max()) - skip > 8:
        return None
    leads = _leads(column, skip)
    order = np.argsort(leads, kind="stable")
    ordered, sizes = leads[order], lengths[order]
    if ((ordered[1:] == ordered[:-1]) & (sizes[1:] != sizes[:-1])).any():
        return None  # Texts that differ only in zero bytes at their end look the same as numbers.
    return order


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


def _as_bytes(texts: pa.Array) -> pa.Array:
    """Texts as the bytes they are stored as; what all of them begin with may end inside a character."""
    return texts.cast(pa.large_binary() if pa.types.is_large_string(texts.type) else pa.binary())


def sort_values(column: pa.Array) -> SortedValues:
    """Sort one column of one group."""
    if wide.is_text(column.type):
        return SortedTexts.of(column)
    return SortedNumbers.of(column)


def _spans(rows: Rows, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> Rows:
    """The rows from each place of `left` to its place of `right`, joined."""
    counts = right.astype(np.int64) - left.astype(np.int64)
    total = int(counts.sum())
    if not total:
        return rows[:0]
    begins = np.repeat(left.astype(np.int64) - (np.cumsum(counts) - counts), counts)
    return rows[begins + np.arange(total)]


def _numbers(column: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """Values of fixed width as numpy, and which are valid (None: all); nulls read as zero."""
    if pa.types.is_date32(column.type):
        column = column.view(pa.int32())
    elif pa.types.is_date64(column.type) or pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    if column.null_count == 0:
        return column.to_numpy(zero_copy_only=False), None
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return pc.fill_null(column, False if pa.types.is_boolean(column.type) else 0).to_numpy(zero_copy_only=False), valid


def can_sort(kind: pa.DataType) -> bool:
    """Whether values of a type have an order that finds every equal one."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )
