"""The operators a checked query becomes: what the engines run.

A read is a `ReadPlan`: one `Pattern` (what must match), then either rows or groups, then order and limit. A pattern is
a set, not a sequence: scans, expands, filters and anti-joins hold together in any order, and the engine chooses the
order from counts in the snapshot. A write is a `WritePlan`: statements in written order. Everything here is typed and
resolved; no operator carries text to be parsed again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from omnigraph.catalog.types import PropertyType
from omnigraph.dataclass import dataclass

# --- expressions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PropertyRef:
    """A property of the node or edge bound to `variable`."""

    variable: str
    property: str
    type: PropertyType


@dataclass(frozen=True)
class EntityId:
    """The id of the node bound to `variable` (a bare `$v`)."""

    variable: str


@dataclass(frozen=True)
class ParameterRef:
    """A declared parameter; its value arrives with the call."""

    name: str
    type: PropertyType


@dataclass(frozen=True)
class Literal:
    """A constant: str, int, float, bool, `datetime.date`, `datetime.datetime` (UTC), or a tuple of these."""

    value: Any
    type: PropertyType


@dataclass(frozen=True)
class Now:
    """The one UTC timestamp of the execution."""


class TextFunction(StrEnum):
    """The Bool text functions."""

    SEARCH = "search"
    FUZZY = "fuzzy"
    MATCH_TEXT = "match_text"


@dataclass(frozen=True)
class TextMatch:
    """`search`, `fuzzy` or `match_text` over a String property; `max_distance` belongs to `fuzzy`."""

    function: TextFunction
    property: PropertyRef
    query: Value
    max_distance: Value | None = None


@dataclass(frozen=True)
class Bm25:
    """The BM25 score of a String property for a query text, with statistics over the whole type."""

    property: PropertyRef
    query: Value


@dataclass(frozen=True)
class Nearest:
    """The squared L2 distance of a Vector property from a query vector, or from an embedded query text."""

    property: PropertyRef
    query: Value
    embed_model: str | None = None


@dataclass(frozen=True)
class Rrf:
    """Reciprocal rank fusion of two rankings of one variable; `k` is an integer value above zero."""

    first: Nearest | Bm25
    second: Nearest | Bm25
    k: Value


class AggregateFunction(StrEnum):
    """The aggregate functions."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True)
class Aggregate:
    """One aggregate over the rows of a group; a `count` of a variable or literal counts rows."""

    function: AggregateFunction
    argument: PropertyRef | EntityId | EdgeCount | Literal


@dataclass(frozen=True)
class EdgeCount:
    """The argument of `count($e)`: counts rows in which the edge variable is bound."""

    variable: str


Value = ParameterRef | Literal | Now
Rank = Nearest | Bm25 | Rrf
Expression = PropertyRef | EntityId | ParameterRef | Literal | Now | TextMatch | Nearest | Bm25 | Rrf | Aggregate

# --- predicates ------------------------------------------------------------------------------------------------------


