"""Syntax tree to text: the one way this project writes either language.

Printing and parsing again gives an equal tree, which is also how the printer is tested. Comments are not in the tree
and so do not survive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from omnigraph.language import query_ast as q
from omnigraph.language import schema_ast as s
from omnigraph.language.literals import float_text, string_text

_INDENT = "    "


# --- schema ----------------------------------------------------------------------------------------------------------


def print_schema(schema: s.Schema) -> str:
    """A schema as text, one declaration after the other."""
    return "".join(f"{_declaration(declaration)}\n" for declaration in schema.declarations)


def _declaration(declaration: s.Declaration) -> str:
    match declaration:
        case s.InterfaceDeclaration(name=name):
            return f"interface {name} {_body(declaration.properties, ())}"
        case s.NodeDeclaration(name=name):
            implements = ", ".join(reference.name for reference in declaration.implements)
            parts = [f"node {name}", *map(_annotation, declaration.annotations)]
            parts += [f"implements {implements}"] if implements else []
            return " ".join([*parts, _body(declaration.properties, declaration.constraints)])
        case s.EdgeDeclaration(name=name):
            parts = [f"edge {name}: {declaration.from_type.name} -> {declaration.to_type.name}"]
            card = declaration.cardinality
            if card is not None:
                parts.append(f"@card({card.low}..{'' if card.high is None else card.high})")
            parts += map(_annotation, declaration.annotations)
            if declaration.properties or declaration.constraints:
                parts.append(_body(declaration.properties, declaration.constraints))
            return " ".join(parts)


def _body(properties: Sequence[s.Property], constraints: Sequence[s.Constraint]) -> str:
    lines = [_property(prop) for prop in properties] + [_constraint(constraint) for constraint in constraints]
    return "{\n" + "".join(f"{_INDENT}{line}\n" for line in lines) + "}"


def _property(prop: s.Property) -> str:
    return " ".join([f"{prop.name}: {type_text(prop.type)}", *map(_annotation, prop.annotations)])


def type_text(kind: s.TypeSyntax) -> str:
    """A type as it is written after a colon."""
    if kind.enum_values is not None:
        core = f"enum({', '.join(kind.enum_values)})"
    elif kind.dimension is not None:
        core = f"Vector({kind.dimension})"
    else:
        core = f"[{kind.scalar}]" if kind.is_list else kind.scalar
    return f"{core}?" if kind.nullable else core


def _annotation(annotation: s.Annotation) -> str:
    if annotation.value is None:
        return f"@{annotation.name}"
    plain = annotation.value_is_name or annotation.value_is_call
    value = str(annotation.value) if plain else _literal(annotation.value)
    keywords = [f"{name}={_literal(given)}" for name, given in annotation.kwargs]
    return f"@{annotation.name}({', '.join([value, *keywords])})"


def _constraint(constraint: s.Constraint) -> str:
    return f"@{constraint.name}({', '.join(map(_argument, constraint.arguments))})"


def _argument(argument: s.ConstraintArgument) -> str:
    match argument:
        case s.Name(text=text):
            return text
        case s.Range(low=low, high=high):
            return f"{'' if low is None else _literal(low)}..{'' if high is None else _literal(high)}"
        case s.Constant(value=value):
            return _literal(value)


def _literal(value: s.LiteralValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return string_text(value)
    return float_text(value) if isinstance(value, float) else str(value)


# --- queries ---------------------------------------------------------------------------------------------------------


def print_query_file(file: q.QueryFile) -> str:
    """A query file as text, one query after the other."""
    return "".join(f"{print_query(query)}\n" for query in file.queries)


def print_query(query: q.Query) -> str:
    """One query as text."""
    parameters = ", ".join(f"${parameter.name}: {type_text(parameter.type)}" for parameter in query.parameters)
    head = f"query {query.name}({parameters})"
    for name, text in (("description", query.description), ("instruction", query.instruction)):
        if text is not None:
            head += f" @{name}({string_text(text)})"
    lines = _read(query.body) if isinstance(query.body, q.ReadBody) else _write(query.body)
    return f"{head} {{\n" + "".join(f"{_INDENT}{line}\n" for line in lines) + "}"


def _match(clauses: Sequence[q.Clause]) -> Iterator[str]:
    yield "match {"
    for clause in clauses:
        yield f"{_INDENT}{clause_text(clause)}"
    yield "}"


def _projections(projections: Sequence[q.Projection]) -> str:
    return f"{{ {', '.join(map(_projection, projections))} }}"


def _write(body: q.WriteBody) -> Iterator[str]:
    if body.match:
        yield from _match(body.match)
    yield from map(_statement, body.statements)
    if body.projections:
        yield f"return {_projections(body.projections)}"


def _read(body: q.ReadBody) -> Iterator[str]:
    yield from _match(body.match)
    yield f"return {'distinct ' if body.distinct else ''}{_projections(body.projections)}"
    if body.having:
        yield f"having {{ {' '.join(map(condition_text, body.having))} }}"
    if body.order:
        yield f"order {{ {', '.join(map(_ordering, body.order))} }}"
    if body.limit is not None:
        yield f"limit {_count(body.limit)}"
    if body.offset is not None:
        yield f"offset {_count(body.offset)}"


def _count(count: q.CountSyntax) -> str:
    return str(count) if isinstance(count, int) else f"${count.name}"


def clause_text(clause: q.Clause) -> str:
    """A clause of a match as text."""
    match clause:
        case q.Negation(clauses=clauses):
            return f"not {_block(clauses)}"
        case q.Exists(clauses=clauses):
            return f"exists {_block(clauses)}"
        case q.Optional(clauses=clauses):
            return f"optional {_block(clauses)}"
        case q.Either(arms=arms):
            return f"either {' or '.join(map(_block, arms))}"
        case q.Binding(variable=variable, type_name=type_name, matches=matches):
            entries = ", ".join(f"{entry.property}: {expression_text(entry.value)}" for entry in matches)
            return f"${variable.name}: {type_name}{f' {{ {entries} }}' if entries else ''}"
        case q.Traversal():
            return _traversal(clause)
        case q.ShortestPath():
            low, high = clause.hops.low, clause.hops.high
            name = f"<{clause.edge_name}>" if clause.undirected else clause.edge_name
            bounds = f"{{{low},{'' if high is None else high}}}"
            return f"path ${clause.variable.name} = shortest ${clause.left.name} {name}{bounds} ${clause.right.name}"
        case _:
            return condition_text(clause)


def _block(clauses: Sequence[q.Clause]) -> str:
    return f"{{ {' '.join(map(clause_text, clauses))} }}"


def _traversal(clause: q.Traversal) -> str:
    name = f"<{clause.edge_name}>" if clause.undirected else clause.edge_name
    edge = f"${clause.edge_variable.name}:{name}" if clause.edge_variable is not None else name
    hops = ""
    if clause.hops is not None:
        hops = f"{{{clause.hops.low},{'' if clause.hops.high is None else clause.hops.high}}}"
    return f"${clause.left.name} {edge}{hops} ${clause.right.name}"


def _projection(projection: q.Projection) -> str:
    text = expression_text(projection.expression)
    return text if projection.alias is None else f"{text} as {projection.alias}"


def _ordering(ordering: q.Ordering) -> str:
    text = expression_text(ordering.expression)
    return text if ordering.direction is None else f"{text} {ordering.direction}"


def _statement(statement: q.StatementSyntax) -> str:
    match statement:
        case q.Insert(type_name=name, assignments=assignments, binds=binds):
            return f"insert {name} {{ {_assignments(assignments)} }}{_bound(binds)}"
        case q.Update(target=target, assignments=assignments, where=where, binds=binds):
            return f"update {_target(target)} set {{ {_assignments(assignments)} }}{_where(where)}{_bound(binds)}"
        case q.Delete(target=target, where=where):
            return f"delete {_target(target)}{_where(where)}"


def _target(target: q.TargetSyntax) -> str:
    return target if isinstance(target, str) else f"${target.name}"


def _where(where: q.ConditionSyntax | None) -> str:
    return "" if where is None else f" where {condition_text(where)}"


def _bound(binds: q.Variable | None) -> str:
    return "" if binds is None else f" as ${binds.name}"


def _assignments(assignments: Sequence[q.Assignment]) -> str:
    return ", ".join(f"{assignment.property}: {expression_text(assignment.value)}" for assignment in assignments)


def expression_text(expression: q.ExpressionSyntax) -> str:
    """An expression as text."""
    match expression:
        case q.Variable(name=name):
            return f"${name}"
        case q.PropertyAccess(variable=variable, property=name):
            return f"${variable}.{name}"
        case q.Alias(name=name):
            return name
        case q.Constant(value=value):
            return _literal(value)
        case q.DateConstant(function=function, text=text):
            return f"{function}({string_text(text)})"
        case q.ListConstant(items=items):
            return f"[{', '.join(map(expression_text, items))}]"
        case q.AllProperties(variable=variable):
            return f"${variable}.*"
        case q.Call(function=function, arguments=arguments, distinct=distinct):
            listed = ", ".join(map(expression_text, arguments))
            return f"{function}({'distinct ' if distinct else ''}{listed})"
        case q.Minus(operand=operand):
            return f"-{_operand(operand, _TIGHTEST)}"
        case q.Arithmetic(operator=operator, left=left, right=right):
            level = _LEVELS[operator]
            return f"{_operand(left, level)} {operator} {_operand(right, level + 1)}"


_LEVELS = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}
_TIGHTEST = 4


def _operand(expression: q.ExpressionSyntax, level: int) -> str:
    """An expression as a part of another, in brackets where it would bind less tightly."""
    text = expression_text(expression)
    match expression:
        case q.Arithmetic(operator=operator):
            own = _LEVELS[operator]
        case q.Minus():
            own = _TIGHTEST - 1
        case _:
            own = _TIGHTEST
    return text if own >= level else f"({text})"


def condition_text(condition: q.ConditionSyntax) -> str:
    """A condition as text."""
    match condition:
        case q.Comparison(left=left, operator=operator, right=right):
            return f"{expression_text(left)} {operator} {expression_text(right)}"
        case q.NullTest(operand=operand, negated=negated):
            return f"{expression_text(operand)} is {'not ' if negated else ''}null"
        case q.Truth(expression=expression):
            return expression_text(expression)
        case q.Not(condition=inner):
            return f"not {_part(inner, q.And | q.Or)}"
        case q.And(parts=parts):
            return " and ".join(_part(part, q.And | q.Or) for part in parts)
        case q.Or(parts=parts):
            return " or ".join(_part(part, q.Or) for part in parts)


def _part(condition: q.ConditionSyntax, looser: Any) -> str:
    text = condition_text(condition)
    return f"({text})" if isinstance(condition, looser) else text
