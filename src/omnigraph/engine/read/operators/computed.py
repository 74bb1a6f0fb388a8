"""The values of expressions over rows: properties fetched, functions and arithmetic computed on whole columns.

What is the same on every row stays one Arrow scalar until it meets a column. An expression that fails says which one
it is, and is never asked about rows that are gone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog import wide
from omnigraph.catalog.arrow import arrow_type
from omnigraph.catalog.types import INTEGERS, PropertyType, Scalar
from omnigraph.engine.read.columns.values import EPOCH_DAY, Column, Constant, Operand
from omnigraph.engine.read.context import Context
from omnigraph.engine.read.text.search import bm25_scores, text_mask
from omnigraph.engine.read.vector.nearest import distances
from omnigraph.errors import ExecutionError, InternalError
from omnigraph.plan.explain import show
from omnigraph.plan.functions import TABLE, Takes
from omnigraph.plan.operators import (
    Aggregate,
    Arithmetic,
    Bm25,
    EdgeCount,
    EntityId,
    Expression,
    FunctionCall,
    Literal,
    Nearest,
    Negative,
    Now,
    ParameterRef,
    PathValue,
    Predicate,
    PropertyRef,
    Rrf,
    TextMatch,
)
from omnigraph.plan.scalar_functions import as_floats
from omnigraph.plan.types import operands_of, type_of, walk

Datum = Any
"""An Arrow array, or an Arrow scalar for what is the same on every row."""
_STRING = PropertyType(Scalar.STRING)
_DAY_MIN, _DAY_MAX = 1 - EPOCH_DAY, dt.date.max.toordinal() - EPOCH_DAY
_DAY_MILLIS = 86_400_000


class Rows(Protocol):
    """Where an expression finds its columns."""

    @property
    def length(self) -> int:
        """How many rows there are."""
        ...

    @property
    def known(self) -> Mapping[Expression, pa.Array]:
        """Columns that were computed before, such as the aggregates of groups."""
        ...

    def positions(self, variable: str) -> npt.NDArray[Any]:
        """The table position of a variable on each row; negative where it stands for nothing."""
        ...

    def fetch(self, reference: PropertyRef) -> pa.Array:
        """A property on each row."""
        ...

    def path(self, value: PathValue) -> pa.Array:
        """A part of a path on each row."""
        ...


def column_of(context: Context, expression: Expression, rows: Rows) -> pa.Array:
    """An expression on each row."""
    found = datum_of(context, expression, rows)
    if not isinstance(found, pa.Scalar):
        return found
    if not found.is_valid or not rows.length:  # `pa.repeat` cannot repeat a list no times
        return pa.nulls(rows.length, found.type)
    return wide.repeat(found, rows.length)


def operand_of(context: Context, expression: Expression, rows: Rows) -> Operand:
    """One side of a comparison."""
    found = datum_of(context, expression, rows)
    kind = type_of(expression)
    if isinstance(found, pa.Scalar):
        return Constant(_physical(found, kind), kind)
    return Column(found, kind)


def datum_of(context: Context, expression: Expression, rows: Rows) -> Datum:
    """An expression as a column, or as one value that every row has."""
    if rows.known:
        known = rows.known.get(expression)
        if known is not None:
            return known
    match expression:
        case PropertyRef():
            return rows.fetch(expression)
        case ParameterRef() | Literal() | Now():
            return constant_scalar(context, expression)
        case EntityId(variable=variable, nullable=nullable):
            return rows.fetch(PropertyRef(variable, "id", _STRING.with_nullable(nullable)))
        case FunctionCall() | Arithmetic() | Negative():
            return _computed(context, expression, rows)
        case TextMatch():
            return pa.array(text_hits(context, expression, rows))
        case PathValue():
            return rows.path(expression)
        case Bm25():
            return _bm25(context, expression, rows)
        case Nearest():
            return _nearest(context, expression, rows)
        case Rrf() | Aggregate():
            raise InternalError(f"{type(expression).__name__} was not computed before the rows were projected")


def text_hits(context: Context, match: TextMatch, rows: Rows) -> npt.NDArray[np.bool_]:
    """Which rows a text function is true for; a variable that stands for nothing has no words."""
    places = rows.positions(match.property.variable)
    found = text_mask(context, match)
    if len(places) and int(places.min()) < 0:
        present = places >= 0
        hits = np.zeros(len(places), dtype=np.bool_)
        hits[present] = found[places[present]]
        return hits
    return np.asarray(found[places])


def _bm25(context: Context, rank: Bm25, rows: Rows) -> pa.Array:
    scored = context.computed.bm25_scores
    if rank not in scored:
        scored[rank] = bm25_scores(context, rank)
    places = rows.positions(rank.property.variable)
    scores = scored[rank]
    return pa.array(np.where(places >= 0, scores[places], 0.0) if len(places) else np.empty(0))


def _nearest(context: Context, rank: Nearest, rows: Rows) -> pa.Array:
    places = rows.positions(rank.property.variable)
    present = places >= 0
    if bool(present.all()):
        values, known = distances(context, rank, places)
        return pa.array(values, pa.float64(), mask=~known)
    found, held = np.zeros(len(places)), np.zeros(len(places), dtype=np.bool_)
    found[present], held[present] = distances(context, rank, places[present])
    return pa.array(found, pa.float64(), mask=~held)


# --- constants --------------------------------------------------------------------------------------------------------


def constant_scalar(context: Context, expression: ParameterRef | Literal | Now) -> pa.Scalar:
    """A constant as the scalar of its column type."""
    constant = context.constant(expression)
    kind = arrow_type(constant.type)
    if constant.value is None:
        return pa.scalar(None, kind)
    value, declared = constant.value, constant.type
    physical = {Scalar.DATETIME: pa.int64(), Scalar.DATE: pa.int32()}.get(declared.scalar)
    if physical is None:
        return pa.scalar(list(value) if isinstance(value, tuple) else value, kind)
    if declared.is_list:
        return pa.array([list(value)], pa.list_(physical)).cast(pa.list_(kind.value_type))[0]
    return pa.array([value], physical).view(kind)[0]


def _physical(found: pa.Scalar, kind: PropertyType) -> Any:
    """A scalar as the number or text it is compared as."""
    if not found.is_valid:
        return None
    if kind.scalar in (Scalar.DATE, Scalar.DATETIME):
        whole = pa.int32() if kind.scalar is Scalar.DATE else pa.int64()
        if kind.is_list:
            return tuple(found.values.view(whole).to_pylist())
        return found.cast(whole).as_py()
    value = found.as_py()
    return tuple(value) if isinstance(value, list) else value


# --- functions and arithmetic -----------------------------------------------------------------------------------------


def may_fail(predicate: Predicate) -> bool:
    """Whether some values make a predicate fail instead of being true, false or null."""
    return any(fails(operand) for operand in operands_of(predicate))


def fails(expression: Expression | EdgeCount) -> bool:
    """Whether some values make an expression fail."""
    return any(_may_fail(part) for part in walk(expression))


def _may_fail(part: Expression | EdgeCount) -> bool:
    match part:
        case Arithmetic(type=kind) | Negative(type=kind):
            return kind.scalar is not Scalar.F64
        case FunctionCall(function=name, arguments=arguments, type=kind):
            is_whole = kind.scalar is not Scalar.F64
            return TABLE[name].may_fail or (is_whole and any(type_of(each).scalar is Scalar.U64 for each in arguments))
    return False


def _operands(part: Arithmetic | Negative) -> tuple[Expression, ...]:
    return (part.operand,) if isinstance(part, Negative) else (part.left, part.right)


def _computed(context: Context, expression: FunctionCall | Arithmetic | Negative, rows: Rows) -> Datum:
    parts = expression.arguments if isinstance(expression, FunctionCall) else _operands(expression)
    try:
        given = [
            _given(datum_of(context, part, rows), type_of(part), _takes_any_width(expression, place))
            for place, part in enumerate(parts)
        ]
        match expression:
            case FunctionCall(function=name):
                kernel = TABLE[name].kernel
                if kernel is None:
                    raise InternalError(f"{name} has no kernel")
                found = kernel(*given)
            case Negative():
                found = pc.negate_checked(given[0])
            case Arithmetic(operator=operator, type=kind):
                found = _arithmetic(operator, kind.scalar, given)
    except pa.ArrowInvalid as failure:
        is_too_large = any(word in str(failure) for word in ("overflow", "truncated", "not in range"))
        reason = "the result does not fit 64 bits" if is_too_large else str(failure)
        raise ExecutionError(f"{show(expression)}: {reason}") from None
    return _stored(found, arrow_type(expression.type))


def _takes_any_width(expression: FunctionCall | Arithmetic | Negative, place: int) -> bool:
    """Whether the integers at a place need not be of 64 bits with a sign: they are kept, or become floats."""
    gives_float = expression.type.scalar is Scalar.F64
    if not isinstance(expression, FunctionCall):
        return gives_float
    taken = TABLE[expression.function].taken(place)
    return taken is Takes.PLAIN or (gives_float and taken in (Takes.NUMBER, Takes.NUMBER_OR_STRING))


def _given(datum: Datum, kind: PropertyType, as_it_is: bool) -> Datum:
    """A value as kernels take it: integers of 64 bits, floats of 64 bits, instants as timestamps."""
    if kind.is_list:
        return datum
    if kind.scalar in INTEGERS:
        return datum if as_it_is or datum.type == pa.int64() else _cast_integer(datum)
    if kind.scalar is Scalar.F32:
        return datum.cast(pa.float64())
    if kind.scalar is Scalar.DATETIME:
        return _viewed(datum, pa.timestamp("ms"))
    if pa.types.is_dictionary(datum.type):
        return datum.cast(datum.type.value_type)
    return datum


def _cast_integer(datum: Datum) -> Datum:
    try:
        return datum.cast(pa.int64())
    except pa.ArrowInvalid:
        raise pa.ArrowInvalid("a value above 2^63 - 1 cannot be computed with") from None


def _viewed(datum: Datum, kind: pa.DataType) -> Datum:
    """The same bits as another type; casts between instants would cut them to days."""
    if datum.type == kind:
        return datum
    if isinstance(datum, pa.Scalar):
        if not datum.is_valid:
            return pa.scalar(None, kind)
        return pa.array([datum.cast(pa.int64()).as_py()], pa.int64()).view(kind)[0]
    if isinstance(datum, pa.ChunkedArray):
        datum = datum.combine_chunks()
    return datum.view(pa.int64()).view(kind)


def _stored(found: Datum, kind: pa.DataType) -> Datum:
    """What a kernel gave as the column type of its expression."""
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    if found.type == kind or (found.type == pa.large_string() and kind == pa.string()):
        return found
    if kind == pa.date64():
        return _viewed(found, kind)
    return found.cast(kind)


def _arithmetic(operator: str, scalar: Scalar, given: list[Datum]) -> Datum:
    left, right = given
    if pa.types.is_temporal(left.type) or pa.types.is_temporal(right.type):
        return _with_moments(operator, left, right)
    if scalar is Scalar.F64:
        left, right = as_floats(left), as_floats(right)
        return _remainder(left, right) if operator == "%" else _FLOATS[operator](left, right)
    return _remainder(left, right) if operator == "%" else _INTEGERS[operator](left, right)


_FLOATS: dict[str, Callable[[Datum, Datum], Datum]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
    "/": pc.divide,
}
_INTEGERS: dict[str, Callable[[Datum, Datum], Datum]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}


def _remainder(left: Datum, right: Datum) -> Datum:
    """What is left over, with the sign of the left side."""
    valid = pc.and_(pc.is_valid(left), pc.is_valid(right))
    is_integer = pa.types.is_integer(left.type)
    safe = pc.if_else(valid, right, pa.scalar(1, right.type))
    if is_integer and pc.any(pc.equal(safe, 0)).as_py():
        raise pa.ArrowInvalid("the remainder of a division by zero")
    numbers = [_numpy(each) for each in (pc.if_else(valid, left, pa.scalar(0, left.type)), safe)]
    with np.errstate(invalid="ignore"):
        found = np.fmod(*numbers)
    if isinstance(valid, pa.Scalar):
        return pa.scalar(found.item() if valid.as_py() else None, left.type)
    return pa.array(found, left.type, mask=~_numpy(valid))


def _numpy(datum: Datum) -> npt.NDArray[Any]:
    return np.asarray(datum.as_py()) if isinstance(datum, pa.Scalar) else datum.to_numpy(zero_copy_only=False)


def _with_moments(operator: str, left: Datum, right: Datum) -> Datum:
    if not pa.types.is_temporal(left.type):
        left, right = right, left
    is_date = pa.types.is_date32(left.type)
    units = _whole(left)
    if pa.types.is_temporal(right.type):
        apart = pc.subtract(units, _whole(right)).cast(pa.float64())
        return apart if is_date else pc.divide(apart, 1000.0)
    # What is added to no date leads nowhere, however much it is.
    right = pc.if_else(pc.is_valid(units), right, pa.scalar(None, right.type))
    added = right if is_date else pc.multiply_checked(right, pa.scalar(1000, right.type))
    if pa.types.is_floating(added.type):
        if pc.any(pc.invert(pc.is_finite(added))).as_py():
            raise pa.ArrowInvalid("a date plus a number that is not finite")
        if is_date:
            # A part of a day leads into the day it ends in, backwards as well.
            added = pc.floor(added) if operator == "+" else pc.ceil(added)
        else:
            # 1.001 seconds times 1000 is a little less than 1001, so the nearest millisecond is the one that is meant.
            added = pc.round(added, round_mode="half_towards_infinity")
        if pc.any(pc.greater(pc.abs(added), 2.0**62)).as_py():
            raise pa.ArrowInvalid("the result is outside the years 1 to 9999")
        added = added.cast(pa.int64())
    moved = (pc.add_checked if operator == "+" else pc.subtract_checked)(units, added)
    days = moved if is_date else pc.divide(pc.subtract(moved, _floor_rest(moved)), _DAY_MILLIS)
    if pc.any(pc.or_(pc.less(days, _DAY_MIN), pc.greater(days, _DAY_MAX))).as_py():
        raise pa.ArrowInvalid("the result is outside the years 1 to 9999")
    return moved.cast(pa.int32()).cast(pa.date32()) if is_date else moved.cast(pa.timestamp("ms"))


def _floor_rest(millis: Datum) -> Datum:
    """How far instants are into their day."""
    rest = pc.subtract(millis, pc.multiply(pc.divide(millis, _DAY_MILLIS), _DAY_MILLIS))
    return pc.if_else(pc.less(rest, 0), pc.add(rest, _DAY_MILLIS), rest)


def _whole(moments: Datum) -> Datum:
    return moments.cast(pa.int32()).cast(pa.int64()) if pa.types.is_date32(moments.type) else moments.cast(pa.int64())
