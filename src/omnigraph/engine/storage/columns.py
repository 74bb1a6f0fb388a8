"""Columns of committed fragments, kept in memory and searched by value.

A data file never changes, so a column read from it once stays right for ever and for every version that has the file;
what changes with a version is only which of its rows are deleted, and that is asked for separately. The first search
of a large column compares every value; one that is searched again is sorted, after which a search costs microseconds
whatever the size of the table. Columns and sorted values are kept in the one cache of the process, where queries find
the same ones. The fragments of small writes are joined first, so that a search looks at each large fragment and once at
all the others.
"""

from __future__ import annotations

import operator
import threading
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from omnigraph.catalog import wide
from omnigraph.engine.storage.cache import SHARED, ByteCache, column_key, sorted_key
from omnigraph.engine.storage.handle import FragmentInfo, TableHandle
from omnigraph.engine.storage.sorted_unique import sorted_unique
from omnigraph.engine.storage.sorted_values import SortedTexts, SortedValues, can_sort, sort_values

INDEX_FROM_SEARCH = 2
"""The search, counted from 1, that sorts a column: one-off searches do not pay for it."""
SMALL_ROWS = 4_096
"""Columns up to this length are compared value by value, which takes no longer."""
JOINED_ROWS = 64
"""Fragments up to this length are searched as one."""
JOINED_MAX = 64
"""Joined columns that are kept for the next version, which mostly has one fragment more."""
SEARCHED_SHARE = 16
"""More values than one for so many rows are sought by comparing all rows with them."""
NOTE_BYTES = 256
"""What the count of searches is taken for in the cache."""

Offsets = npt.NDArray[np.int64]
NOWHERE: Offsets = np.empty(0, dtype=np.int64)
Hits = list[tuple[FragmentInfo, Offsets]]
"""Rows by fragment, in storage order; deleted ones may be among them."""


class Searches(Struct):
    """How often one column of one fragment was searched; the lock lets one thread sort it."""

    count: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class CachedColumn(Struct):
    """One column of one fragment, every physical row of it; `files` and `field_id` say which."""

    values: pa.Array
    files: tuple[str, ...] = ()
    field_id: Hashable = 0
    cache: ByteCache = field(default_factory=ByteCache)

    def find(self, wanted: pa.Array) -> Offsets:
        """Offsets of the rows whose value is among `wanted`, ascending; nulls are never found."""
        if self.is_compared(wanted):
            return self.compare(wanted)
        index = self.sorted_values()
        if index is None:
            return self.compare(wanted)
        if len(wanted) == 1 and isinstance(index, SortedTexts) and wide.is_text(wanted.type):
            # One text, as most writes seek: the usual way would sort and join what is one row or none.
            text = wanted[0].as_py()
            return np.sort(index.equal(text)).astype(np.int64) if text is not None else np.empty(0, dtype=np.int64)
        sought = self._as_values(wanted).drop_null()
        candidates = sorted_unique(index.among(sought)).astype(np.int64)
        if not len(candidates) or isinstance(index, SortedTexts):
            return candidates
        # Sorting takes some values for equal that are not the same, such as the two zeros.
        same = pc.is_in(wide.take(self.values, candidates), value_set=sought, skip_nulls=True)
        kept: Offsets = candidates[np.asarray(same)]
        return kept

    def is_compared(self, wanted: pa.Array) -> bool:
        """Whether all values are looked at, because they are few or many are wanted."""
        return len(self.values) <= SMALL_ROWS or len(wanted) * SEARCHED_SHARE > len(self.values)

    def compare(self, wanted: pa.Array) -> Offsets:
        """The same by looking at every value."""
        sought = self._as_values(wanted)
        if len(sought) == 1 and wide.is_text(sought.type):
            # Four times quicker than making a table of one value and looking every value up in it.
            hits = pc.equal(self.values, sought[0])
            if not hits.true_count:
                return NOWHERE
            hits = pc.fill_null(hits, False)
        else:
            hits = pc.is_in(self.values, value_set=sought, skip_nulls=True)
        return np.flatnonzero(np.asarray(hits)).astype(np.int64)

    def _as_values(self, wanted: pa.Array) -> pa.Array:
        return wanted if wanted.type == self.values.type else wanted.cast(self.values.type)

    def sorted_values(self) -> SortedValues | None:
        """The column in order, if somebody has sorted it, or has searched it often enough by now."""
        key = sorted_key(self.files, self.field_id)
        found: SortedValues | None = self.cache.get(key)
        if found is not None or not can_sort(self.values.type):
            return found
        searches: Searches = self.cache.get_or_make(("searched", *key[1:]), Searches, lambda made: NOTE_BYTES)
        with searches.lock:
            searches.count += 1
            if searches.count < INDEX_FROM_SEARCH:
                return None
            return self.cache.get_or_make(key, lambda: sort_values(self.values), lambda made: made.nbytes)


