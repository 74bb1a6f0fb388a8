"""Array work on positions: compressed adjacency, expansion, breadth-first search, joins.

Everything takes and returns numpy arrays of integers; nothing here knows of tables, types or queries. A *slot* is one
entry of a compressed adjacency; a *pair* is a (start, neighbour) combination, met once however many slots hold it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from omnigraph.engine.storage.sorted_unique import sorted_unique

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
AnyInts = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

VISITED_CELLS_MAX = 1 << 26
"""How many (start, node) cells one breadth-first pass marks at a time: one byte each."""

PAIRS_BLOCK = 1 << 17
"""How many pairs are looked up at a time."""
FEW_SLOTS_FACTOR = 32
"""Slots that are fewer than one in this many nodes are looked up one by one."""
WIDE_SHARE = 16
"""A frontier of more than one in so many nodes is collected by marking them."""
MARKS_PER_SLOT = 32
MARKS_BITS_MIN = 16
MARKS_BITS_MAX = 28
"""At most this many marks, as a power of two: one bit each."""


class PairTables(Struct):
    """Tables that were derived from slots when they were first asked for, because they spare most searches."""

    marks: Bytes | None = None
    """See `pair_marks`."""
    signatures: npt.NDArray[np.uint64] | None = None
    """See `intersect.signatures_of`."""


class Csr(Struct, frozen=True, eq=False):
    """Slots grouped by start: those of node `i` are `offsets[i]` up to `offsets[i + 1]`, by neighbour."""

    offsets: AnyInts
    neighbours: npt.NDArray[np.int32]
    rows: AnyInts
    """For each slot the row of its edge, in the numbering of the arrays the adjacency was built from."""
    has_parallel: bool
    """Whether some pair has more than one slot."""
    start_bound: int
    """Above every start that has a slot."""
    neighbour_bound: int
    """Above every neighbour."""
    tables: PairTables = field(default_factory=PairTables)

    @property
    def node_count(self) -> int:
        """How many starts are addressable."""
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        """What the arrays occupy."""
        return int(self.offsets.nbytes + self.neighbours.nbytes + self.rows.nbytes)


def build_csr(starts: AnyInts, neighbours: AnyInts, rows: AnyInts, node_count: int = 0) -> Csr:
    """Group edges by start, with the neighbours of each start ascending, and parallel edges in the order of rows.

    At least `node_count` starts are addressable, whether they have edges or not.
    """
    start_bound = int(starts.max(initial=-1)) + 1
    bound = int(neighbours.max(initial=-1)) + 1
    row_bound = int(rows.max(initial=-1)) + 1
    widths = [(limit - 1).bit_length() if limit else 0 for limit in (start_bound, bound, row_bound)]
    ordered_key: AnyInts
    if sum(widths) <= 64:
        ordered_key, neighbours, rows = _sort_packed(starts, neighbours, rows, widths)
    else:
        # One sort by a combined key beats a two-key lexsort several times over.
        key = starts.astype(np.int64) * max(bound, 1) + neighbours
        order = np.argsort(key, kind="stable")
        ordered_key, neighbours, rows = key[order], neighbours[order], rows[order]
    offsets = np.zeros(max(start_bound, node_count) + 1, dtype=np.int64)
    if len(offsets) > 1:
        np.cumsum(np.bincount(starts, minlength=len(offsets) - 1), out=offsets[1:])
    has_parallel = bool(len(ordered_key) > 1 and np.any(ordered_key[1:] == ordered_key[:-1]))
    row_type = np.int32 if row_bound <= 2**31 else np.int64
    return Csr(
        offsets,
        neighbours.astype(np.int32, copy=False),
        rows.astype(row_type, copy=False),
        has_parallel,
        start_bound,
        bound,
    )


def _sort_packed(
    starts: AnyInts, neighbours: AnyInts, rows: AnyInts, widths: list[int]
) -> tuple[npt.NDArray[np.uint64], AnyInts, AnyInts]:
    """Sort edges as single integers, which is several times quicker than sorting an index of them.

    Returns the sorted (start, neighbour) keys, and the neighbours and rows in that order.
    """
    _, neighbour_bits, row_bits = (np.uint64(width) for width in widths)
    packed = starts.astype(np.uint64)
    packed <<= neighbour_bits
    packed |= neighbours.astype(np.uint64)
    packed <<= row_bits
    packed |= rows.astype(np.uint64)
    packed.sort()
    one = np.uint64(1)
    ordered_rows = (packed & ((one << row_bits) - one)).astype(np.int64 if widths[2] > 31 else np.int32)
    packed >>= row_bits
    return packed, (packed & ((one << neighbour_bits) - one)).astype(np.int32), ordered_rows


def slot_starts(csr: Csr) -> AnyInts:
    """The start of every slot, in slot order."""
    if len(csr.neighbours) * FEW_SLOTS_FACTOR < csr.node_count:
        return np.searchsorted(csr.offsets, np.arange(len(csr.neighbours)), side="right") - 1
    return np.repeat(np.arange(csr.node_count, dtype=np.int64), np.diff(csr.offsets))


def first_of_pair(csr: Csr, live: Bools | None) -> Bools | None:
    """Marks the slots that stand for their pair: the first live one. None when every slot does."""
    if not csr.has_parallel:
        return live
    starts = slot_starts(csr)
    where = np.flatnonzero(live) if live is not None else np.arange(len(starts))
    marks = np.zeros(len(starts), dtype=np.bool_)
    if len(where):
        new = np.ones(len(where), dtype=np.bool_)
        new[1:] = (starts[where][1:] != starts[where][:-1]) | (csr.neighbours[where][1:] != csr.neighbours[where][:-1])
        marks[where[new]] = True
    return marks


def ranges(begins: AnyInts, lengths: AnyInts) -> tuple[Ints, Ints]:
    """All integers of several ranges, one range after the other, with the number of the range each belongs to."""
    owner = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    return fill_ranges(begins, lengths, len(owner)), owner


def fill_ranges(begins: AnyInts, lengths: AnyInts, total: int) -> Ints:
    """All integers of several ranges, one range after the other; `total` is the sum of the lengths."""
    shift = begins - lengths.cumsum()
    shift += lengths
    filled: Ints = shift.repeat(lengths)
    filled += _COUNTING[:total] if total <= len(_COUNTING) else np.arange(total, dtype=np.int64)
    return filled


_COUNTING: Ints = np.arange(4096, dtype=np.int64)
_COUNTING.flags.writeable = False


def expand_met(csr: Csr, nodes: AnyInts, mask: Bools | None, allow: Callable[[int], None]) -> Ints:
    """The neighbours of the given nodes, one node after the other: `expand_slots` for whoever needs nothing else."""
    if len(nodes) == 1:
        node = int(nodes[0])
        if node >= csr.node_count:
            return _NONE
        begin, end = int(csr.offsets[node]), int(csr.offsets[node + 1])
        allow(end - begin)
        met = csr.neighbours[begin:end]
        return (met if mask is None else met[mask[begin:end]]).astype(np.int64)
    try:
        lengths = csr.offsets[1:][nodes]
    except IndexError:
        return expand_met(csr, nodes[nodes < csr.node_count], mask, allow)
    begins = csr.offsets[nodes]
    lengths -= begins
    total = int(np.add.reduce(lengths))
    if not total:
        return _NONE
    allow(total)
    slots = fill_ranges(begins, lengths, total)
    if mask is not None:
        slots = slots[mask[slots]]
    return csr.neighbours[slots].astype(np.int64)


def expand_slots(csr: Csr, nodes: AnyInts, mask: Bools | None, allow: Callable[[int], None]) -> tuple[Ints, Ints]:
    """The slots of each given node (those `mask` admits), and for each slot the index of the node it belongs to.

    `allow` is told how many slots there are, the masked ones included, and may refuse by raising.
    """
    if len(nodes) == 1:
        node = int(nodes[0])
        if node >= csr.node_count:
            return _NONE, _NONE
        begin, end = int(csr.offsets[node]), int(csr.offsets[node + 1])
        allow(end - begin)
        slots = np.arange(begin, end, dtype=np.int64)
        if mask is not None:
            slots = slots[mask[slots]]
        return slots, np.zeros(len(slots), dtype=np.int64)
    try:
        lengths = csr.offsets[1:][nodes]
    except IndexError:
        inside = np.flatnonzero(nodes < csr.node_count)
        slots, owner = expand_slots(csr, nodes[inside], mask, allow)
        return slots, inside[owner]
    begins = csr.offsets[nodes]
    lengths -= begins
    total = int(np.add.reduce(lengths))
    if not total:
        return _NONE, _NONE
    allow(total)
    slots, owner = fill_ranges(begins, lengths, total), np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    if mask is not None:
        keep = mask[slots]
        return slots[keep], owner[keep]
    return slots, owner


_NONE: Ints = np.empty(0, dtype=np.int64)


def plain_degrees(csr: Csr, nodes: AnyInts) -> Ints:
    """How many slots each of the given nodes has."""
    try:
        found: Ints = csr.offsets[1:][nodes]
    except IndexError:
        inside = nodes < csr.node_count
        found = np.zeros(len(nodes), dtype=np.int64)
        found[inside] = plain_degrees(csr, nodes[inside])
        return found
    found -= csr.offsets[nodes]
    return found


def sums_by_start(csr: Csr, values: AnyInts) -> Ints:
    """The sum of the values of each start's slots."""
    sums = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=sums[1:])
    return sums[csr.offsets[1:]] - sums[csr.offsets[:-1]]


