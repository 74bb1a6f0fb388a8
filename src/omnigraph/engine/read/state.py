"""What queries have derived from one state of the graph, and how the next state goes on from it.

Everything here follows from a state that never changes, so it is right for as long as anybody holds it; what belongs to
one table stands in its view, where other states with the same version of that table find it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Protocol, TypeVar

from msgspec import Struct, field

from omnigraph.engine.read.columns.edges import EdgeView
from omnigraph.engine.read.columns.nodes import NodeView
from omnigraph.engine.read.columns.tables import TableView
from omnigraph.engine.read.columns.views import Views
from omnigraph.engine.read.graph.adjacency import Adjacency
from omnigraph.engine.read.graph.assembly import adjacency
from omnigraph.engine.read.graph.segments import Direction
from omnigraph.engine.read.kernels import Bools, Ints
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.ids import TableKey, edge_key, node_key
from omnigraph.plan.operators import Expand

FOLLOWED_ROWS_MAX = 10_000
"""After a commit that changed more rows of a table, what queries derive from it is made when one asks."""


class OpensTables(Protocol):
    """What reading needs of a snapshot: the table of a type at the snapshot's version."""

    def open(self, table_key: TableKey) -> TableHandle:
        """The table of a type."""
        ...


class Conditions(Struct):
    """Which nodes satisfy a condition, for conditions that were tested often; see `condition_marks`."""

    marks: dict[Hashable, Bools] = field(default_factory=dict)
    tested: dict[Hashable, int] = field(default_factory=dict)
    """By condition, the rows it was tested on so far."""


class Walks(Struct):
    """By hops, how many ways lead on from each node; see `walk_factors`."""

    counts: dict[Hashable, Ints] = field(default_factory=dict)
    asked: dict[Hashable, int] = field(default_factory=dict)


class Tables:
    """The tables and the adjacency of one state of the graph that queries have asked for so far.

    A table has one view here for good, whichever thread asks first: a query that met two would look codes of the one
    up in the other.
    """

    __slots__ = ("adjacencies", "conditions", "edges", "joined", "nodes", "opens", "views", "walks")

    def __init__(self, opens: OpensTables, views: Views) -> None:
        self.opens = opens
        self.views = views
        self.nodes: dict[str, NodeView] = {}
        self.edges: dict[str, EdgeView] = {}
        self.adjacencies: dict[tuple[str, Direction], Adjacency] = {}
        """By edge type and direction."""
        self.joined: dict[tuple[str, Direction], tuple[str, str]] = {}
        """The types of the ends of each adjacency there is."""
        self.walks = Walks()
        self.conditions = Conditions()

    def node_view(self, type_name: str) -> NodeView:
        """The node table of a type."""
        found = self.nodes.get(type_name)
        if found is None:
            found = self.nodes.setdefault(type_name, self.views.nodes(self.opens.open(node_key(type_name))))
        return found

    def edge_view(self, edge_type: str) -> EdgeView:
        """The edge table of a type."""
        found = self.edges.get(edge_type)
        if found is None:
            found = self.edges.setdefault(edge_type, self.views.edges(self.opens.open(edge_key(edge_type))))
        return found

    def adjacency(self, expand: Expand, direction: Direction) -> Adjacency:
        """The edges an expand follows, seen from the side `direction` starts at."""
        found = self.adjacencies.get((expand.edge_type, direction))
        if found is None:
            found = self.joining(expand.edge_type, expand.source_type, expand.target_type, direction)
        return found

    def joining(self, edge_type: str, source_type: str, target_type: str, direction: Direction) -> Adjacency:
        """The edges of a type, seen from the side `direction` starts at."""
        key = (edge_type, direction)
        found = self.adjacencies.get(key)
        if found is None:
            sources, targets = self.node_view(source_type), self.node_view(target_type)
            found = adjacency(self.edge_view(edge_type), sources, targets, direction)
            self.adjacencies[key] = found
            self.joined[key] = source_type, target_type
        return found

    def followed(self, handles: Mapping[TableKey, TableHandle]) -> Successor:
        """Derive from the tables that will replace these what queries had derived from these.

        After a large change that would take long, and nobody may ask; then it is left to whoever asks.
        """
        # Copies, as queries may open further tables meanwhile.
        nodes, edges = dict(self.nodes), dict(self.edges)
        nodes = _followed(nodes, {name: handles.get(node_key(name)) for name in nodes}, self.views.nodes)
        edges = _followed(edges, {name: handles.get(edge_key(name)) for name in edges}, self.views.edges)
        after = Successor(nodes, edges)
        for (name, direction), (source, target) in list(self.joined.items()):
            if name in edges and source in nodes and target in nodes:
                joined = adjacency(edges[name], nodes[source], nodes[target], direction)
                after.adjacencies[name, direction] = joined
                after.joined[name, direction] = source, target
        return after

    def take_over(self, ready: Successor) -> bool:
        """Begin with what was made ready before this state was published, if it has exactly these tables.

        Others may have published in between: their tables are not ours, and are opened by whoever asks.
        """
        is_same = all(self.opens.open(node_key(name)) is view.handle for name, view in ready.nodes.items()) and all(
            self.opens.open(edge_key(name)) is view.handle for name, view in ready.edges.items()
        )
        if is_same:
            self.nodes, self.edges = ready.nodes, ready.edges
            self.adjacencies, self.joined = ready.adjacencies, ready.joined
        return is_same


class Successor(Struct, frozen=True):
    """What was made ready for a state that is not published yet."""

    nodes: dict[str, NodeView]
    edges: dict[str, EdgeView]
    adjacencies: dict[tuple[str, Direction], Adjacency] = field(default_factory=dict)
    joined: dict[tuple[str, Direction], tuple[str, str]] = field(default_factory=dict)


View = TypeVar("View", bound=TableView)


def _followed(
    views: Mapping[str, View], handles: Mapping[str, TableHandle | None], view_of: Callable[[TableHandle], View]
) -> dict[str, View]:
    """Views of the tables as they will be; those that change much are left out."""
    found = dict(views)
    for name, handle in handles.items():
        if handle is None:
            continue
        after = view_of(handle)
        if after.rows_changed_since(views[name]) > FOLLOWED_ROWS_MAX:
            del found[name]
            continue
        after.follow(views[name])
        found[name] = after
    return found
