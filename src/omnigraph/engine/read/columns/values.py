"""Comparing values by what they mean, whatever width they are stored in.

Numbers compare by mathematical value, so an Int64 is never rounded to meet a Float64; a Float32 column compares after
the other side is rounded to Float32. Dates are days and instants are milliseconds, both integers here. Each function
answers for whole columns; a null on either side is never satisfied.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.catalog.types import INTEGERS, PropertyType, Scalar
from omnigraph.catalog.values import round_to_f32
from omnigraph.plan.operators import ComparisonOperator as Op

Bools = npt.NDArray[np.bool_]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
EPOCH_DAY = dt.date(1970, 1, 1).toordinal()


class Column(Struct, frozen=True):
    """The values of one expression over the rows of a frame: an Arrow array with its declared type."""

    array: pa.Array
    type: PropertyType


class Constant(Struct, frozen=True):
    """A value that is the same on every row; `None` is null. Dates are days, instants are milliseconds."""

    value: Any
    type: PropertyType


Operand = Column | Constant


def to_physical(value: Any, kind: PropertyType) -> Any:
    """Turn a parameter or literal into the number or text it is compared as; lists become tuples of those."""
    if value is None or type(value) is str:
        return value
    if kind.is_list or kind.scalar is Scalar.VECTOR:
        item = PropertyType(Scalar.F32 if kind.scalar is Scalar.VECTOR else kind.scalar)
        return tuple(to_physical(element, item) for element in value)
    if kind.scalar is Scalar.DATETIME:
        return epoch_millis(value)
    if kind.scalar is Scalar.DATE:
        return value.toordinal() - EPOCH_DAY
    if kind.scalar is Scalar.F32:
        return float(round_to_f32(value))
    return value


def epoch_millis(moment: dt.datetime) -> int:
    """Milliseconds since 1970, finer parts cut off."""
    return (moment - EPOCH) // dt.timedelta(milliseconds=1)


def compare(operator: Op, left: Operand, right: Operand, rows: int) -> Bools:
    """Which rows satisfy `left operator right`."""
    if isinstance(left, Constant) and isinstance(right, Constant):
        return np.full(rows, _compare_constants(operator, left, right), dtype=np.bool_)
    if isinstance(left, Constant):
        return compare(_MIRROR[operator], right, left, rows)
    if isinstance(right, Constant):
        if right.value is None:
            return np.zeros(rows, dtype=np.bool_)
        return _compare_with_constant(operator, left, right)
    return _compare_columns(operator, left, right)


_MIRROR = {Op.EQ: Op.EQ, Op.NE: Op.NE, Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}
_ARROW = {
    Op.EQ: pc.equal,
    Op.NE: pc.not_equal,
    Op.LT: pc.less,
    Op.LE: pc.less_equal,
    Op.GT: pc.greater,
    Op.GE: pc.greater_equal,
}


def holds(operator: Op, sign: Any) -> Any:
    """Whether a three-way comparison result (-1, 0, 1; NaN for not comparable) satisfies the operator."""
    match operator:
        case Op.EQ:
            return sign == 0
        case Op.NE:
            return sign != 0
        case Op.LT:
            return sign < 0
        case Op.LE:
            return sign <= 0
        case Op.GT:
            return sign > 0
        case Op.GE:
            return sign >= 0


def _compare_constants(operator: Op, left: Constant, right: Constant) -> bool:
    if left.value is None or right.value is None:
        return False
    a, b = left.value, right.value
    if isinstance(a, str):
        a, b = a.encode(), b.encode()
    elif left.type.scalar is Scalar.F32 or right.type.scalar is Scalar.F32:
        # A parameter declared F32 was rounded when it was bound; between constants plain value decides.
        pass
    match operator:
        case Op.EQ:
            return bool(a == b)
        case Op.NE:
            return bool(a != b)
        case Op.LT:
            return bool(a < b)
        case Op.LE:
            return bool(a <= b)
        case Op.GT:
            return bool(a > b)
        case Op.GE:
            return bool(a >= b)


def _compare_with_constant(operator: Op, left: Column, right: Constant) -> Bools:
    scalar, value = left.type.scalar, right.value
    if scalar in (Scalar.STRING, Scalar.BLOB):
        return _true(_ARROW[operator](left.array, pa.scalar(value, left.array.type)))
    numbers, valid = as_numpy(left.array)
    if scalar is Scalar.F32:
        result = holds_values(operator, numbers, round_to_f32(value))
    elif scalar is Scalar.F64:
        result = _floats_with_number(operator, numbers, value)
    elif scalar in INTEGERS:
        result = _integers_with_number(operator, numbers, value)
    else:
        result = holds_values(operator, numbers, numbers.dtype.type(value))
    return result if valid is None else result & valid


def holds_values(operator: Op, a: npt.NDArray[Any], b: Any) -> Bools:
    """The plain elementwise comparison of values of one width."""
    match operator:
        case Op.EQ:
            result = a == b
        case Op.NE:
            result = a != b
        case Op.LT:
            result = a < b
        case Op.LE:
            result = a <= b
        case Op.GT:
            result = a > b
        case Op.GE:
            result = a >= b
    return np.asarray(result, dtype=np.bool_)


def _floats_with_number(operator: Op, numbers: npt.NDArray[Any], value: int | float) -> Bools:
    nearest = float(value)
    if isinstance(value, float) or nearest == value:
        return holds_values(operator, numbers, nearest)
    # The integer lies strictly between two floats, so equality is out and order follows its rounded neighbour.
    if operator in (Op.EQ, Op.NE):
        return np.full(len(numbers), operator is Op.NE, dtype=np.bool_)
    if int(nearest) > value:
        return holds_values(Op.LT if operator in (Op.LT, Op.LE) else Op.GE, numbers, nearest)
    return holds_values(Op.LE if operator in (Op.LT, Op.LE) else Op.GT, numbers, nearest)


def _integers_with_number(operator: Op, numbers: npt.NDArray[Any], value: int | float) -> Bools:
    if isinstance(value, float):
        if math.isnan(value):
            return np.full(len(numbers), operator is Op.NE, dtype=np.bool_)
        if math.isinf(value):
            return np.full(len(numbers), bool(holds(operator, -1 if value > 0 else 1)), dtype=np.bool_)
        if not value.is_integer():
            if operator in (Op.EQ, Op.NE):
                return np.full(len(numbers), operator is Op.NE, dtype=np.bool_)
            operator = Op.LE if operator in (Op.LT, Op.LE) else Op.GT
        value = math.floor(value)
    info = np.iinfo(numbers.dtype)
    if not info.min <= value <= info.max:
        return np.full(len(numbers), bool(holds(operator, -1 if value > info.max else 1)), dtype=np.bool_)
    return holds_values(operator, numbers, numbers.dtype.type(value))


def _compare_columns(operator: Op, left: Column, right: Column) -> Bools:
    if left.type.scalar is Scalar.STRING:
        return _true(_ARROW[operator](left.array, right.array))
    a, valid_a = as_numpy(left.array)
    b, valid_b = as_numpy(right.array)
    result = compare_numbers(operator, a, b)
    for valid in (valid_a, valid_b):
        if valid is not None:
            result = result & valid
    return result


def compare_numbers(operator: Op, a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Bools:
    """Compare two numeric columns of any widths elementwise, by value."""
    if np.float32 in (a.dtype, b.dtype):
        with np.errstate(over="ignore"):
            return holds_values(operator, a.astype(np.float32), b.astype(np.float32))
    if a.dtype.kind == "f" and b.dtype.kind == "f":
        return holds_values(operator, a, b)
    if a.dtype.kind == "f":
        return np.asarray(holds(_MIRROR[operator], _sign_integer_float(b, a)), dtype=np.bool_)
    if b.dtype.kind == "f":
        return np.asarray(holds(operator, _sign_integer_float(a, b)), dtype=np.bool_)
    if np.uint64 in (a.dtype, b.dtype) and a.dtype != b.dtype:
        negative = (a < 0) if a.dtype.kind == "i" else (b < 0)
        below = -1 if a.dtype.kind == "i" else 1
        x, y = a.astype(np.uint64), b.astype(np.uint64)
        sign = np.where(negative, below, (x > y).astype(np.int8) - (x < y).astype(np.int8))
        return np.asarray(holds(operator, sign), dtype=np.bool_)
    return holds_values(operator, a, b)


def _sign_integer_float(integers: npt.NDArray[Any], floats: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Three-way comparison by value; NaN stays NaN, which only `!=` is satisfied by."""
    sign: npt.NDArray[Any]
    rounded = integers.astype(np.float64)
    sign = np.sign(np.subtract(rounded, floats, out=np.empty(len(rounded)), where=np.isfinite(floats)))
    sign = np.where(np.isfinite(floats), sign, -np.sign(floats))
    close = np.flatnonzero((sign == 0) & (np.abs(rounded) >= 2.0**53))
    # Rounding is monotone, so only where it made the two equal must the integers themselves be compared.
    for index in close:
        exact = int(floats[index])
        sign[index] = (int(integers[index]) > exact) - (int(integers[index]) < exact)
    return sign


