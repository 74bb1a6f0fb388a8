"""From the statements of a mutation to write operators.

What an expression of a statement may name: parameters, the variables of the match before the statements, and, where
the statement is about rows that exist, the properties of such a row as bare names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from omnigraph.catalog.model import EdgeType, EntityType, NodeType, Property
from omnigraph.catalog.suggestion import did_you_mean
from omnigraph.catalog.types import INTEGERS, Scalar
from omnigraph.errors import ConstraintError
from omnigraph.language import query_ast as ast
from omnigraph.plan.conditions import predicates
from omnigraph.plan.expressions import expression
from omnigraph.plan.fitting import assigned_type, assigned_value, check_enum, compared_value
from omnigraph.plan.functions import Family
from omnigraph.plan.names import STRING, Place, blob_value, literal
from omnigraph.plan.operators import EntityId, Expression, Predicate, PropertyRef
from omnigraph.plan.scope import Scope
from omnigraph.plan.statements import (
    SELF,
    Assignment,
    DeleteEdges,
    DeleteNodes,
    InsertEdge,
    InsertNode,
    Statement,
    UpdateEdges,
    UpdateNodes,
)
from omnigraph.plan.types import operands_of, type_of, walk

_ENDPOINTS = {"from": "src", "to": "dst"}
_COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})
_SCALARS = frozenset({Family.SCALAR})
_INSERTED = Place(
    "an insert",
    families=_SCALARS,
    names_are="property",
    name_code="T14",
    variable_code="T14",
    hint=": an insert has no row yet whose properties could be read",
)


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
    if isinstance(statement, ast.Insert):
        entity = _type(scope, statement.type_name, statement)
        if isinstance(entity, NodeType):
            return _insert_node(scope, entity, statement)
        return _insert_edge(scope, entity, statement)
    entity, variable = _target(scope, statement)
    if isinstance(statement, ast.Update):
        return _update(scope, entity, variable, statement)
    where = _where(scope, entity, variable, statement)
    if isinstance(entity, NodeType):
        return DeleteNodes(entity.name, where, variable)
    return DeleteEdges(entity.name, where, variable)


def _type(scope: Scope, name: str, statement: ast.StatementSyntax) -> NodeType | EdgeType:
    entity: NodeType | EdgeType | None = scope.catalog.nodes.get(name) or scope.catalog.edges.get(name)
    if entity is None:
        guess = did_you_mean(name, [*scope.catalog.nodes, *scope.catalog.edges])
        raise scope.fail("T10", f"there is no node or edge type {name}{guess}", statement.span)
    return entity


def _target(scope: Scope, statement: ast.Update | ast.Delete) -> tuple[NodeType | EdgeType, str | None]:
    """The type that an update or delete is of, and the variable of the match where it is of one."""
    target = statement.target
    if isinstance(target, str):
        return _type(scope, target, statement), None
    found = scope.node(target.name) or scope.edge(target.name)
    if found is None:
        why = "is a parameter" if target.name in scope.parameters else "is not bound"
        word = "update" if isinstance(statement, ast.Update) else "delete"
        raise scope.fail(
            "T14", f"${target.name} {why}: {word} takes a type, or a variable that match {{ }} binds", target.span
        )
    return found, target.name


# --- inserts ---------------------------------------------------------------------------------------------------------


def _insert_node(scope: Scope, node: NodeType, statement: ast.Insert) -> Statement:
    assignments = _assignments(scope, node, statement.assignments, _INSERTED)
    _check_required(scope, node, {assignment.property for assignment in assignments}, statement)
    return InsertNode(node.name, assignments)


def _insert_edge(scope: Scope, edge: EdgeType, statement: ast.Insert) -> Statement:
    ends: dict[str, Expression] = {}
    others: list[ast.Assignment] = []
    for assignment in statement.assignments:
        if assignment.property not in _ENDPOINTS:
            others.append(assignment)
            continue
        if assignment.property in ends:
            raise _twice(scope, assignment)
        ends[assignment.property] = _endpoint(scope, edge, assignment)
    assignments = _assignments(scope, edge, others, _INSERTED)
    for name in _ENDPOINTS:
        if name not in ends:
            raise scope.fail("T12", f"insert {edge.name} needs '{name}', the id of a node", statement.span)
    _check_required(scope, edge, {assignment.property for assignment in assignments}, statement)
    return InsertEdge(edge.name, ends["from"], ends["to"], assignments)


def _endpoint(scope: Scope, edge: EdgeType, assignment: ast.Assignment) -> Expression:
    """The `from` or `to` of an edge: a node, or the id of one, which is text whatever the key is."""
    name = assignment.property
    wanted = edge.source if name == "from" else edge.target
    syntax = _as_id(scope, wanted, _folded(assignment.value))
    simple = _simple(scope, syntax)
    if simple is not None:
        return compared_value(scope, Property(name, STRING), simple, variable_code="T14")
    found = expression(scope, syntax, _INSERTED)
    if isinstance(found, EntityId):
        node = scope.node(found.variable)
        if node is not None and node.name != wanted:
            raise scope.fail(
                "T5", f"'{name}' of {edge.name} is a {wanted}, and ${found.variable} is a {node.name}", syntax.span
            )
        return found
    kind = type_of(found)
    if kind.scalar in INTEGERS and not kind.is_list and _has_integer_ids(scope, wanted):
        return expression(scope, _text_of(syntax), _INSERTED)
    if kind.scalar is not Scalar.STRING or kind.is_list:
        raise scope.fail("T7", f"'{name}' of {edge.name} is the id of a {wanted}, a String, not {kind}", syntax.span)
    return found


def _has_integer_ids(scope: Scope, node: str) -> bool:
    """True for a node type whose key is one integer: its ids are the digits of it."""
    found = scope.catalog.nodes[node]
    return len(found.key) == 1 and found.properties[found.key[0]].type.scalar in INTEGERS


def _text_of(syntax: ast.ExpressionSyntax) -> ast.ExpressionSyntax:
    return ast.Call("to_string", (syntax,), span=syntax.span)


def _as_id(scope: Scope, node: str, syntax: ast.ExpressionSyntax) -> ast.ExpressionSyntax:
    """An integer that stands for a node whose key is one, as the text that is its id; anything else as it is."""
    match syntax:
        case ast.Constant(value=int() as value) if not isinstance(value, bool) and _has_integer_ids(scope, node):
            return ast.Constant(str(value), syntax.span)
        case ast.Variable(name=name) if name in scope.parameters and _has_integer_ids(scope, node):
            kind = scope.parameters[name]
            return _text_of(syntax) if kind.scalar in INTEGERS and not kind.is_list else syntax
    return syntax


def _check_required(scope: Scope, entity: EntityType, given: set[str], statement: ast.Insert) -> None:
    for name, prop in entity.properties.items():
        if name in given or prop.type.nullable or prop.default is not None:
            continue
        if prop.embedding is not None and prop.embedding.source in given:
            continue  # a vector may be computed from its source by whoever runs the query
        raise scope.fail("T12", f"insert {entity.name} needs '{name}', which cannot be null", statement.span)


# --- updates ---------------------------------------------------------------------------------------------------------


def _update(scope: Scope, entity: NodeType | EdgeType, variable: str | None, statement: ast.Update) -> Statement:
    is_edge = isinstance(entity, EdgeType)
    for assignment in statement.assignments:
        if is_edge and assignment.property in _ENDPOINTS:
            raise scope.fail("T16", "the ends of an edge never change: delete it and insert another", assignment.span)
        if assignment.property in entity.key:
            place = scope.source.locate(assignment.span)
            what = "edge" if is_edge else "node"
            raise ConstraintError(
                f"{entity.name}.{assignment.property} is part of the key and never changes:"
                f" delete the {what} and insert another (line {place.line}, column {place.column})"
            )
    place_of_values = replace(_row_place(entity), what="an assignment")
    assignments = _assignments(scope, entity, statement.assignments, place_of_values)
    where = _where(scope, entity, variable, statement)
    if is_edge:
        return UpdateEdges(entity.name, assignments, where, variable)
    return UpdateNodes(entity.name, assignments, where, variable)


def _row_place(entity: NodeType | EdgeType) -> Place:
    """What bare names stand for where a statement is about rows that exist."""
    names: dict[str, Expression] = {"id": PropertyRef(SELF, "id", STRING)}
    if isinstance(entity, EdgeType):
        names |= {word: PropertyRef(SELF, column, STRING) for word, column in _ENDPOINTS.items()}
    names |= {name: PropertyRef(SELF, name, prop.type) for name, prop in entity.properties.items()}
    called = f"property of {entity.name} called"
    return Place("a where", names, _SCALARS, called, name_code="T11", variable_code="T14", hint=_ends_hint(entity))


def _ends_hint(entity: EntityType) -> str:
    return ": the ends of an edge are 'from' and 'to'" if isinstance(entity, EdgeType) else ""


def _assignments(
    scope: Scope, entity: EntityType, written: Sequence[ast.Assignment], place: Place
) -> tuple[Assignment, ...]:
    seen: set[str] = set()
    checked: list[Assignment] = []
    for assignment in written:
        prop: Property | None = entity.properties.get(assignment.property)
        if prop is None:
            guess = did_you_mean(assignment.property, entity.properties) or _ends_hint(entity)
            raise scope.fail("T11", f"{entity.name} has no property '{assignment.property}'{guess}", assignment.span)
        if prop.name in seen:
            raise _twice(scope, assignment)
        seen.add(prop.name)
        checked.append(Assignment(prop.name, _assigned(scope, prop, _folded(assignment.value), place)))
    return tuple(checked)


def _assigned(scope: Scope, prop: Property, syntax: ast.ExpressionSyntax, place: Place) -> Expression:
    simple = _simple(scope, syntax)
    if simple is not None:
        return assigned_value(scope, prop, simple)
    found = expression(scope, syntax, place)
    if isinstance(found, EntityId):
        raise scope.fail("T7", f"${found.variable} is a node: assign ${found.variable}.id or a property", syntax.span)
    if any(isinstance(part, PropertyRef) and part.type.scalar is Scalar.BLOB for part in walk(found)):
        raise blob_value(scope, syntax.span)
    assigned_type(scope, prop, type_of(found), syntax.span)
    return found


def _folded(syntax: ast.ExpressionSyntax) -> ast.ExpressionSyntax:
    """A number with a sign as the constant it is."""
    match syntax:
        case ast.Minus(operand=ast.Constant(value=int() | float() as value), span=span) if not isinstance(value, bool):
            return ast.Constant(-value, span)
    return syntax


def _simple(scope: Scope, syntax: ast.ExpressionSyntax) -> ast.ValueSyntax | None:
    """A value that is written as such: a literal, a parameter, `now()`; a variable that stands for nothing, too."""
    match syntax:
        case ast.Constant() | ast.DateConstant() | ast.ListConstant():
            return syntax
        case ast.Call(function="now", arguments=(), distinct=False):
            return syntax
        case ast.Variable(name=name) if name in scope.parameters or name not in scope.known():
            return syntax
    return None


def _twice(scope: Scope, assignment: ast.Assignment) -> Exception:
    return scope.fail("T13", f"'{assignment.property}' is assigned twice", assignment.span)


# --- conditions ------------------------------------------------------------------------------------------------------


def _where(
    scope: Scope, entity: NodeType | EdgeType, variable: str | None, statement: ast.Update | ast.Delete
) -> tuple[Predicate, ...]:
    if statement.where is None:
        if variable is None:
            word = "update" if isinstance(statement, ast.Update) else "delete"
            raise scope.fail(
                None, f"{word} {entity.name} needs 'where' and a condition; 'where true' means all", statement.span
            )
        return ()
    for comparison in _comparisons(statement.where):
        _check_comparison(scope, entity, comparison)
    where = _with_ids(scope, entity, statement.where) if isinstance(entity, EdgeType) else statement.where
    found = tuple(predicates(scope, where, _row_place(entity)))
    if any(
        isinstance(part, PropertyRef) and part.type.scalar is Scalar.BLOB
        for each in found
        for operand in operands_of(each)
        for part in walk(operand)
    ):
        raise scope.fail("T11", "a Blob cannot be read in a condition", statement.where.span)
    return found


def _with_ids(scope: Scope, edge: EdgeType, condition: ast.ConditionSyntax) -> ast.ConditionSyntax:
    """A condition in which `from` and `to` may be compared with the integer keys of their nodes."""
    match condition:
        case ast.And(parts=parts) | ast.Or(parts=parts):
            return replace(condition, parts=tuple(_with_ids(scope, edge, part) for part in parts))
        case ast.Not(condition=inner):
            return replace(condition, condition=_with_ids(scope, edge, inner))
        case ast.Comparison(left=ast.Alias(name="from" | "to" as end), operator="=" | "!=", right=right):
            node = edge.source if end == "from" else edge.target
            return replace(condition, right=_as_id(scope, node, _folded(right)))
    return condition


def _comparisons(condition: ast.ConditionSyntax) -> Iterator[ast.Comparison]:
    match condition:
        case ast.Comparison():
            yield condition
        case ast.Not(condition=inner):
            yield from _comparisons(inner)
        case ast.And(parts=parts) | ast.Or(parts=parts):
            for part in parts:
                yield from _comparisons(part)


def _check_comparison(scope: Scope, entity: EntityType, comparison: ast.Comparison) -> None:
    """Refuse what cannot be compared, and a value that an enum does not have: it would never be met."""
    sides = comparison.left, comparison.right
    for side, other in (sides, sides[::-1]):
        prop = entity.properties.get(side.name) if isinstance(side, ast.Alias) else None
        if prop is None:
            continue
        is_list = prop.type.is_list and comparison.operator not in _COMPARISONS
        if not (prop.type.is_plain or is_list):
            raise scope.fail("T11", f"'{prop.name}' is {prop.type} and cannot be compared", side.span)
        if isinstance(other, ast.Constant) and isinstance(other.value, str) and comparison.operator in _COMPARISONS:
            check_enum(scope, prop, literal(scope, other), other)
