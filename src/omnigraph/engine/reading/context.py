"""What one execution knows: its snapshot, its parameters, its moment, its bounds and its notes.

Everything an operator needs beside its own rows is here, so operators are plain functions. Views of tables are opened
when first asked for; a query opens only the tables it names.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol, TypeVar

from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.engine.manifest.snapshot import READER
from omnigraph.engine.reading.adjacency import Adjacency
from omnigraph.engine.reading.assembly import adjacency
from omnigraph.engine.reading.edges import EdgeView, edge_view
from omnigraph.engine.reading.kernels import Ints
from omnigraph.engine.reading.nodes import NodeView, node_view
from omnigraph.engine.reading.segments import Direction
from omnigraph.engine.reading.tables import TableView
from omnigraph.engine.reading.values import Constant, epoch_millis, to_physical
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.errors import InputError, InternalError, LimitError
from omnigraph.ids import TableKey, edge_key, node_key
from omnigraph.plan.operators import Expand, Literal, Now, ParameterRef, ReadPlan, Value

DATETIME = PropertyType(Scalar.DATETIME)
FOLLOWED_ROWS_MAX = 10_000
"""After a commit that changed more rows of a table, what queries derive from it is made when one asks."""


class OpensTables(Protocol):
    """What reading needs of a snapshot: the table of a type at the snapshot's version, and a place to keep things."""

    @property
    def memo(self) -> dict[Any, Any]:
        """What readers derive from this state of the graph, kept for as long as the state is."""
        ...

    def open(self, table_key: TableKey) -> TableHandle:
        """The table of a type."""
        ...


class EmbedsText(Protocol):
    """What reading needs of an embedding provider."""

    @property
    def model(self) -> str:
        """The name of the model, compared with `@embed(…, model=…)`."""
        ...

    def embed_query(self, text: str, dimension: int) -> tuple[float, ...]:
        """The vector of a query text."""
        ...


@dataclass(frozen=True)
class ReadOptions:
    """Bounds and choices of one read. None of them changes a result; a bound that is met raises `LimitError`."""

    rows_max: int = 50_000_000
    """Rows that may exist at once while the pattern is matched."""
    bytes_max: int = 2 << 30
    """Bytes those rows may occupy, positions only."""
    result_bytes_max: int = 4 << 30
    """Bytes a result may occupy when it is asked for as one table instead of a stream."""
    use_value_indexes: bool = True
    """Whether equality may be answered from sorted values instead of a scan."""
    use_factoring: bool = True
    """Whether variables nobody asks for may be counted instead of enumerated."""
    timeout_seconds: float | None = None
    """How long matching may take."""


Words = str | Callable[[], str]
"""Text, or how to make it: notes are written at every step and hardly ever read."""


class Step:
    """One thing the engine did: what, why, how many rows came out, and how long it took."""

    __slots__ = ("_detail", "_reason", "depth", "operator", "rows", "seconds")

    def __init__(self, operator: str, detail: Words, reason: Words, depth: int) -> None:
        self.operator = operator
        self._detail = detail
        self._reason = reason
        self.depth = depth
        self.rows = 0
        self.seconds = perf_counter()

    @property
    def detail(self) -> str:
        """What it worked on."""
        return self._detail if isinstance(self._detail, str) else self._detail()

    @property
    def reason(self) -> str:
        """Why it was done this way."""
        return self._reason if isinstance(self._reason, str) else self._reason()

    def because(self, reason: Words) -> None:
        """Say why, once it is known."""
        self._reason = reason

    def done(self, rows: int) -> None:
        """The step has ended with so many rows; until now `seconds` held when it began."""
        self.rows = rows
        self.seconds = perf_counter() - self.seconds


