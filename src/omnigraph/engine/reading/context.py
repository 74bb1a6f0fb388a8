"""What one execution knows: its snapshot, its parameters, its moment, its bounds and its notes.

Everything an operator needs beside its own rows is here, so operators are plain functions. Views of tables are opened
when first asked for; a query opens only the tables it names.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.engine.reading.adjacency import Adjacency, adjacency
from omnigraph.engine.reading.segments import Direction
from omnigraph.engine.reading.tables import EdgeView, NodeView, TableView, edge_view, node_view
from omnigraph.engine.reading.values import Constant, epoch_millis, to_physical
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.errors import InputError, InternalError, LimitError
from omnigraph.ids import TableKey, edge_key, node_key
from omnigraph.plan.operators import Expand, Literal, Now, ParameterRef, ReadPlan, Value

DATETIME = PropertyType(Scalar.DATETIME)


class OpensTables(Protocol):
    """What reading needs of a snapshot: the table of a type at the snapshot's version."""

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


@dataclass
class Step:
    """One thing the engine did: what, why, how many rows came out, and how long it took. Times what it encloses."""

    operator: str
    _detail: Words
    _reason: Words = ""
    rows: int = 0
    seconds: float = 0.0
    depth: int = 0

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

    def __enter__(self) -> Step:
        self.seconds = time.perf_counter()
        return self

    def __exit__(self, *exc: object) -> None:
        self.seconds = time.perf_counter() - self.seconds


@dataclass
class Context:
    """One execution of one plan on one snapshot."""

    plan: ReadPlan
    snapshot: OpensTables
    params: Mapping[str, Any]
    options: ReadOptions
    embedder: EmbedsText | None = None
    now: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    steps: list[Step] = field(default_factory=list)
    depth: int = 0
    types: dict[str, str] = field(default_factory=dict)
    """Node type of each node variable in scope."""
    edge_types: dict[str, str] = field(default_factory=dict)
    """Edge type of each edge variable in scope."""
    deadline: float | None = None
    memo: dict[Any, Any] = field(default_factory=dict)
    """What was computed once for this execution, such as the scores of a ranking."""

    _nodes: dict[str, NodeView] = field(default_factory=dict)
    _edges: dict[str, EdgeView] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.options.timeout_seconds is not None:
            self.deadline = time.monotonic() + self.options.timeout_seconds

    def nodes(self, type_name: str) -> NodeView:
        """The node table of a type."""
        found = self._nodes.get(type_name)
        if found is None:
            found = self._nodes[type_name] = node_view(self.snapshot.open(node_key(type_name)))
        return found

    def edges(self, edge_type: str) -> EdgeView:
        """The edge table of a type."""
        found = self._edges.get(edge_type)
        if found is None:
            found = self._edges[edge_type] = edge_view(self.snapshot.open(edge_key(edge_type)))
        return found

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
        key = (expand.edge_type, direction)
        found = self.memo.get(key)
        if found is None:
            sources, targets = self.nodes(expand.source_type), self.nodes(expand.target_type)
            found = self.memo[key] = adjacency(self.edges(expand.edge_type), sources, targets, direction)
        return found

    def constant(self, value: Value) -> Constant:
        """The run-time value of a parameter, literal or `now()`."""
        match value:
            case Now():
                return Constant(epoch_millis(self.now), DATETIME)
            case Literal():
                return Constant(to_physical(value.value, value.type), value.type)
            case ParameterRef():
                return Constant(to_physical(self.parameter(value), value.type), value.type)

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
        """Note what is done; used as a context manager it times it, and the caller fills in the rows."""
        note = Step(operator, detail, reason, depth=self.depth)
        self.steps.append(note)
        return note
