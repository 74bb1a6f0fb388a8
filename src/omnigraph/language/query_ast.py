"""The syntax tree of a query file: what was written, before names are resolved against a schema.

Trees compare by content; spans take no part, so a tree equals the tree of its pretty-printed text. Keywords of the
language that choose between a few words (operators, functions) are kept as those words.
"""

from __future__ import annotations

from omnigraph.language.schema_ast import TypeSyntax
from omnigraph.language.source import NOWHERE, Source, Span, Syntax

# --- expressions -----------------------------------------------------------------------------------------------------


class Variable(Syntax, frozen=True):
    """`$name`: a parameter or something a match binds."""

    name: str
    span: Span = NOWHERE


class PropertyAccess(Syntax, frozen=True):
    """`$variable.property`."""

    variable: str
    property: str
    span: Span = NOWHERE


class Alias(Syntax, frozen=True):
    """A bare name: an alias given by `as` earlier in the same return."""

    name: str
    span: Span = NOWHERE


class Constant(Syntax, frozen=True):
    """A string, number or boolean literal."""

    value: str | int | float | bool
    span: Span = NOWHERE


class DateConstant(Syntax, frozen=True):
    """`date("…")` or `datetime("…")`; the text is checked with the query, not while parsing."""

    function: str
    text: str
    span: Span = NOWHERE


class ListConstant(Syntax, frozen=True):
    """`[a, b, …]`; nesting is refused by the checker."""

    items: tuple[LiteralSyntax, ...]
    span: Span = NOWHERE


LiteralSyntax = Constant | DateConstant | ListConstant


class AllProperties(Syntax, frozen=True):
    """`$variable.*`: every property of a variable, in a return."""

    variable: str
    span: Span = NOWHERE


class Call(Syntax, frozen=True):
    """`function(distinct argument, …)`; which functions there are and what they take is the checker's business."""

    function: str
    arguments: tuple[ExpressionSyntax, ...] = ()
    distinct: bool = False
    span: Span = NOWHERE


class Arithmetic(Syntax, frozen=True):
    """`left operator right` with one of `+ - * / %`."""

    operator: str
    left: ExpressionSyntax
    right: ExpressionSyntax
    span: Span = NOWHERE


class Minus(Syntax, frozen=True):
    """`-operand`."""

    operand: ExpressionSyntax
    span: Span = NOWHERE


ExpressionSyntax = Variable | PropertyAccess | AllProperties | Alias | LiteralSyntax | Call | Arithmetic | Minus
ValueSyntax = LiteralSyntax | Variable | Call
"""What a binding takes; the only call among them is `now()`."""

# --- conditions ------------------------------------------------------------------------------------------------------


class Comparison(Syntax, frozen=True):
    """`left operator right`; a comparison, `in`, or one of the tests of Strings and lists."""

    left: ExpressionSyntax
    operator: str
    right: ExpressionSyntax
    span: Span = NOWHERE


class NullTest(Syntax, frozen=True):
    """`operand is null`, or `is not null` when negated."""

    operand: ExpressionSyntax
    negated: bool = False
    span: Span = NOWHERE


class Truth(Syntax, frozen=True):
    """An expression that is a condition by itself, such as `true` or `search($v.name, "x")`."""

    expression: ExpressionSyntax
    span: Span = NOWHERE


class Not(Syntax, frozen=True):
    """`not condition`."""

    condition: ConditionSyntax
    span: Span = NOWHERE


class And(Syntax, frozen=True):
    """Two or more conditions that hold together."""

    parts: tuple[ConditionSyntax, ...]
    span: Span = NOWHERE


class Or(Syntax, frozen=True):
    """Two or more conditions of which one holds."""

    parts: tuple[ConditionSyntax, ...]
    span: Span = NOWHERE


ConditionSyntax = Comparison | NullTest | Truth | Not | And | Or

# --- match -----------------------------------------------------------------------------------------------------------


class PropertyMatch(Syntax, frozen=True):
    """`property: value` inside a binding."""

    property: str
    value: ValueSyntax
    span: Span = NOWHERE


class Binding(Syntax, frozen=True):
    """`$v: Type { property: value, … }`."""

    variable: Variable
    type_name: str
    matches: tuple[PropertyMatch, ...] = ()
    span: Span = NOWHERE


