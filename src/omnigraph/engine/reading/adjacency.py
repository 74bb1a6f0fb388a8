"""Who is joined to whom: compressed adjacency of one edge table, kept across versions.

A version is one large segment, marked where its edges are gone, plus a small segment of what came later; so the first
read after a small commit costs what the commit was, not what the table is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.engine.reading.kernels import (
    Bools,
    Csr,
    Ints,
    degrees,
    expand_met,
    expand_slots,
    find_pairs,
    first_of_pair,
    plain_degrees,
    slot_starts,
)
from omnigraph.engine.reading.segments import Direction, Segment, segments
from omnigraph.engine.reading.tables import EdgeView, NodeView

FEW_NODES_FACTOR = 16
"""Degrees of fewer than this share of the nodes are counted one by one instead of for all."""
ASSEMBLED_MAX = 6
"""Assembled versions kept per edge table version: three directions, for two versions of the nodes."""

Allow = Callable[[int], None]


def _anything(total: int) -> None:
    """Allows any number of rows."""


@dataclass(frozen=True)
class Part:
    """A segment as one version sees it."""

    csr: Csr
    live: Bools | None
    """Slots whose edge is in this version; None means all."""
    first: Bools | None
    """Slots that stand for their pair in this version; None means all."""
    row_starts: Ints
    """Local row of each fragment's first edge."""
    positions: Ints
    """Position, in this version, of each fragment's first edge."""

    def edge_positions(self, slots: Ints) -> Ints:
        """Where in this version's table the edges of slots are."""
        rows = self.csr.rows[slots].astype(np.int64)
        if len(self.row_starts) == 1:
            return np.asarray(rows + self.positions[0])
        owner = np.searchsorted(self.row_starts, rows, side="right") - 1
        return np.asarray(rows - self.row_starts[owner] + self.positions[owner])