def contains(items: Operand, value: Operand, rows: int) -> Bools:
    """Which rows have the value among the items; null lists, null values and null items never match."""
    if isinstance(items, Constant):
        result = np.zeros(rows, dtype=np.bool_)
        item_type = PropertyType(items.type.scalar)
        for item in items.value or ():
            result |= compare(Op.EQ, value, Constant(item, item_type), rows)
        return result
    lists = items.array
    flat = lists.flatten()
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    owner = np.repeat(np.arange(len(lists)), lengths)
    elements = Column(flat, PropertyType(items.type.scalar, nullable=True))
    if isinstance(value, Column):
        value = Column(wide.take(value.array, owner), value.type)
    hits = owner[compare(Op.EQ, elements, value, len(flat))]
    result = np.zeros(rows, dtype=np.bool_)
    result[hits] = True
    return result


def among(value: Operand, items: Operand, rows: int) -> Bools:
    """Which rows have a value that equals one of the items; null never does."""
    if isinstance(items, Column) or isinstance(value, Constant) or len(items.value or ()) <= FEW_ITEMS:
        return contains(items, value, rows)
    if value.type.scalar is not items.type.scalar or value.type.scalar not in _EXACT:
        return contains(items, value, rows)
    wanted = pa.array(list(dict.fromkeys(items.value)), _PHYSICAL.get(value.type.scalar, value.array.type))
    held = value.array if value.type.scalar is Scalar.STRING else value.array.view(wanted.type)
    return np.asarray(pc.is_in(held, value_set=wanted, skip_nulls=True).to_numpy(zero_copy_only=False), dtype=np.bool_)