def find_pairs(csr: Csr, starts: AnyInts, neighbours: AnyInts) -> Ints:
    """The first slot of each (start, neighbour) pair, or -1."""
    if csr.node_count == 0 or not len(csr.neighbours):
        return np.full(len(starts), -1, dtype=np.int64)
    if len(starts) <= PAIRS_BLOCK:
        return _search_pairs(csr, starts, neighbours)
    # Block by block, so that the arrays in between stay in the processor's cache.
    if len(starts) >= len(csr.neighbours) and csr.tables.marks is None:
        csr.tables.marks = pair_marks(csr)
    marks = csr.tables.marks
    found = np.full(len(starts), -1, dtype=np.int64)
    for begin in range(0, len(starts), PAIRS_BLOCK):
        block = slice(begin, begin + PAIRS_BLOCK)
        first, second = starts[block], neighbours[block]
        if marks is None:
            found[block] = _search_pairs(csr, first, second)
            continue
        likely = np.flatnonzero(marks_at(marks, pair_places(first, second)))
        found[begin + likely] = _search_pairs(csr, first[likely], second[likely])
    return found


def pair_marks(csr: Csr) -> Bytes:
    """A table of bits, set at the places of all pairs.

    A pair whose place has no mark is not there, which spares most searches.
    """
    size = 1 << min(max((len(csr.neighbours) * MARKS_PER_SLOT).bit_length(), MARKS_BITS_MIN), MARKS_BITS_MAX)
    marks = np.zeros(size >> 3, dtype=np.uint8)
    set_bits(marks, pair_places(slot_starts(csr), csr.neighbours))
    return marks


