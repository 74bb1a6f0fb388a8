"""Adjacency of a version, put together from segments and from what the version before it was.

Segments never change; what belongs to a version is which of their edges are gone, and which lead to nodes that are not
there. Both are taken over from the version that was assembled last, so that the first read after a small commit costs
what the commit was, not what the table is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from omnigraph.engine.read.columns.edges import EdgeView, Ends
from omnigraph.engine.read.columns.nodes import NodeView
from omnigraph.engine.read.graph.adjacency import Adjacency, Part, pairs_in
from omnigraph.engine.read.graph.segments import DamagedSegmentError, Direction, Segment, renew, segments
from omnigraph.engine.read.kernels import Bools, Csr, Ints, expand_slots, find_edges, first_of_pair, slot_starts
from omnigraph.engine.storage.handle import FragmentInfo

ASSEMBLED_MAX = 6
"""Assembled versions kept per edge table version: three directions, for two versions of the nodes."""
NEWLY_DEAD_SHARE = 16
"""When more than one in this many edges died since, marking all of them anew is as quick."""


class _Before(Struct, frozen=True):
    """The large part of the version assembled last, in one direction, when no edge of it dangled."""

    segment: Segment
    fragments: tuple[FragmentInfo, ...]
    part: Part
    dead: DeadSlots
    starts: Present
    ends: Present


class DeadSlots(Struct, frozen=True):
    """How many slots of a segment are dead, by the node they lead to; None while none is."""

    by_neighbour: npt.NDArray[np.int32] | None

    @classmethod
    def of(cls, csr: Csr, live: Bools | None) -> DeadSlots:
        """Those that marks leave out."""
        if live is None:
            return cls(None)
        counts = np.bincount(csr.neighbours[~live], minlength=csr.neighbour_bound)
        return cls(counts.astype(np.int32))

    def with_more(self, csr: Csr, slots: Ints) -> DeadSlots:
        """After further slots have died."""
        if not len(slots):
            return self
        counts = self.by_neighbour
        counts = np.zeros(csr.neighbour_bound, dtype=np.int32) if counts is None else counts.copy()
        np.add.at(counts, csr.neighbours[slots], 1)
        return DeadSlots(counts)

    def are_all_of(self, segment: Segment, direction: Direction, neighbours: Ints) -> bool:
        """Whether no live slot leads to one of some nodes."""
        slots = segment.met(direction)
        inside = neighbours[neighbours < len(slots)]
        dead = 0 if self.by_neighbour is None else self.by_neighbour[inside]
        return bool(np.all(slots[inside] == dead))


class Present(Struct, frozen=True):
    """Which codes were nodes of a version: all below a bound, or those with a position."""

    bound: int
    positions: npt.NDArray[np.int32] | None

    @classmethod
    def of(cls, view: NodeView) -> Present:
        """Those of a view."""
        return cls(view.code_bound, None if view.is_complete else view.positions)

    def gone_in(self, view: NodeView) -> Ints:
        """The codes that were nodes then and are not nodes of another version."""
        if view.is_complete and self.bound <= view.code_bound:
            return np.empty(0, dtype=np.int64)
        now = view.positions[: self.bound]
        gone = now < 0
        if self.positions is not None:
            gone &= self.positions[: len(now)] >= 0
        return np.concatenate((np.flatnonzero(gone), np.arange(len(now), self.bound)))


def adjacency(edges: EdgeView, sources: NodeView, targets: NodeView, direction: Direction) -> Adjacency:
    """The edges of one version in one direction; only edges whose two ends exist in the snapshot take part."""
    lineages = (sources.dictionary.lineage, targets.dictionary.lineage)
    ends = Ends(sources.key, targets.key, *lineages, direction.value)
    found = edges.assembled.get(ends)
    if found is None:
        found = _assembled_before(edges, ends, sources, targets)
        if found is None:
            try:
                found = _assemble(edges, sources, targets, direction)
            except DamagedSegmentError:
                renew(edges, sources, targets)
                found = _assemble(edges, sources, targets, direction)
        edges.assembled[ends] = found
        for old in list(edges.assembled)[:-ASSEMBLED_MAX]:
            edges.assembled.pop(old, None)
    return found


def _assembled_before(edges: EdgeView, ends: Ends, sources: NodeView, targets: NodeView) -> Adjacency | None:
    """The same edges as assembled for other versions of the nodes, when no edge can dangle in either."""
    if not (sources.is_complete and targets.is_complete):
        return None
    bound = min(sources.code_bound, targets.code_bound)
    for other, found in list(edges.assembled.items()):
        is_same = replace(other, sources=ends.sources, targets=ends.targets) == ends and found.is_whole
        if is_same and all(max(part.csr.start_bound, part.csr.neighbour_bound) <= bound for part in found.parts):
            return found
    return None


def _assemble(edges: EdgeView, sources: NodeView, targets: NodeView, direction: Direction) -> Adjacency:
    if not edges.fragments:
        return Adjacency(())
    base, overlay = segments(edges, sources, targets, direction)
    starts, ends = (targets, sources) if direction is Direction.IN else (sources, targets)
    key = ("assembled", edges.handle.uri, sources.dictionary.lineage, targets.dictionary.lineage, direction.value)
    before: _Before | None = edges.cache.get(key)
    if before is not None and before.segment is not base:
        before = None
    parts: list[Part] = []
    is_whole = True
    for segment in (base, overlay):
        if segment is None or not len(segment):
            continue
        seen, dead, held = _part(segment, edges, direction, before if segment is base else None)
        part = _without_dangling(seen, starts, ends, None if held is None else (held, dead, direction))
        is_whole = is_whole and part is seen
        if segment is base and part is seen:
            made = _Before(base, edges.fragments, part, dead, Present.of(starts), Present.of(ends))
            edges.cache.put(key, made, 4096 if part.live is None else 4096 + 2 * int(part.live.nbytes))
        if parts:
            part = _without_shadowed(part, parts)
        parts.append(part)
    return Adjacency(tuple(parts), is_whole)


# --- edges that are gone ----------------------------------------------------------------------------------------------


def _part(
    segment: Segment, edges: EdgeView, direction: Direction, before: _Before | None
) -> tuple[Part, DeadSlots, _Before | None]:
    """A segment as a version sees it, and what it goes on from: None when it was marked anew, as edges came back."""
    here = {fragment.files: index for index, fragment in enumerate(edges.fragments)}
    places = [here.get(files) for files in segment.fragments]
    positions = np.array([-1 if place is None else edges.starts[place] for place in places], dtype=np.int64)
    csr, row_starts = segment.csr(direction), segment.starts[:-1]
    fresh = None if before is None else _newly_dead(segment, edges, places, before)
    if before is not None and fresh is not None and len(fresh) * NEWLY_DEAD_SHARE <= len(segment):
        live, first, slots = before.part.live, before.part.first, np.empty(0, dtype=np.int64)
        if len(fresh):
            live = np.ones(len(csr.neighbours), dtype=np.bool_) if live is None else live.copy()
            slots = _slots_of(segment, csr, direction, fresh)
            live[slots] = False
            first = first_of_pair(csr, live)
        return Part(csr, live, first, row_starts, positions), before.dead.with_more(csr, slots), before
    dead = [_dead_rows(segment, edges, index, place) for index, place in enumerate(places)]
    rows = np.concatenate([part for part in dead if part is not None] or [np.empty(0, dtype=np.int64)])
    if not len(rows):
        return Part(csr, None, segment.first(direction), row_starts, positions), DeadSlots(None), None
    gone = np.zeros(len(segment), dtype=np.bool_)
    gone[rows] = True
    live = ~gone[csr.rows]
    return Part(csr, live, first_of_pair(csr, live), row_starts, positions), DeadSlots.of(csr, live), None


def _dead_rows(segment: Segment, edges: EdgeView, index: int, place: int | None) -> Ints | None:
    """The local rows of one fragment of a segment that a version does not have."""
    start, end = int(segment.starts[index]), int(segment.starts[index + 1])
    if place is None:
        return np.arange(start, end, dtype=np.int64)
    fragment = edges.fragments[place]
    return start + edges.deleted_offsets(fragment) if fragment.deleted_rows else None


def _newly_dead(segment: Segment, edges: EdgeView, places: list[int | None], before: _Before) -> Ints | None:
    """The local rows that died since the version before; None when some came back, or nobody remembers."""
    then = {fragment.files: fragment for fragment in before.fragments}
    fresh: list[Ints] = [np.empty(0, dtype=np.int64)]
    for index, (files, place) in enumerate(zip(segment.fragments, places, strict=True)):
        old = then.get(files)
        now = None if place is None else edges.fragments[place]
        if old is None:
            if now is not None:
                return None
            continue
        if now is not None and now.deletion_key == old.deletion_key:
            continue
        rows = _dead_rows(segment, edges, index, place)
        if old.deleted_rows:
            deleted_then = edges.deleted_then(old)
            if deleted_then is None:
                return None
            known = int(segment.starts[index]) + deleted_then
            kept = np.empty(0, dtype=np.int64) if rows is None else np.setdiff1d(rows, known, assume_unique=True)
            if rows is None or len(kept) != len(rows) - len(known):
                return None
            rows = kept
        if rows is not None:
            fresh.append(rows)
    return np.concatenate(fresh)


def _slots_of(segment: Segment, csr: Csr, direction: Direction, rows: Ints) -> Ints:
    """The slots of some local rows in one direction."""
    sources, targets = (end[rows].astype(np.int64) for end in segment.ends)
    if direction is Direction.OUT:
        return find_edges(csr, sources, targets, rows)
    if direction is Direction.IN:
        return find_edges(csr, targets, sources, rows)
    back = sources != targets
    return np.concatenate(
        (find_edges(csr, sources, targets, rows), find_edges(csr, targets[back], sources[back], rows[back]))
    )


# --- nodes that are gone ----------------------------------------------------------------------------------------------


def _without_dangling(
    part: Part, starts: NodeView, ends: NodeView, known: tuple[_Before, DeadSlots, Direction] | None
) -> Part:
    """Leave out edges to nodes this snapshot does not have; a sound graph has none, and then nothing changes."""
    csr = part.csr
    inside = csr.start_bound <= starts.code_bound and csr.neighbour_bound <= ends.code_bound
    if inside and starts.is_complete and ends.is_complete:
        return part
    if known is not None:
        # No edge dangled then, so only those of nodes that have gone since can dangle now.
        before, dead, direction = known
        neighbours = before.ends.gone_in(ends)
        if len(neighbours) and dead.are_all_of(before.segment, direction, neighbours):
            neighbours = neighbours[:0]
        touched = _touching(csr, before.starts.gone_in(starts), neighbours)
        if part.live is not None:
            touched = touched[part.live[touched]]
        if not len(touched):
            return part
        live = np.ones(len(csr.neighbours), dtype=np.bool_) if part.live is None else part.live.copy()
        live[touched] = False
    else:
        sound = starts.present(slot_starts(csr)) & ends.present(csr.neighbours.astype(np.int64))
        live = sound if part.live is None else sound & part.live
        if bool(live.all()) or (part.live is not None and np.array_equal(live, part.live)):
            return part
    return Part(csr, live, first_of_pair(csr, live), part.row_starts, part.positions)


def _touching(csr: Csr, starts: Ints, neighbours: Ints) -> Ints:
    """The slots of edges that begin at one of some nodes or lead to one of others."""
    found = [expand_slots(csr, starts, None, _anything)[0]] if len(starts) else []
    inside = neighbours[neighbours < csr.neighbour_bound]
    if len(inside):
        marks: Bools = np.zeros(csr.neighbour_bound, dtype=np.bool_)
        marks[inside] = True
        found.append(np.flatnonzero(marks[csr.neighbours]))
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _anything(total: int) -> None:
    """Allows any number of slots."""


def _without_shadowed(part: Part, earlier: list[Part]) -> Part:
    """A pair that an earlier part already has is not met a second time."""
    csr = part.csr
    starts, neighbours = slot_starts(csr), csr.neighbours.astype(np.int64)
    shadowed = np.zeros(len(starts), dtype=np.bool_)
    for other in earlier:
        inside = np.flatnonzero(starts < other.csr.node_count)
        shadowed[inside] |= pairs_in(other, starts[inside], neighbours[inside])
    if not shadowed.any():
        return part
    first = ~shadowed if part.first is None else part.first & ~shadowed
    return Part(csr, part.live, first, part.row_starts, part.positions)
