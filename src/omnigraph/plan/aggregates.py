"""Aggregates in the table of functions: the entries of `count`, `sum`, `avg`, `min`, `max` and `collect`."""

from __future__ import annotations

from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.language import query_ast as ast
from omnigraph.plan.functions import Family, Function, Lower, Takes, register
from omnigraph.plan.names import Place, blob_value
from omnigraph.plan.operators import Aggregate, AggregateFunction, EdgeCount, EntityId, Expression
from omnigraph.plan.scope import Scope
from omnigraph.plan.types import aggregates_in, type_of

_INSIDE = frozenset({Family.SCALAR, Family.TEXT})


def aggregate(scope: Scope, call: ast.Call, place: Place, lower: Lower) -> Aggregate:
    """An aggregate of one expression."""
    function = AggregateFunction(call.function)
    written = call.arguments[0]
    if function in (AggregateFunction.SUM, AggregateFunction.AVG) and call.distinct:
        raise scope.fail("T8", f"{function} adds every value; 'distinct' goes with count and collect", call.span)
    argument = _argument(scope, written, place, lower)
    if isinstance(argument, EntityId | EdgeCount):
        if function not in (AggregateFunction.COUNT, AggregateFunction.COLLECT):
            raise scope.fail("T8", f"{function} needs a property, not a variable", written.span)
        if function is AggregateFunction.COLLECT and isinstance(argument, EdgeCount):
            raise scope.fail("T23", f"${argument.variable} is an edge: collect one of its properties", written.span)
        return Aggregate(function, argument, call.distinct)
    kind = type_of(argument)
    if kind.scalar is Scalar.BLOB:
        raise blob_value(scope, written.span)
    fault = _fault(function, kind, call.distinct)
    if fault is not None:
        raise scope.fail("T8", fault, written.span)
    return Aggregate(function, argument, call.distinct)


def _fault(function: AggregateFunction, kind: PropertyType, distinct: bool) -> str | None:
    if function in (AggregateFunction.SUM, AggregateFunction.AVG) and not kind.is_numeric:
        return f"{function} needs numbers, not {kind}"
    if function in (AggregateFunction.MIN, AggregateFunction.MAX) and not kind.is_plain:
        return f"{function} needs values that have an order, not {kind}"
    if function is AggregateFunction.COLLECT and not kind.is_plain:
        return f"collect makes lists of plain values, not of {kind}"
    if distinct and not kind.is_plain:
        return f"{function}(distinct …) needs plain values, not {kind}"
    return None


def _argument(scope: Scope, written: ast.ExpressionSyntax, place: Place, lower: Lower) -> Expression | EdgeCount:
    if isinstance(written, ast.Variable) and written.name not in scope.parameters:
        edge = scope.edge(written.name)
        if edge is not None:
            return EdgeCount(written.name, scope.is_nullable(written.name))
    inside = Place("an aggregate", place.names, _INSIDE)
    found: Expression = lower(scope, written, inside)
    if aggregates_in(found):
        raise scope.fail("T8", "an aggregate cannot stand inside another", written.span)
    return found


def _entry(name: str, summary: str) -> Function:
    return Function(name, (Takes.PLAIN,), family=Family.AGGREGATE, lowering=aggregate, summary=summary)


register(
    _entry("count", "how many rows, or values that are not null"),
    _entry("sum", "the sum"),
    _entry("avg", "the mean"),
    _entry("min", "the least"),
    _entry("max", "the greatest"),
    _entry("collect", "a list of the values, in ascending order"),
)
