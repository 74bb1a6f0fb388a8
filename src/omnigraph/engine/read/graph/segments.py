"""Segments: the edges of some data files, compressed once and for all.

A segment is a function of its files alone, so every version that has the files can use it, and it may be kept on disk
for the next process. `segments` picks the large one to use for a version and makes the small one that completes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from enum import StrEnum
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np

from omnigraph.engine.read.cache import persist
from omnigraph.engine.read.cache.derived import DerivedStore
from omnigraph.engine.read.cache.persist import load_csr, load_segment, save_csr, save_segment, segment_bundles
from omnigraph.engine.read.columns.dictionary import Codes, IdDictionary
from omnigraph.engine.read.columns.edges import EdgeView
from omnigraph.engine.read.columns.nodes import NodeView
from omnigraph.engine.read.kernels import Bools, Csr, Ints, build_csr, first_of_pair
from omnigraph.engine.storage.handle import FragmentInfo
from omnigraph.ids import new_token
from omnigraph.plan.operators import Expand

OVERLAY_MIN = 50_000
"""Edges that may stay outside the large segment whatever its size."""
OVERLAY_SHARE = 0.25
"""Share of the large segment that may be outside it, or dead inside it, before everything is compressed anew."""
SPARE_NODES = 64
SPARE_SHARE = 16
"""Nodes a large segment can address beyond those there are: so many, and one for each of so many there are."""

Files = tuple[str, ...]
Ends = tuple[Codes, Codes]


class Direction(StrEnum):
    """Which way edges are followed from a start."""

    OUT = "out"
    IN = "in"
    BOTH = "both"


def direction_of(expand: Expand, from_source: bool) -> Direction:
    """Which way edges are followed when the expand starts at its source, or at its target."""
    if expand.undirected:
        return Direction.BOTH
    return Direction.OUT if from_source else Direction.IN


class Segment:
    """The edges of some fragments, as codes of their ends; compressed per direction when first asked for."""

    def __init__(
        self, fragments: tuple[Files, ...], starts: Ints, ends: Callable[[], Ends], known: tuple[int, int] = (0, 0)
    ) -> None:
        self.id = new_token()
        self.store: DerivedStore | None = None
        """Where compressed forms are kept between processes, for segments worth it."""
        self.fragments = fragments
        self.starts = starts
        """Local row of each fragment's first edge, and the number of rows at the end."""
        self._ends = ends
        self._known = known
        """How many sources and targets shall be addressable, those without edges included."""
        self._made: dict[Direction, tuple[Csr, Bools | None]] = {}
        self._met: dict[Direction, Ints] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def ends(self) -> Ends:
        """The codes of the sources and of the targets, by row."""
        return self._ends()

    @cached_property
    def _highest(self) -> tuple[int, int]:
        sources, targets = self.ends
        return (int(sources.max()), int(targets.max())) if len(self) else (-1, -1)

    def is_below(self, source_bound: int | None, target_bound: int | None) -> bool:
        """Whether the codes of all ends are below bounds, where there is one."""
        if source_bound is None and target_bound is None:
            return True
        bounds = zip(self._highest, (source_bound, target_bound), strict=True)
        return all(bound is None or highest < bound for highest, bound in bounds)

    @cached_property
    def place(self) -> dict[Files, int]:
        """Index of each fragment."""
        return {files: index for index, files in enumerate(self.fragments)}

    def csr(self, direction: Direction) -> Csr:
        """The compressed form."""
        return self._compressed(direction)[0]

    def first(self, direction: Direction) -> Bools | None:
        """The slots that stand for their pair while no edge is dead; None when every slot does."""
        return self._compressed(direction)[1]

    def met(self, direction: Direction) -> Ints:
        """How many slots lead to each node."""
        found = self._met.get(direction)
        if found is None:
            csr = self.csr(direction)
            found = self._met[direction] = np.bincount(csr.neighbours, minlength=csr.neighbour_bound)
        return found

    def _compressed(self, direction: Direction) -> tuple[Csr, Bools | None]:
        with self._lock:
            found = self._made.get(direction)
            if found is None:
                found = self._made[direction] = self._kept(direction) or self._build(direction)
            return found

    def _kept(self, direction: Direction) -> tuple[Csr, Bools | None] | None:
        return None if self.store is None else load_csr(self.store, self.id, direction.value, len(self))

    def _build(self, direction: Direction) -> tuple[Csr, Bools | None]:
        rows = np.arange(len(self), dtype=np.int64)
        sources, targets = self.ends
        known = self._known[::-1] if direction is Direction.IN else self._known
        starts, neighbours = (targets, sources) if direction is Direction.IN else (sources, targets)
        if direction is Direction.BOTH:
            # A self-loop is the same edge either way, so it gets one slot.
            back = np.flatnonzero(sources != targets)
            starts = np.concatenate((sources, targets[back]))
            neighbours = np.concatenate((targets, sources[back]))
            rows = np.concatenate((rows, back))
        node_count = max(known) if direction is Direction.BOTH else known[0]
        csr = build_csr(starts, neighbours, rows, node_count)
        made = csr, first_of_pair(csr, None)
        if self.store is not None:
            save_csr(self.store, self.id, direction.value, *made)
        return made

    @property
    def nbytes(self) -> int:
        """What the arrays may come to occupy, both directions included."""
        return len(self) * 40