class Hops(Syntax, frozen=True):
    """`{min,max}`; a missing maximum parses and is refused by the checker."""

    low: int
    high: int | None
    span: Span = NOWHERE


class Traversal(Syntax, frozen=True):
    """`$left $edge:name{hops} $right`, or `<name>` when undirected."""

    left: Variable
    edge_name: str
    right: Variable
    edge_variable: Variable | None = None
    undirected: bool = False
    hops: Hops | None = None
    span: Span = NOWHERE


class Negation(Syntax, frozen=True):
    """`not { clauses }`."""

    clauses: tuple[Clause, ...]
    span: Span = NOWHERE


class Exists(Syntax, frozen=True):
    """`exists { clauses }`."""

    clauses: tuple[Clause, ...]
    span: Span = NOWHERE


class Optional(Syntax, frozen=True):
    """`optional { clauses }`."""

    clauses: tuple[Clause, ...]
    span: Span = NOWHERE


class Either(Syntax, frozen=True):
    """`either { clauses } or { clauses }`."""

    arms: tuple[tuple[Clause, ...], ...]
    span: Span = NOWHERE


class ShortestPath(Syntax, frozen=True):
    """`path $variable = shortest $left name{hops} $right`, or `<name>` when undirected."""

    variable: Variable
    left: Variable
    edge_name: str
    right: Variable
    hops: Hops
    undirected: bool = False
    span: Span = NOWHERE


BlockSyntax = Negation | Exists | Optional | Either
Clause = BlockSyntax | Binding | Traversal | ShortestPath | ConditionSyntax

# --- return, order ---------------------------------------------------------------------------------------------------


class Projection(Syntax, frozen=True):
    """`expression as alias`."""

    expression: ExpressionSyntax
    alias: str | None = None
    span: Span = NOWHERE


class Ordering(Syntax, frozen=True):
    """`expression asc|desc`; `direction` is None when none was written."""

    expression: ExpressionSyntax
    direction: str | None = None
    span: Span = NOWHERE


CountSyntax = int | Variable


class ReadBody(Syntax, frozen=True):
    """`match { } return { } having { } order { } limit n offset n`."""

    match: tuple[Clause, ...]
    projections: tuple[Projection, ...]
    order: tuple[Ordering, ...] = ()
    limit: CountSyntax | None = None
    distinct: bool = False
    having: tuple[ConditionSyntax, ...] = ()
    offset: CountSyntax | None = None


# --- mutations -------------------------------------------------------------------------------------------------------


class Assignment(Syntax, frozen=True):
    """`property: expression` of an insert or update."""

    property: str
    value: ExpressionSyntax
    span: Span = NOWHERE


class Insert(Syntax, frozen=True):
    """`insert Type { assignments } as $variable`."""

    type_name: str
    assignments: tuple[Assignment, ...]
    binds: Variable | None = None
    span: Span = NOWHERE


TargetSyntax = str | Variable
"""What an update or delete is of: a type, or a variable of the match before it."""


class Update(Syntax, frozen=True):
    """`update Type set { assignments } where condition as $variable`, or `update $v set { … }`."""

    target: TargetSyntax
    assignments: tuple[Assignment, ...]
    where: ConditionSyntax | None = None
    binds: Variable | None = None
    span: Span = NOWHERE


class Delete(Syntax, frozen=True):
    """`delete Type where condition`, or `delete $v`."""

    target: TargetSyntax
    where: ConditionSyntax | None = None
    span: Span = NOWHERE


StatementSyntax = Insert | Update | Delete


class WriteBody(Syntax, frozen=True):
    """`match { } statements return { }`: the statements in written order, what they run for, and what is told."""

    statements: tuple[StatementSyntax, ...]
    match: tuple[Clause, ...] = ()
    projections: tuple[Projection, ...] = ()


# --- declarations ----------------------------------------------------------------------------------------------------


class Parameter(Syntax, frozen=True):
    """`$name: Type`."""

    name: str
    type: TypeSyntax
    span: Span = NOWHERE


class Query(Syntax, frozen=True):
    """One `query name(parameters) { … }` with its notes."""

    name: str
    parameters: tuple[Parameter, ...]
    body: ReadBody | WriteBody
    description: str | None = None
    instruction: str | None = None
    span: Span = NOWHERE


class QueryFile(Syntax, frozen=True):
    """Every query of a source, in written order and with distinct names."""

    queries: tuple[Query, ...]
    source: Source = Source("")
