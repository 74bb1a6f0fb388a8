"""Shortest paths between pairs of nodes, searched from both ends at once and for many pairs at a time.

A search goes level by level, always from the end with fewer nodes at its edge, until the two meet. What lies on a
shortest path follows from the levels; among those nodes the path takes, step by step, the one with the smallest id.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from omnigraph.engine.read.graph.adjacency import Adjacency
from omnigraph.engine.read.kernels import Bools, Ints
from omnigraph.engine.storage.sorted_unique import sorted_unique

PAIRS_AT_ONCE = 4096
"""Pairs that are searched together: more would hold more nodes at a time, fewer would start more searches."""


class Paths(Struct, frozen=True):
    """Paths as nodes one after the other; path i has those from `offsets[i]` to `offsets[i + 1]`."""

    offsets: Ints
    nodes: Ints
    edge_type: str
    source_type: str
    target_type: str
    undirected: bool
    backward: bool
    """Whether a path is shown from its target to its source."""

    @property
    def lengths(self) -> Ints:
        """How many edges each path has."""
        return np.diff(self.offsets) - 1

    @property
    def kind(self) -> tuple[str, str, str, bool, bool]:
        """Paths of one kind are the same where their nodes are."""
        return self.edge_type, self.source_type, self.target_type, self.undirected, self.backward

    def ways(self) -> list[bytes]:
        """The nodes of each path, to be looked up by."""
        return [part.tobytes() for part in np.split(self.nodes, self.offsets[1:-1])] if len(self.offsets) > 1 else []


class TracedPaths:
    """The paths that the integers of one variable stand for; several blocks may each have traced some of them."""

    def __init__(self) -> None:
        self.parts: list[Paths] = []
        self.begins: list[int] = []
        """The number of the first path of each part."""
        self._count = 0

    def add(self, paths: Paths) -> Ints:
        """Numbers for further paths; one that was traced before keeps the number it has."""
        first = self._count
        self._count += len(paths.lengths)
        numbers = np.arange(first, self._count, dtype=np.int64)
        for begin, earlier in zip(self.begins, self.parts, strict=True):
            if earlier.kind == paths.kind:
                known = {way: begin + place for place, way in enumerate(earlier.ways())}
                found = np.array([known.get(way, -1) for way in paths.ways()], dtype=np.int64)
                numbers = np.where(found < 0, numbers, found)
        self.parts.append(paths)
        self.begins.append(first)
        return numbers


def shortest_paths(
    onward: Adjacency,
    back: Adjacency,
    pairs: tuple[Ints, Ints],
    bounds: tuple[int, int],
    ranks: Ints,
    allow: Callable[[int], None],
) -> list[Ints | None]:
    """For each pair of a start and an end the nodes of its path, or None; `ranks` orders nodes by their ids."""
    starts, ends = pairs
    found: list[Ints | None] = [None] * len(starts)
    for begin in range(0, len(starts), PAIRS_AT_ONCE):
        chunk = slice(begin, begin + PAIRS_AT_ONCE)
        search = _Search(onward, back, starts[chunk], ends[chunk], ranks, allow)
        for met, nodes in search.run(*bounds):
            for place, path in zip(met.tolist(), nodes, strict=True):
                found[begin + place] = path
    return found


class _Search:
    """One search: levels from the starts and from the ends, as sorted cells of (pair, node)."""

    def __init__(
        self, onward: Adjacency, back: Adjacency, starts: Ints, ends: Ints, ranks: Ints, allow: Callable[[int], None]
    ) -> None:
        self.onward, self.back = onward, back
        self.starts, self.ends = starts, ends
        self.ranks, self.allow = ranks, allow
        self.size = len(ranks)
        numbers = np.arange(len(starts), dtype=np.int64)
        self.active: Bools = starts != ends
        self.before = [numbers * self.size + starts]
        self.after = [numbers * self.size + ends]
        self.seen_before, self.seen_after = self.before[0], self.after[0]

    def run(self, low: int, high: int) -> list[tuple[Ints, list[Ints]]]:
        """The pairs that have a path within the bounds, with their paths."""
        found = []
        for length in range(1, high + 1):
            fronts = self._open(self.before[-1]), self._open(self.after[-1])
            if not len(fronts[0]) or not len(fronts[1]):
                break
            if len(fronts[0]) <= len(fronts[1]):
                level = self._next(self.onward, fronts[0], self.seen_before)
                self.before.append(level)
                self.seen_before = sorted_unique(np.concatenate((self.seen_before, level)))
            else:
                level = self._next(self.back, fronts[1], self.seen_after)
                self.after.append(level)
                self.seen_after = sorted_unique(np.concatenate((self.seen_after, level)))
            hits = np.intersect1d(self.before[-1], self.after[-1], assume_unique=True)
            hits = hits[self.active[hits // self.size]]
            if len(hits):
                if length >= low:
                    found.append(self._paths(hits))
                self.active[hits // self.size] = False
        return found

    def _open(self, cells: Ints) -> Ints:
        return cells[self.active[cells // self.size]]

    def _next(self, adjacency: Adjacency, cells: Ints, seen: Ints) -> Ints:
        level = self._led_to(adjacency, cells)
        return level[~_among(level, seen)]

    def _led_to(self, adjacency: Adjacency, cells: Ints) -> Ints:
        met, owner = adjacency.neighbours(cells % self.size, self.allow)
        return sorted_unique((cells // self.size)[owner] * self.size + met)

    def _paths(self, hits: Ints) -> tuple[Ints, list[Ints]]:
        """The smallest path of each pair whose two searches meet in these cells."""
        layers = [hits]
        for level in reversed(self.before[:-1]):
            layers.insert(0, _kept(self._led_to(self.back, layers[0]), level))
        for level in reversed(self.after[:-1]):
            layers.append(_kept(self._led_to(self.onward, layers[-1]), level))
        pairs = sorted_unique(hits // self.size)
        current = self.starts[pairs]
        steps = [current]
        for layer in layers[1:]:
            met, owner = self.onward.neighbours(current, self.allow)
            on_path = _among(pairs[owner] * self.size + met, layer)
            met, owner = met[on_path], owner[on_path]
            order = np.lexsort((self.ranks[met], owner))
            first = np.concatenate(([True], owner[order][1:] != owner[order][:-1]))
            current = met[order][first]
            steps.append(current)
        return pairs, list(np.stack(steps, axis=1))


def _among(cells: Ints, known: Ints) -> Bools:
    """Which cells are among sorted ones."""
    if not len(known):
        return np.zeros(len(cells), dtype=np.bool_)
    places = np.minimum(np.searchsorted(known, cells), len(known) - 1)
    return np.asarray(known[places] == cells)


def _kept(cells: Ints, level: Ints) -> Ints:
    return cells[_among(cells, level)]
