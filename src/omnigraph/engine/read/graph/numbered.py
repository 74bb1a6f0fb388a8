"""A state of the graph, or a part of it, as numbers: every node has one, and edges are pairs of them.

Numbers count through the node types one after the other, in the order of their tables. What algorithms and other
graph libraries are given is made from this: arrays of ends, and properties by whole columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.catalog.arrow import blob_columns, outside_table
from omnigraph.catalog.model import Catalog, EdgeType
from omnigraph.catalog.suggestion import did_you_mean
from omnigraph.engine.read.columns.nodes import NodeView
from omnigraph.engine.read.columns.tables import TableView
from omnigraph.engine.read.graph.segments import Direction
from omnigraph.engine.read.kernels import Bools, Ints
from omnigraph.engine.read.state import Tables
from omnigraph.errors import InputError


class NumberedNodes(Struct, frozen=True):
    """The nodes of one type: the first has the number `start`, and `positions` says where each is in its table."""

    name: str
    start: int
    view: NodeView
    positions: Ints

    @property
    def stop(self) -> int:
        """One more than the last number."""
        return self.start + len(self.positions)


class EndCounts(Struct, frozen=True):
    """How many edges of one type leave and reach each node of the types it joins."""

    out: Ints
    into: Ints


class NumberedEdges(Struct, frozen=True, eq=False, dict=True):
    """The edges of one type as the numbers of their ends, and where each is in its table.

    They are listed when they are first asked for, because what is only counted need not be listed.
    """

    type: EdgeType
    view: TableView
    listing: Callable[[], tuple[Ints, Ints, Ints]]
    """Gives the sources, the targets and the positions."""
    counting: Callable[[], EndCounts] | None = None
    """Gives the degrees without listing edges, where that can be done."""

    @cached_property
    def _listed(self) -> tuple[Ints, Ints, Ints]:
        return self.listing()

    @property
    def sources(self) -> Ints:
        """The numbers the edges come from."""
        return self._listed[0]

    @property
    def targets(self) -> Ints:
        """The numbers the edges lead to."""
        return self._listed[1]

    @property
    def positions(self) -> Ints:
        """Where each edge is in its table."""
        return self._listed[2]


class NumberedGraph(Struct, frozen=True):
    """Nodes and edges of one state."""

    catalog: Catalog
    nodes: tuple[NumberedNodes, ...]
    edges: tuple[NumberedEdges, ...]

    @property
    def node_count(self) -> int:
        """How many nodes have a number."""
        return self.nodes[-1].stop if self.nodes else 0

    @property
    def edge_count(self) -> int:
        """How many edges there are."""
        return sum(len(edges.sources) for edges in self.edges)

    @property
    def sources(self) -> Ints:
        """The numbers the edges of all types come from, type after type."""
        return _joined([edges.sources for edges in self.edges])

    @property
    def targets(self) -> Ints:
        """The numbers the edges of all types lead to, type after type."""
        return _joined([edges.targets for edges in self.edges])

    def degrees(self) -> EndCounts:
        """How many edges leave and reach each node, parallel ones included."""
        out, into = np.zeros(self.node_count, dtype=np.int64), np.zeros(self.node_count, dtype=np.int64)
        spans = {nodes.name: slice(nodes.start, nodes.stop) for nodes in self.nodes}
        for edges in self.edges:
            if edges.counting is None:
                out += np.bincount(edges.sources, minlength=self.node_count)
                into += np.bincount(edges.targets, minlength=self.node_count)
            else:
                counts = edges.counting()
                out[spans[edges.type.source]] += counts.out
                into[spans[edges.type.target]] += counts.into
        return EndCounts(out, into)

    def names(self) -> pa.Table:
        """`type` and `id` of every node, in the order of their numbers."""
        kinds = [pa.repeat(pa.scalar(nodes.name), len(nodes.positions)) for nodes in self.nodes]
        ids = [nodes.view.take("id", nodes.positions).cast(pa.string()) for nodes in self.nodes]
        empty = pa.array([], pa.string())
        return pa.table({"type": wide.concat(kinds or [empty]), "id": wide.concat(ids or [empty])})

    def node_properties(self, nodes: NumberedNodes) -> pa.Table:
        """The properties of the nodes of one type, blobs left out, with `id` first."""
        entity = self.catalog.nodes[nodes.name]
        return _columns(nodes.view, nodes.positions, ["id", *_plain(entity.properties, blob_columns(entity))])

    def edge_properties(self, edges: NumberedEdges) -> pa.Table:
        """The properties of the edges of one type, blobs left out, with `id` first."""
        names = ["id", *_plain(edges.type.properties, blob_columns(edges.type))]
        return _columns(edges.view, edges.positions, names)

    def find(self, type_name: str, ids: Sequence[str | int]) -> Ints:
        """The numbers of some nodes of a type; ids that nobody has are left out."""
        for nodes in self.nodes:
            if nodes.name == type_name:
                held = nodes.view.take("id", nodes.positions).cast(pa.string())
                found = pc.index_in(pa.array([str(each) for each in ids], pa.string()), value_set=held).drop_null()
                return np.asarray(found, dtype=np.int64) + nodes.start
        raise InputError(f"'{type_name}' is not a node type that these edges join")

    def around(self, numbers: Ints, hops: int) -> Bools:
        """Which nodes are within so many steps of some, along edges of either direction."""
        near = np.zeros(self.node_count, dtype=np.bool_)
        near[numbers] = True
        sources, targets = self.sources, self.targets
        for _ in range(hops):
            before = int(near.sum())
            forward, backward = near[sources], near[targets]
            near[targets[forward]] = True
            near[sources[backward]] = True
            if int(near.sum()) == before:
                break
        return near

    def part(self, chosen: Bools) -> NumberedGraph:
        """The chosen nodes, numbered anew, with the edges between them."""
        fresh = np.cumsum(chosen) - 1
        nodes, start = [], 0
        for each in self.nodes:
            kept = each.positions[chosen[each.start : each.stop]]
            nodes.append(NumberedNodes(each.name, start, each.view, kept))
            start += len(kept)
        edges = []
        for joined in self.edges:
            inside = chosen[joined.sources] & chosen[joined.targets]
            listed = fresh[joined.sources[inside]], fresh[joined.targets[inside]], joined.positions[inside]
            edges.append(_listed_edges(joined.type, joined.view, listed))
        return NumberedGraph(self.catalog, tuple(nodes), tuple(edges))


def number(
    catalog: Catalog, tables: Tables, edge_types: Sequence[str] = (), node_types: Sequence[str] = ()
) -> NumberedGraph:
    """Number a state: the edges of these types, or of all, and the nodes of the types they join or that are named.

    Without any name it is the whole graph, nodes that no edge could join included.

    Raises:
        InputError: there is no such type.
    """
    types = [_edge_type(catalog, name) for name in edge_types or (() if node_types else sorted(catalog.edges))]
    unknown = [name for name in node_types if name not in catalog.nodes]
    if unknown:
        raise InputError(f"the schema has no node type '{unknown[0]}'{did_you_mean(unknown[0], catalog.nodes)}")
    kinds = {*node_types, *(end for edge in types for end in (edge.source, edge.target))}
    if not edge_types and not node_types:
        kinds = set(catalog.nodes)
    nodes: dict[str, NumberedNodes] = {}
    start = 0
    for name in sorted(kinds):
        view = tables.node_view(name)
        positions = np.arange(view.position_count) if view.all_live else np.flatnonzero(view.live)
        nodes[name] = NumberedNodes(name, start, view, positions)
        start += len(positions)
    return NumberedGraph(catalog, tuple(nodes.values()), tuple(_edges(tables, edge, nodes) for edge in types))


def _edges(tables: Tables, edge: EdgeType, nodes: Mapping[str, NumberedNodes]) -> NumberedEdges:
    source, target = nodes[edge.source], nodes[edge.target]
    joined = tables.joining(edge.name, edge.source, edge.target, Direction.OUT)

    def listing() -> tuple[Ints, Ints, Ints]:
        met, owners, positions = joined.edges(source.view.live_codes)
        places = np.full(target.view.code_bound, -1, dtype=np.int64)
        codes = target.view.live_codes
        places[codes] = np.arange(len(codes))
        return owners + source.start, places[met] + target.start, positions

    def counting() -> EndCounts:
        met = joined.met_counts("edges")
        into = np.zeros(max(target.view.code_bound, len(met)), dtype=np.int64)
        into[: len(met)] = met
        return EndCounts(joined.edge_degrees(source.view.live_codes), into[target.view.live_codes])

    return NumberedEdges(edge, tables.edge_view(edge.name), listing, counting)


def _listed_edges(edge: EdgeType, view: TableView, listed: tuple[Ints, Ints, Ints]) -> NumberedEdges:
    return NumberedEdges(edge, view, lambda: listed)


def _edge_type(catalog: Catalog, name: str) -> EdgeType:
    found = catalog.edges_by_lower_name.get(name.lower())
    if found is None:
        raise InputError(f"the schema has no edge type '{name}'{did_you_mean(name, catalog.edges)}")
    return found


def _plain(properties: Mapping[str, object], blobs: Sequence[str]) -> list[str]:
    return [name for name in properties if name not in blobs]


def _columns(view: TableView, positions: Ints, names: Sequence[str]) -> pa.Table:
    return outside_table(pa.table({name: view.take(name, positions) for name in names}))


def _joined(arrays: list[Ints]) -> Ints:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)
