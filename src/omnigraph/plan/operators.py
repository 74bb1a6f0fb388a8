"""The operators a checked query becomes: what the engines run.

A read is a `ReadPlan`: one `Pattern` (what must match), then either rows or groups, then order and limit. A pattern is
a set, not a sequence: scans, expands, filters and anti-joins hold together in any order, and the engine chooses the
order from counts in the snapshot. A write is a `WritePlan` of `statements`. Everything is typed and resolved; no
operator carries text to be parsed again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct

from omnigraph.catalog.types import PropertyType

# --- expressions -----------------------------------------------------------------------------------------------------


class PropertyRef(Struct, frozen=True):
    """A property of the node or edge bound to `variable`."""

    variable: str
    property: str
    type: PropertyType


class EntityId(Struct, frozen=True):
    """The id of the node bound to `variable` (a bare `$v`); null where an optional block found none."""

    variable: str
    nullable: bool = False


class ParameterRef(Struct, frozen=True):
    """A declared parameter; its value arrives with the call."""

    name: str
    type: PropertyType


class Literal(Struct, frozen=True):
    """A constant: str, int, float, bool, `datetime.date`, `datetime.datetime` (UTC), or a tuple of these."""

    value: Any
    type: PropertyType


class Now(Struct, frozen=True):
    """The one UTC timestamp of the execution."""


class TextFunction(StrEnum):
    """The Bool text functions."""

    SEARCH = "search"
    FUZZY = "fuzzy"
    MATCH_TEXT = "match_text"


class TextMatch(Struct, frozen=True):
    """`search`, `fuzzy` or `match_text` over a String property; `max_distance` belongs to `fuzzy`."""

    function: TextFunction
    property: PropertyRef
    query: Value
    max_distance: Value | None = None


class Bm25(Struct, frozen=True):
    """The BM25 score of a String property for a query text, with statistics over the whole type."""

    property: PropertyRef
    query: Value


class Nearest(Struct, frozen=True):
    """The squared L2 distance of a Vector property from a query vector, or from an embedded query text."""

    property: PropertyRef
    query: Value
    embed_model: str | None = None


class Rrf(Struct, frozen=True):
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
    COLLECT = "collect"


class Aggregate(Struct, frozen=True):
    """One aggregate over the rows of a group; a `count` of a variable or literal counts rows.

    With `distinct`, equal values count once.
    """

    function: AggregateFunction
    argument: Expression | EdgeCount
    distinct: bool = False


class EdgeCount(Struct, frozen=True):
    """The argument of `count($e)`: counts rows in which the edge variable is bound."""

    variable: str
    nullable: bool = False


class FunctionCall(Struct, frozen=True):
    """A function of the table (`omnigraph.plan.functions`) over its arguments, row by row."""

    function: str
    arguments: tuple[Expression, ...]
    type: PropertyType


class Arithmetic(Struct, frozen=True):
    """`left operator right` with one of `+ - * / %`; `type` is I64, F64, Date or DateTime."""

    operator: str
    left: Expression
    right: Expression
    type: PropertyType


class Negative(Struct, frozen=True):
    """`-operand`; `type` is I64 or F64."""

    operand: Expression
    type: PropertyType


class PathValue(Struct, frozen=True):
    """A path variable: the whole path, or its `nodes`, `edges` or `length`."""

    variable: str
    part: str
    type: PropertyType


Value = ParameterRef | Literal | Now
Rank = Nearest | Bm25 | Rrf
Computed = FunctionCall | Arithmetic | Negative
Expression = (
    PropertyRef
    | EntityId
    | ParameterRef
    | Literal
    | Now
    | TextMatch
    | Nearest
    | Bm25
    | Rrf
    | Aggregate
    | Computed
    | PathValue
)

# --- predicates ------------------------------------------------------------------------------------------------------


class ComparisonOperator(StrEnum):
    """Comparison of two plain values; a null on either side is never satisfied."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


class Comparison(Struct, frozen=True):
    """`left op right`; numbers compare by value across widths, F32 columns after rounding the other side to F32."""

    operator: ComparisonOperator
    left: Expression
    right: Expression


class ListContains(Struct, frozen=True):
    """Membership of a plain value in a list; null lists, null values and null items never match."""

    items: Expression
    value: Expression


class InList(Struct, frozen=True):
    """`value in items`: null where the value or the list is, or where nothing matches and an item is null."""

    value: Expression
    items: Expression


class StringTest(StrEnum):
    """Exact, case-sensitive tests of a String against a String."""

    CONTAINS = "contains"
    STARTS_WITH = "starts_with"
    ENDS_WITH = "ends_with"
    MATCHES = "matches"


class StringPredicate(Struct, frozen=True):
    """A test of a String against a String; the right side of `matches` is a constant, and a pattern that compiles."""

    test: StringTest
    left: Expression
    right: Expression


class IsNull(Struct, frozen=True):
    """`operand is null`, or `is not null`; never null itself."""

    operand: Expression
    negated: bool = False


class IsTrue(Struct, frozen=True):
    """A Bool that is a condition by itself."""

    operand: Expression


class Not(Struct, frozen=True):
    """True where the inner predicate is false; null where it is null."""

    predicate: Predicate


