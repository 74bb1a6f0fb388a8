"""Small integers for node ids: a dictionary that only grows.

An id keeps its code for as long as the dictionary lives, whatever happens to its node, so arrays of codes made from a
data file never need to be made again. One dictionary serves all snapshots and branches of a node table; which codes
are present in a snapshot is that snapshot's own knowledge.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog import arrays
from omnigraph.dataclass import dataclass
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


@dataclass(frozen=True)
class _Sorted:
    """The folded part: `ids[i]` has code i; `ordered` are the same ids ascending, `codes` their codes."""

    ids: pa.Array
    ordered: pa.Array
    codes: Codes

    @classmethod
    def of(cls, ids: pa.Array) -> _Sorted:
        codes = arrays.to_numpy(pc.sort_indices(ids)).astype(np.int32)
        return cls(ids, ids.take(arrays.array(codes)), codes)

    def find(self, ids: pa.Array) -> Codes:
        """The code of each id, or -1; a binary search per id."""
        if not len(self.ids):
            return np.full(len(ids), -1, dtype=np.int32)
        where = arrays.to_numpy(pc.search_sorted(self.ordered, ids))
        inside = np.minimum(where, len(self.ids) - 1)
        same = arrays.to_numpy(pc.equal(self.ordered.take(arrays.array(inside)), ids))
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
        found = arrays.fill_null(found, -1)
    codes: Codes = arrays.to_numpy(found).astype(np.int32)
    return codes


class IdDictionary:
    """Codes for the ids of one node table. Safe to share between threads."""

    def __init__(self, ids: pa.Array | None = None, *, lineage: str | None = None) -> None:
        self.lineage = lineage or new_token()
        """Names this assignment of codes; equal lineages agree on every code both have."""
        self._sorted = _Sorted.of(arrays.array([], pa.string()) if ids is None else ids)
        self._tail: dict[str, int] = {}
        self._lock = threading.Lock()
        self._order: tuple[_Sorted, npt.NDArray[np.int64]] | None = None
        self.saved_count = 0
        """How many ids there were when the dictionary was last kept on disk."""

    @classmethod
    def restored(cls, ids: pa.Array, ordered: pa.Array, codes: Codes, lineage: str) -> IdDictionary:
        """A dictionary as an earlier process left it."""
        made = cls(lineage=lineage)
        made._sorted = _Sorted(ids, ordered, codes)
        made.saved_count = len(ids)
        return made

    def folded(self) -> tuple[pa.Array, pa.Array, Codes]:
        """All ids in code order, the same ascending, and the codes of the latter."""
        with self._lock:
            if self._tail:
                self._fold()
            return self._sorted.ids, self._sorted.ordered, self._sorted.codes

    def __len__(self) -> int:
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
        return int(self._sorted.find(arrays.array([entity_id], pa.string()))[0])

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
                fresh = ids.take(arrays.array(missing))
                codes[missing] = self._learn(fresh.combine_chunks() if isinstance(fresh, pa.ChunkedArray) else fresh)
            return codes

    def ids_of(self, codes: npt.NDArray[np.integer]) -> pa.Array:
        """The ids of codes this dictionary gave out."""
        # The tail first: folding replaces the sorted part before it empties the tail, so nothing falls between.
        tail = self._tail
        folded = self._sorted
        if len(codes) == 1 and int(codes[0]) < len(folded.ids):
            return folded.ids.slice(int(codes[0]), 1)
        if not tail or not len(codes) or int(codes.max()) < len(folded.ids):
            return folded.ids.take(arrays.array(codes))
        with self._lock:
            first, second = self._sorted.ids, arrays.array(list(self._tail), pa.string())
        late = codes >= len(first)
        # Each from its own part: putting the parts together would copy all ids for the sake of a few.
        found = pa.concat_arrays(
            [first.take(arrays.array(codes[~late])), second.take(arrays.array(codes[late] - len(first)))]
        )
        back = np.empty(len(codes), dtype=np.int64)
        back[np.concatenate((np.flatnonzero(~late), np.flatnonzero(late)))] = np.arange(len(codes))
        return found.take(arrays.array(back))

    def all_ids(self) -> pa.Array:
        """Every id, in code order."""
        with self._lock:
            return self._all_ids()

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
            if len(held[1]) != len(self) + 1:
                texts = sorted(self._tail, key=str.encode)
                places = arrays.to_numpy(pc.search_sorted(folded.ordered, arrays.array(texts, pa.string())))
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
        if len(ids) <= SMALL:
            codes = self._sorted.find(ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids)
        else:
            codes = _places(ids, self._sorted.ids)
        if self._tail:
            missing = np.flatnonzero(codes < 0)
            if 0 < len(missing) <= FEW:
                sought = ids.take(arrays.array(missing)).to_pylist()
                codes[missing] = [self._tail.get(entity_id, -1) for entity_id in sought]
            elif len(missing):
                tail = arrays.array(list(self._tail), pa.string())
                places = pc.index_in(ids.take(arrays.array(missing)), value_set=tail)
                found = arrays.to_numpy(arrays.fill_null(places, -1))
                codes[missing] = np.where(found >= 0, found + len(self._sorted.ids), -1)
        return codes

    def _learn(self, ids: pa.Array) -> Codes:
        encoded = pc.dictionary_encode(ids)
        start = len(self)
        fresh = encoded.dictionary
        if len(self._tail) + len(fresh) <= TAIL_MAX:
            for offset, entity_id in enumerate(fresh.to_pylist()):
                self._tail[entity_id] = start + offset
        else:
            self._fold(fresh)
        return np.asarray(arrays.to_numpy(encoded.indices) + start, dtype=np.int32)

    def _fold(self, fresh: pa.Array | None = None) -> None:
        parts = [self._sorted.ids, arrays.array(list(self._tail), pa.string())]
        if fresh is not None:
            parts.append(fresh)
        self._sorted = _Sorted.of(pa.concat_arrays([part.cast(pa.string()) for part in parts]))
        self._tail = {}

    def _all_ids(self) -> pa.Array:
        if not self._tail:
            return self._sorted.ids
        return pa.concat_arrays([self._sorted.ids, arrays.array(list(self._tail), pa.string())])
