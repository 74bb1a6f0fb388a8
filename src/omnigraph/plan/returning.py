"""From `return`, `order` and `limit` to projections, order keys and a rank."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.catalog.types import Scalar
from omnigraph.dataclass import dataclass
from omnigraph.language import query_ast as ast
from omnigraph.plan.expressions import (
    Aliases,
    aggregate,
    bare_edge,
    blob_value,
    bm25,
    literal,
    nearest,
    parameter_ref,
    property_ref,
    rrf,
    text_match,
    type_of,
    unbound,
    unknown_alias,
)
from omnigraph.plan.operators import (
    Aggregate,
    Bm25,
    EdgeCount,
    EntityId,
    Expression,
    Literal,
    Nearest,
    Now,
    OrderKey,
    ParameterRef,
    Projection,
    PropertyRef,
    Rank,
    Rrf,
)
from omnigraph.plan.scope import Scope


@dataclass(frozen=True)
class Output:
    """The checked second half of a read."""

    projections: tuple[Projection, ...]
    order: tuple[OrderKey, ...]
    rank: Rank | None
    is_aggregate: bool


def output(scope: Scope, body: ast.ReadBody) -> Output:
    """Check projections, then orderings, then the rules that join them with the limit."""
    projections, aliases = _projections(scope, body.projections)
    is_aggregate = any(isinstance(projection.expression, Aggregate) for projection in projections)
    rank, order = _orderings(scope, body.order, aliases)
    _check_rank(scope, body, rank, projections)
    if is_aggregate:
        _check_groups(scope, body, rank, projections, order)
    return Output(projections, order, rank, is_aggregate)


# --- projections -----------------------------------------------------------------------------------------------------


def _projections(
    scope: Scope, written: Sequence[ast.Projection]
) -> tuple[tuple[Projection, ...], dict[str, Expression]]:
    aliases: dict[str, Expression] = {}
    projections: list[Projection] = []
    columns: set[str] = set()
    for projection in written:
        expression = _projected(scope, projection.expression, aliases)
        kind = type_of(expression)
        if kind.scalar is Scalar.BLOB:
            raise blob_value(scope, projection.span)
        column = projection.alias or _column_name(projection.expression, expression)
        if column in columns:
            raise scope.fail(
                None, f"two columns are called '{column}': give one another name with 'as'", projection.span
            )
        columns.add(column)
        if projection.alias is not None:
            aliases[projection.alias] = expression
        projections.append(Projection(column, expression, kind))
    return tuple(projections), aliases


def _projected(scope: Scope, syntax: ast.ExpressionSyntax, aliases: Aliases) -> Expression:
    match syntax:
        case ast.PropertyAccess():
            return property_ref(scope, syntax)
        case ast.Variable():
            return _projected_variable(scope, syntax)
        case ast.Constant() | ast.DateConstant() | ast.ListConstant():
            return literal(scope, syntax)
        case ast.NowCall():
            return Now()
        case ast.AggregateCall():
            return aggregate(scope, syntax, aliases)
        case ast.TextCall():
            return text_match(scope, syntax, aliases)
        case ast.Alias():
            found = aliases.get(syntax.name)
            if found is None:
                raise unknown_alias(scope, syntax)
            return found
        case ast.NearestCall() | ast.Bm25Call() | ast.RrfCall():
            return _rank(scope, syntax, aliases)


def _projected_variable(scope: Scope, syntax: ast.Variable) -> Expression:
    parameter = parameter_ref(scope, syntax)
    if parameter is not None:
        return parameter
    if scope.edge(syntax.name) is not None:
        raise bare_edge(scope, syntax)
    if scope.node(syntax.name) is None:
        raise unbound(scope, syntax)
    return EntityId(syntax.name)


def _rank(scope: Scope, syntax: ast.NearestCall | ast.Bm25Call | ast.RrfCall, aliases: Aliases) -> Rank:
    match syntax:
        case ast.NearestCall():
            return nearest(scope, syntax)
        case ast.Bm25Call():
            return bm25(scope, syntax, aliases)
        case ast.RrfCall():
            return rrf(scope, syntax, aliases)


def _column_name(syntax: ast.ExpressionSyntax, expression: Expression) -> str:
    match syntax:
        case ast.Alias(name=name) | ast.TextCall(function=name):
            return name
        case ast.NearestCall():
            return "nearest"
        case ast.Bm25Call():
            return "bm25"
        case ast.RrfCall():
            return "rrf"
    match expression:
        case PropertyRef(variable=variable, property=name):
            return f"{variable}.{name}"
        case EntityId(variable=name) | ParameterRef(name=name):
            return name
        case Now():
            return "now"
        case Aggregate(function=function, argument=argument):
            return _aggregate_name(str(function), argument)
    return "literal"


def _aggregate_name(function: str, argument: PropertyRef | EntityId | EdgeCount | Literal) -> str:
    match argument:
        case PropertyRef(variable=variable, property=name):
            return f"{variable}.{name}"
        case EntityId(variable=name) | EdgeCount(variable=name):
            return name
    return function


# --- orderings -------------------------------------------------------------------------------------------------------


def _orderings(
    scope: Scope, written: Sequence[ast.Ordering], aliases: Aliases
) -> tuple[Rank | None, tuple[OrderKey, ...]]:
    rank: Rank | None = None
    order: list[OrderKey] = []
    for position, ordering in enumerate(written):
        expression = _ordered(scope, ordering, aliases, is_first=position == 0)
        is_rank = isinstance(expression, Nearest | Bm25 | Rrf)
        if is_rank and position == 0:
            assert isinstance(expression, Nearest | Bm25 | Rrf)
            if isinstance(expression, Nearest) and ordering.direction == "desc":
                raise scope.fail(
                    None, "nearest always puts the nearest first, so 'desc' is not possible", ordering.span
                )
            rank = expression
        elif not isinstance(expression, Rrf):  # an alias of the rrf that ranks already would order equal rows
            order.append(OrderKey(expression, ordering.direction == "desc"))
    return rank, tuple(order)


def _ordered(scope: Scope, ordering: ast.Ordering, aliases: Aliases, *, is_first: bool) -> Expression:
    syntax = ordering.expression
    expression: Expression
    match syntax:
        case ast.PropertyAccess():
            expression = property_ref(scope, syntax)
        case ast.Alias(name=name):
            found = aliases.get(name)
            if found is None:
                raise unknown_alias(scope, syntax)
            expression = found
        case ast.NearestCall() | ast.Bm25Call() | ast.RrfCall():
            expression = _rank(scope, syntax, aliases)
            if not is_first:
                raise scope.fail(None, "a rank can only be the first ordering", ordering.span)
        case _:
            raise scope.fail(None, "order takes properties, aliases and, first of all, a rank", ordering.span)
    kind = type_of(expression)
    if kind.scalar is Scalar.BLOB:
        raise blob_value(scope, ordering.span)
    if not kind.is_plain:
        raise scope.fail(None, f"rows cannot be ordered by {kind}", ordering.span)
    return expression


# --- rules that join them --------------------------------------------------------------------------------------------


def _check_rank(scope: Scope, body: ast.ReadBody, rank: Rank | None, projections: Sequence[Projection]) -> None:
    for written, projection in zip(body.projections, projections, strict=True):
        if isinstance(projection.expression, Rrf) and projection.expression != rank:
            raise scope.fail("T21", "rrf can only be returned by the query that orders by it", written.span)
    if isinstance(rank, Rrf) and body.limit is None:
        raise scope.fail("T21", "ordering by rrf needs a limit", body.order[0].span)
    if not isinstance(rank, Nearest):
        return
    if body.limit is None:
        raise scope.fail("T17", "ordering by nearest needs a limit", body.order[0].span)
    for ordering in body.order[1:]:
        if isinstance(ordering.expression, ast.Alias):
            raise scope.fail("T18", "an alias cannot stand beside nearest in order", ordering.span)


def _check_groups(
    scope: Scope,
    body: ast.ReadBody,
    rank: Rank | None,
    projections: Sequence[Projection],
    order: Sequence[OrderKey],
) -> None:
    if rank is not None:
        raise scope.fail(None, "a query with aggregates cannot be ranked", body.order[0].span)
    for written, projection in zip(body.projections, projections, strict=True):
        expression = projection.expression
        if not isinstance(expression, Aggregate | PropertyRef | EntityId | ParameterRef | Literal):
            raise scope.fail("T9", "beside an aggregate only properties and variables can be returned", written.span)
        if isinstance(expression, PropertyRef) and not projection.type.is_plain:
            raise scope.fail(None, f"rows cannot be grouped by {projection.type}", written.span)
    returned = {projection.expression for projection in projections if isinstance(projection.expression, PropertyRef)}
    for ordering, key in zip(body.order, order, strict=True):
        if isinstance(key.expression, PropertyRef) and key.expression not in returned:
            raise scope.fail(None, "a query with aggregates is ordered by what it returns", ordering.span)