class And(Struct, frozen=True):
    """True where every part is, false where one is false, else null."""

    parts: tuple[Predicate, ...]


class Or(Struct, frozen=True):
    """True where one part is, false where every part is false, else null."""

    parts: tuple[Predicate, ...]


Predicate = Comparison | ListContains | InList | StringPredicate | TextMatch | IsNull | IsTrue | Not | And | Or

# --- match operators -------------------------------------------------------------------------------------------------


class Scan(Struct, frozen=True):
    """`variable` ranges over every node of `type_name`."""

    variable: str
    type_name: str


class Expand(Struct, frozen=True):
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


class ShortestPath(Struct, frozen=True):
    """Binds one shortest path per pair of `source` and `target` whose length is within the bounds.

    Of several the one whose sequence of node ids is smallest. A node has no path to itself. `backward` reads the path
    from its target, as it was written so.
    """

    variable: str
    edge_type: str
    source: str
    target: str
    source_type: str
    target_type: str
    undirected: bool
    min_hops: int
    max_hops: int
    backward: bool = False

    @property
    def expand(self) -> Expand:
        """The pairs that have such a path, as an expand finds them."""
        return Expand(
            self.edge_type,
            self.source,
            self.target,
            self.source_type,
            self.target_type,
            self.undirected,
            self.min_hops,
            self.max_hops,
        )


class Filter(Struct, frozen=True):
    """Rows for which the predicate is true; null counts as not satisfied."""

    predicate: Predicate


class AntiJoin(Struct, frozen=True):
    """Removes a row when at least one extension of it satisfies the inner pattern.

    Variables of the inner pattern that are bound outside are shared; `outer_variables` names them.
    """

    pattern: Pattern
    outer_variables: tuple[str, ...]


class SemiJoin(Struct, frozen=True):
    """Keeps a row when at least one extension of it satisfies the inner pattern; variables as in an anti-join."""

    pattern: Pattern
    outer_variables: tuple[str, ...]


class OptionalMatch(Struct, frozen=True):
    """Extends a row in every way that satisfies the inner pattern; in no way, the row is kept once with nulls."""

    pattern: Pattern
    binds: tuple[str, ...]
    """The variables of the inner pattern that are seen outside, and may be null there."""


class Union(Struct, frozen=True):
    """Extends a row in every way that satisfies one of the arms; equal assignments of what is bound appear once."""

    arms: tuple[Pattern, ...]
    binds: tuple[str, ...]
    """The variables that every arm binds to the same type."""


Block = OptionalMatch | Union


class Pattern(Struct, frozen=True):
    """Everything that must hold together. Unconnected variables form a cross product.

    Every node variable of the pattern has exactly one `Scan` (inferred ones included), except those that a block binds
    and, inside a block, the variables bound outside it. Anonymous `$_` variables are given unique names starting with
    `_anon`. Blocks are in written order: a later one may use what an earlier one binds.
    """

    scans: tuple[Scan, ...] = ()
    expands: tuple[Expand, ...] = ()
    filters: tuple[Filter, ...] = ()
    anti_joins: tuple[AntiJoin, ...] = ()
    semi_joins: tuple[SemiJoin, ...] = ()
    blocks: tuple[Block, ...] = ()
    paths: tuple[ShortestPath, ...] = ()

    @property
    def inner(self) -> tuple[Pattern, ...]:
        """The patterns inside this one."""
        joined = [join.pattern for join in self.anti_joins] + [join.pattern for join in self.semi_joins]
        return tuple(joined) + tuple(p for b in self.blocks for p in (b.arms if isinstance(b, Union) else (b.pattern,)))


# --- result operators ------------------------------------------------------------------------------------------------


class Projection(Struct, frozen=True):
    """One result column; aliases are already replaced by what they stand for. `type` is the column's type."""

    column: str
    expression: Expression
    type: PropertyType


class OrderKey(Struct, frozen=True):
    """One ordering. Nulls are smallest; NaN is the largest number. Rank expressions ignore `descending`."""

    expression: Expression
    descending: bool = False


class Parameter(Struct, frozen=True):
    """A declared parameter."""

    name: str
    type: PropertyType


Count = int | ParameterRef
"""How many rows: written, or an integer parameter."""


class ReadPlan(Struct, frozen=True, eq=False):
    """A checked read query. It is told from others as the object it is, so that what is known of it is found quickly.

    With `is_aggregate`, the projections that read a variable and contain no aggregate are the group keys, in projection
    order; distinct rows without an aggregate are groups too. `having` filters groups, or rows where there are none.
    `rank` is set when the first ordering ranks; it then decides which rows are dropped, and `order` holds the further
    orderings after it. Without any ordering the row order is unspecified.
    """

    name: str
    parameters: tuple[Parameter, ...]
    pattern: Pattern
    projections: tuple[Projection, ...]
    order: tuple[OrderKey, ...] = ()
    rank: Rank | None = None
    limit: Count | None = None
    is_aggregate: bool = False
    having: tuple[Predicate, ...] = ()
    offset: Count = 0
    distinct: bool = False

    @property
    def is_ordered(self) -> bool:
        """True when the query asks for an order, and so for the tie-break by ids as well."""
        return bool(self.order) or self.rank is not None