@dataclass(frozen=True)
class Adjacency:
    """The edges of one version, followed in one direction."""

    parts: tuple[Part, ...]
    edge_count: int
    is_whole: bool = False
    """True when no edge was left out for want of an end."""
    _memo: dict[Any, Any] = field(default_factory=dict, compare=False)

    def met(self, nodes: npt.NDArray[Any], allow: Allow = _anything) -> Ints:
        """The neighbours of some nodes, once per pair, for whoever need not know which node led there."""
        if len(self.parts) == 1:
            (part,) = self.parts
            return expand_met(part.csr, nodes, part.first, allow)
        return _join([expand_met(part.csr, nodes, part.first, allow) for part in self.parts])

    def neighbours(self, nodes: npt.NDArray[Any], allow: Allow = _anything) -> tuple[Ints, Ints]:
        """(neighbour, index of the node) once per pair; `allow` hears the number of them before they are listed."""
        met, owners = [], []
        for part in self.parts:
            slots, owner = expand_slots(part.csr, nodes, part.first, allow)
            met.append(part.csr.neighbours[slots].astype(np.int64))
            owners.append(owner)
        return _join(met), _join(owners)

    def edges(self, nodes: npt.NDArray[Any], allow: Allow = _anything) -> tuple[Ints, Ints, Ints]:
        """(neighbour, index of the node, position of the edge) once per edge."""
        met, owners, positions = [], [], []
        for part in self.parts:
            slots, owner = expand_slots(part.csr, nodes, part.live, allow)
            met.append(part.csr.neighbours[slots].astype(np.int64))
            owners.append(owner)
            positions.append(part.edge_positions(slots))
        return _join(met), _join(owners), _join(positions)

    def has_pairs(self, starts: npt.NDArray[Any], neighbours: npt.NDArray[Any]) -> Bools:
        """Which pairs are joined by an edge."""
        found = np.zeros(len(starts), dtype=np.bool_)
        for part in self.parts:
            found |= _pairs_in(part, starts, neighbours)
        return found

    def pair_degrees(self, nodes: npt.NDArray[Any]) -> Ints:
        """How many neighbours each node has."""
        return self._degrees("pairs", nodes)

    def edge_degrees(self, nodes: npt.NDArray[Any]) -> Ints:
        """How many edges each node has."""
        return self._degrees("edges", nodes)

    def _degrees(self, kind: str, nodes: npt.NDArray[Any]) -> Ints:
        total: Ints | None = None
        for index, part in enumerate(self.parts):
            mask = part.first if kind == "pairs" else part.live
            if mask is None:
                found = plain_degrees(part.csr, nodes)
            else:
                found = self._masked_degrees((kind, index), part.csr, mask, nodes)
            total = found if total is None else total + found
        return np.zeros(len(nodes), dtype=np.int64) if total is None else total

    def _masked_degrees(self, key: tuple[str, int], csr: Csr, mask: Bools, nodes: npt.NDArray[Any]) -> Ints:
        known = self._memo.get(key)
        if known is None and len(nodes) * FEW_NODES_FACTOR < csr.node_count:
            _, owner = expand_slots(csr, nodes, mask, _anything)
            return np.bincount(owner, minlength=len(nodes))
        if known is None:
            known = self._memo[key] = degrees(csr, mask)
        if len(nodes) and int(nodes.max()) >= len(known):
            inside = nodes < len(known)
            found = np.zeros(len(nodes), dtype=np.int64)
            found[inside] = known[nodes[inside]]
            return found
        return np.asarray(known[nodes])

    def met_counts(self, kind: str) -> Ints:
        """How often each code is met when every node is followed once; `kind` is "pairs" or "edges"."""
        found: Ints | None = self._memo.get(("met", kind))
        if found is None:
            found = self._memo[("met", kind)] = self.flow(kind, None)
        return found

    def flow(self, kind: str, weights: npt.NDArray[np.float64] | None) -> Ints:
        """For each code the sum of the weights of the nodes that lead to it; weights are by code, None means one each.

        The caller sees to it that the sums are exact in double precision.
        """
        total = np.zeros(max((part.csr.neighbour_bound for part in self.parts), default=0), dtype=np.int64)
        for part in self.parts:
            mask = part.first if kind == "pairs" else part.live
            met = part.csr.neighbours if mask is None else part.csr.neighbours[mask]
            sums: npt.NDArray[Any] = np.bincount(met)
            if weights is not None:
                own = np.zeros(part.csr.node_count, dtype=np.float64)
                own[: len(weights)] = weights[: len(own)]
                carried = np.repeat(own, np.diff(part.csr.offsets))
                sums = np.bincount(met, weights=carried if mask is None else carried[mask])
            total[: len(sums)] += sums.astype(np.int64)
        return total

    def loops(self) -> Bools:
        """Marks, by code, the nodes that have an edge to themselves."""
        found = self._memo.get("loops")
        if found is None:
            most = max((part.csr.start_bound for part in self.parts), default=0)
            found = np.zeros(most, dtype=np.bool_)
            for part in self.parts:
                starts = slot_starts(part.csr)
                same = starts == part.csr.neighbours
                if part.live is not None:
                    same &= part.live
                found[starts[same]] = True
            self._memo["loops"] = found
        return found


def _join(arrays: list[Ints]) -> Ints:
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)


def _pairs_in(part: Part, starts: npt.NDArray[Any], neighbours: npt.NDArray[Any]) -> Bools:
    """Whether the pair has a live slot; the first slot of a pair may be dead while a parallel one lives."""
    csr = part.csr
    slots = find_pairs(csr, starts, neighbours)
    found = slots >= 0
    if part.live is None:
        return found
    alive = found & part.live[np.where(found, slots, 0)]
    if not csr.has_parallel:
        return alive
    open_rows = np.flatnonzero(found & ~alive)
    slot = slots[open_rows]
    last = len(csr.neighbours) - 1
    while len(open_rows):
        following = slot + 1
        same = (following <= last) & (following < csr.offsets[starts[open_rows] + 1])
        same &= csr.neighbours[np.minimum(following, last)] == neighbours[open_rows]
        open_rows, slot = open_rows[same], following[same]
        hit = part.live[slot]
        alive[open_rows[hit]] = True
        open_rows, slot = open_rows[~hit], slot[~hit]
    return alive


# --- assembling a version ---------------------------------------------------------------------------------------------


