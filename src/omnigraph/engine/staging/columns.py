"""Columns of committed fragments, kept in memory and searched by value.

A data file never changes, so a column read from it once stays right for ever and for every version that has the file;
what changes with a version is only which of its rows are deleted, and that is asked for separately. The first search
of a column compares every value; a column that is searched again gets a sorted index of hashes, after which a search
costs microseconds whatever the size of the table. Columns and indexes are kept in the one cache of the process, where
queries find the same columns.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.engine.storage.cache import SHARED, ByteCache, column_key
from omnigraph.engine.storage.handle import FragmentInfo, TableHandle

INDEX_FROM_SEARCH = 2
"""The search, counted from 1, that builds the index: one-off searches do not pay for it."""
SMALL_ROWS = 4_096
NOTE_BYTES = 256
"""What an entry without an index counts for."""
_HASH_ROWS = 131_072
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

Offsets = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


@dataclass
class SearchIndex:
    """How often one column of one fragment was searched, and the sorted hashes it was given for it."""

    searches: int = 0
    counted_bytes: int = 0
    sorted_hashes: Hashes | None = None
    order: npt.NDArray[np.uint32] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def bytes(self) -> int:
        """Memory held."""
        return NOTE_BYTES if self.sorted_hashes is None else NOTE_BYTES + 12 * len(self.sorted_hashes)


@dataclass
class CachedColumn:
    """One column of one fragment, every physical row of it."""

    values: pa.Array
    index: SearchIndex = field(default_factory=SearchIndex)

    @property
    def sorted_hashes(self) -> Hashes | None:
        """The index, once there is one."""
        return self.index.sorted_hashes

    def find(self, wanted: pa.Array) -> Offsets:
        """Offsets of the rows whose value is among `wanted`, ascending; nulls are never found."""
        rows = len(self.values)
        if rows <= SMALL_ROWS or len(wanted) * 16 > rows:
            return self._compare(wanted)
        index = self.index
        with index.lock:
            index.searches += 1
            if index.sorted_hashes is None and index.searches >= INDEX_FROM_SEARCH:
                hashes = hash_values(self.values)
                order = np.argsort(hashes, kind="stable")
                index.sorted_hashes, index.order = hashes[order], order.astype(np.uint32)
        if index.sorted_hashes is None or index.order is None:
            return self._compare(wanted)
        places, sought = index.order, hash_values(wanted)
        left = np.searchsorted(index.sorted_hashes, sought, side="left")
        right = np.searchsorted(index.sorted_hashes, sought, side="right")
        if (left == right).all():
            return np.empty(0, dtype=np.int64)
        spans = [places[start:end] for start, end in zip(left.tolist(), right.tolist(), strict=True) if end > start]
        candidates = np.unique(np.concatenate(spans)).astype(np.int64)
        same = pc.is_in(self.values.take(pa.array(candidates)), value_set=wanted, skip_nulls=True)
        kept: Offsets = candidates[np.asarray(same)]
        return kept

    def _compare(self, wanted: pa.Array) -> Offsets:
        hits = pc.is_in(self.values, value_set=wanted, skip_nulls=True)
        return np.flatnonzero(np.asarray(hits)).astype(np.int64)


class ColumnCache:
    """The columns this process keeps, shared by all graphs, because file names never repeat."""

    _shared: ClassVar[ColumnCache | None] = None
    _shared_lock = threading.Lock()

    def __init__(self, cache: ByteCache | None = None) -> None:
        self._cache = ByteCache() if cache is None else cache
        self._asked: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()

    @classmethod
    def shared(cls) -> ColumnCache:
        """The columns in the cache of this process."""
        with cls._shared_lock:
            if cls._shared is None:
                cls._shared = cls(SHARED)
            return cls._shared

    def holds(self, handle: TableHandle, fragment: FragmentInfo, column: str) -> bool:
        """True when reading the column costs nothing."""
        return self._cache.get(column_key(fragment.files, handle.field_ids[column])) is not None

    def asked(self, path: str, field_id: int) -> int:
        """How often a column was needed that is not held, this time included."""
        with self._lock:
            self._asked[(path, field_id)] += 1
            return self._asked[(path, field_id)]

    def column(self, handle: TableHandle, fragment: FragmentInfo, column: str) -> CachedColumn:
        """The column of a fragment, read if need be."""
        field_id = handle.field_ids[column]
        values = self._cache.get(column_key(fragment.files, field_id))
        if values is not None:
            return CachedColumn(values, self._index(fragment, field_id))
        values = handle.read_fragment_columns(fragment, [column]).column(column).combine_chunks()
        return self.keep(fragment, field_id, values)

    def keep(self, fragment: FragmentInfo, field_id: int, values: pa.Array) -> CachedColumn:
        """Remember a column; the least recently used ones go beyond the bound."""
        self._cache.put(column_key(fragment.files, field_id), values, int(values.nbytes))
        return CachedColumn(values, self._index(fragment, field_id))

    def _index(self, fragment: FragmentInfo, field_id: int) -> SearchIndex:
        """The index of a column, its size taken account of when it has grown since it was last looked at."""
        key = ("searched", fragment.files, field_id)
        found: SearchIndex | None = self._cache.get(key)
        if found is None:
            found = SearchIndex()
        if found.counted_bytes != found.bytes:
            found.counted_bytes = found.bytes
            self._cache.put(key, found, found.bytes)
        return found


def hash_values(values: pa.Array) -> Hashes:
    """A 64-bit hash per value, the same in every process; equal values have equal hashes, others nearly never."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        parts = [
            _hash_texts(values.slice(start, _HASH_ROWS).cast(pa.large_string()))
            for start in range(0, max(len(values), 1), _HASH_ROWS)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    return _mixed(_as_integers(values).view(np.uint64))