class Tables:
    """The tables and the adjacency of one state of the graph that queries have asked for so far."""

    __slots__ = ("adjacency", "edges", "is_asked", "joined", "nodes", "successor", "walks", "walks_asked")

    def __init__(self) -> None:
        self.is_asked = False
        """Whether a query has used them."""
        self.successor: Tables | None = None
        """What `follow` has made ready for the state that a commit makes of this one."""
        self.walks: dict[Any, Ints] = {}
        """By hops, how many ways lead on from each node; see `walks`."""
        self.walks_asked: dict[Any, int] = {}
        self.nodes: dict[str, NodeView] = {}
        self.edges: dict[str, EdgeView] = {}
        self.adjacency: dict[tuple[str, str], Adjacency] = {}
        self.joined: dict[tuple[str, Direction], tuple[str, str]] = {}
        """The types of the ends of each adjacency there is."""

    @classmethod
    def of(cls, snapshot: OpensTables) -> Tables:
        """Those of a snapshot, shared by everything that reads the same state."""
        found: Tables | None = snapshot.memo.get("tables")
        if found is None:
            found = snapshot.memo.setdefault("tables", cls())
        if not found.is_asked:
            found.is_asked = True
            snapshot.memo[READER] = found
        return found

    def node_view(self, snapshot: OpensTables, type_name: str) -> NodeView:
        """The node table of a type."""
        found = self.nodes.get(type_name)
        if found is None:
            found = self.nodes[type_name] = node_view(snapshot.open(node_key(type_name)))
        return found

    def edge_view(self, snapshot: OpensTables, edge_type: str) -> EdgeView:
        """The edge table of a type."""
        found = self.edges.get(edge_type)
        if found is None:
            found = self.edges[edge_type] = edge_view(snapshot.open(edge_key(edge_type)))
        return found

    def follow(self, handles: Mapping[TableKey, TableHandle]) -> None:
        """Derive from the tables that will replace these what queries had derived from these.

        After a large change that would take long, and nobody may ask; then it is left to whoever asks.
        """
        # Copies, as queries may open further tables meanwhile.
        nodes, edges = dict(self.nodes), dict(self.edges)
        nodes = _followed(nodes, {name: handles.get(node_key(name)) for name in nodes}, node_view)
        edges = _followed(edges, {name: handles.get(edge_key(name)) for name in edges}, edge_view)
        after = Tables()
        after.nodes, after.edges = nodes, edges
        for (name, direction), (source, target) in list(self.joined.items()):
            if name in edges and source in nodes and target in nodes:
                joined = adjacency(edges[name], nodes[source], nodes[target], direction)
                after.adjacency[name, direction.value] = joined
                after.joined[name, direction] = source, target
        self.successor = after

    def settle(self, snapshot: OpensTables) -> None:
        """Leave what was made ready to the state that has been published, if it has exactly these tables.

        Others may have published in between: their tables are not ours, and are opened by whoever asks.
        """
        after, self.successor = self.successor, None
        if after is None:
            return
        is_same = all(snapshot.open(node_key(name)) is view.handle for name, view in after.nodes.items()) and all(
            snapshot.open(edge_key(name)) is view.handle for name, view in after.edges.items()
        )
        if is_same:
            snapshot.memo.setdefault("tables", after)


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


