"""Measures of whole graphs in this process, on the adjacency that queries use: `graph.algorithms`.

They mean what those of `graph.spark().analytics()` mean, for graphs that fit into memory. Each answers with an Arrow
table of `type`, `id` and what was found for every node; `write_back` stores a column of it as one commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.boundary import verb
from omnigraph.engine.ingest.frames import as_arrow
from omnigraph.engine.operations.export import read_rows
from omnigraph.engine.operations.load import load
from omnigraph.engine.operations.outcomes import LoadResult
from omnigraph.engine.read.graph.numbered import NumberedGraph
from omnigraph.engine.read.kernels import Ints
from omnigraph.engine.storage.sorted_unique import sorted_unique
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import InputError
from omnigraph.ids import MAIN, Moment, node_key

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

HOPS_MAX = 1_000_000


class Opened(Protocol):
    """The graph the verbs belong to."""

    @property
    def context(self) -> GraphContext:
        """What operations work with."""

    def numbered(self, edges: Sequence[str] = (), branch: str = MAIN, at: Moment | None = None) -> NumberedGraph:
        """A state as numbers."""


class Algorithms:
    """Algorithms on a whole graph. `edges` names the edge types to use, all of them by default."""

    def __init__(self, graph: Opened) -> None:
        self._graph = graph

    @verb()
    def degrees(self, edges: Sequence[str] = (), branch: str = MAIN, at: Moment | None = None) -> pa.Table:
        """`out_degree`, `in_degree` and `degree` of every node; each parallel edge counts."""
        graph = self._graph.numbered(edges, branch, at)
        found = graph.degrees()
        return _named(graph, out_degree=found.out, in_degree=found.into, degree=found.out + found.into)

    @verb()
    def pagerank(
        self,
        edges: Sequence[str] = (),
        branch: str = MAIN,
        at: Moment | None = None,
        *,
        damping: float = 0.85,
        rounds: int = 20,
        tolerance: float | None = None,
    ) -> pa.Table:
        """`rank` of every node, all of them adding up to 1; nodes without outgoing edges share theirs with all.

        Stops after `rounds`, or earlier once the ranks change by less than `tolerance` in total.
        """
        graph = self._graph.numbered(edges, branch, at)
        count = graph.node_count
        outgoing = np.bincount(graph.sources, minlength=count)
        arriving = _matrix(graph.sources, graph.targets, count).T
        dangling = outgoing == 0
        shares = np.divide(1.0, outgoing, out=np.zeros(count), where=~dangling)
        ranks = np.full(count, 1.0 / max(count, 1))
        for _ in range(rounds if count else 0):
            base = (1.0 - damping) / count + damping * ranks[dangling].sum() / count
            fresh = base + damping * (arriving @ (ranks * shares))
            moved = float(np.abs(fresh - ranks).sum())
            ranks = fresh
            if tolerance is not None and moved < tolerance:
                break
        return _named(graph, rank=ranks)

    @verb()
    def connected_components(self, edges: Sequence[str] = (), branch: str = MAIN, at: Moment | None = None) -> pa.Table:
        """`component` of every node: the same number for all nodes that edges of either direction connect."""
        from scipy.sparse.csgraph import connected_components

        graph = self._graph.numbered(edges, branch, at)
        if not graph.node_count:
            return _named(graph, component=np.empty(0, dtype=np.int64))
        _, labels = connected_components(_matrix(graph.sources, graph.targets, graph.node_count), directed=False)
        # The number of a component is that of its first node, so that it does not depend on who counted.
        _, first = np.unique(labels, return_index=True)
        return _named(graph, component=first[labels].astype(np.int64))

    @verb()
    def shortest_paths(
        self,
        sources: Sequence[str | int],
        type_name: str | None = None,
        edges: Sequence[str] = (),
        branch: str = MAIN,
        at: Moment | None = None,
        *,
        directed: bool = True,
        hops_max: int = HOPS_MAX,
    ) -> pa.Table:
        """`distance` in edges from the nearest of `sources` (ids of `type_name`) to every node they can reach."""
        graph = self._graph.numbered(edges, branch, at)
        if not graph.edges:
            raise InputError("the schema has no edge type to follow")
        starts = graph.find(type_name or graph.edges[0].type.source, sources)
        ends = (graph.sources, graph.targets)
        if not directed:
            ends = np.concatenate(ends), np.concatenate(ends[::-1])
        distances = _distances(*ends, starts, graph.node_count, hops_max)
        return _named(graph, distance=distances).filter(pa.array(distances >= 0))

    @verb()
    def triangle_counts(self, edges: Sequence[str] = (), branch: str = MAIN, at: Moment | None = None) -> pa.Table:
        """`triangles`: how many triangles each node is part of, ignoring direction, loops and parallel edges.

        Edges point from the node of lower degree to that of higher degree, so a hub starts few of the paths that have
        to be closed.
        """
        graph = self._graph.numbered(edges, branch, at)
        count = graph.node_count
        low, high = np.minimum(graph.sources, graph.targets), np.maximum(graph.sources, graph.targets)
        pairs = sorted_unique(low[low != high] * np.int64(max(count, 1)) + high[low != high])
        low, high = pairs // max(count, 1), pairs % max(count, 1)
        degree = np.bincount(np.concatenate([low, high]), minlength=count)
        # On ties the smaller number comes first.
        turned = degree[low] > degree[high]
        start, end = np.where(turned, high, low), np.where(turned, low, high)
        pointed = _matrix(start, end, count, np.int32)
        across = (pointed @ pointed).multiply(pointed).tocsr()
        beside = (pointed.T @ pointed).multiply(pointed).tocsr()
        found = _sums(across, 1) + _sums(across, 0) + _sums(beside, 1)
        return _named(graph, triangles=found)

    @verb()
    def write_back(
        self,
        found: Any,
        column: str,
        type_name: str,
        property: str,
        branch: str = MAIN,
        *,
        actor: str | None = None,
        message: str | None = None,
    ) -> LoadResult:
        """Store a result column in a property of a node type: one commit, every other property as it is.

        `found` is a result of these algorithms, or anything that gives Arrow with `id`, perhaps `type`, and the column.

        Raises:
            PreconditionFailedError: somebody else wrote to the branch at that moment; nothing changed, do it again.
        """
        context = self._graph.context
        entity = context.catalog.nodes.get(type_name)
        if entity is None or property not in entity.properties or property in entity.key:
            raise InputError(f"'{type_name}' has no property '{property}' that could be written")
        table = as_arrow(found, whole=True)
        missing = [name for name in ("id", column) if name not in table.column_names]
        if missing:
            raise InputError(f"the result has no column '{missing[0]}'")
        if "type" in table.column_names:
            table = table.filter(pc.equal(table["type"], type_name))
        snapshot = context.snapshot(branch, None)
        rows = read_rows(snapshot.open(node_key(type_name)), entity, None)
        places = pc.index_in(rows["id"], value_set=table["id"].combine_chunks().cast(pa.string()))
        kept = pc.is_valid(places)
        values = table[column].take(places.filter(kept))
        rows = rows.filter(kept).drop_columns([property]).append_column(property, values)
        return load(
            context,
            {node_key(type_name): rows},
            mode="merge",
            branch=branch,
            actor=actor,
            message=message,
            if_commit=snapshot.head,
        )


def _named(graph: NumberedGraph, **columns: npt.NDArray[Any]) -> pa.Table:
    table = graph.names()
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    return table


def _grouped(sources: Ints, targets: Ints, count: int) -> tuple[Ints, Ints]:
    """The targets of each node side by side, and where those of each begin; edges of one type come that way already."""
    begins = np.concatenate(([0], np.cumsum(np.bincount(sources, minlength=count))))
    if (sources[1:] < sources[:-1]).any():
        targets = targets[np.argsort(sources, kind="stable")]
    return begins, targets


def _matrix(sources: Ints, targets: Ints, count: int, kind: type[Any] = np.float64) -> csr_matrix:
    """The edges as a matrix, made of whole columns: nothing is sorted that is in order, nothing added up."""
    from scipy.sparse import csr_matrix

    begins, follows = _grouped(sources, targets, count)
    # Numbers of 32 bits are what scipy works with where they suffice.
    width = np.int32 if max(count, len(follows)) < 2**31 else np.int64
    ones = np.ones(len(follows), dtype=kind)
    return csr_matrix((ones, follows.astype(width), begins.astype(width)), shape=(count, count))


def _sums(matrix: csr_matrix, axis: int) -> Ints:
    return np.asarray(matrix.sum(axis=axis, dtype=np.int64)).ravel()


def _distances(sources: Ints, targets: Ints, starts: Ints, count: int, hops_max: int) -> Ints:
    """Steps from the nearest start to each node, -1 where none leads; a whole frontier at a time."""
    begins, follows = _grouped(sources, targets, count)
    distances = np.full(count, -1, dtype=np.int64)
    frontier = sorted_unique(starts)
    distances[frontier] = 0
    hops = 0
    while len(frontier) and hops < hops_max:
        hops += 1
        lengths = begins[frontier + 1] - begins[frontier]
        total = int(lengths.sum())
        shift = np.repeat(begins[frontier] - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
        met = follows[np.arange(total) + shift]
        met = met[distances[met] < 0]
        distances[met] = hops
        # Each of them once: sorted out where they are few, looked up among all nodes where they are many.
        frontier = sorted_unique(met) if len(met) < count // 16 else np.flatnonzero(distances == hops)
    return distances
