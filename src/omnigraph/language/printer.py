"""Syntax tree to text: the one way this project writes either language.

Printing and parsing again gives an equal tree, which is also how the printer is tested. Comments are not in the tree
and so do not survive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    value = str(annotation.value) if annotation.value_is_name else _literal(annotation.value)
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
    lines = _read(query.body) if isinstance(query.body, q.ReadBody) else map(_statement, query.body.statements)
    return f"{head} {{\n" + "".join(f"{_INDENT}{line}\n" for line in lines) + "}"


def _read(body: q.ReadBody) -> Iterator[str]:
    yield "match {"
    for clause in body.match:
        yield f"{_INDENT}{_clause(clause)}"
    yield "}"
    yield f"return {{ {', '.join(map(_projection, body.projections))} }}"
    if body.order:
        yield f"order {{ {', '.join(map(_ordering, body.order))} }}"
    if body.limit is not None:
        yield f"limit {body.limit}"


def _clause(clause: q.Clause) -> str:
    match clause:
        case q.Negation(clauses=clauses):
            return f"not {{ {' '.join(map(_clause, clauses))} }}"
        case q.Binding(variable=variable, type_name=type_name, matches=matches):
            entries = ", ".join(f"{entry.property}: {expression_text(entry.value)}" for entry in matches)
            return f"${variable.name}: {type_name}{f' {{ {entries} }}' if entries else ''}"
        case q.Traversal():
            return _traversal(clause)
        case q.FilterClause(left=left, operator=operator, right=right):
            return f"{expression_text(left)} {operator} {expression_text(right)}"
        case q.TextCall():
            return expression_text(clause)


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
        case q.Insert(type_name=name, assignments=assignments):
            return f"insert {name} {{ {_assignments(assignments)} }}"
        case q.Update(type_name=name, assignments=assignments, where=where):
            return f"update {name} set {{ {_assignments(assignments)} }} where {_predicate(where)}"
        case q.Delete(type_name=name, where=where):
            return f"delete {name} where {_predicate(where)}"


def _assignments(assignments: Sequence[q.Assignment]) -> str:
    return ", ".join(f"{assignment.property}: {expression_text(assignment.value)}" for assignment in assignments)


def _predicate(where: q.Predicate) -> str:
    return f"{where.property} {where.operator} {expression_text(where.value)}"


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
        case q.NowCall():
            return "now()"
        case q.AggregateCall(function=function, argument=argument):
            return f"{function}({expression_text(argument)})"
        case _:
            return _call(expression)


def _call(call: q.NearestCall | q.TextCall | q.Bm25Call | q.RrfCall) -> str:
    arguments: tuple[q.ExpressionSyntax | None, ...]
    match call:
        case q.NearestCall():
            name, arguments = "nearest", (call.property, call.query)
        case q.TextCall(function=name):
            arguments = (call.field, call.query, call.distance)
        case q.Bm25Call():
            name, arguments = "bm25", (call.field, call.query)
        case q.RrfCall():
            name, arguments = "rrf", (call.first, call.second, call.k)
    return f"{name}({', '.join(expression_text(argument) for argument in arguments if argument is not None)})"
