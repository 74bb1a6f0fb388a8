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
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.engine.embedding import Embedder
from omnigraph.engine.read.columns.edges import EdgeView
from omnigraph.engine.read.columns.nodes import NodeView
from omnigraph.engine.read.columns.tables import TableView
from omnigraph.engine.read.columns.values import Constant, epoch_millis, to_physical
from omnigraph.engine.read.graph.adjacency import Adjacency
from omnigraph.engine.read.graph.segments import Direction
from omnigraph.engine.read.graph.shortest import TracedPaths
from omnigraph.engine.read.kernels import Ints
from omnigraph.engine.read.state import Tables
from omnigraph.engine.read.text.analysis import Postings
from omnigraph.engine.read.vector.quantised import Singles
from omnigraph.errors import InputError, InternalError, LimitError, ParameterError
from omnigraph.plan.operators import (
    Bm25,
    Count,
    Expand,
    Literal,
    Nearest,
    Now,
    ParameterRef,
    ReadPlan,
    TextMatch,
    Value,
)

Floats = npt.NDArray[np.float64]
DATETIME = PropertyType(Scalar.DATETIME)


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


class Computed(Struct):
    """What was computed once for one execution, however often its operators ask for it."""

    postings: dict[tuple[TableView, str, str], list[Postings]] = field(default_factory=dict)
    """By table, column and word."""
    holding: dict[tuple[TableView, str, tuple[str, ...]], Ints] = field(default_factory=dict)
    """By table, column and words, the positions that hold one of them."""
    text_positions: dict[tuple[TableView, TextMatch], Ints] = field(default_factory=dict)
    bm25_found: dict[Bm25, tuple[Ints, Floats]] = field(default_factory=dict)
    bm25_scores: dict[Bm25, Floats] = field(default_factory=dict)
    paths: dict[str, TracedPaths] = field(default_factory=dict)
    """By path variable, the paths that its integers stand for."""
    query_vectors: list[tuple[Nearest, Singles | None]] = field(default_factory=list)
    """A list, because the vector of a query may be a literal, which has no hash; there are one or two."""


class Context:
    """One execution of one plan on one snapshot."""

    __slots__ = (
        "_computed",
        "_now",
        "begun",
        "deadline",
        "depth",
        "edge_types",
        "embedder",
        "limit",
        "nullable",
        "offset",
        "options",
        "params",
        "plan",
        "steps",
        "tables",
        "types",
    )

    def __init__(
        self,
        plan: ReadPlan,
        tables: Tables,
        params: Mapping[str, Any],
        options: ReadOptions,
        embedder: Embedder | None = None,
        now: dt.datetime | None = None,
    ) -> None:
        self.plan = plan
        self.tables = tables
        self.params = params
        self.options = options
        self.embedder = embedder
        self.steps: list[Step] = []
        self.depth = 0
        self.types: Mapping[str, str] = {}
        """Node type of each node variable in scope."""
        self.edge_types: Mapping[str, str] = {}
        """Edge type of each edge variable in scope."""
        self.nullable: frozenset[str] = frozenset()
        """Variables that may stand for nothing; then their integer is negative."""
        self.offset = self._count(plan.offset, "offset")
        """How many rows are left out at the beginning."""
        self.limit: int | None = None
        """How many rows matter, those left out at the beginning included."""
        if plan.limit is not None:
            self.limit = self._count(plan.limit, "limit") + self.offset
        self._computed: Computed | None = None
        self.begun: dict[str, tuple[Ints, Ints]] = {}
        """By variable, the codes and the positions it was first bound to."""
        self.deadline: float | None = None
        if options.timeout_seconds is not None:
            self.deadline = time.monotonic() + options.timeout_seconds
        self._now = now

    def again(self) -> Context:
        """The same execution begun anew, at the same moment and with what is left of its time."""
        fresh = Context(self.plan, self.tables, self.params, self.options, self.embedder, self._now)
        fresh.nullable, fresh.deadline = self.nullable, self.deadline
        return fresh

    def _count(self, count: Count, what: str) -> int:
        if isinstance(count, int):
            return count
        value = self.parameter(count)
        if value is None or value < 0:
            shown = "null" if value is None else value
            raise ParameterError(f"param '{count.name}': {what} takes a number from 0 on, not {shown}")
        return int(value)

    @property
    def computed(self) -> Computed:
        """What was computed so far; most executions compute nothing twice."""
        if self._computed is None:
            self._computed = Computed()
        return self._computed

    def has_path(self, variable: str) -> bool:
        """Whether the integers of a variable stand for paths."""
        return self._computed is not None and variable in self._computed.paths

    @property
    def now(self) -> dt.datetime:
        """The one moment of this execution."""
        if self._now is None:
            self._now = dt.datetime.now(dt.UTC)
        return self._now

    def nodes(self, type_name: str) -> NodeView:
        """The node table of a type."""
        return self.tables.node_view(type_name)

    def edges(self, edge_type: str) -> EdgeView:
        """The edge table of a type."""
        return self.tables.edge_view(edge_type)

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
        return self.tables.adjacency(expand, direction)

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
