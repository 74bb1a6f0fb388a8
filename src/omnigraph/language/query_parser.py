"""Query text to syntax tree. Start at `parse_query_file`.

The parser walks down the grammar with a few tokens of lookahead, and decides by the place of a word whether it is a
keyword; brackets are counted beforehand, so that no text can exhaust the stack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from omnigraph.language import query_ast as ast
from omnigraph.language.condition_parser import ConditionParser
from omnigraph.language.grammar import check_text
from omnigraph.language.literals import integer_value
from omnigraph.language.query_tokens import Kind, Token
from omnigraph.language.schema_ast import TypeSyntax
from omnigraph.language.source import LocalError, Source, Span

T = TypeVar("T")

_SCALARS = frozenset(
    {"String", "Blob", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "DateTime", "Date"},
)
_TYPES = "a type (String, Bool, I32, I64, U32, U64, F32, F64, Date, DateTime, Blob, Vector(n))"
_STATEMENTS = ("insert", "update", "delete")
_COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})


def parse_query_file(text: str) -> ast.QueryFile:
    """Read a query file; an empty one is fine.

    Raises:
        ParseError: the text does not fit the grammar, or two queries have one name.

    >>> parse_query_file("query q() { match { $b: Berth } return { $b } }").queries[0].name
    'q'
    """
    source = Source(text)
    check_text(source)
    queries = _QueryParser(source).file()
    seen: set[str] = set()
    for query in queries:
        if query.name in seen:
            raise source.parse_error(f"query '{query.name}' is declared twice", query.span)
        seen.add(query.name)
    return ast.QueryFile(queries, source)


class _QueryParser(ConditionParser):
    """Reads declarations, clauses and statements; each method is named after what it reads."""

    def file(self) -> tuple[ast.Query, ...]:
        queries: list[ast.Query] = []
        while self.token.kind is not Kind.END:
            queries.append(self.query())
        return tuple(queries)

    def query(self) -> ast.Query:
        self.expect("query")
        name = self.expect_kind(Kind.NAME)
        self.expect("(")
        parameters: list[ast.Parameter] = []
        if not self.accept(")"):
            parameters.append(self.parameter())
            while self.accept(","):
                parameters.append(self.parameter())
            self.expect(")")
        notes: dict[str, str] = {}
        while self.token in ("@description", "@instruction"):
            note = self.advance()
            self.expect("(")
            text = self.text(self.expect_kind(Kind.STRING))
            self.expect(")")
            if str(note) in notes:
                raise self.fault(f"{note} is given twice for query '{name}'", note.span)
            notes[str(note)] = text
        self.want("'@description' or '@instruction'")
        self.expect("{")
        body = self.body()
        self.expect("}")
        description, instruction = notes.get("@description"), notes.get("@instruction")
        return ast.Query(str(name), tuple(parameters), body, description, instruction, name.span)

    def parameter(self) -> ast.Parameter:
        variable = self.variable()
        self.expect(":")
        return ast.Parameter(variable.name, self.parameter_type(), variable.span)

    def parameter_type(self) -> TypeSyntax:
        if self.token == "Vector":
            self.advance()
            self.expect("(")
            dimension = self.expect_kind(Kind.INTEGER)
            self.expect(")")
            size = self.integer(dimension)
            return TypeSyntax("Vector", nullable=self.accept("?"), dimension=size, span=dimension.span)
        is_list = self.accept("[")
        scalar = self.token
        if scalar not in _SCALARS:
            self.want(_TYPES)
            raise self.refusal()
        self.advance()
        if is_list:
            self.expect("]")
        return TypeSyntax(str(scalar), nullable=self.accept("?"), is_list=is_list, span=scalar.span)

    def body(self) -> ast.ReadBody | ast.WriteBody:
        """What follows a match tells whether it is read or changed."""
        if not self.is_word("match"):
            return self.write_body(())
        self.advance()
        clauses = self.block()
        return self.write_body(clauses) if self.is_statement() else self.read_body(clauses)

    # --- reads

    def read_body(self, clauses: tuple[ast.Clause, ...]) -> ast.ReadBody:
        self.expect("return")
        distinct = self.accept("distinct")
        projections = self.projections()
        having: list[ast.ConditionSyntax] = []
        if self.accept("having"):
            self.expect("{")
            having.append(self.condition())
            while not self.accept("}"):
                having.append(self.condition())
        order: list[ast.Ordering] = []
        if self.accept("order"):
            self.expect("{")
            order.append(self.ordering())
            while self.accept(","):
                order.append(self.ordering())
            self.expect("}")
        limit = self.count() if self.accept("limit") else None
        offset = self.count() if self.accept("offset") else None
        return ast.ReadBody(clauses, projections, tuple(order), limit, distinct, tuple(having), offset)

    def in_braces(self, part: Callable[[], T]) -> tuple[T, ...]:
        """Parts of one kind, at least one."""
        self.expect("{")
        found = [part()]
        while not self.accept("}"):
            found.append(part())
        return tuple(found)

    def block(self) -> tuple[ast.Clause, ...]:
        return self.in_braces(self.clause)

    def clause(self) -> ast.Clause:
        token = self.token
        if token.kind is Kind.VARIABLE:
            return self.clause_of_variable()
        if token.kind is Kind.NAME:
            following = self.ahead(1)
            if following == "{" and token in ("not", "exists", "optional", "either"):
                return self.inner_block()
            if token == "path" and following.kind is Kind.VARIABLE:
                return self.shortest_path()
        elif token == "}":
            self.want("a clause")
            raise self.refusal()
        return self.condition()

    def inner_block(self) -> ast.BlockSyntax:
        word = self.advance()
        clauses = self.block()
        match str(word):
            case "not":
                return ast.Negation(clauses, word.span)
            case "exists":
                return ast.Exists(clauses, word.span)
            case "optional":
                return ast.Optional(clauses, word.span)
        arms = [clauses]
        while self.token == "or" and self.ahead(1) == "{":
            self.advance()
            arms.append(self.block())
        return ast.Either(tuple(arms), word.span)

    def clause_of_variable(self) -> ast.Clause:
        """A binding, a traversal or a condition: the tokens after the variable tell."""
        following, second = self.ahead(1), self.ahead(2)
        if following == ":":
            return self.binding()
        if following.kind is Kind.VARIABLE:
            return self.traversal()
        if following.kind is Kind.NAME and (second.kind is Kind.VARIABLE or second == "{"):
            return self.traversal()
        if following == "<" and second.kind is Kind.NAME and self.ahead(3) == ">":
            return self.traversal()
        if following.kind in (Kind.END, Kind.SYMBOL) and following not in _COMPARISONS and following not in "+-*/%":
            self.advance()
            for what in ("':'", "an edge name", "a comparison (= != < <= > >=)"):
                self.want(what)
            raise self.refusal()
        return self.condition()

    def binding(self) -> ast.Binding:
        variable = self.variable()
        self.expect(":")
        type_name = self.expect_kind(Kind.TYPE_NAME)
        matches: list[ast.PropertyMatch] = []
        if self.accept("{"):
            while not self.accept("}"):
                if matches and not self.is_after_comma():
                    self.expect(",")
                name = self.expect_kind(Kind.NAME)
                self.expect(":")
                matches.append(ast.PropertyMatch(str(name), self.value(), name.span))
                self.accept(",")
        return ast.Binding(variable, str(type_name), tuple(matches), type_name.span)

    def is_after_comma(self) -> bool:
        return self.tokens[self.place - 1] == ","

    def traversal(self) -> ast.Traversal:
        left = self.variable()
        edge_variable = None
        if self.token.kind is Kind.VARIABLE:
            edge_variable = self.variable()
            self.expect(":")
        name, undirected = self.edge_name()
        hops = self.hops() if self.is_word("{") else None
        return ast.Traversal(left, str(name), self.variable(), edge_variable, undirected, hops, name.span)

    def edge_name(self) -> tuple[Token, bool]:
        undirected = self.accept("<")
        name = self.expect_kind(Kind.NAME)
        if name == "not":
            raise self.fault("an edge name cannot be 'not'", name.span)
        if undirected:
            self.expect(">")
        return name, undirected

    def hops(self) -> ast.Hops:
        self.expect("{")
        low = self.expect_kind(Kind.INTEGER)
        self.expect(",")
        high = self.advance() if self.token.kind is Kind.INTEGER else None
        self.expect("}")
        return ast.Hops(self.integer(low), None if high is None else self.integer(high), low.span)

    def shortest_path(self) -> ast.ShortestPath:
        self.expect("path")
        variable = self.variable()
        self.expect("=")
        self.expect("shortest")
        left = self.variable()
        name, undirected = self.edge_name()
        hops = self.hops()
        return ast.ShortestPath(variable, left, str(name), self.variable(), hops, undirected, name.span)

    def projections(self) -> tuple[ast.Projection, ...]:
        return self.in_braces(self.projection)

    def projection(self) -> ast.Projection:
        expression = self.expression()
        alias = str(self.expect_kind(Kind.NAME)) if self.accept("as") else None
        self.accept(",")
        return ast.Projection(expression, alias, expression.span)

    def ordering(self) -> ast.Ordering:
        expression = self.expression()
        direction = self.advance() if self.token in ("asc", "desc") else None
        if direction is not None and isinstance(expression, ast.Call) and expression.function == "nearest":
            raise self.fault("nearest(…) always puts the nearest first; leave out 'asc' or 'desc'", direction.span)
        if direction is None:
            self.want("'asc' or 'desc'")
        return ast.Ordering(expression, None if direction is None else str(direction), expression.span)

    def count(self) -> ast.CountSyntax:
        if self.token.kind is Kind.VARIABLE:
            return self.variable()
        self.want("a variable ($name)")
        return self.integer(self.expect_kind(Kind.INTEGER))

    # --- mutations

    def write_body(self, match: tuple[ast.Clause, ...]) -> ast.WriteBody:
        statements = [self.statement()]
        while self.is_statement():
            statements.append(self.statement())
        projections = self.projections() if self.accept("return") else ()
        return ast.WriteBody(tuple(statements), match, projections)

    def is_statement(self) -> bool:
        return any(self.is_word(word) for word in _STATEMENTS)

    def statement(self) -> ast.StatementSyntax:
        if self.accept("insert"):
            type_name = self.expect_kind(Kind.TYPE_NAME)
            assignments = self.assignments()
            return ast.Insert(str(type_name), assignments, self.bound(), type_name.span)
        if self.accept("update"):
            target, span = self.target()
            self.expect("set")
            assignments = self.assignments()
            where = self.condition() if self.accept("where") else None
            return ast.Update(target, assignments, where, self.bound(), span)
        self.expect("delete")
        target, span = self.target()
        return ast.Delete(target, self.condition() if self.accept("where") else None, span)

    def target(self) -> tuple[ast.TargetSyntax, Span]:
        if self.token.kind is Kind.VARIABLE:
            variable = self.variable()
            return variable, variable.span
        self.want("a variable ($name)")
        type_name = self.expect_kind(Kind.TYPE_NAME)
        return str(type_name), type_name.span

    def bound(self) -> ast.Variable | None:
        return self.variable() if self.accept("as") else None

    def assignments(self) -> tuple[ast.Assignment, ...]:
        return self.in_braces(self.assignment)

    def assignment(self) -> ast.Assignment:
        name = self.expect_kind(Kind.NAME)
        self.expect(":")
        value = self.expression()
        self.accept(",")
        return ast.Assignment(str(name), value, name.span)

    # --- tokens

    def variable(self) -> ast.Variable:
        token = self.expect_kind(Kind.VARIABLE)
        return ast.Variable(token[1:], token.span)

    def integer(self, token: Token) -> int:
        try:
            return integer_value(token)
        except LocalError as failure:
            raise self.fault(failure.message, failure.span) from None