def start_places(starts: AnyInts) -> Ints:
    """What a start adds to the place of its pairs; a neighbour adds itself."""
    mixed = starts.astype(np.int64) * 0x9E3779B1
    mixed ^= mixed >> 29
    return mixed


def pair_places(starts: AnyInts, neighbours: AnyInts) -> Ints:
    """Where the marks of pairs are, in a table of any size; what is beyond its end begins anew."""
    places = start_places(starts)
    places += neighbours
    return places


def set_bits(table: Bytes, places: Ints) -> None:
    """Set the bits at some places; the table is a power of two long, or longer than every place."""
    places = places & ((len(table) << 3) - 1) if len(table) & (len(table) - 1) == 0 else places
    bits = places.astype(np.uint8) & 7
    rows = places >> 3
    for bit in range(8):
        # Every place of this round gets the same bit, so it does not matter that some occur twice.
        table[rows[bits == bit]] |= np.uint8(1 << bit)


def marks_at(table: Bytes, places: Ints) -> Bools:
    """Which places have their bit set; the table is a power of two long, and `places` is used up."""
    places &= (len(table) << 3) - 1
    bits = places.astype(np.uint8)
    bits &= 7
    places >>= 3
    found = take(table, places)
    found >>= bits
    found &= 1
    return found.view(np.bool_)


def take(array: npt.NDArray[Any], index: Ints) -> npt.NDArray[Any]:
    """The rows of an array at places known to be inside it, which need not be looked at twice."""
    return np.take(array, index, axis=0, mode="clip")


def _search_pairs(csr: Csr, starts: AnyInts, neighbours: AnyInts) -> Ints:
    """A binary search inside every start's slots at once."""
    inside = starts < csr.node_count
    safe = np.where(inside, starts, 0)
    low = csr.offsets[safe].astype(np.int64)
    end = csr.offsets[safe + 1].astype(np.int64)
    high = end.copy()
    longest = int((high - low).max()) if len(low) else 0
    last = len(csr.neighbours) - 1
    for _ in range(longest.bit_length()):
        middle = (low + high) >> 1
        below = (csr.neighbours[np.minimum(middle, last)] < neighbours) & (low < high)
        low = np.where(below, middle + 1, low)
        high = np.where(below, high, np.maximum(middle, low))
    found = inside & (low < end)
    found &= csr.neighbours[np.minimum(low, last)] == neighbours
    return np.where(found, low, -1)


