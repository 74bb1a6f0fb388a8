"""The syntax tree of a query file: what was written, before names are resolved against a schema.

Trees compare by content; spans take no part, so a tree equals the tree of its pretty-printed text. Keywords of the
language that choose between a few words (operators, functions) are kept as those words.
"""

from __future__ import annotations

import dataclasses

from omnigraph.dataclass import dataclass
from omnigraph.language.schema_ast import TypeSyntax
from omnigraph.language.source import NOWHERE, Source, Span

# --- expressions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variable:
    """`$name`: a parameter or something a match binds."""

    name: str
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class PropertyAccess:
    """`$variable.property`."""

    variable: str
    property: str
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Alias:
    """A bare name: an alias given by `as` earlier in the same return."""

    name: str
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Constant:
    """A string, number or boolean literal."""

    value: str | int | float | bool
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class DateConstant:
    """`date("…")` or `datetime("…")`; the text is checked with the query, not while parsing."""

    function: str
    text: str
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class ListConstant:
    """`[a, b, …]`; nesting is refused by the checker."""

    items: tuple[LiteralSyntax, ...]
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


LiteralSyntax = Constant | DateConstant | ListConstant


@dataclass(frozen=True)
class NowCall:
    """`now()`."""

    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class NearestCall:
    """`nearest($v.p, q)`."""

    property: PropertyAccess
    query: ExpressionSyntax
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class TextCall:
    """`search`, `match_text` or `fuzzy`; only `fuzzy` may have a `distance`."""

    function: str
    field: ExpressionSyntax
    query: ExpressionSyntax
    distance: ExpressionSyntax | None = None
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Bm25Call:
    """`bm25(field, query)`."""

    field: ExpressionSyntax
    query: ExpressionSyntax
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class RrfCall:
    """`rrf(rank, rank, k)`."""

    first: NearestCall | Bm25Call
    second: NearestCall | Bm25Call
    k: ExpressionSyntax | None = None
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class AggregateCall:
    """`count`, `sum`, `avg`, `min` or `max` of one expression."""

    function: str
    argument: ExpressionSyntax
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


ExpressionSyntax = (
    Variable
    | PropertyAccess
    | Alias
    | LiteralSyntax
    | NowCall
    | NearestCall
    | TextCall
    | Bm25Call
    | RrfCall
    | AggregateCall
)
ValueSyntax = LiteralSyntax | Variable | NowCall

# --- match -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PropertyMatch:
    """`property: value` inside a binding."""

    property: str
    value: ValueSyntax
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Binding:
    """`$v: Type { property: value, … }`."""

    variable: Variable
    type_name: str
    matches: tuple[PropertyMatch, ...] = ()
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Hops:
    """`{min,max}`; a missing maximum parses and is refused by the checker."""

    low: int
    high: int | None
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Traversal:
    """`$left $edge:name{hops} $right`, or `<name>` when undirected."""

    left: Variable
    edge_name: str
    right: Variable
    edge_variable: Variable | None = None
    undirected: bool = False
    hops: Hops | None = None
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class FilterClause:
    """`left operator right`; the operator is a comparison, `contains` or `starts_with`."""

    left: ExpressionSyntax
    operator: str
    right: ExpressionSyntax
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Negation:
    """`not { clauses }`."""

    clauses: tuple[Clause, ...]
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


Clause = Negation | Binding | Traversal | FilterClause | TextCall

# --- return, order ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Projection:
    """`expression as alias`."""

    expression: ExpressionSyntax
    alias: str | None = None
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Ordering:
    """`expression asc|desc`; `direction` is None when none was written."""

    expression: ExpressionSyntax
    direction: str | None = None
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class ReadBody:
    """`match { } return { } order { } limit n`."""

    match: tuple[Clause, ...]
    projections: tuple[Projection, ...]
    order: tuple[Ordering, ...] = ()
    limit: int | None = None


# --- mutations -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assignment:
    """`property: value` of an insert or update."""

    property: str
    value: ValueSyntax
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Predicate:
    """`property op value` after `where`."""

    property: str
    operator: str
    value: ValueSyntax
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Insert:
    """`insert Type { assignments }`."""

    type_name: str
    assignments: tuple[Assignment, ...]
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Update:
    """`update Type set { assignments } where predicate`."""

    type_name: str
    assignments: tuple[Assignment, ...]
    where: Predicate
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Delete:
    """`delete Type where predicate`."""

    type_name: str
    where: Predicate
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


StatementSyntax = Insert | Update | Delete


@dataclass(frozen=True)
class WriteBody:
    """Statements in written order."""

    statements: tuple[StatementSyntax, ...]


# --- declarations ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameter:
    """`$name: Type`."""

    name: str
    type: TypeSyntax
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Query:
    """One `query name(parameters) { … }` with its notes."""

    name: str
    parameters: tuple[Parameter, ...]
    body: ReadBody | WriteBody
    description: str | None = None
    instruction: str | None = None
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class QueryFile:
    """Every query of a source, in written order and with distinct names."""

    queries: tuple[Query, ...]
    source: Source = dataclasses.field(default=Source(""), compare=False, repr=False)