def segments(
    edges: EdgeView, sources: NodeView, targets: NodeView, direction: Direction
) -> tuple[Segment, Segment | None]:
    """The large segment to use for this version in one direction, and a small one for the edges outside it.

    Raises:
        DamagedSegmentError: the large one was kept on disk and is not all there; see `renew`.
    """
    key = _key(edges.handle.uri, sources.dictionary.lineage, targets.dictionary.lineage)
    base: Segment | None = edges.cache.get(key)
    if base is None or not _serves(edges, base.fragments, len(base)):
        base = _shared_segment(edges, sources.dictionary, targets.dictionary)
        if base is not None:
            # What it occupies is counted where it was made.
            edges.cache.put(key, base, 0)
        else:
            base = _kept_segment(edges, sources.dictionary, targets.dictionary) or _new_segment(edges, sources, targets)
            edges.cache.put(key, base, base.nbytes)
    base.csr(direction)
    covered = base.place
    outside = [fragment for fragment in edges.fragments if fragment.files not in covered]
    if not outside:
        return base, None
    return base, _overlay(edges, outside, sources.dictionary, targets.dictionary, key)


def renew(edges: EdgeView, sources: NodeView, targets: NodeView) -> None:
    """Make the large segment anew, because what was kept of it is not to be trusted or has been removed since."""
    made = _new_segment(edges, sources, targets)
    key = _key(edges.handle.uri, sources.dictionary.lineage, targets.dictionary.lineage)
    edges.cache.put(key, made, made.nbytes)


def _key(uri: str, source_lineage: str, target_lineage: str) -> tuple[str, ...]:
    return ("segment", uri, source_lineage, target_lineage)


def _shared_segment(edges: EdgeView, sources: IdDictionary, targets: IdDictionary) -> Segment | None:
    """The large segment of the table a branch was made of, where its codes mean the same and it holds the same edges.

    Raises:
        DamagedSegmentError: it was kept on disk and is not all there.
    """
    for (source_lineage, source_bound), (target_lineage, target_bound) in product(sources.lineages, targets.lineages):
        for uri in dict.fromkeys((edges.handle.uri, edges.handle.table_uri)):
            found: Segment | None = edges.cache.get(_key(uri, source_lineage, target_lineage))
            if found is None or not _serves(edges, found.fragments, len(found)):
                continue
            if found.is_below(source_bound, target_bound):
                return found
    return None