FEW_ITEMS = 4
"""Up to so many items are compared one by one."""
_EXACT = INTEGERS | {Scalar.STRING, Scalar.DATE, Scalar.DATETIME}
_PHYSICAL = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}


def holds_null(lists: pa.Array) -> Bools:
    """Which lists have an item that is null."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    flat = lists.flatten()
    owner = np.repeat(np.arange(len(lists)), lengths)
    found = np.zeros(len(lists), dtype=np.bool_)
    if flat.null_count:
        found[owner[flat.is_null().to_numpy(zero_copy_only=False)]] = True
    return found


_STRING_TESTS = {
    "contains": pc.match_substring,
    "starts_with": pc.starts_with,
    "ends_with": pc.ends_with,
    "matches": pc.match_substring_regex,
}


def string_test(test: str, left: Operand, right: Operand, rows: int) -> Bools:
    """An exact substring, prefix or suffix, or a pattern, of Strings; null never matches."""
    if isinstance(right, Constant):
        if right.value is None or (isinstance(left, Constant) and left.value is None):
            return np.zeros(rows, dtype=np.bool_)
        if isinstance(left, Constant):
            hit = _STRING_TESTS[test](pa.scalar(left.value, pa.string()), pattern=right.value).as_py()
            return np.full(rows, hit, dtype=np.bool_)
        return _true(_STRING_TESTS[test](left.array, pattern=right.value))
    return _string_test_by_needle(test, left, right, rows)


def _string_test_by_needle(test: str, left: Operand, right: Column, rows: int) -> Bools:
    """The needle differs by row: work through the distinct needles, each over the rows that have it."""
    encoded = pc.dictionary_encode(right.array)
    result = np.zeros(rows, dtype=np.bool_)
    indices, valid = as_numpy(encoded.indices)
    order = np.argsort(indices, kind="stable")
    if valid is not None:
        order = order[valid[order]]
    cuts = np.flatnonzero(np.diff(indices[order])) + 1
    for group in np.split(order, cuts) if len(order) else []:
        needle = encoded.dictionary[int(indices[group[0]])].as_py()
        part = left if isinstance(left, Constant) else Column(wide.take(left.array, group), left.type)
        result[group] = string_test(test, part, Constant(needle, right.type), len(group))
    return result


def as_numpy(array: pa.Array) -> tuple[npt.NDArray[Any], Bools | None]:
    """The values of a fixed-width column as numpy, and which are valid (None: all). Nulls read as zero."""
    if pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    elif pa.types.is_date64(array.type):
        array = array.view(pa.int64())
    elif pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.null_count == 0:
        return array.to_numpy(zero_copy_only=False), None
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    filled = pc.fill_null(array, False if pa.types.is_boolean(array.type) else 0)
    return filled.to_numpy(zero_copy_only=False), valid


def _true(mask: pa.Array) -> Bools:
    if mask.null_count:
        mask = pc.fill_null(mask, False)
    return np.asarray(mask.to_numpy(zero_copy_only=False), dtype=np.bool_)