def adjacency(edges: EdgeView, sources: NodeView, targets: NodeView, direction: Direction) -> Adjacency:
    """The edges of one version in one direction; only edges whose two ends exist in the snapshot take part."""
    key = ("adjacency", edges.key, sources.key, targets.key, sources.dictionary.lineage, direction)
    memo: dict[Any, Adjacency] = edges.handle.memo.setdefault("adjacency", {})
    found = memo.get(key)
    if found is None:
        found = memo[key] = _assembled_before(memo, key, sources, targets) or _assemble(
            edges, sources, targets, direction
        )
        for old in list(memo)[:-ASSEMBLED_MAX]:
            memo.pop(old, None)
    return found


def _assembled_before(memo: dict[Any, Adjacency], key: Any, sources: NodeView, targets: NodeView) -> Adjacency | None:
    """The same edges as assembled for other versions of the nodes, when no edge can dangle in either."""
    if not (sources.is_complete and targets.is_complete):
        return None
    bound = min(sources.code_bound, targets.code_bound)
    for other, found in list(memo.items()):
        same = other[1] == key[1] and other[4:] == key[4:] and found.is_whole
        if same and all(max(part.csr.start_bound, part.csr.neighbour_bound) <= bound for part in found.parts):
            return found
    return None


def _assemble(edges: EdgeView, sources: NodeView, targets: NodeView, direction: Direction) -> Adjacency:
    if not edges.fragments:
        return Adjacency((), 0)
    base, overlay = segments(edges, sources, targets, direction)
    starts, ends = (targets, sources) if direction is Direction.IN else (sources, targets)
    parts: list[Part] = []
    is_whole = True
    for segment in (base, overlay):
        if segment is None or not len(segment):
            continue
        seen = _part(segment, edges, direction)
        part = _without_dangling(seen, starts, ends)
        is_whole = is_whole and part is seen
        if parts:
            part = _without_shadowed(part, parts)
        parts.append(part)
    return Adjacency(tuple(parts), edges.live_count, is_whole)


def _part(segment: Segment, edges: EdgeView, direction: Direction) -> Part:
    here = {fragment.files: index for index, fragment in enumerate(edges.fragments)}
    positions = np.full(len(segment.fragments), -1, dtype=np.int64)
    dead: list[Ints] = []
    for index, files in enumerate(segment.fragments):
        start, end = int(segment.starts[index]), int(segment.starts[index + 1])
        place = here.get(files)
        if place is None:
            dead.append(np.arange(start, end, dtype=np.int64))
            continue
        positions[index] = edges.starts[place]
        if edges.fragments[place].deleted_rows:
            dead.append(start + edges.deleted_offsets(edges.fragments[place]))
    csr = segment.csr(direction)
    row_starts = segment.starts[:-1]
    if not dead:
        return Part(csr, None, segment.first(direction), row_starts, positions)
    gone = np.zeros(len(segment), dtype=np.bool_)
    gone[np.concatenate(dead)] = True
    live = ~gone[csr.rows]
    return Part(csr, live, first_of_pair(csr, live), row_starts, positions)


def _without_dangling(part: Part, starts: NodeView, ends: NodeView) -> Part:
    """Leave out edges to nodes this snapshot does not have; a sound graph has none, and then nothing changes."""
    csr = part.csr
    inside = csr.start_bound <= starts.code_bound and csr.neighbour_bound <= ends.code_bound
    if inside and starts.is_complete and ends.is_complete:
        return part
    sound = starts.present(slot_starts(csr)) & ends.present(csr.neighbours.astype(np.int64))
    live = sound if part.live is None else sound & part.live
    if bool(live.all()) or (part.live is not None and np.array_equal(live, part.live)):
        return part
    return Part(csr, live, first_of_pair(csr, live), part.row_starts, part.positions)


def _without_shadowed(part: Part, earlier: list[Part]) -> Part:
    """A pair that an earlier part already has is not met a second time."""
    csr = part.csr
    starts, neighbours = slot_starts(csr), csr.neighbours.astype(np.int64)
    shadowed = np.zeros(len(starts), dtype=np.bool_)
    for other in earlier:
        inside = np.flatnonzero(starts < other.csr.node_count)
        shadowed[inside] |= _pairs_in(other, starts[inside], neighbours[inside])
    if not shadowed.any():
        return part
    first = ~shadowed if part.first is None else part.first & ~shadowed
    return Part(csr, part.live, first, part.row_starts, part.positions)
