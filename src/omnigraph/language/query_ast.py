"""The syntax tree of a query file: what was written, before names are resolved against a schema.

Trees compare by content; spans take no part, so a tree equals the tree of its pretty-printed text. Keywords of the
language that choose between a few words (operators, functions) are kept as those words.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

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
class AllProperties:
    """`$variable.*`: every property of a variable, in a return."""

    variable: str
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Call:
    """`function(distinct argument, …)`; which functions there are and what they take is the checker's business."""

    function: str
    arguments: tuple[ExpressionSyntax, ...] = ()
    distinct: bool = False
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Arithmetic:
    """`left operator right` with one of `+ - * / %`."""

    operator: str
    left: ExpressionSyntax
    right: ExpressionSyntax
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Minus:
    """`-operand`."""

    operand: ExpressionSyntax
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


ExpressionSyntax = Variable | PropertyAccess | AllProperties | Alias | LiteralSyntax | Call | Arithmetic | Minus
ValueSyntax = LiteralSyntax | Variable | Call
"""What a binding takes; the only call among them is `now()`."""

# --- conditions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """`left operator right`; a comparison, `in`, or one of the tests of Strings and lists."""

    left: ExpressionSyntax
    operator: str
    right: ExpressionSyntax
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class NullTest:
    """`operand is null`, or `is not null` when negated."""

    operand: ExpressionSyntax
    negated: bool = False
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Truth:
    """An expression that is a condition by itself, such as `true` or `search($v.name, "x")`."""

    expression: ExpressionSyntax
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Not:
    """`not condition`."""

    condition: ConditionSyntax
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class And:
    """Two or more conditions that hold together."""

    parts: tuple[ConditionSyntax, ...]
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Or:
    """Two or more conditions of which one holds."""

    parts: tuple[ConditionSyntax, ...]
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


ConditionSyntax = Comparison | NullTest | Truth | Not | And | Or

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
class Negation:
    """`not { clauses }`."""

    clauses: tuple[Clause, ...]
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Exists:
    """`exists { clauses }`."""

    clauses: tuple[Clause, ...]
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Optional:
    """`optional { clauses }`."""

    clauses: tuple[Clause, ...]
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Either:
    """`either { clauses } or { clauses }`."""

    arms: tuple[tuple[Clause, ...], ...]
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class ShortestPath:
    """`path $variable = shortest $left name{hops} $right`, or `<name>` when undirected."""

    variable: Variable
    left: Variable
    edge_name: str
    right: Variable
    hops: Hops
    undirected: bool = False
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


BlockSyntax = Negation | Exists | Optional | Either
Clause = BlockSyntax | Binding | Traversal | ShortestPath | ConditionSyntax

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


CountSyntax = int | Variable


@dataclass(frozen=True)
class ReadBody:
    """`match { } return { } having { } order { } limit n offset n`."""

    match: tuple[Clause, ...]
    projections: tuple[Projection, ...]
    order: tuple[Ordering, ...] = ()
    limit: CountSyntax | None = None
    distinct: bool = False
    having: tuple[ConditionSyntax, ...] = ()
    offset: CountSyntax | None = None


# --- mutations -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assignment:
    """`property: expression` of an insert or update."""

    property: str
    value: ExpressionSyntax
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Insert:
    """`insert Type { assignments } as $variable`."""

    type_name: str
    assignments: tuple[Assignment, ...]
    binds: Variable | None = None
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


TargetSyntax = str | Variable
"""What an update or delete is of: a type, or a variable of the match before it."""


@dataclass(frozen=True)
class Update:
    """`update Type set { assignments } where condition as $variable`, or `update $v set { … }`."""

    target: TargetSyntax
    assignments: tuple[Assignment, ...]
    where: ConditionSyntax | None = None
    binds: Variable | None = None
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Delete:
    """`delete Type where condition`, or `delete $v`."""

    target: TargetSyntax
    where: ConditionSyntax | None = None
    span: Span = dataclasses.field(default=NOWHERE, compare=False, repr=False)


StatementSyntax = Insert | Update | Delete


@dataclass(frozen=True)
class WriteBody:
    """`match { } statements return { }`: the statements in written order, what they run for, and what is told."""

    statements: tuple[StatementSyntax, ...]
    match: tuple[Clause, ...] = ()
    projections: tuple[Projection, ...] = ()


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
