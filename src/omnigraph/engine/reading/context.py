"""What one execution knows: its snapshot, its parameters, its moment, its bounds and its notes.

Everything an operator needs beside its own rows is here, so operators are plain functions. Views of tables are opened
when first asked for; a query opens only the tables it names.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.engine.reading.adjacency import Adjacency, Direction, adjacency
from omnigraph.engine.reading.tables import EdgeView, NodeView, TableView, edge_view, node_view
from omnigraph.engine.reading.values import Constant, epoch_millis, to_physical
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.errors import InputError, InternalError, LimitError
from omnigraph.ids import TableKey, edge_key, node_key
from omnigraph.plan.operators import Expand, Literal, Now, ParameterRef, Pattern, ReadPlan, Value

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


@dataclass
class Step:
    """One thing the engine did: what, why, how many rows came out, and how long it took."""

    operator: str
    detail: str
    reason: str
    rows: int = 0
    seconds: float = 0.0
    depth: int = 0


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

    def __post_init__(self) -> None:
        if self.options.timeout_seconds is not None:
            self.deadline = time.monotonic() + self.options.timeout_seconds
        self.declare(self.plan.pattern)

    def declare(self, pattern: Pattern) -> None:
        """Note the types of a pattern's variables, nested patterns included."""
        for scan in pattern.scans:
            self.types[scan.variable] = scan.type_name
        for expand in pattern.expands:
            self.types.setdefault(expand.source, expand.source_type)
            self.types.setdefault(expand.target, expand.target_type)
            if expand.edge_variable is not None:
                self.edge_types[expand.edge_variable] = expand.edge_type

    def nodes(self, type_name: str) -> NodeView:
        """The node table of a type."""
        return node_view(self.snapshot.open(node_key(type_name)))

    def edges(self, edge_type: str) -> EdgeView:
        """The edge table of a type."""
        return edge_view(self.snapshot.open(edge_key(edge_type)))

    def view(self, variable: str) -> TableView:
        """The table whose rows a variable ranges over."""
        if variable in self.types:
            return self.nodes(self.types[variable])
        if variable in self.edge_types:
            return self.edges(self.edge_types[variable])
        raise InternalError(f"${variable} is used but not bound in the plan of '{self.plan.name}'")

    def adjacency(self, expand: Expand, direction: Direction) -> Adjacency:
        """The edges an expand follows, seen from the side `direction` starts at."""
        sources, targets = self.nodes(expand.source_type), self.nodes(expand.target_type)
        return adjacency(self.edges(expand.edge_type), sources, targets, direction)

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

    @contextmanager
    def step(self, operator: str, detail: str, reason: str) -> Iterator[Step]:
        """Note what is done, with its time; the caller fills in the rows."""
        note = Step(operator, detail, reason, depth=self.depth)
        self.steps.append(note)
        begin = time.perf_counter()
        try:
            yield note
        finally:
            note.seconds = time.perf_counter() - begin