def find_in_all(columns: Sequence[CachedColumn], wanted: pa.Array) -> list[Offsets]:
    """What `find` gives for each of some columns of one type.

    Whoever looks at every value first makes a table of those wanted; here all of them look into the same.
    """
    found: dict[int, Offsets] = {}
    together = [place for place, column in enumerate(columns) if column.is_compared(wanted)]
    for kind in {columns[place].values.type for place in together}:
        places = [place for place in together if columns[place].values.type == kind]
        values = pa.chunked_array([columns[place].values for place in places], kind)
        sought = wanted if wanted.type == kind else wanted.cast(kind)
        hits = np.asarray(pc.is_in(values, value_set=sought, skip_nulls=True))
        masks = np.split(hits, np.cumsum([len(columns[place].values) for place in places])[:-1])
        found.update({place: np.flatnonzero(mask) for place, mask in zip(places, masks, strict=True)})
    return [found[place] if place in found else column.find(wanted) for place, column in enumerate(columns)]


class JoinedColumn(Struct, frozen=True, dict=True):
    """One column of several small fragments, searched as one; `parts` are the values of each of them."""

    parts: tuple[pa.Array, ...]
    fragments: tuple[FragmentInfo, ...]

    @cached_property
    def values(self) -> pa.Array:
        """All of them in one array."""
        return wide.concat(self.parts)

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where each fragment begins in that array."""
        return np.cumsum([0, *[fragment.physical_rows for fragment in self.fragments]])[:-1]

    @cached_property
    def _places(self) -> dict[str, list[tuple[int, int]]]:
        """Of each text the rows that hold it, as fragment and offset."""
        return _with_places({}, self.parts, 0)

    def followed_by(self, more: Sequence[pa.Array], fragments: tuple[FragmentInfo, ...]) -> JoinedColumn:
        """With the values of further fragments, which are the last of `fragments`."""
        joined = JoinedColumn((*self.parts, *more), fragments)
        if "_places" in self.__dict__:
            joined.__dict__["_places"] = _with_places(self._places, more, len(self.parts))
        return joined

    def find(self, wanted: pa.Array) -> Hits:
        """The rows whose value is among `wanted`, by fragment."""
        if len(wanted) == 1 and wide.is_text(wanted.type) and wide.is_text(self.parts[0].type):
            # One text, as most writes seek: neither are the values joined for it, nor all of them compared.
            return self._find_one(wanted[0].as_py())
        return self.compare(wanted)

    def _find_one(self, text: str | None) -> Hits:
        found: dict[int, list[int]] = {}
        for owner, offset in () if text is None else self._places.get(text, ()):
            found.setdefault(owner, []).append(offset)
        return [(self.fragments[owner], np.array(offsets, dtype=np.int64)) for owner, offsets in found.items()]

    def compare(self, wanted: pa.Array) -> Hits:
        """The same by looking at every value."""
        hits = CachedColumn(self.values).compare(wanted)
        if not len(hits):
            return []
        owners = np.searchsorted(self.starts, hits, side="right") - 1
        found = []
        for owner in np.unique(owners).tolist():
            found.append((self.fragments[owner], hits[owners == owner] - self.starts[owner]))
        return found


def _with_places(
    known: dict[str, list[tuple[int, int]]], parts: Sequence[pa.Array], start: int
) -> dict[str, list[tuple[int, int]]]:
    """The places of texts with those of further fragments, counted from `start`; what was known stays as it is."""
    places = dict(known)
    for owner, part in enumerate(parts, start):
        for offset, text in enumerate(part.to_pylist()):
            if text is not None:
                places[text] = [*places.get(text, ()), (owner, offset)]
    return places


class ColumnCache:
    """The columns this process keeps, shared by all graphs, because file names never repeat."""

    _shared: ClassVar[ColumnCache | None] = None
    _shared_lock = threading.Lock()

    def __init__(self, cache: ByteCache | None = None) -> None:
        self._cache = ByteCache() if cache is None else cache
        self._asked: Counter[tuple[str, int]] = Counter()
        self._last_joined: dict[tuple[str, int], JoinedColumn] = {}
        self._searched: WeakKeyDictionary[TableHandle, _Searched] = WeakKeyDictionary()
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

    def unread_rows(self, handle: TableHandle, column: str) -> int:
        """How many rows of a column a search would have to read first."""
        searched = self._searched_in(handle)
        unread = 0 if handle.field_ids[column] in searched.joined else searched.small_rows
        return unread + sum(f.physical_rows for f in searched.large if not self.holds(handle, f, column))

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
            return CachedColumn(values, fragment.files, field_id, self._cache)
        values = wide.one_array(handle.read_fragment_columns(fragment, [column]).column(column))
        return self.keep(fragment, field_id, values)

    def keep(self, fragment: FragmentInfo, field_id: int, values: pa.Array) -> CachedColumn:
        """Remember a column; the least recently used ones go beyond the bound."""
        self._cache.put(column_key(fragment.files, field_id), values, int(values.nbytes))
        return CachedColumn(values, fragment.files, field_id, self._cache)

    def find(self, handle: TableHandle, column: str, wanted: pa.Array) -> Hits:
        """The rows of a table whose value is among `wanted`, by fragment; deleted rows may be among them."""
        joined = self._joined(handle, column)
        found = [] if joined is None else joined.find(wanted)
        large = self._searched_in(handle).large
        held = [self.column(handle, fragment, column) for fragment in large]
        offsets = find_in_all(held, wanted) if len(held) > 1 and len(wanted) > 1 else [one.find(wanted) for one in held]
        found += [(fragment, hits) for fragment, hits in zip(large, offsets, strict=True) if len(hits)]
        if len(found) > 1:
            places = {fragment.id: place for place, fragment in enumerate(handle.fragments())}
            found.sort(key=lambda hit: places[hit[0].id])
        return found

    def _joined(self, handle: TableHandle, column: str) -> JoinedColumn | None:
        """One column of all small fragments of a version, kept with it; None when there are none."""
        searched, field_id = self._searched_in(handle), handle.field_ids[column]
        if field_id not in searched.joined:
            searched.joined[field_id] = self._join(handle, column, searched.small)
        return searched.joined[field_id]

    def _searched_in(self, handle: TableHandle) -> _Searched:
        """What is known of the fragments of a version, for as long as somebody holds its handle."""
        with self._lock:
            found = self._searched.get(handle)
        if found is None:
            found = _searched(handle.fragments())
            with self._lock:
                self._searched[handle] = found
        return found

    def _join(self, handle: TableHandle, column: str, small: tuple[FragmentInfo, ...]) -> JoinedColumn | None:
        """The column of small fragments as one; those that were joined before are not joined again."""
        place = (handle.uri, handle.field_ids[column])
        with self._lock:
            last = self._last_joined.pop(place, None)
        known = 0 if last is None else len(last.fragments)
        if last is None or len(small) < known or not all(map(operator.is_, last.fragments, small)):
            last, known = None, 0
        parts = [self.column(handle, fragment, column).values for fragment in small[known:]]
        if not small:
            return None
        joined = JoinedColumn(tuple(parts), small) if last is None else last.followed_by(parts, small)
        with self._lock:
            self._last_joined[place] = joined
            if len(self._last_joined) > JOINED_MAX:
                self._last_joined.pop(next(iter(self._last_joined)))
        return joined


class _Searched(Struct, frozen=True):
    """The fragments of a version that are searched one by one, and those that are searched as one."""

    large: tuple[FragmentInfo, ...]
    small: tuple[FragmentInfo, ...]
    small_rows: int
    joined: dict[int, JoinedColumn | None] = field(default_factory=dict)
    """By the number of a column, the values of the small fragments; None where there are no such fragments."""


def _searched(fragments: tuple[FragmentInfo, ...]) -> _Searched:
    large = tuple([f for f in fragments if f.physical_rows > JOINED_ROWS])
    small = tuple([f for f in fragments if f.physical_rows <= JOINED_ROWS])
    return _Searched(large, small, sum([f.physical_rows for f in small]))
