"""Who is joined to whom: the compressed adjacency of one version of an edge table, and what can be asked of it.

A version is one large part, marked where its edges are gone, and a small part of what came later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from omnigraph.engine.read.kernels import (
    Bools,
    Csr,
    Ints,
    PairTables,
    expand_met,
    expand_slots,
    find_pairs,
    plain_degrees,
    slot_starts,
    sums_by_start,
)

FEW_NODES_FACTOR = 16
"""Degrees of fewer than this share of the nodes are counted one by one instead of for all."""

EXACT_MAX = float(1 << 60)
"""Sums below it, added in double precision, are certain to fit into an integer."""

Allow = Callable[[int], None]


def _anything(total: int) -> None:
    """Allows any number of rows."""


class Part(Struct, frozen=True):
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


class Derived(Struct):
    """What was derived from the edges of one version when it was first asked for; a kind is "pairs" or "edges"."""

    degrees: dict[tuple[str, int], Ints] = field(default_factory=dict)
    """By kind and number of the part."""
    totals: dict[str, int] = field(default_factory=dict)
    met: dict[str, Ints] = field(default_factory=dict)
    loops: Bools | None = None


class Adjacency(Struct, frozen=True, eq=False):
    """The edges of one version, followed in one direction."""

    parts: tuple[Part, ...]
    is_whole: bool = False
    """True when no edge was left out for want of an end."""
    derived: Derived = field(default_factory=Derived)
    tables: PairTables = field(default_factory=PairTables)
    """Where there are small parts, the tables of the large one with their edges added."""

    @property
    def node_count(self) -> int:
        """How many starts the large part can address."""
        return self.parts[0].csr.node_count if self.parts else 0

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
            met.append(part.csr.neighbours[slots].astype(np.int64) if len(slots) else slots)
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
            found |= pairs_in(part, starts, neighbours)
        return found

    def pair_degrees(self, nodes: npt.NDArray[Any]) -> Ints:
        """How many neighbours each node has."""
        return self._degrees("pairs", nodes)

    def edge_degrees(self, nodes: npt.NDArray[Any]) -> Ints:
        """How many edges each node has."""
        return self._degrees("edges", nodes)

    def degree(self, kind: str, node: int) -> int:
        """How many neighbours or edges one node has; `kind` is "pairs" or "edges"."""
        found = 0
        for part in self.parts:
            if node < part.csr.node_count:
                begin, end = int(part.csr.offsets[node]), int(part.csr.offsets[node + 1])
                mask = part.first if kind == "pairs" else part.live
                if end > begin:
                    found += end - begin if mask is None else int(np.count_nonzero(mask[begin:end]))
        return found

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
        known = self.derived.degrees.get(key)
        if known is None and len(nodes) * FEW_NODES_FACTOR < csr.node_count:
            _, owner = expand_slots(csr, nodes, mask, _anything)
            return np.bincount(owner, minlength=len(nodes))
        if known is None:
            known = self.derived.degrees[key] = sums_by_start(csr, mask)
        if len(nodes) and int(nodes.max()) >= len(known):
            inside = nodes < len(known)
            found = np.zeros(len(nodes), dtype=np.int64)
            found[inside] = known[nodes[inside]]
            return found
        return np.asarray(known[nodes])

    def total(self, kind: str) -> int:
        """How many there are in all; `kind` is "pairs" or "edges"."""
        found = self.derived.totals.get(kind)
        if found is None:
            masks = ((part, part.first if kind == "pairs" else part.live) for part in self.parts)
            counts = (len(part.csr.neighbours) if mask is None else np.count_nonzero(mask) for part, mask in masks)
            found = self.derived.totals[kind] = int(sum(counts))
        return found

    def met_counts(self, kind: str) -> Ints:
        """How often each code is met when every node is followed once; `kind` is "pairs" or "edges"."""
        found = self.derived.met.get(kind)
        if found is None:
            found = self.derived.met[kind] = self.flow(kind, None)
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

    def pulled(self, kind: str, values: Ints | None, bound: int) -> Ints | None:
        """For each code below `bound` the sum of the values of its neighbours; None for `values` means one each.

        None when a sum might not fit; `kind` is "pairs" or "edges".
        """
        total = np.zeros(bound, dtype=np.int64)
        for part in self.parts:
            mask = part.first if kind == "pairs" else part.live
            if values is None:
                sums = np.diff(part.csr.offsets) if mask is None else sums_by_start(part.csr, mask)
            else:
                held = np.zeros(max(len(values), part.csr.neighbour_bound), dtype=np.int64)
                held[: len(values)] = values
                met = held[part.csr.neighbours]
                if float(met.sum(dtype=np.float64)) >= EXACT_MAX:
                    return None
                sums = sums_by_start(part.csr, met if mask is None else np.where(mask, met, 0))
            total[: len(sums)] += sums[:bound]
        return total

    def loops(self) -> Bools:
        """Marks, by code, the nodes that have an edge to themselves."""
        found = self.derived.loops
        if found is None:
            most = max((part.csr.start_bound for part in self.parts), default=0)
            found = np.zeros(most, dtype=np.bool_)
            for part in self.parts:
                starts = slot_starts(part.csr)
                same = starts == part.csr.neighbours
                if part.live is not None:
                    same &= part.live
                found[starts[same]] = True
            self.derived.loops = found
        return found


def _join(arrays: list[Ints]) -> Ints:
    if len(arrays) > 1:
        arrays = [array for array in arrays if len(array)] or arrays[:1]
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)


def pairs_in(part: Part, starts: npt.NDArray[Any], neighbours: npt.NDArray[Any]) -> Bools:
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
