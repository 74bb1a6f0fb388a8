"""From the statements of a mutation to write operators."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.catalog.model import EdgeType, EntityType, NodeType, Property
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.errors import ConstraintError
from omnigraph.language import query_ast as ast
from omnigraph.plan.fitting import assigned_value, compared_value
from omnigraph.plan.operators import (
    Assignment,
    ComparisonOperator,
    DeleteEdges,
    DeleteNodes,
    InsertEdge,
    InsertNode,
    PropertyTest,
    Statement,
    UpdateNodes,
    Value,
)
from omnigraph.plan.scope import Scope

_ENDPOINTS = {"from": "src", "to": "dst"}


def statements(scope: Scope, body: ast.WriteBody) -> tuple[Statement, ...]:
    """Check the statements in written order; inserts and updates never share a query with deletes (D2)."""
    checked: list[Statement] = []
    deletes = isinstance(body.statements[0], ast.Delete)
    for statement in body.statements:
        if isinstance(statement, ast.Delete) is not deletes:
            raise scope.fail(
                "D2", "a query either inserts and updates or deletes, never both: use two queries", statement.span
            )
        checked.append(_statement(scope, statement))
    return tuple(checked)


def _statement(scope: Scope, statement: ast.StatementSyntax) -> Statement:
    entity: NodeType | EdgeType | None = scope.catalog.nodes.get(statement.type_name)
    entity = entity or scope.catalog.edges.get(statement.type_name)
    if entity is None:
        raise scope.fail("T10", f"there is no node or edge type {statement.type_name}", statement.span)
    match statement:
        case ast.Insert():
            if isinstance(entity, NodeType):
                return _insert_node(scope, entity, statement)
            return _insert_edge(scope, entity, statement)
        case ast.Update():
            return _update(scope, entity, statement)
        case ast.Delete():
            where = _test(scope, entity, statement.where)
            return DeleteNodes(entity.name, where) if isinstance(entity, NodeType) else DeleteEdges(entity.name, where)


def _insert_node(scope: Scope, node: NodeType, statement: ast.Insert) -> Statement:
    assignments = _assignments(scope, node, statement.assignments)
    _check_required(scope, node, {assignment.property for assignment in assignments}, statement)
    return InsertNode(node.name, assignments)


def _insert_edge(scope: Scope, edge: EdgeType, statement: ast.Insert) -> Statement:
    ends: dict[str, Value] = {}
    others: list[ast.Assignment] = []
    for assignment in statement.assignments:
        if assignment.property not in _ENDPOINTS:
            others.append(assignment)
            continue
        if assignment.property in ends:
            raise _twice(scope, assignment)
        ends[assignment.property] = _endpoint(scope, assignment.property, assignment.value, literal_code="T3")
    assignments = _assignments(scope, edge, others)
    for name in _ENDPOINTS:
        if name not in ends:
            raise scope.fail("T12", f"insert {edge.name} needs '{name}', the id of a node", statement.span)
    _check_required(scope, edge, {assignment.property for assignment in assignments}, statement)
    return InsertEdge(edge.name, ends["from"], ends["to"], assignments)


def _update(scope: Scope, entity: NodeType | EdgeType, statement: ast.Update) -> Statement:
    if isinstance(entity, EdgeType):
        raise scope.fail("T16", f"{entity.name} is an edge; edges are deleted and inserted anew", statement.span)
    for assignment in statement.assignments:
        if assignment.property in entity.key:
            place = scope.source.locate(assignment.span)
            raise ConstraintError(
                f"{entity.name}.{assignment.property} is part of the key and never changes:"
                f" delete the node and insert another (line {place.line}, column {place.column})"
            )
    assignments = _assignments(scope, entity, statement.assignments)
    return UpdateNodes(entity.name, assignments, _test(scope, entity, statement.where))


def _assignments(scope: Scope, entity: EntityType, written: Sequence[ast.Assignment]) -> tuple[Assignment, ...]:
    seen: set[str] = set()
    checked: list[Assignment] = []
    for assignment in written:
        prop: Property | None = entity.properties.get(assignment.property)
        if prop is None:
            raise scope.fail("T11", f"{entity.name} has no property '{assignment.property}'", assignment.span)
        if prop.name in seen:
            raise _twice(scope, assignment)
        seen.add(prop.name)
        checked.append(Assignment(prop.name, assigned_value(scope, prop, assignment.value)))
    return tuple(checked)


def _twice(scope: Scope, assignment: ast.Assignment) -> Exception:
    return scope.fail("T13", f"'{assignment.property}' is assigned twice", assignment.span)


def _check_required(scope: Scope, entity: EntityType, given: set[str], statement: ast.Insert) -> None:
    for name, prop in entity.properties.items():
        if name in given or prop.type.nullable:
            continue
        if prop.embedding is not None and prop.embedding.source in given:
            continue  # a vector may be computed from its source by whoever runs the query
        raise scope.fail("T12", f"insert {entity.name} needs '{name}', which cannot be null", statement.span)


def _test(scope: Scope, entity: NodeType | EdgeType, where: ast.Predicate) -> PropertyTest:
    operator = ComparisonOperator(where.operator)
    if isinstance(entity, EdgeType) and where.property in _ENDPOINTS:
        value = _endpoint(scope, where.property, where.value, literal_code="T7")
        return PropertyTest(_ENDPOINTS[where.property], operator, value)
    prop: Property | None = entity.properties.get(where.property)
    if prop is None:
        raise scope.fail("T11", f"{entity.name} has no property '{where.property}'", where.span)
    if not prop.type.is_plain:
        raise scope.fail("T11", f"'{prop.name}' is {prop.type} and cannot be compared", where.span)
    value = compared_value(scope, prop, where.value, literal_code="T7", variable_code="T14")
    return PropertyTest(prop.name, operator, value)


def _endpoint(scope: Scope, name: str, value: ast.ValueSyntax, *, literal_code: str) -> Value:
    """The `from` or `to` of an edge: the id of a node, which is text whatever the key is."""
    id_column = Property(name, PropertyType(Scalar.STRING))
    return compared_value(scope, id_column, value, literal_code=literal_code, variable_code="T14")
