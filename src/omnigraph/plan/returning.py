"""From `return`, `having`, `order`, `limit` and `offset` to projections, predicates, order keys and a rank."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from omnigraph.catalog.types import INTEGERS, Scalar
from omnigraph.language import query_ast as ast
from omnigraph.language.source import Syntax
from omnigraph.plan.conditions import predicates
from omnigraph.plan.expressions import expression
from omnigraph.plan.functions import TABLE, Family
from omnigraph.plan.names import Place, bare_edge, blob_value, parameter_ref, property_ref, unbound
from omnigraph.plan.operators import (
    Aggregate,
    Arithmetic,
    Bm25,
    Count,
    EdgeCount,
    EntityId,
    Expression,
    FunctionCall,
    Literal,
    Nearest,
    Negative,
    Now,
    OrderKey,
    ParameterRef,
    PathValue,
    Predicate,
    Projection,
    PropertyRef,
    Rank,
    Rrf,
)
from omnigraph.plan.scope import ANONYMOUS, Scope
from omnigraph.plan.types import aggregates_in, parts_of, type_of, variables_of

_EVERYWHERE = frozenset(Family)


class Output(Struct, frozen=True):
    """The checked second half of a read."""

    projections: tuple[Projection, ...]
    order: tuple[OrderKey, ...]
    rank: Rank | None
    is_aggregate: bool
    having: tuple[Predicate, ...]
    limit: Count | None
    offset: Count


def output(scope: Scope, body: ast.ReadBody) -> Output:
    """Check projections, then orderings, then the rules that join them with the limit."""
    projections, places, aliases = _projections(scope, body.projections)
    has_aggregates = any(aggregates_in(projection.expression) for projection in projections)
    rank, order = _orderings(scope, body.order, aliases)
    _check_rank(scope, body, rank, projections, places)
    if has_aggregates or body.distinct:
        _check_groups(scope, body, rank, projections, places, order)
    having = _having(scope, body, rank, aliases)
    limit = None if body.limit is None else _count(scope, body.limit, "limit")
    offset = 0 if body.offset is None else _count(scope, body.offset, "offset")
    return Output(projections, order, rank, has_aggregates or body.distinct, having, limit, offset)


def _count(scope: Scope, syntax: ast.CountSyntax, what: str) -> Count:
    if isinstance(syntax, int):
        return syntax
    parameter = parameter_ref(scope, syntax)
    if parameter is None:
        raise scope.fail(None, f"{what} takes a number or a parameter; ${syntax.name} is none", syntax.span)
    if parameter.type.scalar not in INTEGERS or parameter.type.is_list:
        raise scope.fail("T7", f"{what} takes an integer; ${syntax.name} is {parameter.type}", syntax.span)
    return parameter


# --- projections -----------------------------------------------------------------------------------------------------


def _projections(
    scope: Scope, written: Sequence[ast.Projection]
) -> tuple[tuple[Projection, ...], list[ast.Projection], dict[str, Expression]]:
    """Every column, what was written for it, and what the aliases stand for."""
    aliases: dict[str, Expression] = {}
    projections: list[Projection] = []
    places: list[ast.Projection] = []
    columns: set[str] = set()
    for projection in written:
        for column, found in _columns(scope, projection, aliases):
            if column in columns:
                raise scope.fail(
                    None, f"two columns are called '{column}': give one another name with 'as'", projection.span
                )
            columns.add(column)
            projections.append(Projection(column, found, type_of(found)))
            places.append(projection)
            if projection.alias is not None:
                aliases[projection.alias] = found
    return tuple(projections), places, aliases


def _columns(scope: Scope, projection: ast.Projection, aliases: dict[str, Expression]) -> list[tuple[str, Expression]]:
    syntax = projection.expression
    if isinstance(syntax, ast.AllProperties):
        return _all_properties(scope, projection, syntax)
    found = _projected(scope, syntax, aliases)
    if type_of(found).scalar is Scalar.BLOB:
        raise blob_value(scope, projection.span)
    return [(projection.alias or _column_name(syntax, found), found)]


def _all_properties(
    scope: Scope, projection: ast.Projection, syntax: ast.AllProperties
) -> list[tuple[str, Expression]]:
    """`$v.*`: every property that a result can show, in declared order."""
    name = syntax.variable
    if projection.alias is not None:
        raise scope.fail(None, f"${name}.* stands for several columns and cannot have one name", projection.span)
    owner = None if name == ANONYMOUS else (scope.node(name) or scope.edge(name))
    if owner is None:
        raise scope.fail("T6", f"${name} is not bound here", syntax.span)
    hidden = (Scalar.BLOB, Scalar.VECTOR)
    shown = [prop for prop in owner.declared if owner.properties[prop].type.scalar not in hidden]
    return [(f"{name}.{prop}", property_ref(scope, ast.PropertyAccess(name, prop, syntax.span))) for prop in shown]


def _projected(scope: Scope, syntax: ast.ExpressionSyntax, aliases: dict[str, Expression]) -> Expression:
    if isinstance(syntax, ast.Variable) and syntax.name not in scope.parameters:
        if scope.edge(syntax.name) is not None:
            raise bare_edge(scope, syntax)
        if scope.node(syntax.name) is None and not scope.is_path(syntax.name):
            raise unbound(scope, syntax)
    return expression(scope, syntax, Place("a return", aliases, _EVERYWHERE))


def _column_name(syntax: ast.ExpressionSyntax, found: Expression) -> str:
    match syntax:
        case ast.Alias(name=name):
            return name
        case ast.Call(function=name) if TABLE[name].family is not Family.AGGREGATE:
            return name
    match found:
        case PropertyRef(variable=variable, property=name):
            return f"{variable}.{name}"
        case EntityId(variable=name) | ParameterRef(name=name) | PathValue(variable=name):
            return name
        case Now():
            return "now"
        case Aggregate(function=function, argument=argument):
            return _aggregate_name(str(function), argument)
        case FunctionCall() | Arithmetic() | Negative():
            return "expression"
    return "literal"


def _aggregate_name(function: str, argument: Expression | EdgeCount) -> str:
    match argument:
        case PropertyRef(variable=variable, property=name):
            return f"{variable}.{name}"
        case EntityId(variable=name) | EdgeCount(variable=name):
            return name
    return function


# --- having ----------------------------------------------------------------------------------------------------------


def _having(
    scope: Scope, body: ast.ReadBody, rank: Rank | None, aliases: dict[str, Expression]
) -> tuple[Predicate, ...]:
    hint = ": having tests aliases of the return"
    place = Place("having", aliases, frozenset({Family.SCALAR}), hint=hint)
    found: list[Predicate] = []
    for condition in body.having:
        if rank is not None:
            raise scope.fail(None, "a ranked query has no having: put the condition into the match", condition.span)
        for access in _accesses(condition):
            raise scope.fail(
                None, "having tests aliases of the return: name the value with 'as' and use that", access.span
            )
        found.extend(predicates(scope, condition, place))
    return tuple(found)


def _accesses(tree: object) -> list[ast.PropertyAccess]:
    if isinstance(tree, ast.PropertyAccess):
        return [tree]
    parts: list[object] = []
    if isinstance(tree, tuple):
        parts = list(tree)
    elif isinstance(tree, Syntax):
        parts = [getattr(tree, name) for name in tree.__struct_fields__]
    return [found for part in parts for found in _accesses(part)]


# --- orderings -------------------------------------------------------------------------------------------------------


def _orderings(
    scope: Scope, written: Sequence[ast.Ordering], aliases: dict[str, Expression]
) -> tuple[Rank | None, tuple[OrderKey, ...]]:
    rank: Rank | None = None
    order: list[OrderKey] = []
    for position, ordering in enumerate(written):
        found = _ordered(scope, ordering, aliases, is_first=position == 0)
        if isinstance(found, Nearest | Bm25 | Rrf) and position == 0:
            if isinstance(found, Nearest) and ordering.direction == "desc":
                raise scope.fail(
                    None, "nearest always puts the nearest first, so 'desc' is not possible", ordering.span
                )
            rank = found
        elif not isinstance(found, Rrf):  # an alias of the rrf that ranks already would order equal rows
            order.append(OrderKey(found, ordering.direction == "desc"))
    return rank, tuple(order)


def _ordered(scope: Scope, ordering: ast.Ordering, aliases: dict[str, Expression], *, is_first: bool) -> Expression:
    syntax = ordering.expression
    if not _may_order(syntax):
        raise scope.fail(None, "order takes properties, aliases and, first of all, a rank", ordering.span)
    families = frozenset({Family.SCALAR, Family.RANK})
    found = expression(scope, syntax, Place("an order", aliases, families))
    if isinstance(syntax, ast.Call) and TABLE[syntax.function].family is Family.RANK and not is_first:
        raise scope.fail(None, "a rank can only be the first ordering", ordering.span)
    kind = type_of(found)
    if kind.scalar is Scalar.BLOB:
        raise blob_value(scope, ordering.span)
    if not kind.is_plain:
        raise scope.fail(None, f"rows cannot be ordered by {kind}", ordering.span)
    return found


def _may_order(syntax: ast.ExpressionSyntax) -> bool:
    if isinstance(syntax, ast.Call):
        entry = TABLE.get(syntax.function)
        return entry is None or (entry.family in (Family.RANK, Family.SCALAR) and bool(syntax.arguments))
    return isinstance(syntax, ast.PropertyAccess | ast.Alias | ast.Arithmetic | ast.Minus)


# --- rules that join them --------------------------------------------------------------------------------------------


def _check_rank(
    scope: Scope,
    body: ast.ReadBody,
    rank: Rank | None,
    projections: Sequence[Projection],
    places: Sequence[ast.Projection],
) -> None:
    for written, projection in zip(places, projections, strict=True):
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
    places: Sequence[ast.Projection],
    order: Sequence[OrderKey],
) -> None:
    what = "distinct rows" if body.distinct else "a query with aggregates"
    if rank is not None:
        raise scope.fail(None, f"{what} cannot be ranked", body.order[0].span)
    keys = group_keys(projections)
    for written, projection in zip(places, projections, strict=True):
        found, kind = projection.expression, projection.type
        if isinstance(found, Nearest | Bm25 | Rrf):
            raise scope.fail("T9", "beside an aggregate a rank cannot be returned", written.span)
        if found in keys and (kind.scalar is Scalar.PATH or (not kind.is_plain and not body.distinct)):
            raise scope.fail(None, f"rows cannot be grouped by {kind}", written.span)
        if _is_loose(found, keys):
            raise scope.fail(
                "T9", "outside its aggregates an expression uses only what is returned by itself", written.span
            )
    for ordering, key in zip(body.order, order, strict=True):
        if _is_loose(key.expression, keys):
            raise scope.fail(
                None, f"{what} {'are' if body.distinct else 'is'} ordered by what is returned", ordering.span
            )


def group_keys(projections: Sequence[Projection]) -> tuple[Expression, ...]:
    """The expressions that rows are grouped by: those that read a variable and contain no aggregate."""
    found = (projection.expression for projection in projections)
    return tuple(dict.fromkeys(key for key in found if variables_of(key) and not aggregates_in(key)))


def _is_loose(found: Expression | EdgeCount, keys: Sequence[Expression]) -> bool:
    """Whether an expression reads a variable that is neither in an aggregate nor in a group key."""
    if found in keys or isinstance(found, Aggregate | Literal):
        return False
    parts = parts_of(found)
    return any(_is_loose(part, keys) for part in parts) if parts else bool(variables_of(found))
