"""The functions of single values, an entry each: what they take, what they give, and the kernel that computes columns.

Kernels get integers as Int64, other numbers as Float64, dates as Date32 and instants as timestamps in milliseconds; an
argument that is the same on every row is an Arrow scalar. Where the result is a float, integers come as they are
stored, and `as_floats` takes all of them. Null in, null out, where an entry says nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.types import NUMERIC, PropertyType, Scalar
from omnigraph.plan.functions import Function, Takes, maybe_null, never_null, number_of, register, strict

UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
_INTEGER_TEXT = r"^[+-]?[0-9]+$"
_FLOAT_TEXT = r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_LARGEST, _SMALLEST = str(2**63 - 1), str(2**63)


def as_floats(numbers: Any) -> Any:
    """Numbers as the nearest floats; above 2^53 not every integer is one."""
    return numbers.cast(pa.float64(), safe=False)


def by_option(apply: Callable[..., Any], column: Any, *options: Any) -> Any:
    """Apply a kernel whose options are constants; where they differ by row, once per distinct combination."""
    if all(isinstance(option, pa.Scalar) for option in options):
        if not all(option.is_valid for option in options):
            return pc.if_else(pc.is_valid(column), pa.scalar(None, column.type), pa.scalar(None, column.type))
        return apply(column, *(option.as_py() for option in options))
    length = next(len(each) for each in (column, *options) if not isinstance(each, pa.Scalar))
    spread = [each if not isinstance(each, pa.Scalar) else pa.repeat(each, length) for each in (column, *options)]
    table = pa.table({str(place): each for place, each in enumerate(spread)})
    names = [str(place) for place in range(1, len(spread))]
    table = table.append_column("row", pa.array(np.arange(length)))
    groups = table.group_by(names, use_threads=False).aggregate([("row", "list")])
    parts, rows = [], []
    for group in groups.to_pylist():
        chosen = pa.array(group["row_list"], pa.int64())
        given = [pa.scalar(group[name], table[name].type) for name in names]
        parts.append(by_option(apply, spread[0].take(chosen), *given))
        rows.append(chosen)
    if not parts:
        return by_option(apply, spread[0], *(pa.scalar(None, option.type) for option in spread[1:]))
    kind = next((part.type for part in parts if part.null_count < len(part)), parts[0].type)
    joined = pa.concat_arrays([part.cast(kind) for part in parts])
    return joined.take(pc.array_sort_indices(pa.concat_arrays(rows)))


def _substring(texts: Any, begins: Any, counts: Any) -> Any:
    def cut(column: Any, begin: int, count: int) -> Any:
        begin, count = max(begin, 0), max(count, 0)
        return (
            pc.utf8_slice_codeunits(column, begin, min(begin + count, 2**31 - 1))
            if count
            else pc.utf8_slice_codeunits(column, 0, 0)
        )

    return by_option(cut, texts, begins, counts)


def _replace(texts: Any, old: Any, new: Any) -> Any:
    def swap(column: Any, before: str, after: str) -> Any:
        return pc.replace_substring(column, before, after) if before else column

    return by_option(swap, texts, old, new)


def _concat(*texts: Any) -> Any:
    kind = pa.large_string() if any(text.type == pa.large_string() for text in texts) else pa.string()
    parts = [text.cast(kind) for text in texts]
    return pc.binary_join_element_wise(*parts, pa.scalar("", kind), null_handling="replace", null_replacement="")


def _round(numbers: Any, digits: Any = None) -> Any:
    given = pa.scalar(0, pa.int64()) if digits is None else digits

    def near(column: Any, count: int) -> Any:
        if pa.types.is_integer(column.type):
            return column if count >= 0 else _round_integers(column, count)
        return _round_floats(column, count)

    return by_option(near, numbers, given)


def _round_integers(column: Any, count: int) -> Any:
    if count >= -18:
        return pc.round(column, ndigits=count, round_mode="half_towards_infinity")
    # 10^19 does not fit 64 bits: half of it or more is rounded up to it, anything less is rounded to nothing.
    half = 5 * 10**18
    if count == -19 and pc.any(pc.or_(pc.greater_equal(column, half), pc.less_equal(column, -half))).as_py():
        raise pa.ArrowInvalid("overflow")
    return pc.if_else(pc.is_valid(column), pa.scalar(0, column.type), pa.scalar(None, column.type))


def _round_floats(column: Any, count: int) -> Any:
    if count < -308:
        return pc.if_else(pc.is_finite(column), pa.scalar(0.0), column)
    if count <= 0:
        return pc.round(column, ndigits=count, round_mode="half_towards_infinity")
    if count > 300:
        return column
    if isinstance(column, pa.Scalar):
        return _round_floats(pa.array([column.as_py()], pa.float64()), count)[0]
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    # A float this large has no digits that far behind the point, and shifting it could overflow.
    size = pc.abs(column)
    settled = pc.greater_equal(size, 2.0**53 / 10.0**count)
    small = pc.if_else(settled, pa.scalar(0.0), column)
    rounded = pc.if_else(settled, column, pc.round(small, ndigits=count, round_mode="half_towards_infinity"))
    # Shifting one that is nearly as large would move it by a good part of its last digit, so those are shifted exactly.
    exactly = pc.and_(pc.greater_equal(size, 2.0**44 / 10.0**count), pc.invert(settled))
    if not pc.any(exactly).as_py():
        return rounded
    unit = Decimal(1).scaleb(-count)
    found = [float(Decimal(number).quantize(unit, ROUND_HALF_UP)) for number in column.filter(exactly).to_pylist()]
    return pc.replace_with_mask(rounded, pc.fill_null(exactly, False), pa.array(found, pa.float64()))


def _floor(numbers: Any) -> Any:
    return numbers if pa.types.is_integer(numbers.type) else pc.floor(numbers)


def _ceil(numbers: Any) -> Any:
    return numbers if pa.types.is_integer(numbers.type) else pc.ceil(numbers)


def _date_trunc(units: Any, moments: Any) -> Any:
    def cut(column: Any, unit: str) -> Any:
        if unit not in UNITS:
            raise pa.ArrowInvalid(f"'{unit}' is no unit of time: use {', '.join(UNITS)}")
        if pa.types.is_date(column.type) and unit in ("hour", "minute", "second"):
            return column
        return pc.floor_temporal(column, unit=unit)

    return by_option(cut, moments, units)


def _known_unit(constants: Sequence[Any]) -> str | None:
    unit = constants[0]
    if unit is None or unit in UNITS:
        return None
    return f"'{unit}' is no unit of time: use {', '.join(UNITS)}"


def _to_string(values: Any) -> Any:
    kind = values.type
    if pa.types.is_floating(kind):
        texts = values.cast(pa.string())
        for odd, name in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
            texts = pc.if_else(pc.equal(texts, odd), name, texts)
        return texts
    if pa.types.is_timestamp(kind):
        return pc.strftime(values, format="%Y-%m-%dT%H:%M:%SZ")
    if pa.types.is_date32(kind):
        return pc.strftime(values, format="%Y-%m-%d")
    return values if kind in (pa.string(), pa.large_string()) else values.cast(pa.string())


def _to_int(values: Any) -> Any:
    if pa.types.is_floating(values.type):
        whole = pc.trunc(values)
        return whole.cast(pa.int64())
    if pa.types.is_integer(values.type):
        return values
    return _numbers_in(values, _INTEGER_TEXT, _fits_64_bits, pa.int64())


def _fits_64_bits(texts: Any) -> Any:
    is_negative = pc.starts_with(texts, "-")
    digits = pc.utf8_ltrim(pc.utf8_ltrim(texts, "+-"), "0")
    size = pc.utf8_length(digits)
    largest = pc.if_else(is_negative, _SMALLEST, _LARGEST)
    return pc.or_(pc.less(size, 19), pc.and_(pc.equal(size, 19), pc.less_equal(digits, largest)))


def _to_float(values: Any) -> Any:
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return as_floats(values)
    return _numbers_in(values, _FLOAT_TEXT, None, pa.float64())


def _numbers_in(texts: Any, pattern: str, also: Callable[[Any], Any] | None, kind: pa.DataType) -> Any:
    """The numbers that texts are; null for every other text."""
    fits = pc.match_substring_regex(texts, pattern)
    if also is not None:
        fits = pc.and_(fits, also(texts))
    plain = pc.if_else(fits, pc.if_else(pc.starts_with(texts, "+"), pc.utf8_ltrim(texts, "+"), texts), None)
    return plain.cast(kind)


def _size(lists: Any) -> Any:
    return pc.list_value_length(lists).cast(pa.int64())


def _counted(texts: Any) -> Any:
    return pc.utf8_length(texts).cast(pa.int64())


def _part(kernel: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda moments: kernel(moments).cast(pa.int64())


def _same(kinds: Sequence[PropertyType]) -> PropertyType:
    return PropertyType(kinds[-1].scalar, nullable=any(kind.nullable for kind in kinds))


def common_type(kinds: Sequence[PropertyType]) -> PropertyType | None:
    """The type that values of all these types have together, where there is one; enums are Strings."""
    scalars = {kind.scalar for kind in kinds}
    if len(scalars) == 1:
        return PropertyType(kinds[0].scalar)
    if scalars <= NUMERIC:
        return number_of([PropertyType(Scalar.F64 if scalars & {Scalar.F32, Scalar.F64} else Scalar.I64)])
    return None


def _first_known(kinds: Sequence[PropertyType]) -> PropertyType:
    kind = common_type(kinds) or kinds[0]
    return kind.with_nullable(all(each.nullable for each in kinds))


def _coalesce(*values: Any) -> Any:
    if any(pa.types.is_floating(value.type) for value in values):
        values = tuple(as_floats(value) for value in values)
    elif len({value.type for value in values}) > 1 and pa.types.is_integer(values[0].type):
        values = tuple(value.cast(pa.int64()) for value in values)
    elif any(value.type == pa.large_string() for value in values):
        values = tuple(value.cast(pa.large_string()) for value in values)
    return pc.coalesce(*values)


register(
    Function("now", gives=never_null(Scalar.DATETIME), summary="the one moment of the query, in UTC"),
    Function("nodes", (Takes.PATH,), strict(Scalar.STRING, is_list=True), summary="the ids along a path"),
    Function("edges", (Takes.PATH,), strict(Scalar.STRING, is_list=True), summary="the ids of the edges of a path"),
    Function("lower", (Takes.STRING,), strict(Scalar.STRING), pc.utf8_lower, summary="the text in lower case"),
    Function("upper", (Takes.STRING,), strict(Scalar.STRING), pc.utf8_upper, summary="the text in upper case"),
    Function("trim", (Takes.STRING,), strict(Scalar.STRING), pc.utf8_trim_whitespace, summary="without space around"),
    Function(
        "length", (Takes.STRING_OR_PATH,), strict(Scalar.I64), _counted, summary="code points, or edges of a path"
    ),
    Function(
        "substring",
        (Takes.STRING, Takes.INTEGER, Takes.INTEGER),
        strict(Scalar.STRING),
        _substring,
        summary="`count` code points from the one at `from`, counted from 0",
    ),
    Function("replace", (Takes.STRING,) * 3, strict(Scalar.STRING), _replace, summary="every `old` made `new`"),
    Function("concat", (Takes.STRING,), never_null(Scalar.STRING), _concat, repeats=True, summary="null is empty"),
    Function("coalesce", (Takes.PLAIN,), _first_known, _coalesce, repeats=True, summary="the first that is not null"),
    Function("abs", (Takes.NUMBER,), number_of, pc.abs_checked, may_fail=True, summary="without its sign"),
    Function(
        "round",
        (Takes.NUMBER, Takes.INTEGER),
        number_of,
        _round,
        optional=1,
        may_fail=True,
        summary="to so many digits after the point; halves away from zero",
    ),
    Function("floor", (Takes.NUMBER,), number_of, _floor, summary="the next whole number below"),
    Function("ceil", (Takes.NUMBER,), number_of, _ceil, summary="the next whole number above"),
    Function("sqrt", (Takes.NUMBER,), strict(Scalar.F64), lambda x: pc.sqrt(as_floats(x)), summary="square root"),
    Function("ln", (Takes.NUMBER,), strict(Scalar.F64), lambda x: pc.ln(as_floats(x)), summary="natural logarithm"),
    Function("exp", (Takes.NUMBER,), strict(Scalar.F64), lambda x: pc.exp(as_floats(x)), summary="e to the power"),
    Function("year", (Takes.MOMENT,), strict(Scalar.I64), _part(pc.year), summary="the year"),
    Function("month", (Takes.MOMENT,), strict(Scalar.I64), _part(pc.month), summary="1 to 12"),
    Function("day", (Takes.MOMENT,), strict(Scalar.I64), _part(pc.day), summary="the day of the month"),
    Function("hour", (Takes.DATETIME,), strict(Scalar.I64), _part(pc.hour), summary="0 to 23"),
    Function("minute", (Takes.DATETIME,), strict(Scalar.I64), _part(pc.minute), summary="0 to 59"),
    Function("second", (Takes.DATETIME,), strict(Scalar.I64), _part(pc.second), summary="0 to 59"),
    Function(
        "date_trunc",
        (Takes.STRING, Takes.MOMENT),
        _same,
        _date_trunc,
        may_fail=True,
        check=_known_unit,
        summary="the begin of the year, quarter, month, week, day, hour, minute or second",
    ),
    Function("to_string", (Takes.PLAIN,), strict(Scalar.STRING), _to_string, summary="as a result would show it"),
    Function(
        "to_int",
        (Takes.NUMBER_OR_STRING,),
        maybe_null(Scalar.I64),
        _to_int,
        may_fail=True,
        summary="without fraction; text that is no integer is null",
    ),
    Function(
        "to_float",
        (Takes.NUMBER_OR_STRING,),
        maybe_null(Scalar.F64),
        _to_float,
        summary="text that is no number is null",
    ),
    Function("size", (Takes.LIST,), strict(Scalar.I64), _size, summary="how many items a list has"),
)