def find_edges(csr: Csr, starts: AnyInts, neighbours: AnyInts, rows: AnyInts) -> Ints:
    """The slots of edges that are known to be there, given by their ends and rows; parallel ones are told apart."""
    slots = _search_pairs(csr, starts, neighbours)
    while len(wrong := np.flatnonzero(csr.rows[slots] != rows)):
        slots[wrong] += 1
    return slots


Neighbours = Callable[[Ints], tuple[Ints, Ints]]
"""Given nodes, returns (neighbour, index of the node it belongs to) for each pair."""


def shortest_distances(
    starts: Ints, neighbours: Neighbours, node_count: int, least: int, most: int
) -> tuple[Ints, Ints, Ints]:
    """Nodes whose least number of edges from a start lies in `least … most`; each start itself is at distance 0.

    Returns (node, index of the start, distance). `starts` should be distinct, as every one is searched on its own.
    """
    nodes_out: list[Ints] = []
    owners_out: list[Ints] = []
    distances_out: list[Ints] = []
    step = max(1, VISITED_CELLS_MAX // max(node_count, 1))
    for begin in range(0, len(starts), step):
        chunk = starts[begin : begin + step]
        visited = np.zeros(len(chunk) * node_count, dtype=np.bool_)
        frontier, owner = chunk, np.arange(len(chunk), dtype=np.int64)
        visited[owner * node_count + frontier] = True
        for distance in range(most + 1):
            if distance:
                frontier, owner = _next_frontier(frontier, owner, neighbours, visited, node_count)
            if not len(frontier):
                break
            if distance >= least:
                nodes_out.append(frontier)
                owners_out.append(owner + begin)
                distances_out.append(np.full(len(frontier), distance, dtype=np.int64))
    if not nodes_out:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, empty
    return np.concatenate(nodes_out), np.concatenate(owners_out), np.concatenate(distances_out)


def _next_frontier(
    frontier: Ints, owner: Ints, neighbours: Neighbours, visited: Bools, node_count: int
) -> tuple[Ints, Ints]:
    met, through = neighbours(frontier)
    cells = owner[through] * node_count + met
    cells = cells[~visited[cells]]
    visited[cells] = True
    if len(cells) > node_count // WIDE_SHARE and len(visited) == node_count:
        # A wide frontier of a single start: marking and collecting is cheaper than sorting.
        marks = np.zeros(node_count, dtype=np.bool_)
        marks[cells] = True
        fresh = np.flatnonzero(marks)
        return fresh, np.zeros(len(fresh), dtype=np.int64)
    cells = sorted_unique(cells)
    return cells % node_count, cells // node_count


def is_ascending(values: npt.NDArray[Any]) -> bool:
    """Whether each value is above the one before it."""
    return len(values) < 2 or bool((values[1:] > values[:-1]).all())


def distinct(columns: list[Ints], bounds: list[int]) -> tuple[Ints, Ints]:
    """Number the distinct rows of several columns: (first row of each group, group of each row).

    `bounds[i]` is above every value of column i, which does not matter for a single one. Groups are numbered in
    ascending order of their rows.
    """
    if not columns:
        raise ValueError("distinct needs at least one column")
    key = columns[0] if len(columns) == 1 else combine(columns, bounds)
    top = int(key.max(initial=-1)) + 1
    if 0 < top <= 8 * len(key):
        # A small range: marking which keys occur needs no sort.
        present = np.zeros(top, dtype=np.bool_)
        present[key] = True
        group = (present.cumsum() - 1)[key]
        first = np.empty(int(np.count_nonzero(present)), dtype=np.int64)
        first[group[::-1]] = np.arange(len(key) - 1, -1, -1)
        return first, group
    order = key.argsort(kind="stable")
    ordered = key[order]
    is_first = np.empty(len(key), dtype=np.bool_)
    is_first[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    group = np.empty(len(key), dtype=np.int64)
    group[order] = is_first.cumsum() - 1
    return order[is_first], group


def combine(columns: list[Ints], bounds: list[int]) -> Ints:
    """One integer per row that is equal, and ordered, as the tuple of the columns is; values must not be negative."""
    key = np.asarray(columns[0], dtype=np.int64)
    size = max(bounds[0], 1)
    for column, bound in zip(columns[1:], bounds[1:], strict=True):
        width = max(bound, 1)
        if size > (2**62) // width:
            # Re-number so that the product fits; the number of distinct values is at most the number of rows.
            _, key = np.unique(key, return_inverse=True)
            key = key.astype(np.int64).reshape(-1)
            size = len(key) + 1
        key = key * width + column
        size *= width
    return key