class Context:
    """One execution of one plan on one snapshot."""

    __slots__ = (
        "_now",
        "deadline",
        "depth",
        "edge_types",
        "embedder",
        "memo",
        "options",
        "params",
        "plan",
        "snapshot",
        "steps",
        "tables",
        "types",
    )

    def __init__(
        self,
        plan: ReadPlan,
        snapshot: OpensTables,
        params: Mapping[str, Any],
        options: ReadOptions,
        embedder: EmbedsText | None = None,
        now: dt.datetime | None = None,
    ) -> None:
        self.plan = plan
        self.snapshot = snapshot
        self.params = params
        self.options = options
        self.embedder = embedder
        self.steps: list[Step] = []
        self.depth = 0
        self.types: Mapping[str, str] = {}
        """Node type of each node variable in scope."""
        self.edge_types: Mapping[str, str] = {}
        """Edge type of each edge variable in scope."""
        self.memo: dict[Any, Any] = {}
        """What was computed once for this execution, such as the scores of a ranking."""
        self.deadline: float | None = None
        if options.timeout_seconds is not None:
            self.deadline = time.monotonic() + options.timeout_seconds
        self._now = now
        self.tables = Tables.of(snapshot)

    @property
    def now(self) -> dt.datetime:
        """The one moment of this execution."""
        if self._now is None:
            self._now = dt.datetime.now(dt.UTC)
        return self._now

    def nodes(self, type_name: str) -> NodeView:
        """The node table of a type."""
        return self.tables.node_view(self.snapshot, type_name)

    def edges(self, edge_type: str) -> EdgeView:
        """The edge table of a type."""
        return self.tables.edge_view(self.snapshot, edge_type)

    def view(self, variable: str) -> TableView:
        """The table whose rows a variable ranges over."""
        type_name = self.types.get(variable)
        if type_name is not None:
            return self.nodes(type_name)
        if variable in self.edge_types:
            return self.edges(self.edge_types[variable])
        raise InternalError(f"${variable} is used but not bound in the plan of '{self.plan.name}'")

    def adjacency(self, expand: Expand, direction: Direction) -> Adjacency:
        """The edges an expand follows, seen from the side `direction` starts at."""
        key = (expand.edge_type, direction._value_)
        found = self.tables.adjacency.get(key)
        if found is None:
            sources, targets = self.nodes(expand.source_type), self.nodes(expand.target_type)
            found = adjacency(self.edges(expand.edge_type), sources, targets, direction)
            self.tables.adjacency[key] = found
            self.tables.joined[expand.edge_type, direction] = expand.source_type, expand.target_type
        return found

    def constant(self, value: Value) -> Constant:
        """The run-time value of a parameter, literal or `now()`."""
        return Constant(self.physical(value), DATETIME if isinstance(value, Now) else value.type)

    def physical(self, value: Value) -> Any:
        """The same as the number or text it is compared as; None is null."""
        if isinstance(value, ParameterRef):
            return to_physical(self.parameter(value), value.type)
        if isinstance(value, Literal):
            return to_physical(value.value, value.type)
        return epoch_millis(self.now)

    def parameter(self, reference: ParameterRef) -> Any:
        """The bound value of a parameter; an omitted nullable one is null."""
        if reference.name not in self.params:
            if reference.type.nullable:
                return None
            raise InputError(f"parameter '{reference.name}' not provided", code="param")
        return self.params[reference.name]

    def check_rows(self, rows: int, columns: int, doing: str) -> None:
        """Refuse to create more rows than the execution may hold.

        Raises:
            LimitError: a bound of `ReadOptions` would be passed.
        """
        if rows > self.options.rows_max:
            raise LimitError(
                f"{doing} would hold {rows:,} rows at once, above the limit of {self.options.rows_max:,}:"
                " add a condition, or raise rows_max",
                resource="rows",
                limit=self.options.rows_max,
                actual=rows,
            )
        size = rows * max(columns, 1) * 8
        if size > self.options.bytes_max:
            raise LimitError(
                f"{doing} would hold {size:,} bytes at once, above the limit of {self.options.bytes_max:,}:"
                " add a condition, or raise bytes_max",
                resource="bytes",
                limit=self.options.bytes_max,
                actual=size,
            )
        if self.deadline is not None and time.monotonic() > self.deadline:
            limit = int((self.options.timeout_seconds or 0) * 1000)
            raise LimitError(
                f"the query ran longer than {limit:,} ms", resource="milliseconds", limit=limit, actual=limit + 1
            )

    def step(self, operator: str, detail: Words, reason: Words = "") -> Step:
        """Note that something begins; whoever does it says `done` with the rows that came out."""
        note = Step(operator, detail, reason, self.depth)
        self.steps.append(note)
        return note
