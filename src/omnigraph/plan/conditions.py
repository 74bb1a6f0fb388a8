"""From written conditions to predicates: operand types checked, constants seen through, `and` taken apart.

A condition may stand in a match, in a `having` or behind a `where`; the place says what its bare names stand for.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.types import NUMERIC, PropertyType, Scalar
from omnigraph.language import query_ast as ast
from omnigraph.language.hints import hint_behind
from omnigraph.plan.expressions import expression
from omnigraph.plan.names import Place, are_compatible
from omnigraph.plan.operators import (
    And,
    Comparison,
    ComparisonOperator,
    EntityId,
    Expression,
    InList,
    IsNull,
    IsTrue,
    ListContains,
    Literal,
    Not,
    Or,
    ParameterRef,
    Predicate,
    StringPredicate,
    StringTest,
    TextMatch,
)
from omnigraph.plan.scope import Scope
from omnigraph.plan.types import type_of

_STRING_TESTS = frozenset(test.value for test in StringTest)


def predicates(scope: Scope, condition: ast.ConditionSyntax, place: Place) -> list[Predicate]:
    """A condition as predicates that hold together: the parts of an outermost `and` stand on their own."""
    if isinstance(condition, ast.And):
        return [found for part in condition.parts for found in predicates(scope, part, place)]
    return [predicate(scope, condition, place)]


def predicate(scope: Scope, condition: ast.ConditionSyntax, place: Place) -> Predicate:
    """A condition as one predicate."""
    match condition:
        case ast.And(parts=parts):
            return And(tuple(predicate(scope, part, place) for part in parts))
        case ast.Or(parts=parts):
            return Or(tuple(predicate(scope, part, place) for part in parts))
        case ast.Not(condition=inner):
            return Not(predicate(scope, inner, place))
        case ast.NullTest(operand=operand, negated=negated):
            return IsNull(expression(scope, operand, place), negated)
        case ast.Truth():
            return _truth(scope, condition, place)
        case ast.Comparison():
            return _comparison(scope, condition, place)


def _truth(scope: Scope, condition: ast.Truth, place: Place) -> Predicate:
    found = expression(scope, condition.expression, place)
    if isinstance(found, TextMatch):
        return found
    kind = type_of(found)
    if isinstance(found, EntityId) or kind.scalar is not Scalar.BOOL or kind.is_list:
        habit = hint_behind(scope.source.text, condition.span.end)
        hint = f": {habit}" if habit else ""
        raise scope.fail("T7", f"a condition is a comparison or a Bool, not {_shown(found)}{hint}", condition.span)
    return IsTrue(found)


def _comparison(scope: Scope, condition: ast.Comparison, place: Place) -> Predicate:
    _check_null(scope, condition, place)
    left, right = expression(scope, condition.left, place), expression(scope, condition.right, place)
    if isinstance(left, EntityId) or isinstance(right, EntityId):
        return _entities(scope, condition, left, right)
    operator = condition.operator
    if operator == "in":
        return _in_list(scope, condition, left, right)
    if operator == "contains" and type_of(left).is_list:
        return _list_contains(scope, condition, left, right)
    if operator in _STRING_TESTS:
        return _string_test(scope, condition, left, right)
    left_type, right_type = type_of(left), type_of(right)
    for side, kind in ((condition.left, left_type), (condition.right, right_type)):
        if not kind.is_plain:
            raise scope.fail("T7", f"{kind} cannot be compared with '{operator}'", side.span)
    if not are_compatible(left_type, right_type):
        raise scope.fail("T7", f"{left_type} and {right_type} cannot be compared", condition.span)
    return Comparison(ComparisonOperator(operator), left, right)


def _check_null(scope: Scope, condition: ast.Comparison, place: Place) -> None:
    for side in (condition.left, condition.right):
        if isinstance(side, ast.Alias) and side.name == "null" and "null" not in place.names:
            word = "is not null" if condition.operator == "!=" else "is null"
            raise scope.fail(None, f"nothing equals null, not even null: write '{word}'", condition.span)


def _entities(scope: Scope, condition: ast.Comparison, left: Expression, right: Expression) -> Predicate:
    """Two node variables of one type are compared by identity."""
    if not (isinstance(left, EntityId) and isinstance(right, EntityId)):
        node = left if isinstance(left, EntityId) else right
        raise scope.fail("T7", f"{_shown(node)} is a node: compare its properties, or its id", condition.span)
    types = [scope.node(side.variable) for side in (left, right)]
    if condition.operator not in ("=", "!="):
        raise scope.fail("T7", "nodes are compared with '=' and '!=' only", condition.span)
    if types[0] is None or types[1] is None or types[0].name != types[1].name:
        names = " and ".join(str(kind.name) for kind in types if kind is not None)
        raise scope.fail("T7", f"nodes of two types are never the same: {names}", condition.span)
    return Comparison(ComparisonOperator(condition.operator), left, right)


def _in_list(scope: Scope, condition: ast.Comparison, left: Expression, right: Expression) -> Predicate:
    items, kind = type_of(right), type_of(left)
    if not items.is_list:
        raise scope.fail("T7", f"'in' needs a list on its right, not {items}", condition.right.span)
    is_empty = isinstance(right, Literal) and not right.value
    if not kind.is_plain or not (is_empty or _may_hold(items, kind)):
        raise scope.fail("T7", f"{items} cannot hold {kind}", condition.span)
    return InList(left, right)


def _may_hold(items: PropertyType, kind: PropertyType) -> bool:
    return kind.scalar is items.scalar or (kind.is_numeric and items.scalar in NUMERIC)


def _list_contains(scope: Scope, condition: ast.Comparison, left: Expression, right: Expression) -> Predicate:
    items, kind = type_of(left), type_of(right)
    if isinstance(right, TextMatch):
        raise scope.fail("T7", "a text function cannot be an item of a list", condition.right.span)
    if not kind.is_plain or not _may_hold(items, kind):
        raise scope.fail("T7", f"{items} cannot contain {kind}", condition.right.span)
    return ListContains(left, right)


def _string_test(scope: Scope, condition: ast.Comparison, left: Expression, right: Expression) -> Predicate:
    operator = condition.operator
    for side, value in ((condition.left, left), (condition.right, right)):
        kind = type_of(value)
        if kind.scalar is not Scalar.STRING or kind.is_list:
            wanted = "a list or a String" if side is condition.left and operator == "contains" else "a String"
            raise scope.fail("T7", f"'{operator}' needs {wanted} here", side.span)
    if operator == "matches":
        if not isinstance(right, Literal | ParameterRef):
            raise scope.fail("T7", "'matches' takes its pattern as a literal or parameter", condition.right.span)
        if isinstance(right, Literal):
            fault = pattern_fault(right.value)
            if fault is not None:
                raise scope.fail(None, f"the pattern cannot be used: {fault}", condition.right.span)
    return StringPredicate(StringTest(operator), left, right)


def pattern_fault(pattern: str) -> str | None:
    """What is wrong with a regular expression, None when nothing is."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as failure:
        return str(failure).removeprefix("Invalid regular expression: ")
    return None


def _shown(found: Expression) -> str:
    return f"${found.variable}" if isinstance(found, EntityId) else str(type_of(found))
