"""A mutation as a whole: the match before its statements, the statements, and what it returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omnigraph.errors import TypeCheckError
from omnigraph.language import query_ast as ast
from omnigraph.plan.matching import match_pattern
from omnigraph.plan.operators import (
    Arithmetic,
    EntityId,
    Expression,
    FunctionCall,
    Literal,
    Negative,
    Now,
    OrderKey,
    Parameter,
    ParameterRef,
    PathValue,
    Pattern,
    Projection,
    PropertyRef,
    ReadPlan,
)
from omnigraph.plan.returning import Output, output
from omnigraph.plan.scope import Scope
from omnigraph.plan.statements import SELF, BoundReturn, InsertEdge, InsertNode, Statement, WritePlan
from omnigraph.plan.types import aggregates_in, operands_of, type_of, variables_of, walk
from omnigraph.plan.writing import statements

_ANONYMOUS = "_anon"
_SIMPLE = (Arithmetic, EntityId, FunctionCall, Literal, Negative, Now, ParameterRef, PropertyRef)


def write_plan(scope: Scope, name: str, parameters: tuple[Parameter, ...], body: ast.WriteBody) -> WritePlan:
    """Check a mutation and lower it."""
    pattern = match_pattern(scope, body.match) if body.match else None
    checked = statements(scope, body)
    match = None
    if pattern is not None:
        needed = dict.fromkeys(leaf for statement in checked for leaf in _asked(scope, statement))
        columns = tuple(Projection(str(at), leaf, type_of(leaf)) for at, leaf in enumerate(needed))
        match = ReadPlan(name, parameters, pattern, columns, order=_by_ids(scope))
    returning = _returning(scope, name, parameters, body, pattern) if body.projections else None
    return WritePlan(name, parameters, checked, match, returning)


def expressions_of(statement: Statement) -> Iterator[Expression]:
    """Every expression of a statement, those its conditions compare included."""
    if isinstance(statement, InsertEdge):
        yield statement.source
        yield statement.target
    yield from (assignment.value for assignment in getattr(statement, "assignments", ()))
    for condition in getattr(statement, "where", ()):
        yield from operands_of(condition)


def _asked(scope: Scope, statement: Statement) -> Iterator[Expression]:
    """What a statement asks of the variables of the match."""
    if not isinstance(statement, InsertNode | InsertEdge) and statement.variable is not None:
        yield identity_of(scope, statement.variable)
    for each in expressions_of(statement):
        for part in walk(each):
            if isinstance(part, EntityId | PathValue) or (isinstance(part, PropertyRef) and part.variable != SELF):
                yield part


def identity_of(scope: Scope, variable: str) -> Expression:
    """The id of what a node or edge variable stands for."""
    kind = type_of(EntityId(variable, scope.is_nullable(variable)))
    return PropertyRef(variable, "id", kind)


def _by_ids(scope: Scope) -> tuple[OrderKey, ...]:
    """Rows in the order of their ids: the first variable by name asks for an order, and ties go by the others."""
    named = sorted(name for name in (*scope.nodes, *scope.edges) if not name.startswith(_ANONYMOUS))
    return (OrderKey(identity_of(scope, named[0])),) if named else ()


# --- what is returned ------------------------------------------------------------------------------------------------


def _returning(
    scope: Scope, name: str, parameters: tuple[Parameter, ...], body: ast.WriteBody, pattern: Pattern | None
) -> ReadPlan | BoundReturn:
    matched = {*scope.nodes, *scope.edges, *scope.paths}
    bound = _bind(scope, body.statements)
    found = output(scope, ast.ReadBody(body.match, body.projections))
    used = {each for projection in found.projections for each in variables_of(projection.expression)}
    if pattern is not None and used <= matched:
        order = () if found.is_aggregate else _by_ids(scope)
        return ReadPlan(name, parameters, pattern, found.projections, order=order, is_aggregate=found.is_aggregate)
    if len(used) != 1 or not used <= bound.keys():
        raise _unclear(scope, body, bound)
    _check_plain(scope, body, found)
    return BoundReturn(bound[used.pop()], found.projections)


def _bind(scope: Scope, written: Sequence[ast.StatementSyntax]) -> dict[str, int]:
    """The variables that statements bind by `as`, with the number of the statement."""
    bound: dict[str, int] = {}
    nodes, edges = dict(scope.nodes), dict(scope.edges)
    for number, statement in enumerate(written):
        if isinstance(statement, ast.Delete) or statement.binds is None:
            continue
        variable = statement.binds
        if variable.name in scope.known():
            raise scope.fail(None, f"${variable.name} stands for something already", variable.span)
        target = statement.type_name if isinstance(statement, ast.Insert) else statement.target
        if isinstance(target, ast.Variable):
            node, edge = nodes.get(target.name), edges.get(target.name)
        else:
            node, edge = scope.catalog.nodes.get(target), scope.catalog.edges.get(target)
        if node is not None:
            scope.nodes[variable.name] = node
        elif edge is not None:
            scope.edges[variable.name] = edge
        bound[variable.name] = number
    return bound


def _unclear(scope: Scope, body: ast.WriteBody, bound: dict[str, int]) -> TypeCheckError:
    span = body.projections[0].span
    if not body.match and not bound:
        message = "a mutation returns what it inserts or updates: name that with 'as $p' behind the statement"
    elif body.match and bound:
        message = "a mutation returns variables of its match, or one variable bound by 'as', not both"
    else:
        message = "a mutation returns one variable bound by 'as'"
    return scope.fail(None, message, span)


def _check_plain(scope: Scope, body: ast.WriteBody, found: Output) -> None:
    """What a statement has written is in no table yet: words and vectors cannot be searched, nor groups be made."""
    for written, projection in zip(body.projections, found.projections, strict=False):
        simple = all(isinstance(part, _SIMPLE) for part in walk(projection.expression))
        if aggregates_in(projection.expression) or not simple:
            raise scope.fail(None, "what a statement has written is returned row by row, by its values", written.span)
