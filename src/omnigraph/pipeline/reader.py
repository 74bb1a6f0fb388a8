"""A graph as DataFrames: each type at one snapshot, a partition per group of fragments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from omnigraph.catalog.model import EdgeType, EntityType, NodeType
from omnigraph.engine.ingest.entities import entity_of
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import InputError
from omnigraph.ids import MAIN, Moment, parse_branch
from omnigraph.pipeline.analytics import Analytics
from omnigraph.pipeline.datasource import FORMAT, register
from omnigraph.pipeline.session import obtain_session

Kind = TypeVar("Kind", bound=EntityType)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class GraphFrames:
    """The types of one snapshot as DataFrames; later commits do not change what they hold."""

    def __init__(
        self,
        context: GraphContext,
        session: SparkSession | None = None,
        *,
        branch: str = MAIN,
        at: Moment | None = None,
    ) -> None:
        self.context = context
        self.session = obtain_session(session)
        name = parse_branch(branch)
        self.snapshot: Snapshot = (
            context.manifest.snapshot(name) if at is None else context.manifest.history.snapshot_at(at, name)
        )
        register(self.session)

    def newest(self, branch: str) -> GraphFrames:
        """The same of the newest state of a branch."""
        return GraphFrames(self.context, self.session, branch=branch)

    def nodes(self, type_name: str, *, columns: Sequence[str] | None = None) -> DataFrame:
        """The nodes of a type: `id` and its properties, or the columns asked for, which is all that is read."""
        return self._frame(self.node_type(type_name), columns)

    def edges(self, type_name: str, *, columns: Sequence[str] | None = None) -> DataFrame:
        """The edges of a type: `id`, `src`, `dst` and its properties, or the columns asked for."""
        return self._frame(self.edge_type(type_name), columns)

    def analytics(self, *edges: str) -> Analytics:
        """Algorithms over the edges of these types, or of all."""
        return Analytics(self, edges)

    def node_type(self, name: str) -> NodeType:
        """The node type of this name."""
        return _of_kind(entity_of(name if ":" in name else f"node:{name}", self.context.catalog), NodeType, "node")

    def edge_type(self, name: str) -> EdgeType:
        """The edge type of this name, in any case."""
        edge = self.context.catalog.edges_by_lower_name.get(name.lower())
        return edge if edge is not None else _of_kind(entity_of(name, self.context.catalog), EdgeType, "edge")

    def _frame(self, entity: NodeType | EdgeType, columns: Sequence[str] | None) -> DataFrame:
        reader = self.session.read.format(FORMAT).option("type", entity.table_key)
        reader = reader.option("branch", self.snapshot.branch).option("version", str(self.snapshot.version))
        if columns is not None:
            reader = reader.option("columns", ",".join(columns))
        return reader.load(self.context.root)


def _of_kind(entity: EntityType, kind: type[Kind], word: str) -> Kind:
    if not isinstance(entity, kind):
        raise InputError(f"'{entity.name}' is not {'an' if word == 'edge' else 'a'} {word} type")
    return entity
