"""Nodes that both ends of a row lead to: a hop that closes a triangle, followed and checked at once.

Following a hop and checking its pairs afterwards lists every way first, and nearly all of them are dropped. Here the
ways of some rows at a time are made, tested and forgotten. Two tables say for most of them that they cannot close:
*signatures*, some bits per node for what it is joined to, which have none in common when two nodes have no neighbour
in common; and *marks*, a bit per pair (see `kernels`). What neither rules out is searched for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from omnigraph.engine.read import kernels
from omnigraph.engine.read.graph.adjacency import Adjacency, Part
from omnigraph.engine.read.kernels import (
    Bools,
    Bytes,
    Csr,
    Ints,
    marks_at,
    pair_marks,
    pair_places,
    plain_degrees,
    set_bits,
    slot_starts,
    start_places,
    take,
)

Words = npt.NDArray[np.uint64]
Table = TypeVar("Table", Bytes, Words)

FEW_ROWS = 512
"""Up to this many rows are listed from both ends and compared by sorting."""
LISTED_MAX = 4096
"""So many neighbours of the second end are listed whatever the first end has."""
BLOCK = 1 << 16
"""How many ways exist at a time."""
TABLES_FACTOR = 1
"""Rows that are at least one in this many of all nodes are worth making the tables for."""
SIGNATURE_WORDS_MAX = 16
SIGNATURE_SPREAD = 2
"""Bits of a signature for each pair of neighbours that two nodes of mean degree may have."""
PRUNED_SHARE = 4
"""Signatures are asked for as long as they rule out one in this many rows."""


def common_neighbours(
    first: Adjacency, nodes: Ints, second: Adjacency, others: Ints, allow: Callable[[int], None]
) -> tuple[Ints, Ints, int]:
    """For each row the nodes that are neighbours of `nodes` in one adjacency and of `others` in another.

    Returns (neighbour, index of the row) once for each, and how many ways were looked at. `allow` hears how many ways
    exist at once before they are made.
    """
    if not (len(nodes) and first.parts and second.parts):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), 0
    if len(nodes) <= FEW_ROWS:
        return _few(first, nodes, second, others, allow)
    is_large = len(nodes) * TABLES_FACTOR >= first.node_count
    if is_large:
        rows = _likely_rows(signatures_of(first), signatures_of(second), nodes, others)
    else:
        rows = np.arange(len(nodes), dtype=np.int64)
    sides = ((first, nodes, second, others), (second, others, first, nodes))
    lengths, counterparts = (side[0].pair_degrees(side[1][rows]) for side in sides)
    # Either end may be followed, as what both lead to is the same; where ends differ much, each row has its own choice.
    is_second = counterparts < lengths
    least = int(np.where(is_second, counterparts, lengths).sum())
    ways, other_ways = int(lengths.sum()), int(counterparts.sum())
    if least * 4 > 3 * min(ways, other_ways):
        is_second[:] = other_ways < ways
    found = _Ways()
    for side, chosen in zip(sides, (rows[~is_second], rows[is_second]), strict=True):
        if len(chosen):
            marks = marks_of(side[2]) if is_large or _has_marks(side[2]) else None
            found.add(*_closed(*side, chosen, marks, allow))
    return *found.take(), int(counterparts[is_second].sum() + lengths[~is_second].sum())


def _few(
    first: Adjacency, nodes: Ints, second: Adjacency, others: Ints, allow: Callable[[int], None]
) -> tuple[Ints, Ints, int]:
    """The same for a few rows, listed from both ends, or looked up when the second end leads to very many."""
    counterparts = int(np.add.reduce(plain_degrees(second.parts[0].csr, others)))
    if bool((nodes == nodes[0]).all()) and counterparts <= LISTED_MAX:
        # All rows begin at one node, as they do when a query asks about one.
        met, owner = second.neighbours(others, allow)
        return *_among(first.met(nodes[:1], allow), met, owner), len(met)
    met, owner = first.neighbours(nodes, allow)
    if counterparts <= max(4 * len(met), LISTED_MAX):
        return *_shared(met, owner, *second.neighbours(others, allow)), len(met)
    joined = second.has_pairs(others[owner], met).nonzero()[0]
    return met[joined], owner[joined], len(met)


def _among(allowed: Ints, met: Ints, owner: Ints) -> tuple[Ints, Ints]:
    """The (neighbour, row) pairs whose neighbour is one of those allowed."""
    if not len(allowed):
        return met[:0], owner[:0]
    allowed.sort()
    places = allowed.searchsorted(met)
    kept = (take(allowed, places) == met).nonzero()[0]
    return met[kept], owner[kept]


def _shared(met: Ints, owner: Ints, other_met: Ints, other_owner: Ints) -> tuple[Ints, Ints]:
    """The (neighbour, row) pairs that are in both lists, each of which has no pair twice."""
    if not len(met) or not len(other_met):
        return met[:0], owner[:0]
    bound = max(int(met.max()), int(other_met.max())) + 1
    keys = np.concatenate((owner * bound + met, other_owner * bound + other_met))
    keys.sort()
    both = keys[:-1][keys[1:] == keys[:-1]]
    return both % bound, both // bound


def _closed(
    first: Adjacency,
    nodes: Ints,
    second: Adjacency,
    others: Ints,
    rows: Ints,
    marks: Bytes | None,
    allow: Callable[[int], None],
) -> tuple[Ints, Ints]:
    """What remains of all ways that begin at some rows, made some at a time."""
    sure = _Ways()
    likely = _Ways()
    for part in first.parts:
        for block in _likely_ways(part, nodes, others, rows, marks, lambda more: allow(len(sure) + len(likely) + more)):
            likely.add(*block)
            if len(likely) >= kernels.PAIRS_BLOCK:
                sure.add(*_joined(second, others, *likely.take()))
    sure.add(*_joined(second, others, *likely.take()))
    return sure.take()


class _Ways:
    """(neighbour, row) pairs that are being collected."""

    def __init__(self) -> None:
        self._blocks: list[tuple[Ints, Ints]] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, met: Ints, owner: Ints) -> None:
        """Further ones."""
        self._blocks.append((met, owner))
        self._length += len(met)

    def take(self) -> tuple[Ints, Ints]:
        """All of them so far, which are then forgotten."""
        blocks = self._blocks or [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))]
        self._blocks, self._length = [], 0
        return np.concatenate([met for met, _ in blocks]), np.concatenate([owner for _, owner in blocks])


def _joined(adjacency: Adjacency, others: Ints, met: Ints, owner: Ints) -> tuple[Ints, Ints]:
    joined = np.flatnonzero(adjacency.has_pairs(others[owner], met))
    return met[joined], owner[joined]


def _likely_ways(
    part: Part, nodes: Ints, others: Ints, rows: Ints, marks: Bytes | None, allow: Callable[[int], None]
) -> Iterator[tuple[Ints, Ints]]:
    """(neighbour, row) of the ways along one part that no mark rules out, block by block."""
    csr = part.csr
    nodes = nodes[rows]
    if len(nodes) and int(nodes.max()) >= csr.node_count:
        rows, nodes = rows[nodes < csr.node_count], nodes[nodes < csr.node_count]
    begins = csr.offsets[nodes]
    lengths = csr.offsets[1:][nodes]
    lengths -= begins
    ends = np.cumsum(lengths)
    begins += lengths
    begins -= ends
    places = start_places(others[rows]) if marks is not None else None
    counting = np.arange(BLOCK, dtype=np.int64)
    low = done = 0
    while low < len(rows):
        high = max(int(ends.searchsorted(done + BLOCK, side="right")), low + 1)
        total = int(ends[high - 1]) - done
        allow(total)
        repeats = lengths[low:high]
        slots = np.repeat(begins[low:high] + done, repeats)
        # One node may have more ways than a block has.
        places_in_block = counting[:total] if total <= BLOCK else np.arange(total, dtype=np.int64)
        slots += places_in_block
        met = take(csr.neighbours, slots)
        keep: Bools | None = None if part.first is None else take(part.first, slots)
        if marks is not None and places is not None:
            wanted = np.repeat(places[low:high], repeats)
            wanted += met
            marked = marks_at(marks, wanted)
            keep = marked if keep is None else marked & keep
        chosen = places_in_block if keep is None else np.flatnonzero(keep)
        yield met[chosen].astype(np.int64), rows[low + ends[low:high].searchsorted(chosen + done, side="right")]
        low, done = high, done + total


# --- tables kept with the adjacency -----------------------------------------------------------------------------------


def marks_of(adjacency: Adjacency) -> Bytes:
    """The marks of all pairs of all parts, dead ones among them."""
    large, *small = (part.csr for part in adjacency.parts)
    if large.tables.marks is None:
        large.tables.marks = pair_marks(large)
    if not small:
        return large.tables.marks
    if adjacency.tables.marks is None:
        adjacency.tables.marks = _with_later(large.tables.marks, small, _add_marks)
    return adjacency.tables.marks


def signatures_of(adjacency: Adjacency) -> Words | None:
    """The signatures of all nodes; None where nodes have so many neighbours that most would have bits in common."""
    if not adjacency.parts or signature_words(adjacency.parts[0].csr) > SIGNATURE_WORDS_MAX:
        return None
    large, *small = (part.csr for part in adjacency.parts)
    if large.tables.signatures is None:
        large.tables.signatures = _signatures(large)
    if not small:
        return large.tables.signatures
    if adjacency.tables.signatures is None:
        adjacency.tables.signatures = _with_later(large.tables.signatures, small, _add_signatures)
    return adjacency.tables.signatures


def _with_later(table: Table, small: list[Csr], add: Callable[[Table, Csr], Table]) -> Table:
    """The table of the large part, which stays with it, copied and given the later edges as well."""
    held = table.copy()
    for csr in small:
        held = add(held, csr)
    return held


def _has_marks(adjacency: Adjacency) -> bool:
    return bool(adjacency.parts) and adjacency.parts[0].csr.tables.marks is not None


def _add_marks(marks: Bytes, csr: Csr) -> Bytes:
    set_bits(marks, pair_places(slot_starts(csr), csr.neighbours))
    return marks


def signature_words(csr: Csr) -> int:
    """How many words a signature has, by the mean degree: a power of two."""
    degree = len(csr.neighbours) / max(csr.start_bound, 1)
    return 1 << max(int(degree * degree * SIGNATURE_SPREAD / 64), 0).bit_length()


def _signatures(csr: Csr) -> Words:
    empty = np.zeros((csr.node_count, signature_words(csr)), dtype=np.uint64)
    return _add_signatures(empty, csr)


def _add_signatures(signatures: Words, csr: Csr) -> Words:
    if len(signatures) < csr.node_count:
        more = np.zeros((csr.node_count - len(signatures), signatures.shape[1]), dtype=np.uint64)
        signatures = np.concatenate((signatures, more))
    bits = signatures.shape[1] * 64
    mixed = csr.neighbours.astype(np.uint64) * np.uint64(0x9E3779B1)
    mixed >>= np.uint64(13)
    mixed &= np.uint64(bits - 1)
    set_bits(signatures.reshape(-1).view(np.uint8), slot_starts(csr) * bits + mixed.astype(np.int64))
    return signatures


def _likely_rows(first: Words | None, second: Words | None, nodes: Ints, others: Ints) -> Ints:
    """The rows whose two nodes may have a neighbour in common."""
    if first is None or second is None or first.shape[1] != second.shape[1]:
        return np.arange(len(nodes), dtype=np.int64)
    kept: list[Ints] = []
    step = max(BLOCK // first.shape[1], 1)
    for begin in range(0, len(nodes), step):
        near, far = nodes[begin : begin + step], others[begin : begin + step]
        outside = (near >= len(first)) | (far >= len(second))
        shared = take(first, near)
        shared &= take(second, far)
        together = shared[:, 0]
        for word in range(1, shared.shape[1]):
            together = together | shared[:, word]
        together[outside] = 0
        likely = np.flatnonzero(together)
        if not begin and len(likely) * PRUNED_SHARE > len(near) * (PRUNED_SHARE - 1):
            return np.arange(len(nodes), dtype=np.int64)
        kept.append(likely + begin)
    return np.concatenate(kept)
