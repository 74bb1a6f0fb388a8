"""Node tables, whose rows are also addressed by the codes of their ids.

The dictionary that gives the codes is shared by all snapshots of a table; a view knows where, in its version, the row
of each code is. A question about a few rows of a large table that nobody has read yet is answered for them alone.
"""

from __future__ import annotations

import threading
import weakref
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.engine.read.cache.persist import load_dictionary, save_dictionary
from omnigraph.engine.read.columns import tables
from omnigraph.engine.read.columns.dictionary import Codes, IdDictionary, codes_key, shared_codes
from omnigraph.engine.read.columns.tables import Bools, Group, Ints, Part, TableView, append_codes
from omnigraph.engine.storage.cache import SHARED, ByteCache
from omnigraph.engine.storage.handle import FragmentInfo, TableHandle


class NodeView(TableView):
    """A node table whose rows are also addressed by the codes of its id dictionary."""

    def follow(self, before: TableView) -> None:
        """Derive what had been derived from the version before."""
        for name in _FOLLOWED:
            if name in before.__dict__:
                getattr(self, name)
        super().follow(before)

    @cached_property
    def placed(self) -> dict[int, int]:
        """Positions of codes that were learnt one by one, while those of the whole table were not known."""
        return {}

    @cached_property
    def dictionary(self) -> IdDictionary:
        """The dictionary all snapshots of this table share."""
        return dictionary_of(self.handle, self.cache)

    @cached_property
    def codes(self) -> Codes:
        """The code of the id at each position, deleted rows included."""
        parts = [self.chunk_codes(group) for group in self.groups]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)

    def chunk_codes(self, group: Group) -> Codes:
        """The codes of one group's ids."""
        return file_codes(self, group, self.dictionary)

    def codes_at(self, positions: Ints) -> Ints:
        """The codes at some positions; for a few of them the codes of the whole table need not exist."""
        if "codes" in self.__dict__:
            return np.asarray(self.codes[positions], dtype=np.int64)
        if len(positions) > tables.FEW_ROWS:
            ascending = bool((positions[1:] > positions[:-1]).all())
            return np.asarray(self._codes_of(positions) if ascending else self.codes[positions], dtype=np.int64)
        places = (np.searchsorted(self.group_starts, positions, side="right") - 1).tolist()
        if len(places) == 1 and not self._is_uncoded(places[0]):
            codes = self.chunk_codes(self.groups[places[0]])
            return np.asarray(codes[positions - self.group_starts[places[0]]], dtype=np.int64)
        if not any(self._is_uncoded(place) for place in places):
            if bool((positions[1:] > positions[:-1]).all()):
                return np.asarray(self._codes_of(positions), dtype=np.int64)
            return np.asarray(self.codes[positions], dtype=np.int64)
        found = self.dictionary.encode(self.take("id", positions)).astype(np.int64)
        self.placed.update(zip(found.tolist(), positions.tolist(), strict=True))
        return found

    def _is_uncoded(self, place: int) -> bool:
        """Whether a group is large and its ids have no codes yet."""
        group = self.groups[place]
        known = shared_codes(self.cache, self.dictionary, group.files, "id")
        return group.physical_rows >= tables.COLD_ROWS_MIN and known is None

    @cached_property
    def code_bound(self) -> int:
        """Above every code of this version: how many the dictionary had given out when all its ids were in it."""
        for group in self.groups:
            self.chunk_codes(group)
        return len(self.dictionary)

    def keep_dictionary(self) -> str | None:
        """Leave the dictionary on disk for the next process; the name of the state that was kept, if one was."""
        codes = [self.chunk_codes(group) for group in self.groups]
        return save_dictionary(self.handle, self.dictionary, [group.files for group in self.groups], codes)

    @cached_property
    def live_codes(self) -> Ints:
        """The codes of the live rows, in position order."""
        codes = self.codes if self.all_live else self.codes[self.live]
        return codes.astype(np.int64)

    @cached_property
    def positions(self) -> npt.NDArray[np.int32]:
        """For each code the position of its row, or -1 when this version has no such node."""
        where = np.full(self.code_bound, -1, dtype=np.int32)
        key = ("positions", self.handle.uri, self.dictionary.lineage)
        held: tuple[tuple[FragmentInfo, ...], npt.NDArray[np.int32]] | None = self.cache.get(key)
        gone = None if held is None else self._gone_since(held[0])
        if held is not None and gone is not None:
            where[: len(held[1])] = held[1][: len(where)]
            codes = self._codes_of(gone)
            # A row that was written anew may have been placed already by a version in between.
            where[codes[where[codes] == gone]] = -1
            first = int(self.starts[len(held[0])])
            fresh = np.arange(first, self.position_count)
            if not self.all_live:
                fresh = fresh[self.is_live(fresh)]
            where[self._codes_of(fresh)] = fresh
        elif self.all_live:
            where[self.codes] = np.arange(self.position_count, dtype=np.int32)
        else:
            where[self.live_codes] = np.flatnonzero(self.live)
        self.cache.put(key, (self.fragments, where), int(where.nbytes))
        return where

    def _codes_of(self, positions: Ints) -> Codes:
        """The codes at ascending positions, without putting the codes of the whole table together."""
        cuts = np.searchsorted(positions, self.group_starts)
        parts = [
            self.chunk_codes(group)[positions[begin:end] - start]
            for group, start, begin, end in zip(self.groups, self.group_starts, cuts, cuts[1:], strict=False)
            if end > begin
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)

    def _gone_since(self, older: tuple[FragmentInfo, ...]) -> Ints | None:
        """Positions deleted since another version, given by its fragments; None when it is not known to be earlier.

        An earlier version has a first part of these fragments, in their order, with fewer rows deleted.
        """
        if [fragment.files for fragment in self.fragments[: len(older)]] != [fragment.files for fragment in older]:
            return None
        gone: list[Ints] = [np.empty(0, dtype=np.int64)]
        for then, now, start in zip(older, self.fragments, self.starts, strict=False):
            if then.deletion_key == now.deletion_key:
                continue
            before, after = self.deleted_then(then), self.deleted_offsets(now)
            if before is None:
                return None
            fresh = np.setdiff1d(after, before, assume_unique=True)
            if len(fresh) != len(after) - len(before):
                return None
            gone.append(start + fresh)
        return np.concatenate(gone)

    @cached_property
    def is_complete(self) -> bool:
        """True when every code of the dictionary, as it was when first asked, is a node of this version."""
        return self.live_count == self.code_bound

    def position_of(self, codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Positions of codes known to be present."""
        if "positions" not in self.__dict__ and 0 < len(codes) <= tables.FEW_ROWS:
            placed = [self.placed.get(code, -1) for code in codes.tolist()]
            if min(placed) >= 0:
                return np.array(placed, dtype=np.int64)
        return np.asarray(self.positions[codes])

    def present(self, codes: npt.NDArray[Any]) -> Bools:
        """Which codes are nodes of this version; codes given out later are not."""
        inside = codes < len(self.positions)
        if bool(inside.all()):
            return np.asarray(self.positions[codes] >= 0)
        return inside & (self.positions[np.where(inside, codes, 0)] >= 0)


_FOLLOWED = ("code_bound", "codes", "live_codes", "positions")
"""Properties that take time in proportion to the table when they are made from nothing."""


def file_codes(view: TableView, part: Part, dictionary: IdDictionary) -> Codes:
    """The ids of a fragment or group as codes; made once per data file and dictionary."""

    def make(part: Part) -> Codes:
        known = shared_codes(view.cache, dictionary, part.files, "id")
        return dictionary.encode(view.chunk(part, "id")) if known is None else known

    return view.derived(part, lambda part: codes_key(dictionary.lineage, part.files, "id"), make, append_codes)


_DICTIONARIES: weakref.WeakValueDictionary[str, IdDictionary] = weakref.WeakValueDictionary()
_DICTIONARIES_LOCK = threading.Lock()


def dictionary_of(handle: TableHandle, cache: ByteCache = SHARED) -> IdDictionary:
    """The process-wide dictionary of a node table or of a branch of it; it lives as long as some view does.

    That of a branch goes on from that of its table, with which it shares most files.
    """
    with _DICTIONARIES_LOCK:
        found = _DICTIONARIES.get(handle.uri)
        if found is None:
            table = _DICTIONARIES.get(handle.table_uri)
            found = load_dictionary(handle, cache) or IdDictionary() if table is None else table.forked()
            _DICTIONARIES[handle.uri] = found
        return found
