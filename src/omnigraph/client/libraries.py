"""What hands a whole state over to other libraries is done where the graph is stored: such a verb is refused.

Results of queries convert to Arrow, polars and pandas here as they do there, and neighbourhoods are drawn as there.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from omnigraph.boundary import optional, query_or_nodes, text, text_or_path, verb
from omnigraph.catalog.model import Catalog
from omnigraph.client.connection import only_direct
from omnigraph.client.decode import RemoteSnapshot
from omnigraph.drawing import Beginning, Drawing, neighbourhood
from omnigraph.engine.manifest.listed import state_table
from omnigraph.ids import MAIN, Moment
from omnigraph.results import QueryResult

At = Moment | None
Nodes = Mapping[str, Sequence[str | int]]


class RemoteLibraries(ABC):
    """The verbs of `omnigraph.libraries.Libraries`: those that queries can answer, the others refused."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """The address of the graph."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """True when it may no longer be used."""

    @abstractmethod
    def _catalog(self) -> Catalog:
        """The accepted schema, compiled."""

    @abstractmethod
    def snapshot(self, branch: str = MAIN, at: At = None) -> RemoteSnapshot:
        """A state."""

    @abstractmethod
    def query(
        self,
        source: str | os.PathLike[str],
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        branch: str = MAIN,
        at: At = None,
    ) -> QueryResult:
        """Run a read query."""

    def _repr_html_(self) -> str | None:
        """What the graph holds on main, as a table for notebooks; nothing of a graph that was closed."""
        if self.closed:
            return None
        state = self.snapshot()
        return state_table(f"{self.uri} · main at {state.head}", state.entries).to_html()

    @verb(query=optional(query_or_nodes), name=optional(text))
    def draw(
        self,
        query: str | os.PathLike[str] | Nodes | None = None,
        params: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        at: At = None,
        *,
        name: str | None = None,
        nodes: Nodes | None = None,
        hops: int = 1,
        edges: Sequence[str] = (),
        nodes_max: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Drawing:
        """A picture of a part of the graph; the arguments are those of `Graph.draw`."""
        state = self.snapshot(branch, at)
        moment = state.head or state.id

        def asked(text: str, values: Mapping[str, Any], named: str | None) -> pa.Table:
            return self.query(text, values, named, branch, moment).to_arrow()

        beginning = Beginning.of(query, params, name, nodes)
        catalog = _at_that_time(self._catalog(), state)
        part = neighbourhood(catalog, asked, beginning, hops=hops, edges=edges, nodes_max=nodes_max, labels=labels)
        return Drawing(part, f"{self.uri.rstrip('/').rpartition('/')[2]} at {moment}")

    @property
    def algorithms(self) -> Any:
        """Refused: they work on storage."""
        only_direct("algorithms on the whole graph")

    @verb()
    def numbered(self, edges: Sequence[str] = (), branch: str = MAIN, at: At = None) -> Any:
        """Refused: it works on storage."""
        only_direct("numbering the graph")

    @verb()
    def table(self, type_name: str, branch: str = MAIN, at: At = None) -> Any:
        """Refused: it works on storage."""
        only_direct("reading a whole type")

    @verb()
    def to_duckdb(self, types: Sequence[str] = (), branch: str = MAIN, at: At = None) -> Any:
        """Refused: it works on storage."""
        only_direct("handing the graph to DuckDB")

    @verb(query=optional(text_or_path))
    def to_networkx(
        self,
        query: str | os.PathLike[str] | None = None,
        params: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        at: At = None,
        *,
        nodes: Mapping[str, Sequence[str]] | None = None,
        hops: int = 0,
        edges: Sequence[str] = (),
    ) -> Any:
        """Refused: it works on storage."""
        only_direct("handing the graph to NetworkX")

    @verb(query=optional(text_or_path))
    def to_igraph(
        self,
        query: str | os.PathLike[str] | None = None,
        params: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        at: At = None,
        *,
        nodes: Mapping[str, Sequence[str]] | None = None,
        hops: int = 0,
        edges: Sequence[str] = (),
    ) -> Any:
        """Refused: it works on storage."""
        only_direct("handing the graph to igraph")

    @verb(query=optional(text_or_path))
    def to_pyg(
        self,
        query: str | os.PathLike[str] | None = None,
        params: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        at: At = None,
        *,
        nodes: Mapping[str, Sequence[str]] | None = None,
        hops: int = 0,
        edges: Sequence[str] = (),
    ) -> Any:
        """Refused: it works on storage."""
        only_direct("handing the graph to PyTorch Geometric")


def _at_that_time(catalog: Catalog, state: RemoteSnapshot) -> Catalog:
    """The types of today that a state holds."""
    nodes = {name: node for name, node in catalog.nodes.items() if node.table_key in state.entries}
    edges = {name: edge for name, edge in catalog.edges.items() if edge.table_key in state.entries}
    return replace(catalog, nodes=nodes, edges=edges)