def _overlay(
    edges: EdgeView, outside: list[FragmentInfo], sources: IdDictionary, targets: IdDictionary, key: tuple[str, ...]
) -> Segment:
    """The small segment; one that has grown by a fragment takes over the codes of what it was before."""
    files = tuple(fragment.files for fragment in outside)
    found: Segment | None = edges.cache.get(("overlay", *key, files))
    if found is not None:
        return found
    held: Segment | None = edges.cache.get(("overlay", *key, files[:-1])) if len(files) > 1 else None
    if held is None:
        made = _segment(edges, outside, sources, targets)
    else:
        ends = edges.end_codes(outside[-1:], sources, targets)
        joined = (np.concatenate((held.ends[0], ends[0])), np.concatenate((held.ends[1], ends[1])))
        made = Segment(files, np.append(held.starts, held.starts[-1] + len(ends[0])), lambda: joined)
    edges.cache.put(("overlay", *key, files), made, made.nbytes)
    return made


def _serves(edges: EdgeView, fragments: Collection[Files], rows: int) -> bool:
    """Whether a segment holds nearly all edges of a version, and little else."""
    covered = set(fragments)
    extra = sum(fragment.physical_rows for fragment in edges.fragments if fragment.files not in covered)
    held = sum(fragment.live_rows for fragment in edges.fragments if fragment.files in covered)
    allowed = max(OVERLAY_MIN, int(rows * OVERLAY_SHARE))
    return extra <= allowed and rows - held <= allowed


def _kept_segment(edges: EdgeView, sources: IdDictionary, targets: IdDictionary) -> Segment | None:
    if edges.live_count < persist.EDGES_MIN:
        return None
    for store, name, facts in segment_bundles(edges.handle, sources, targets):
        fragments = tuple(tuple(files) for files in facts["fragments"])
        if not _serves(edges, fragments, int(facts["rows"])):
            continue
        starts = np.array(facts["starts"], dtype=np.int64)
        ends = partial(_kept_ends, store, name, int(facts["rows"]))
        segment = Segment(fragments, starts, ends, (int(facts["known"][0]), int(facts["known"][1])))
        segment.id, segment.store = facts["segment"], store
        return segment
    return None


class DamagedSegmentError(Exception):
    """What was kept of a segment is not to be trusted, or other processes have removed it since."""


def _kept_ends(store: DerivedStore, name: str, rows: int) -> Ends:
    """The ends of a kept segment's edges, asked for when a further direction is compressed."""
    bundle = load_segment(store, name, rows)
    if bundle is None:
        raise DamagedSegmentError(name)
    return bundle.arrays["sources"], bundle.arrays["targets"]


def _new_segment(edges: EdgeView, sources: NodeView, targets: NodeView) -> Segment:
    """Compress all edges anew, and keep the result for the next process when there are many."""
    made = _segment(edges, list(edges.fragments), sources.dictionary, targets.dictionary)
    if len(made) >= persist.EDGES_MIN:
        states = [sources.keep_dictionary(), targets.keep_dictionary()]
        if None in states:
            # Without the dictionaries nobody could say what the codes stand for.
            return made
        facts = {
            "segment": made.id,
            "rows": len(made),
            "known": _addressable(sources.dictionary, targets.dictionary),
            "starts": made.starts.tolist(),
            "fragments": [list(files) for files in made.fragments],
            "states": states,
        }
        arrays = dict(zip(("sources", "targets"), made.ends, strict=True))
        made.store = save_segment(edges.handle, facts, arrays)
    return made


def _segment(edges: EdgeView, fragments: list[Any], sources: IdDictionary, targets: IdDictionary) -> Segment:
    starts = np.concatenate(([0], np.cumsum([fragment.physical_rows for fragment in fragments]))).astype(np.int64)
    firsts, seconds = edges.end_codes(fragments, sources, targets)
    files = tuple(fragment.files for fragment in fragments)
    return Segment(files, starts, lambda: (firsts, seconds), _addressable(sources, targets))


def _addressable(sources: IdDictionary, targets: IdDictionary) -> tuple[int, int]:
    """Room for the nodes there are and for those of many small commits, so that looking one up needs no check."""
    first, second = (
        len(dictionary) + len(dictionary) // SPARE_SHARE + SPARE_NODES for dictionary in (sources, targets)
    )
    return first, second