def _as_integers(values: pa.Array) -> npt.NDArray[np.int64]:
    """Values of fixed width as integers, equal where the values are; nulls as 0."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_date64(values.type):
        values = values.view(pa.int64())
    elif pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    plain = pc.fill_null(values, pa.scalar(0, values.type)).to_numpy(zero_copy_only=False)
    if plain.dtype.kind == "f":
        # Adding zero makes the two zeros one.
        plain = (plain.astype(np.float64) + 0.0).view(np.int64)
    return np.asarray(plain).astype(np.int64, copy=False)


def _hash_texts(texts: pa.Array) -> Hashes:
    """A polynomial over the bytes of each text, computed for all texts at once."""
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    lengths = np.diff(offsets)
    first, last = int(offsets[0]) if len(offsets) else 0, int(offsets[-1]) if len(offsets) else 0
    data = texts.buffers()[2]
    if last == first or data is None:
        return _mixed(lengths.astype(np.uint64))
    content = np.frombuffer(data, dtype=np.uint8)[first:last].astype(np.uint64) + np.uint64(1)
    places = np.arange(last - first) - np.repeat(offsets[:-1] - first, lengths)
    content *= _powers(int(lengths.max()))[places]
    sums = np.zeros(len(lengths), dtype=np.uint64)
    filled = lengths > 0
    sums[filled] = np.add.reduceat(content, (offsets[:-1] - first)[filled])
    return _mixed(sums ^ lengths.astype(np.uint64))


def _powers(count: int) -> Hashes:
    factors = np.full(count, _MULTIPLIER, dtype=np.uint64)
    factors[0] = 1
    return np.multiply.accumulate(factors)


def _mixed(hashes: Hashes) -> Hashes:
    mixed = hashes ^ (hashes >> np.uint64(32))
    mixed = mixed * np.uint64(0xD6E8FEB86659FD93)
    return np.asarray(mixed ^ (mixed >> np.uint64(32)), dtype=np.uint64)