class ComparisonOperator(StrEnum):
    """Comparison of two plain values; a null on either side is never satisfied."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


@dataclass(frozen=True)
class Comparison:
    """`left op right`; numbers compare by value across widths, F32 columns after rounding the other side to F32."""

    operator: ComparisonOperator
    left: PropertyRef | ParameterRef | Literal | Now | TextMatch
    right: PropertyRef | ParameterRef | Literal | Now | TextMatch


@dataclass(frozen=True)
class ListContains:
    """Membership of a plain value in a list; null lists, null values and null items never match."""

    items: PropertyRef | ParameterRef | Literal
    value: PropertyRef | ParameterRef | Literal | Now


class StringTest(StrEnum):
    """Exact, case-sensitive tests of a String against a String."""

    CONTAINS = "contains"
    STARTS_WITH = "starts_with"


@dataclass(frozen=True)
class StringPredicate:
    """`left contains right` or `left starts_with right` over plain Strings."""

    test: StringTest
    left: PropertyRef | ParameterRef | Literal
    right: PropertyRef | ParameterRef | Literal


Predicate = Comparison | ListContains | StringPredicate | TextMatch

# --- match operators -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scan:
    """`variable` ranges over every node of `type_name`."""

    variable: str
    type_name: str


@dataclass(frozen=True)
class Expand:
    """`source` and `target` are joined by `edge_type`, in the declared direction (`source` is at `src`).

    The pair is met once however many parallel edges there are, unless `edge_variable` names the edge: then there is
    one row per edge. `undirected` follows edges either way. Hops count by shortest distance within
    `min_hops … max_hops`; an edge variable occurs only with exactly one hop.
    """

    edge_type: str
    source: str
    target: str
    source_type: str
    target_type: str
    undirected: bool = False
    min_hops: int = 1
    max_hops: int = 1
    edge_variable: str | None = None


@dataclass(frozen=True)
class Filter:
    """Rows for which the predicate is true; null counts as not satisfied."""

    predicate: Predicate


@dataclass(frozen=True)
class AntiJoin:
    """Removes a row when at least one extension of it satisfies the inner pattern.

    Variables of the inner pattern that are bound outside are shared; `outer_variables` names them.
    """

    pattern: Pattern
    outer_variables: tuple[str, ...]


@dataclass(frozen=True)
class Pattern:
    """Everything that must hold together. Unconnected variables form a cross product.

    Every node variable of the pattern has exactly one `Scan` (inferred ones included), except, inside an anti-join,
    the variables bound outside it. Anonymous `$_` variables are given unique names starting with `_anon`.
    """

    scans: tuple[Scan, ...] = ()
    expands: tuple[Expand, ...] = ()
    filters: tuple[Filter, ...] = ()
    anti_joins: tuple[AntiJoin, ...] = ()


# --- result operators ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Projection:
    """One result column; aliases are already replaced by what they stand for. `type` is the column's type."""

    column: str
    expression: Expression
    type: PropertyType


@dataclass(frozen=True)
class OrderKey:
    """One ordering. Nulls are smallest; NaN is the largest number. Rank expressions ignore `descending`."""

    expression: Expression
    descending: bool = False


@dataclass(frozen=True)
class Parameter:
    """A declared parameter."""

    name: str
    type: PropertyType


@dataclass(frozen=True)
class ReadPlan:
    """A checked read query.

    With `is_aggregate`, the non-aggregate projections that mention a variable are the group keys, in projection order.
    `rank` is set when the first ordering ranks; it then decides which rows are dropped, and `order` holds the further
    orderings after it. Without any ordering the row order is unspecified.
    """

    name: str
    parameters: tuple[Parameter, ...]
    pattern: Pattern
    projections: tuple[Projection, ...]
    order: tuple[OrderKey, ...] = ()
    rank: Rank | None = None
    limit: int | None = None
    is_aggregate: bool = False

    @property
    def is_ordered(self) -> bool:
        """True when the query asks for an order, and so for the tie-break by ids as well."""
        return bool(self.order) or self.rank is not None


# --- write operators -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assignment:
    """`property: value`; the engine converts the value to the property's type and refuses what does not fit."""

    property: str
    value: Value


@dataclass(frozen=True)
class PropertyTest:
    """`where property op value`; `property` is a property of the type, or `src`/`dst` for an edge's from and to."""

    property: str
    operator: ComparisonOperator
    value: Value


@dataclass(frozen=True)
class InsertNode:
    """Insert, or replace by key where the type has one."""

    type_name: str
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True)
class InsertEdge:
    """Always a new edge; endpoints are node ids as text."""

    type_name: str
    source: Value
    target: Value
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True)
class UpdateNodes:
    """Set properties on every node the test selects."""

    type_name: str
    assignments: tuple[Assignment, ...]
    where: PropertyTest


@dataclass(frozen=True)
class DeleteNodes:
    """Delete every node the test selects, and all edges that touch one of them."""

    type_name: str
    where: PropertyTest


@dataclass(frozen=True)
class DeleteEdges:
    """Delete every edge the test selects."""

    type_name: str
    where: PropertyTest


Statement = InsertNode | InsertEdge | UpdateNodes | DeleteNodes | DeleteEdges


@dataclass(frozen=True)
class WritePlan:
    """A checked mutation: statements in written order, either inserts and updates or deletes (D2)."""

    name: str
    parameters: tuple[Parameter, ...]
    statements: tuple[Statement, ...]


Plan = ReadPlan | WritePlan
