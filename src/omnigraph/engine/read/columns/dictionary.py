"""Small integers for node ids: a dictionary that only grows.

An id keeps its code for as long as the dictionary lives, whatever happens to its node, so arrays of codes made from a
data file never need to be made again. One dictionary serves all snapshots of a node table, and another those of each
branch of it that has rows of its own; which codes are present in a snapshot is that snapshot's own knowledge.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.engine.storage.cache import ByteCache
from omnigraph.ids import new_token

Codes = npt.NDArray[np.int32]
TAIL_MAX = 4096
"""Ids kept outside the sorted part before they are folded into it."""
TAIL_BITS = 13
"""Room for all of them between two ids of the sorted part."""
SMALL = 2048
"""Batches up to this size are looked up by binary search; larger ones by one hash join."""
SHARED_WORK_MIN = 1_000_000
"""Batches from this size on are looked up by several threads, each with a hash table of its own."""
FEW = 64
"""Ids that are looked up in the tail one by one; for more an array is made of it."""


class _Sorted(Struct, frozen=True):
    """The folded part: `ids[i]` has code i; `ordered` are the same ids ascending, `codes` their codes."""

    ids: pa.Array
    ordered: pa.Array
    codes: Codes

    @classmethod
    def of(cls, ids: pa.Array) -> _Sorted:
        codes = pc.sort_indices(ids).to_numpy(zero_copy_only=False).astype(np.int32)
        return cls(ids, wide.take(ids, codes), codes)

    def find(self, ids: pa.Array) -> Codes:
        """The code of each id, or -1; a binary search per id."""
        if not len(self.ids):
            return np.full(len(ids), -1, dtype=np.int32)
        ordered, sought = wide.alike(self.ordered, ids)
        where = pc.search_sorted(ordered, sought).to_numpy(zero_copy_only=False)
        inside = np.minimum(where, len(self.ids) - 1)
        same = pc.equal(wide.take(ordered, inside), sought).to_numpy(zero_copy_only=False)
        return np.where(same, self.codes[inside], -1).astype(np.int32)

    @property
    def nbytes(self) -> int:
        """What the arrays occupy."""
        return int(self.ids.nbytes + self.ordered.nbytes + self.codes.nbytes)


def _places(ids: pa.Array | pa.ChunkedArray, known: pa.Array) -> Codes:
    """The place of each id among the known ones, or -1; very many are looked up on all cores."""
    if len(ids) < SHARED_WORK_MIN:
        return _places_of_some(ids, known)
    workers = os.cpu_count() or 1
    step = -(-len(ids) // workers)
    pieces = [ids.slice(begin, step) for begin in range(0, len(ids), step)]
    with ThreadPoolExecutor(workers) as pool:
        return np.concatenate(list(pool.map(lambda piece: _places_of_some(piece, known), pieces)))


def _places_of_some(ids: pa.Array | pa.ChunkedArray, known: pa.Array) -> Codes:
    found = pc.index_in(ids, value_set=known)
    if found.null_count:
        found = pc.fill_null(found, -1)
    codes: Codes = found.to_numpy(zero_copy_only=False).astype(np.int32)
    return codes


class IdDictionary:
    """Codes for the ids of one node table. Safe to share between threads."""

    def __init__(self, ids: pa.Array | None = None) -> None:
        self.lineage = new_token()
        """Names this assignment of codes, in this process; one that is restored from disk is another one."""
        self._sorted = _Sorted.of(pa.array([], pa.string()) if ids is None else ids)
        self._tail: dict[str, int] = {}
        self._lock = threading.Lock()
        self._order: tuple[_Sorted, npt.NDArray[np.int64]] | None = None
        self.saved_count = 0
        """How many ids there were when the dictionary was last kept on disk."""
        self.states: tuple[str, ...] = ()
        """Names of the states on disk, newest last, whose codes are all codes of this one."""
        self.keeping = threading.Lock()
        """Held by whoever keeps it on disk, so that the newest state and its count belong together."""
        self.shared: tuple[tuple[str, int], ...] = ()
        """The lineages it goes on from, newest last, each with the number of codes that mean the same in both."""

    @classmethod
    def restored(cls, ids: pa.Array, ordered: pa.Array, codes: Codes, states: tuple[str, ...]) -> IdDictionary:
        """A dictionary as an earlier process left it."""
        made = cls()
        made._sorted = _Sorted(ids, ordered, codes)
        made.saved_count, made.states = len(ids), states
        return made

    def forked(self) -> IdDictionary:
        """Another one that has all codes given out until now, and from here on gives out its own."""
        made = IdDictionary()
        made.states = self.states  # Before the ids: a state that is kept meanwhile may have codes that these lack.
        with self._lock:
            made._sorted, made._tail = self._sorted, dict(self._tail)
            made.shared = (*self.shared, (self.lineage, self._count()))
        return made

    @property
    def lineages(self) -> list[tuple[str, int | None]]:
        """Whose codes may be codes of this one: its own, all of them, and those it shares, below a bound."""
        return [(self.lineage, None), *reversed(self.shared)]

    def folded(self) -> tuple[pa.Array, pa.Array, Codes]:
        """All ids in code order, the same ascending, and the codes of the latter."""
        with self._lock:
            if self._tail:
                self._fold()
            return self._sorted.ids, self._sorted.ordered, self._sorted.codes

    def __len__(self) -> int:
        with self._lock:
            return self._count()

    def _count(self) -> int:
        """How many ids there are; the caller holds the lock, as folding moves ids from one part to the other."""
        return len(self._sorted.ids) + len(self._tail)

    @property
    def nbytes(self) -> int:
        """What the folded part occupies."""
        return self._sorted.nbytes

    def code(self, entity_id: str) -> int:
        """The code of an id, or -1 when it was never seen."""
        found = self._tail.get(entity_id)
        if found is not None:
            return found
        return int(self._sorted.find(pa.array([entity_id], pa.string()))[0])

    def find(self, ids: pa.Array) -> Codes:
        """The code of each id, or -1, without learning new ones."""
        with self._lock:
            return self._find(ids)

    def encode(self, ids: pa.Array | pa.ChunkedArray) -> Codes:
        """The code of each id; ids never seen are given the next codes.

        One call for many arrays, as chunks, is much cheaper than a call for each: the hash table is built once.
        """
        with self._lock:
            codes = self._find(ids)
            missing = np.flatnonzero(codes < 0)
            if len(missing):
                codes[missing] = self._learn(wide.take(ids, missing))
            return codes

    def ids_of(self, codes: npt.NDArray[np.integer]) -> pa.Array:
        """The ids of codes this dictionary gave out."""
        # The tail first: folding replaces the sorted part before it empties the tail, so nothing falls between.
        tail = self._tail
        folded = self._sorted
        if len(codes) == 1 and int(codes[0]) < len(folded.ids):
            return folded.ids.slice(int(codes[0]), 1)
        if not tail or not len(codes) or int(codes.max()) < len(folded.ids):
            return wide.take(folded.ids, codes)
        with self._lock:
            first, second = self._sorted.ids, pa.array(list(self._tail), pa.string())
        late = codes >= len(first)
        # Each from its own part: putting the parts together would copy all ids for the sake of a few.
        found = wide.concat([wide.take(first, codes[~late]), wide.take(second, codes[late] - len(first))])
        back = np.empty(len(codes), dtype=np.int64)
        back[np.concatenate((np.flatnonzero(~late), np.flatnonzero(late)))] = np.arange(len(codes))
        return wide.take(found, back)

    def texts_of(self, codes: list[int]) -> list[str]:
        """The ids of a few codes one by one, which costs less than an array of them."""
        # The tail first, as in `ids_of`; it is short, and in the order of its codes.
        tail = self._tail
        folded = self._sorted.ids
        count = len(folded)
        if tail and max(codes, default=0) >= count:
            with self._lock:
                folded, late = self._sorted.ids, list(self._tail)
            count = len(folded)
            return [late[code - count] if code >= count else folded[code].as_py() for code in codes]
        return [folded[code].as_py() for code in codes]

    def order(self) -> npt.NDArray[np.int64]:
        """Integers that order as the ids do, found by code plus one; the first is 0, for no id at all.

        Ids that are not folded yet get places between those that are, so a few new ones cost little.
        """
        with self._lock:
            folded, count = self._sorted, len(self._sorted.ids)
            held = self._order
            if held is None or held[0] is not folded:
                made = np.zeros(count + 1, dtype=np.int64)
                made[folded.codes + np.int32(1)] = np.arange(1, count + 1) << TAIL_BITS
                held = self._order = (folded, made)
            if len(held[1]) != self._count() + 1:
                texts = sorted(self._tail, key=str.encode)
                ordered, late = wide.alike(folded.ordered, pa.array(texts, pa.string()))
                places = pc.search_sorted(ordered, late).to_numpy(zero_copy_only=False)
                made = np.concatenate((held[1][: count + 1], np.empty(len(texts), dtype=np.int64)))
                codes = np.array([self._tail[text] for text in texts], dtype=np.int64)
                made[codes + 1] = (places.astype(np.int64) << TAIL_BITS) + np.arange(1, len(texts) + 1)
                held = self._order = (folded, made)
            return held[1]

    @property
    def is_ordered(self) -> bool:
        """Whether `order` has been asked for before, so that asking again costs little."""
        return self._order is not None

    @property
    def is_order_current(self) -> bool:
        """Whether `order` is known of every id, so that asking costs nothing."""
        held = self._order
        return held is not None and held[0] is self._sorted and len(held[1]) == len(self) + 1

    def _find(self, ids: pa.Array | pa.ChunkedArray) -> Codes:
        codes = self._sorted.find(wide.one_array(ids)) if len(ids) <= SMALL else _places(ids, self._sorted.ids)
        if self._tail:
            missing = np.flatnonzero(codes < 0)
            if 0 < len(missing) <= FEW:
                sought = wide.take(ids, missing).to_pylist()
                codes[missing] = [self._tail.get(entity_id, -1) for entity_id in sought]
            elif len(missing):
                tail = pa.array(list(self._tail), pa.string())
                places = pc.index_in(wide.take(ids, missing), value_set=tail)
                found = pc.fill_null(places, -1).to_numpy(zero_copy_only=False)
                codes[missing] = np.where(found >= 0, found + len(self._sorted.ids), -1)
        return codes

    def _learn(self, ids: pa.Array) -> Codes:
        encoded = pc.dictionary_encode(ids)
        start = self._count()
        fresh = encoded.dictionary
        if len(self._tail) + len(fresh) <= TAIL_MAX:
            for offset, entity_id in enumerate(fresh.to_pylist()):
                self._tail[entity_id] = start + offset
        else:
            self._fold(fresh)
        return np.asarray(encoded.indices.to_numpy(zero_copy_only=False) + start, dtype=np.int32)

    def _fold(self, fresh: pa.Array | None = None) -> None:
        parts = [self._sorted.ids, pa.array(list(self._tail), pa.string())]
        if fresh is not None:
            parts.append(fresh)
        self._sorted = _Sorted.of(wide.concat(parts))
        self._tail = {}


def codes_key(lineage: str, files: tuple[str, ...], column: str) -> tuple[Hashable, ...]:
    """Where a cache has the codes of an id column of some data files."""
    return ("codes", lineage, files, column)


def shared_codes(cache: ByteCache, dictionary: IdDictionary, files: tuple[str, ...], column: str) -> Codes | None:
    """The codes of a column that are known, by this dictionary or by one that gave out the same."""
    for lineage, bound in dictionary.lineages:
        found: Codes | None = cache.get(codes_key(lineage, files, column))
        if found is not None and (bound is None or not len(found) or int(found.max()) < bound):
            return found
    return None
