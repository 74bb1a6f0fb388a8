"""Expressions and conditions of the query language.

One walk reads both, as only what follows a bracket tells whether `($a.x + 1)` is a number or `($a.x > 1)` a condition.
At the place of an operand every word is a name, at the place of an operator it may be one: so no name is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from omnigraph.errors import ParseError
from omnigraph.language import query_ast as ast
from omnigraph.language.literals import float_value, integer_value, string_value
from omnigraph.language.query_cursor import Cursor
from omnigraph.language.query_tokens import Kind, Token
from omnigraph.language.source import LocalError, Source, Span

DEPTH_MAX = 100
"""How deep an expression may be: operators in a row count as much as brackets, as trees of both are read alike."""
_COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})
WORD_OPERATORS = frozenset({"contains", "starts_with", "ends_with", "matches", "in"})
_TESTS = _COMPARISONS | WORD_OPERATORS | {"is"}
_CONDITIONS = (ast.Comparison, ast.NullTest, ast.Truth, ast.Not, ast.And, ast.Or)
_OPERATORS_AFTER_NAME = frozenset({"+", "-", "*", "/", "%", ")", ","})
_NUMBERS = (Kind.INTEGER, Kind.FLOAT)
_Either = ast.ExpressionSyntax | ast.ConditionSyntax
_Tree = TypeVar("_Tree", bound=_Either)


class ConditionParser(Cursor):
    """Reads what can be compared and what can be true."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._depths: dict[Span, int] = {}
        """How deep the tree over a stretch of the text is; a tree over it reads at least one token more."""

    # --- conditions

    def condition(self) -> ast.ConditionSyntax:
        """A condition; a lone variable is none, as what follows it may be the next clause."""
        begin = self.place
        found = self._disjunction()
        if isinstance(found, _CONDITIONS):
            return found
        return self._truth(found, begin)

    def _truth(self, found: ast.ExpressionSyntax, begin: int) -> ast.Truth:
        if self.token == "not" and self.ahead(1) == "in":
            raise self.fault("write 'not' before what is tested: not x in […]", self.token.span)
        before = self.tokens[begin - 1] if begin else self.tokens[begin]
        if isinstance(found, ast.Alias) and before.span.end == found.span.start and before.kind in _NUMBERS:
            raise self.fault("a number has no exponent, separator or prefix: digits, and one point at most", found.span)
        if isinstance(found, ast.Variable):
            self.want("a comparison (= != < <= > >=)")
            raise self.refusal()
        return ast.Truth(found, self._span(begin))

    def _disjunction(self) -> _Either:
        begin = self.place
        parts = [self._conjunction()]
        while self.accept("or"):
            parts.append(self._conjunction())
        if len(parts) == 1:
            return parts[0]
        return self._made(ast.Or(self._all_true(parts, begin), self._span(begin)), *parts)

    def _conjunction(self) -> _Either:
        begin = self.place
        parts = [self._test()]
        while self.accept("and"):
            parts.append(self._test())
        if len(parts) == 1:
            return parts[0]
        return self._made(ast.And(self._all_true(parts, begin), self._span(begin)), *parts)

    def _all_true(self, parts: list[_Either], begin: int) -> tuple[ast.ConditionSyntax, ...]:
        return tuple(part if isinstance(part, _CONDITIONS) else self._truth(part, begin) for part in parts)

    def _test(self) -> _Either:
        begin = self.place
        if self.is_word("not"):
            if self.ahead(1) not in _TESTS and self.ahead(1) not in _OPERATORS_AFTER_NAME - {"-"}:
                return self._negated(begin)
            # An operator after `not` means that something is called so, unless that is what is called so.
            try:
                return self._negated(begin)
            except ParseError:
                self.place = begin
        left = self._sum()
        if isinstance(left, _CONDITIONS):
            return left
        operator = self.token
        if operator in _COMPARISONS or (operator.kind is Kind.NAME and operator in WORD_OPERATORS):
            self.advance()
            right = self._operand(self._sum(), self.place)
            return self._made(ast.Comparison(left, str(operator), right, self._span(begin)), left, right)
        if operator == "is":
            self.advance()
            negated = self.accept("not")
            self.expect("null")
            return self._made(ast.NullTest(left, negated, self._span(begin)), left)
        self.want("a comparison (= != < <= > >=)")
        return left

    def _negated(self, begin: int) -> ast.ConditionSyntax:
        self.advance()
        inside = self.place
        found = self._test_within_depth()
        condition = found if isinstance(found, _CONDITIONS) else self._truth(found, inside)
        return self._made(ast.Not(condition, self._span(begin)), condition)

    def _test_within_depth(self) -> _Either:
        """A test behind `not`, which needs no bracket to nest."""
        run = 0
        while self.ahead(run) == "not":
            run += 1
            if run > DEPTH_MAX:
                raise self._too_deep()
        return self._test()

    # --- expressions

    def expression(self) -> ast.ExpressionSyntax:
        """A value: arithmetic, calls, names, literals."""
        begin = self.place
        return self._operand(self._sum(), begin)

    def _operand(self, found: _Either, begin: int) -> ast.ExpressionSyntax:
        if isinstance(found, _CONDITIONS):
            raise self.fault("a condition is no value: it cannot be computed with or compared", self._span(begin))
        return found

    def _sum(self) -> _Either:
        begin = self.place
        left = self._product()
        while self.token in ("+", "-") and self.token.kind is Kind.SYMBOL:
            left = self._arithmetic(left, begin, self._product)
        return left

    def _product(self) -> _Either:
        begin = self.place
        left = self._factor()
        while self.token in ("*", "/", "%") and self.token.kind is Kind.SYMBOL:
            left = self._arithmetic(left, begin, self._factor)
        return left

    def _arithmetic(self, left: _Either, begin: int, read: Callable[[], _Either]) -> _Either:
        first = self._operand(left, begin)
        operator = str(self.advance())
        place = self.place
        second = self._operand(read(), place)
        return self._made(ast.Arithmetic(operator, first, second, self._span(begin)), first, second)

    def _factor(self) -> _Either:
        begin = self.place
        if self.accept("-"):
            operand = self._operand(self._primary(), begin)
            return self._made(ast.Minus(operand, self._span(begin)), operand)
        return self._primary()

    def _primary(self) -> _Either:
        token = self.token
        match token.kind:
            case Kind.PROPERTY:
                self.place += 1
                variable, _, name = token[1:].partition(".")
                return ast.PropertyAccess(variable, name, token.span)
            case Kind.VARIABLE:
                self.place += 1
                return ast.Variable(token[1:], token.span)
            case Kind.EVERY:
                self.place += 1
                return ast.AllProperties(token[1:-2], token.span)
            case Kind.NAME:
                return self._named()
            case Kind.STRING | Kind.INTEGER | Kind.FLOAT:
                return self._constant()
        if token == "[":
            return self._list()
        if self.accept("("):
            inside = self._disjunction()
            self.expect(")")
            return inside
        self.want("an expression")
        raise self.refusal()

    def _named(self) -> ast.ExpressionSyntax:
        token = self.token
        if self.ahead(1) == "(":
            return self._date() if self._is_date() else self._call()
        self.place += 1
        if token in ("true", "false"):
            return ast.Constant(token == "true", token.span)
        return ast.Alias(str(token), token.span)

    def _call(self) -> ast.ExpressionSyntax:
        begin = self.place
        name = self.advance()
        self.expect("(")
        distinct = self.token == "distinct" and self.ahead(1) not in _OPERATORS_AFTER_NAME
        if distinct:
            self.advance()
        arguments: list[ast.ExpressionSyntax] = []
        if not self.accept(")"):
            arguments.append(self.expression())
            while self.accept(","):
                arguments.append(self.expression())
            self.expect(")")
        call = ast.Call(str(name), tuple(arguments), distinct, self._span(begin))
        self._made(call, *arguments)
        return call

    # --- literals

    def value(self) -> ast.ValueSyntax:
        """What a binding or an assignment takes: a literal, a parameter or `now()`."""
        token = self.token
        if token.kind is Kind.VARIABLE:
            self.place += 1
            return ast.Variable(token[1:], token.span)
        if token == "now" and self.ahead(1) == "(":
            begin = self.place
            self.place += 2
            self.expect(")")
            return ast.Call("now", span=self._span(begin))
        return self.literal()

    def literal(self) -> ast.LiteralSyntax:
        """A constant; a number may have a sign."""
        token = self.token
        if token.kind in (Kind.STRING, Kind.INTEGER, Kind.FLOAT) or token == "-":
            return self._constant()
        if token in ("true", "false"):
            self.place += 1
            return ast.Constant(token == "true", token.span)
        if token == "[":
            return self._list()
        if self._is_date():
            return self._date()
        self.want("a value")
        raise self.refusal()

    def _constant(self) -> ast.Constant:
        begin = self.place
        sign = -1 if self.accept("-") else 1
        token = self.token
        value: str | int | float
        try:
            if token.kind is Kind.INTEGER:
                value = sign * integer_value(token)
            elif token.kind is Kind.FLOAT:
                value = sign * float_value(token)
            elif token.kind is Kind.STRING and sign > 0:
                value = string_value(token)
            else:
                self.want("a number")
                raise self.refusal()
        except LocalError as failure:
            raise self.fault(failure.message, failure.span) from None
        self.place += 1
        return ast.Constant(value, self._span(begin))

    def _list(self) -> ast.ListConstant:
        begin = self.place
        self.expect("[")
        items: list[ast.LiteralSyntax] = []
        if not self.accept("]"):
            items.append(self.literal())
            while self.accept(","):
                items.append(self.literal())
            self.expect("]")
        return ast.ListConstant(tuple(items), self._span(begin))

    def _is_date(self) -> bool:
        is_date = self.token in ("date", "datetime") and self.ahead(1) == "("
        return is_date and self.ahead(2).kind is Kind.STRING and self.ahead(3) == ")"

    def _date(self) -> ast.DateConstant:
        function = self.advance()
        self.expect("(")
        text = self.expect_kind(Kind.STRING)
        self.expect(")")
        return ast.DateConstant(str(function), self.text(text), text.span)

    def text(self, token: Token) -> str:
        """The value of a string."""
        try:
            return string_value(token)
        except LocalError as failure:
            raise self.fault(failure.message, failure.span) from None

    # --- how far and how deep

    def _span(self, begin: int) -> Span:
        """From the token at a place to the last one that was read."""
        return self.tokens[begin].span.to(self.tokens[max(self.place - 1, begin)].span)

    def _made(self, tree: _Tree, *parts: _Either) -> _Tree:
        """A tree over parts, unless it is deeper than what reads trees can bear."""
        depth = 1 + max((self._depths.get(part.span, 0) for part in parts), default=0)
        if depth > DEPTH_MAX:
            raise self._too_deep()
        self._depths[tree.span] = depth
        return tree

    def _too_deep(self) -> ParseError:
        return self.fault(f"an expression is nested more than {DEPTH_MAX} deep", self.token.span)
