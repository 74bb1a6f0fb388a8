"""Query text to syntax tree. Start at `parse_query_file`."""

from __future__ import annotations

from functools import cache
from typing import Any

from lark import Token, Transformer, v_args

from omnigraph.language import query_ast as ast
from omnigraph.language.grammar import Grammar
from omnigraph.language.literals import float_value, integer_value, span_of, string_value
from omnigraph.language.schema_ast import TypeSyntax
from omnigraph.language.schema_parser import nullable_type
from omnigraph.language.source import LocalError, Source


def parse_query_file(text: str) -> ast.QueryFile:
    """Read a query file; an empty one is fine.

    Raises:
        ParseError: the text does not fit the grammar, or two queries have one name.

    >>> parse_query_file("query q() { match { $b: Berth } return { $b } }").queries[0].name
    'q'
    """
    source = Source(text)
    queries: tuple[ast.Query, ...] = _grammar().parse(source)
    seen: set[str] = set()
    for query in queries:
        if query.name in seen:
            raise source.parse_error(f"query '{query.name}' is declared twice", query.span)
        seen.add(query.name)
    return ast.QueryFile(queries, source)


@cache
def _grammar() -> Grammar:
    return Grammar("query.lark", _Builder())


@v_args(inline=True)
class _Builder(Transformer[Any, Any]):
    """Makes tree nodes from the grammar's rules; each method is named after its rule."""

    def start(self, *queries: ast.Query) -> tuple[ast.Query, ...]:
        return queries

    def query(self, name: Token, parameters: tuple[ast.Parameter, ...], *rest: Any) -> ast.Query:
        *notes, body = rest
        texts: dict[str, str] = {}
        for note, text in notes:
            if str(note) in texts:
                raise LocalError(f"{note} is given twice for query '{name}'", span_of(note))
            texts[str(note)] = text
        description, instruction = texts.get("@description"), texts.get("@instruction")
        return ast.Query(str(name), parameters, body, description, instruction, span_of(name))

    def note(self, name: Token, text: Token) -> tuple[Token, str]:
        return name, string_value(text)

    def parameters(self, *parameters: ast.Parameter | None) -> tuple[ast.Parameter, ...]:
        return tuple(parameter for parameter in parameters if parameter is not None)

    def parameter(self, variable: Token, type_: TypeSyntax) -> ast.Parameter:
        return ast.Parameter(str(variable[1:]), type_, span_of(variable))

    def parameter_type(self, core: TypeSyntax, question: Token | None) -> TypeSyntax:
        return nullable_type(core, question)

    def list_type(self, _bracket: Token, scalar: Token) -> TypeSyntax:
        return TypeSyntax(str(scalar), is_list=True, span=span_of(scalar))

    def vector_type(self, dimension: Token) -> TypeSyntax:
        return TypeSyntax("Vector", dimension=integer_value(dimension), span=span_of(dimension))

    def scalar_type(self, scalar: Token) -> TypeSyntax:
        return TypeSyntax(str(scalar), span=span_of(scalar))

    # --- reads

    def read_body(self, clauses: tuple[ast.Clause, ...], *rest: Any) -> ast.ReadBody:
        *projections, order, limit = rest
        return ast.ReadBody(clauses, tuple(projections), order or (), limit)

    def clauses(self, *clauses: ast.Clause) -> tuple[ast.Clause, ...]:
        return clauses

    def negation(self, clauses: tuple[ast.Clause, ...]) -> ast.Negation:
        return ast.Negation(clauses, clauses[0].span)

    def binding(self, variable: Token, type_name: Token, matches: tuple[ast.PropertyMatch, ...] | None) -> ast.Binding:
        return ast.Binding(_variable(variable), str(type_name), matches or (), span_of(type_name))

    def property_matches(self, *matches: ast.PropertyMatch | None) -> tuple[ast.PropertyMatch, ...]:
        return tuple(match for match in matches if match is not None)

    def property_match(self, name: Token, value: ast.ValueSyntax) -> ast.PropertyMatch:
        return ast.PropertyMatch(str(name), value, span_of(name))

    def traversal(
        self,
        left: Token,
        edge_variable: ast.Variable | None,
        edge: tuple[Token, bool],
        hops: ast.Hops | None,
        right: Token,
    ) -> ast.Traversal:
        name, undirected = edge
        if name == "not":
            raise LocalError("an edge name cannot be 'not'", span_of(name))
        ends = _variable(left), str(name), _variable(right)
        return ast.Traversal(*ends, edge_variable, undirected, hops, span_of(name))

    def edge_binding(self, variable: Token) -> ast.Variable:
        return _variable(variable)

    def undirected(self, _open: Token, name: Token, _close: Token) -> tuple[Token, bool]:
        return name, True

    def undirected_name(self, name: Token) -> Token:
        return name

    def edge_name(self, name: Token) -> tuple[Token, bool]:
        return name, False

    def hops(self, low: Token, high: Token | None) -> ast.Hops:
        return ast.Hops(integer_value(low), None if high is None else integer_value(high), span_of(low))

    def filter(self, left: ast.ExpressionSyntax, operator: Token, right: ast.ExpressionSyntax) -> ast.FilterClause:
        return ast.FilterClause(left, str(operator), right, left.span.to(right.span))

    def variable_filter(self, left: Token, operator: Token, right: ast.ExpressionSyntax) -> ast.FilterClause:
        return self.filter(_variable(left), operator, right)

    def filter_op(self, token: Token) -> Token:
        return token

    def projection(self, expression: ast.ExpressionSyntax, alias: Token | None) -> ast.Projection:
        return ast.Projection(expression, None if alias is None else str(alias), expression.span)

    def order(self, *orderings: ast.Ordering) -> tuple[ast.Ordering, ...]:
        return orderings

    def ordering(self, expression: ast.ExpressionSyntax, direction: Token | None) -> ast.Ordering:
        if direction is not None and isinstance(expression, ast.NearestCall):
            raise LocalError("nearest(…) always puts the nearest first; leave out 'asc' or 'desc'", span_of(direction))
        return ast.Ordering(expression, None if direction is None else str(direction), expression.span)

    def limit(self, count: Token) -> int:
        return integer_value(count)

    # --- mutations

    def write_body(self, *statements: ast.StatementSyntax) -> ast.WriteBody:
        return ast.WriteBody(statements)

    def insert(self, type_name: Token, *assignments: ast.Assignment) -> ast.Insert:
        return ast.Insert(str(type_name), assignments, span_of(type_name))

    def update(self, type_name: Token, *rest: Any) -> ast.Update:
        *assignments, where = rest
        return ast.Update(str(type_name), tuple(assignments), where, span_of(type_name))

    def delete(self, type_name: Token, where: ast.Predicate) -> ast.Delete:
        return ast.Delete(str(type_name), where, span_of(type_name))

    def assigned_name(self, name: Token) -> Token:
        return name

    def assignment(self, name: Token, value: ast.ValueSyntax) -> ast.Assignment:
        return ast.Assignment(str(name), value, span_of(name))

    def predicate(self, name: Token, operator: Token, value: ast.ValueSyntax) -> ast.Predicate:
        return ast.Predicate(str(name), str(operator), value, span_of(name))

    def compare_op(self, token: Token) -> Token:
        return token

    # --- expressions

    def variable(self, token: Token) -> ast.Variable:
        return _variable(token)

    def property(self, token: Token) -> ast.PropertyAccess:
        variable, _, name = token[1:].partition(".")
        return ast.PropertyAccess(str(variable), str(name), span_of(token))

    def alias(self, token: Token) -> ast.Alias:
        return ast.Alias(str(token), span_of(token))

    def now_call(self, token: Token) -> ast.NowCall:
        return ast.NowCall(span_of(token))

    def nearest_call(self, name: Token, property_: ast.PropertyAccess, query: ast.ExpressionSyntax) -> ast.NearestCall:
        return ast.NearestCall(property_, query, span_of(name))

    def text_call(
        self,
        name: Token,
        field: ast.ExpressionSyntax,
        query: ast.ExpressionSyntax,
        distance: ast.ExpressionSyntax | None = None,
    ) -> ast.TextCall:
        return ast.TextCall(str(name), field, query, distance, span_of(name))

    def bm25_call(self, name: Token, field: ast.ExpressionSyntax, query: ast.ExpressionSyntax) -> ast.Bm25Call:
        return ast.Bm25Call(field, query, span_of(name))

    def rrf_call(
        self,
        name: Token,
        first: ast.NearestCall | ast.Bm25Call,
        second: ast.NearestCall | ast.Bm25Call,
        k: ast.ExpressionSyntax | None = None,
    ) -> ast.RrfCall:
        return ast.RrfCall(first, second, k, span_of(name))

    def aggregate(self, name: Token, argument: ast.ExpressionSyntax) -> ast.AggregateCall:
        return ast.AggregateCall(str(name), argument, span_of(name))

    def list(self, bracket: Token, *items: ast.LiteralSyntax | None) -> ast.ListConstant:
        present = tuple(item for item in items if item is not None)
        return ast.ListConstant(present, span_of(bracket))

    def date(self, function: Token, text: Token) -> ast.DateConstant:
        return ast.DateConstant(str(function), string_value(text), span_of(text))

    def string(self, token: Token) -> ast.Constant:
        return ast.Constant(string_value(token), span_of(token))

    def float(self, token: Token) -> ast.Constant:
        return ast.Constant(float_value(token), span_of(token))

    def integer(self, token: Token) -> ast.Constant:
        return ast.Constant(integer_value(token), span_of(token))

    def bool(self, token: Token) -> ast.Constant:
        return ast.Constant(token == "true", span_of(token))


def _variable(token: Token) -> ast.Variable:
    return ast.Variable(str(token[1:]), span_of(token))
