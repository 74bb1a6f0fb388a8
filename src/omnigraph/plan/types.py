"""The type of an expression's value, and what a tree of expressions is made of."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.catalog.types import FLOATS, PropertyType, Scalar
from omnigraph.plan.operators import (
    Aggregate,
    AggregateFunction,
    And,
    Arithmetic,
    Bm25,
    Comparison,
    EdgeCount,
    EntityId,
    Expression,
    FunctionCall,
    InList,
    IsNull,
    IsTrue,
    ListContains,
    Literal,
    Nearest,
    Negative,
    Not,
    Now,
    Or,
    ParameterRef,
    PathValue,
    Predicate,
    PropertyRef,
    Rrf,
    StringPredicate,
    TextMatch,
)

_STRING = PropertyType(Scalar.STRING)
_FLOAT = PropertyType(Scalar.F64)


def type_of(expression: Expression | EdgeCount) -> PropertyType:
    """The type of an expression's value, as a result column would have it."""
    match expression:
        case PropertyRef(type=kind) | ParameterRef(type=kind) | Literal(type=kind):
            return kind
        case FunctionCall(type=kind) | Arithmetic(type=kind) | Negative(type=kind) | PathValue(type=kind):
            return kind
        case EntityId(nullable=nullable) | EdgeCount(nullable=nullable):
            return _STRING.with_nullable(nullable)
        case Now():
            return PropertyType(Scalar.DATETIME)
        case TextMatch():
            return PropertyType(Scalar.BOOL)
        case Nearest(property=ref):
            return _FLOAT.with_nullable(ref.type.nullable)
        case Bm25() | Rrf():
            return _FLOAT
        case Aggregate():
            return _aggregate_type(expression)


def _aggregate_type(aggregate: Aggregate) -> PropertyType:
    if aggregate.function is AggregateFunction.COUNT:
        return PropertyType(Scalar.I64)
    kind = type_of(aggregate.argument)
    match aggregate.function:
        case AggregateFunction.AVG:
            return _FLOAT.with_nullable(True)
        case AggregateFunction.SUM:
            return PropertyType(Scalar.F64 if kind.scalar in FLOATS else Scalar.I64, nullable=True)
        case AggregateFunction.COLLECT:
            return PropertyType(kind.scalar, is_list=True)
    return kind.with_nullable(True)


def parts_of(expression: Expression | EdgeCount) -> tuple[Expression | EdgeCount, ...]:
    """What an expression is made of, one level down; ranks and text functions count as one thing."""
    match expression:
        case FunctionCall(arguments=arguments):
            return arguments
        case Arithmetic(left=left, right=right):
            return left, right
        case Negative(operand=operand):
            return (operand,)
        case Aggregate(argument=argument):
            return (argument,)
    return ()


def walk(expression: Expression | EdgeCount) -> Iterator[Expression | EdgeCount]:
    """An expression and everything inside it."""
    yield expression
    for part in parts_of(expression):
        yield from walk(part)


def aggregates_in(expression: Expression) -> list[Aggregate]:
    """The aggregates an expression contains."""
    return [part for part in walk(expression) if isinstance(part, Aggregate)]


def operands_of(predicate: Predicate) -> tuple[Expression, ...]:
    """The expressions a predicate compares, those of the predicates inside it included."""
    match predicate:
        case Comparison(left=left, right=right) | StringPredicate(left=left, right=right):
            return left, right
        case ListContains(items=items, value=value) | InList(items=items, value=value):
            return items, value
        case IsNull(operand=operand) | IsTrue(operand=operand):
            return (operand,)
        case TextMatch():
            return (predicate,)
        case Not(predicate=inner):
            return operands_of(inner)
        case And(parts=parts) | Or(parts=parts):
            return tuple(operand for part in parts for operand in operands_of(part))


def variables_of(expression: Expression | EdgeCount) -> frozenset[str]:
    """The variables whose values an expression reads."""
    match expression:
        case PropertyRef() | EntityId() | PathValue() | EdgeCount():
            return frozenset((expression.variable,))
        case TextMatch() | Bm25() | Nearest():
            return frozenset((expression.property.variable,))
        case Rrf():
            return variables_of(expression.first) | variables_of(expression.second)
        case _:
            return frozenset(name for part in parts_of(expression) for name in variables_of(part))
