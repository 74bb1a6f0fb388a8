"""A graph in the hands of other libraries, and as a picture: Arrow, DuckDB, NetworkX, igraph, PyTorch Geometric, SVG.

What is handed over is a state of the graph, or a part of it: edges of some types, what a query finds, or the
neighbourhood of some nodes. Each library is imported when it is asked for.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.algorithms import Algorithms
from omnigraph.boundary import optional, query_or_nodes, text, text_or_path, verb
from omnigraph.catalog.arrow import blob_columns, outside_table
from omnigraph.catalog.model import Catalog, EdgeType
from omnigraph.drawing import Beginning, Drawing, neighbourhood
from omnigraph.engine.embedding import Embedder
from omnigraph.engine.ingest.entities import entity_named
from omnigraph.engine.manifest.listed import state_table
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.texts import read_query
from omnigraph.engine.read import execute
from omnigraph.engine.read.graph.numbered import NumberedGraph, number
from omnigraph.engine.read.kernels import Ints
from omnigraph.engine.read.reader import Reader
from omnigraph.errors import ExecutionError, InputError
from omnigraph.groups import Groups
from omnigraph.ids import MAIN, Moment, edge_key, node_key
from omnigraph.plan import compile_query, known_plan
from omnigraph.plan.node_query import node_query
from omnigraph.plan.operators import ReadPlan
from omnigraph.plan.parameters import bind
from omnigraph.plan.results import rows_to_json

if TYPE_CHECKING:
    from omnigraph.results import QueryResult

Nodes = Mapping[str, Sequence[str | int]]
"""Ids by node type."""


def read_plan(catalog: Catalog, source: str | os.PathLike[str], name: str | None) -> ReadPlan:
    """The plan of a query that reads, from a cache when its text was seen before."""
    plan = known_plan(catalog, source, name) or compile_query(catalog, read_query(source), name)
    if not isinstance(plan, ReadPlan):
        raise ExecutionError(f"query '{plan.name}' changes the graph: run it with mutate")
    return plan


class Libraries(Groups):
    """What an opened graph hands over to other libraries."""

    _reader: Reader
    _embedder: Embedder | None

    @abstractmethod
    def _view(self, branch: str, at: Moment | None) -> tuple[Catalog, Snapshot]:
        """What a read sees, and the schema of that time."""

    @cached_property
    def algorithms(self) -> Algorithms:
        """Measures of the graph, computed in this process."""
        return Algorithms(self)

    def _repr_html_(self) -> str | None:
        """What the graph holds on main, as a table for notebooks; nothing of a graph that can no longer be read."""
        if self.closed:
            return None
        _, snapshot = self._view(MAIN, None)
        return state_table(f"{snapshot.store.root} · main at {snapshot.head}", snapshot.entries).to_html()

    @verb()
    def numbered(self, edges: Sequence[str] = (), branch: str = MAIN, at: Moment | None = None) -> NumberedGraph:
        """A state as numbers: the nodes that edges of some types, or of all, join, and those edges."""
        catalog, snapshot = self._view(branch, at)
        return number(catalog, self._reader.state(snapshot).tables, edges or sorted(catalog.edges))

    @verb()
    def table(self, type_name: str, branch: str = MAIN, at: Moment | None = None) -> pa.Table:
        """All nodes or edges of one type as an Arrow table: `id`, of edges `from` and `to`, and the properties.

        Blobs are left out; `read_blob` reads them. Where a node type and an edge type share a name, write `node:…`.
        """
        catalog, snapshot = self._view(branch, at)
        entity = entity_named(type_name, catalog)
        key = edge_key(entity.name) if isinstance(entity, EdgeType) else node_key(entity.name)
        ends = ["src", "dst"] if isinstance(entity, EdgeType) else []
        names = ["id", *ends, *(name for name in entity.properties if name not in blob_columns(entity))]
        table = outside_table(snapshot.open(key).scan(names).select(names))
        return table.rename_columns([{"src": "from", "dst": "to"}.get(name, name) if ends else name for name in names])

    @verb()
    def to_duckdb(self, types: Sequence[str] = (), branch: str = MAIN, at: Moment | None = None) -> Any:
        """A DuckDB connection with a view per type, each named as its type; needs DuckDB installed.

        The rows of the types, all of them by default, are held in memory as Arrow, and DuckDB reads them there.
        """
        catalog, _ = self._view(branch, at)
        import duckdb

        database = duckdb.connect()
        for name in types or [*catalog.nodes, *catalog.edges]:
            database.register(name.rpartition(":")[2], self.table(name, branch, at))
        return database

    @verb(query=optional(text_or_path))
    def to_networkx(
        self,
        query: str | os.PathLike[str] | None = None,
        params: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        at: Moment | None = None,
        *,
        nodes: Nodes | None = None,
        hops: int = 0,
        edges: Sequence[str] = (),
    ) -> Any:
        """A `networkx.MultiDiGraph`: a state, what a query finds, or the neighbourhood of some nodes.

        `query` is a read query; the nodes are those of the variables that it returns. `nodes` are ids by type. `hops`
        adds the nodes that are at most that many edges away, in either direction; `edges` keeps only edges of these
        types. A node is named `(type, id)`, an edge has its id as key, and both have their properties as attributes.
        """
        part = self._part(query, params, branch, at, nodes, hops, edges)
        import networkx

        graph = networkx.MultiDiGraph()
        names = [(row["type"], row["id"]) for row in part.names().to_pylist()]
        for each in part.nodes:
            found = rows_to_json(part.node_properties(each))
            graph.add_nodes_from(
                (name, {"type": each.name, **row})
                for name, row in zip(names[each.start : each.stop], found, strict=True)
            )
        for joined in part.edges:
            rows = rows_to_json(part.edge_properties(joined))
            ends = zip(joined.sources.tolist(), joined.targets.tolist(), rows, strict=True)
            graph.add_edges_from(
                (names[source], names[target], row["id"], {"type": joined.type.name, **row})
                for source, target, row in ends
            )
        return graph

    @verb(query=optional(text_or_path))
    def to_igraph(
        self,
        query: str | os.PathLike[str] | None = None,
        params: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        at: Moment | None = None,
        *,
        nodes: Nodes | None = None,
        hops: int = 0,
        edges: Sequence[str] = (),
    ) -> Any:
        """A directed `igraph.Graph` with the properties as attributes; the arguments are those of `to_networkx`."""
        part = self._part(query, params, branch, at, nodes, hops, edges)
        import igraph

        graph = igraph.Graph(n=part.node_count, directed=True)
        graph.add_edges(np.stack([part.sources, part.targets], axis=1).tolist())
        names = part.names()
        graph.vs["type"], graph.vs["id"] = names["type"].to_pylist(), names["id"].to_pylist()
        graph.vs["name"] = graph.vs["id"]
        graph.es["type"] = [joined.type.name for joined in part.edges for _ in range(len(joined.sources))]
        for sequence, tables in (
            (graph.vs, [part.node_properties(each) for each in part.nodes]),
            (graph.es, [part.edge_properties(each) for each in part.edges]),
        ):
            rows = [row for table in tables for row in rows_to_json(table)]
            for name in dict.fromkeys(name for table in tables for name in table.column_names):
                if name not in ("type", "name") or sequence is graph.es:
                    sequence[name] = [row.get(name) for row in rows]
        return graph

    @verb(query=optional(text_or_path))
    def to_pyg(
        self,
        query: str | os.PathLike[str] | None = None,
        params: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        at: Moment | None = None,
        *,
        nodes: Nodes | None = None,
        hops: int = 0,
        edges: Sequence[str] = (),
    ) -> Any:
        """A `torch_geometric.data.HeteroData`, with numbers and vectors as tensors; arguments as for `to_networkx`.

        For a node type it has `num_nodes`, `node_id` (the ids) and a tensor for each property of numbers or vectors
        without nulls; for an edge type `edge_index`, under `(source type, edge type, target type)`, and tensors of its
        properties. A property with one of these three names gets an underscore appended: `node_id_`.
        """
        part = self._part(query, params, branch, at, nodes, hops, edges)
        try:
            import torch
            from torch_geometric.data import HeteroData
        except ModuleNotFoundError as exc:
            raise ExecutionError(
                f"this needs {exc.name}, which is not installed: install torch and torch_geometric",
                code="extra_missing",
            ) from exc
        data = HeteroData()
        starts = {each.name: each.start for each in part.nodes}
        for each in part.nodes:
            table = part.node_properties(each)
            data[each.name].num_nodes = table.num_rows
            data[each.name].node_id = table["id"].to_pylist()
            for name, column in _tensors(table, taken=("num_nodes", "node_id")):
                data[each.name][name] = torch.from_numpy(column)
        for joined in part.edges:
            ends = (joined.sources - starts[joined.type.source], joined.targets - starts[joined.type.target])
            place = data[joined.type.source, joined.type.name, joined.type.target]
            place.edge_index = torch.from_numpy(np.stack(ends))
            for name, column in _tensors(part.edge_properties(joined), taken=("edge_index",)):
                place[name] = torch.from_numpy(column)
        return data

    @verb(query=optional(query_or_nodes), name=optional(text))
    def draw(
        self,
        query: str | os.PathLike[str] | Nodes | None = None,
        params: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        at: Moment | None = None,
        *,
        name: str | None = None,
        nodes: Nodes | None = None,
        hops: int = 1,
        edges: Sequence[str] = (),
        nodes_max: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Drawing:
        """A picture of what a query finds, or of some nodes, and what is near them; without either, of a sample.

        `query` is a read query, which gives the nodes of the variables that it returns, or ids by type, as `nodes` is.
        Nodes at most `hops` edges away are drawn with them; `edges` keeps only edges of these types. `labels` names the
        property that labels nodes of a type; by default it is their key or name. At most `nodes_max` nodes are drawn
        (100 by default), the nearest first, and the picture says what was left out. A notebook shows the picture;
        `.save("part.svg")` or `.save("part.html")` writes a file.

        Raises:
            InputError: the query returns nothing of a node, or there is no such type or property.
        """
        catalog, snapshot = self._view(branch, at)
        state = snapshot.head or snapshot.id

        def asked(text: str, values: Mapping[str, Any], named: str | None) -> pa.Table:
            return self.query(text, values, named, branch, state).to_arrow()

        beginning = Beginning.of(query, params, name, nodes)
        part = neighbourhood(catalog, asked, beginning, hops=hops, edges=edges, nodes_max=nodes_max, labels=labels)
        return Drawing(part, f"{PurePath(snapshot.store.root).name} at {state}")

    @abstractmethod
    def query(
        self,
        source: str | os.PathLike[str],
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        branch: str = MAIN,
        at: Moment | None = None,
    ) -> QueryResult:
        """Run a read query."""

    def _part(
        self,
        query: str | os.PathLike[str] | None,
        params: Mapping[str, Any] | None,
        branch: str,
        at: Moment | None,
        nodes: Nodes | None,
        hops: int,
        edges: Sequence[str],
    ) -> NumberedGraph:
        """The part of a state that is asked for, all of it where nothing is."""
        catalog, snapshot = self._view(branch, at)
        state = self._reader.state(snapshot)
        if query is None and nodes is None:
            return number(catalog, state.tables, edges)
        if query is not None and nodes is not None:
            raise InputError("a query and nodes are two ways to say where to begin: pass one of them")
        if query is not None:
            wanted = node_query(catalog, read_query(query))
            plan = read_plan(catalog, wanted.text, wanted.name)
            found = execute(plan, state, bind(plan.parameters, params), embedder=self._embedder).to_table()
            asked = [(kind, found[name].drop_null().unique().to_pylist()) for name, kind in wanted.types.items()]
        else:
            asked = [(name, list(ids)) for name, ids in (nodes or {}).items()]
        whole = number(catalog, state.tables, edges or sorted(catalog.edges), [name for name, _ in asked])
        starts: list[Ints] = [whole.find(name, ids) for name, ids in asked]
        return whole.part(whole.around(np.concatenate(starts) if starts else np.empty(0, dtype=np.int64), hops))


def _tensors(table: pa.Table, *, taken: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The columns that are numbers or vectors throughout, as arrays; what has a name that is taken is renamed."""
    for name in table.column_names:
        column = table[name].combine_chunks()
        kind = column.type
        if column.null_count:
            continue
        free = name
        while free in taken or (free != name and free in table.column_names):
            free += "_"
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            yield free, np.array(column.to_numpy(zero_copy_only=False))
        elif pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type):
            yield free, np.array(column.flatten().to_numpy(zero_copy_only=False)).reshape(len(column), kind.list_size)
