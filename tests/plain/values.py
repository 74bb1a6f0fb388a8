"""Functions and arithmetic of the language on single values, in plain Python; a null is None.

What the engine computes on whole columns is compared with these, so they share no code with it.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from fractions import Fraction
from typing import Any

_LARGEST = 2**63 - 1


class PlainFailure(Exception):
    """An expression has no value, and the query that asks for it fails."""


def arithmetic(operator: str, left: Any, right: Any) -> Any:
    """`left operator right`."""
    if left is None or right is None:
        return None
    if isinstance(left, dt.date) or isinstance(right, dt.date):
        return _with_dates(operator, left, right)
    if isinstance(left, int) and isinstance(right, int) and operator != "/":
        if operator == "%" and right == 0:
            raise PlainFailure("division by zero")
        return fitting(_INTEGERS[operator](left, right))
    return _floats(operator, float(left), float(right))


_INTEGERS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "%": lambda a, b: a - b * (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1),
}


def fitting(value: int) -> int:
    """The integer, if 64 bits hold it."""
    if not -_LARGEST - 1 <= value <= _LARGEST:
        raise PlainFailure("overflow")
    return value


def _floats(operator: str, a: float, b: float) -> float:
    match operator:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/" if b == 0:
            return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)
        case "/":
            return a / b
    return math.nan if b == 0 or math.isinf(a) or math.isnan(a) or math.isnan(b) else math.fmod(a, b)


def _with_dates(operator: str, left: Any, right: Any) -> Any:
    if not isinstance(left, dt.date):
        left, right = right, left
    unit = dt.timedelta(milliseconds=1) if isinstance(left, dt.datetime) else dt.timedelta(days=1)
    if isinstance(right, dt.date):
        return (left - right) / (dt.timedelta(seconds=1) if isinstance(left, dt.datetime) else unit)
    scale = 1000 if isinstance(left, dt.datetime) else 1
    if isinstance(right, float):
        if not math.isfinite(right):
            raise PlainFailure("not finite")
        if scale == 1:
            steps = math.floor(right) if operator == "+" else math.ceil(right)
        else:
            steps = int(math.copysign(math.floor(abs(right * scale) + 0.5), right))
    else:
        steps = right * scale
    try:
        return left + steps * unit if operator == "+" else left - steps * unit
    except OverflowError:
        raise PlainFailure("outside the calendar") from None


def negative(value: Any) -> Any:
    """`-value`."""
    if value is None:
        return None
    return fitting(-value) if isinstance(value, int) else -value


def call(name: str, values: list[Any]) -> Any:
    """A function of the table."""
    if name == "concat":
        return "".join(value or "" for value in values)
    if name == "coalesce":
        return next((value for value in values if value is not None), None)
    if any(value is None for value in values):
        return None
    return _CALLS[name](*values)


def _substring(text: str, begin: int, count: int) -> str:
    return text[max(begin, 0) :][: max(count, 0)]


def _round(value: Any, digits: int = 0) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return value
    scale = Fraction(10) ** digits
    scaled = abs(Fraction(value)) * scale
    whole = math.floor(scaled + Fraction(1, 2))
    if isinstance(value, int):
        return int(math.copysign(1, value)) * int(Fraction(whole) / scale)
    return math.copysign(float(Fraction(whole) / scale), value)


def _whole(value: Any, way: Any) -> Any:
    if isinstance(value, int):
        return fitting(value)
    return value if not math.isfinite(value) else float(way(value))


def _ln(value: float) -> float:
    if value == 0:
        return -math.inf
    return math.nan if value < 0 else math.log(value)


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _date_trunc(unit: str, moment: Any) -> Any:
    day = moment.date() if isinstance(moment, dt.datetime) else moment
    match unit:
        case "year":
            day = day.replace(month=1, day=1)
        case "quarter":
            day = day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case "month":
            day = day.replace(day=1)
        case "week":
            day -= dt.timedelta(days=day.weekday())
    if not isinstance(moment, dt.datetime):
        return day
    kept = {"hour": ("hour",), "minute": ("hour", "minute"), "second": ("hour", "minute", "second")}.get(unit, ())
    clock = {part: getattr(moment, part) for part in kept}
    return dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC).replace(**clock)


def _to_string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03}Z"
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[repr(value)]
        return repr(value).removesuffix(".0")
    return str(value)


def _to_int(value: Any) -> int | None:
    if isinstance(value, str):
        number = int(value) if re.fullmatch(r"[+-]?[0-9]+", value) else None
        return number if number is not None and -_LARGEST - 1 <= number <= _LARGEST else None
    if isinstance(value, float) and not math.isfinite(value):
        raise PlainFailure("not finite")
    return fitting(int(value))


def _to_float(value: Any) -> float | None:
    if isinstance(value, str):
        return float(value) if re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", value) else None
    return float(value)


_CALLS: dict[str, Any] = {
    "lower": lambda s: s.lower(),
    "upper": lambda s: s.upper(),
    "trim": lambda s: s.strip(),
    "length": len,
    "substring": _substring,
    "replace": lambda s, old, new: s.replace(old, new) if old else s,
    "abs": lambda x: fitting(abs(x)) if isinstance(x, int) else abs(x),
    "round": _round,
    "floor": lambda x: _whole(x, math.floor),
    "ceil": lambda x: _whole(x, math.ceil),
    "sqrt": lambda x: math.nan if x < 0 else math.sqrt(x),
    "ln": _ln,
    "exp": _exp,
    "year": lambda t: t.year,
    "month": lambda t: t.month,
    "day": lambda t: t.day,
    "hour": lambda t: t.hour,
    "minute": lambda t: t.minute,
    "second": lambda t: t.second,
    "date_trunc": _date_trunc,
    "to_string": _to_string,
    "to_int": _to_int,
    "to_float": _to_float,
    "size": len,
}
