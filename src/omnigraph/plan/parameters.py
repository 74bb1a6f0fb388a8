"""Parameters as JSON: what each declared type accepts, and the Python values a plan runs with.

One implementation serves the API, the command line and the server. Python callers may also pass dates, times, tuples
and arrays where JSON has strings and lists.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar

import numpy as np

from omnigraph.catalog.suggestion import did_you_mean
from omnigraph.catalog.types import FLOATS, INTEGER_RANGES, INTEGERS, PropertyType, Scalar
from omnigraph.catalog.values import parse_date, parse_datetime
from omnigraph.errors import ParameterError
from omnigraph.ids import text_fault
from omnigraph.plan.operators import Parameter

SAFE_INTEGER_MAX = 2**53 - 1
NAMES_SHOWN_MAX = 20
_INTEGER_TEXT = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_Moment = TypeVar("_Moment", dt.date, dt.datetime)


def bind(parameters: Sequence[Parameter], given: Mapping[str, Any] | None, *, js_safe: bool = False) -> dict[str, Any]:
    """The value of every declared parameter; null where it is nullable and was left out.

    Dates become `datetime.date`, times UTC `datetime.datetime` to the millisecond, lists and vectors tuples. With
    `js_safe`, integers that JavaScript cannot represent are refused and whole floats count as integers.

    Raises:
        ParameterError: a value is missing, of the wrong kind or out of range, or nobody declared its name.
    """
    if given is None:
        if not parameters:
            return {}
        given = {}
    # The usual kinds are asked for first: finding out that something is no mapping of any kind takes a while.
    if type(given) is not dict and not isinstance(given, Mapping):
        raise ParameterError("params must be a JSON object")
    bound: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.name in given:
            bound[parameter.name] = _bound(parameter, given, js_safe)
    if len(bound) < len(given):
        raise _undeclared(parameters, given)
    if len(bound) == len(parameters):
        return bound
    return {parameter.name: _bound(parameter, given, js_safe) for parameter in parameters}


def _undeclared(parameters: Sequence[Parameter], given: Mapping[str, Any]) -> ParameterError:
    """A name nobody declared is a misspelt one: taken for nothing, it would leave null where a value was meant."""
    declared = [parameter.name for parameter in parameters]
    name = next(str(name) for name in given if name not in declared)
    known = ", ".join(f"${each}" for each in declared[:NAMES_SHOWN_MAX]) or "none"
    more = f" and {len(declared) - NAMES_SHOWN_MAX} more" if len(declared) > NAMES_SHOWN_MAX else ""
    return ParameterError(
        f"param '{name}': the query declares no such parameter{did_you_mean(name, declared, prefix='$') or ';'}"
        f" it declares {known}{more}"
    )


def _bound(parameter: Parameter, given: Mapping[str, Any], js_safe: bool) -> Any:
    name, kind = parameter.name, parameter.type
    value = given.get(name)
    if value is None:
        if kind.nullable:
            return None
        if name in given:
            raise ParameterError(f"param '{name}': null is not allowed for {kind}")
        raise ParameterError(f"parameter '${name}' not provided")
    if type(value) is str and kind.scalar is Scalar.STRING and not kind.is_list and value.isascii():
        # The commonest of all, and nothing can be wrong with it.
        return value
    if kind.scalar is Scalar.VECTOR:
        return _vector(name, value, kind)
    if kind.is_list:
        return _list(name, value, kind, js_safe)
    return _scalar(name, value, kind.scalar, js_safe)


def _scalar(name: str, value: Any, scalar: Scalar, js_safe: bool) -> Any:
    if scalar in INTEGERS:
        return _integer(name, value, scalar, js_safe)
    if scalar in FLOATS:
        return _float(name, value, scalar)
    return _OTHERS[scalar](name, value)


def _integer(name: str, value: Any, scalar: Scalar, js_safe: bool) -> int:
    number = _whole(name, value, scalar, js_safe)
    low, high = INTEGER_RANGES[scalar]
    if not low <= number <= high:
        raise ParameterError(f"param '{name}': value {number} exceeds {scalar}")
    return number


def _whole(name: str, value: Any, scalar: Scalar, js_safe: bool) -> int:
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if js_safe and abs(value) > SAFE_INTEGER_MAX:
            raise ParameterError(f"param '{name}': value {value} is not safe in JavaScript: send it as a string")
        return value
    if js_safe and isinstance(value, float) and value.is_integer() and abs(value) <= SAFE_INTEGER_MAX:
        return int(value)
    if isinstance(value, str) and _INTEGER_TEXT.fullmatch(value):
        return int(value)
    raise ParameterError(f"param '{name}': expected integer for {scalar}, got {_kind(value)}")


def _float(name: str, value: Any, scalar: Scalar) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise ParameterError(f"param '{name}': expected float, got {_kind(value)}")
    try:
        number = float(value)
        if not math.isfinite(number):
            raise ParameterError(f"param '{name}': value {number} is not a finite number")
        if scalar is Scalar.F32:
            with np.errstate(over="ignore"):
                number = float(np.float32(number))
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ParameterError(f"param '{name}': value {_short(value)} exceeds {scalar}")
    return number


def _string(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ParameterError(f"param '{name}': expected string, got {_kind(value)}")
    fault = text_fault(value)
    if fault is not None:
        raise ParameterError(f"param '{name}': {fault}")
    return value


def _blob(name: str, value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"base64:{base64.b64encode(value).decode()}"
    return _string(name, value)


def _bool(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(f"param '{name}': expected boolean, got {_kind(value)}")
    return bool(value)


def _date(name: str, value: Any) -> dt.date:
    if _is_moment(value):
        return _datetime(name, value).date()
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    return _parsed(name, value, parse_date)


def _datetime(name: str, value: Any) -> dt.datetime:
    if _is_moment(value):
        try:
            moment = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
        except OverflowError:
            raise ParameterError(f"param '{name}': in UTC, {value} is not between the years 1 and 9999") from None
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    return _parsed(name, value, parse_datetime)


def _is_moment(value: Any) -> TypeGuard[dt.datetime]:
    """Whether a value is a date-time; pandas has one that is none, and is not equal to itself."""
    return isinstance(value, dt.datetime) and bool(value == value)


def _parsed(name: str, value: Any, parse: Callable[[str], _Moment]) -> _Moment:
    if not isinstance(value, str):
        raise ParameterError(f"param '{name}': expected date string, got {_kind(value)}")
    try:
        return parse(value)
    except ValueError as failure:
        raise ParameterError(f"param '{name}': expected date string: {failure}") from None


def _list(name: str, value: Any, kind: PropertyType, js_safe: bool) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple | np.ndarray):
        raise ParameterError(f"param '{name}': expected array for [{kind.scalar}], got {_kind(value)}")
    items = []
    for item in value:
        if item is None:
            raise ParameterError(f"param '{name}': null is not allowed in [{kind.scalar}]")
        items.append(_scalar(name, item, kind.scalar, js_safe))
    return tuple(items)


def _vector(name: str, value: Any, kind: PropertyType) -> tuple[float, ...]:
    if not isinstance(value, list | tuple | np.ndarray):
        raise ParameterError(f"param '{name}': expected array for Vector({kind.dimension}), got {_kind(value)}")
    if len(value) != kind.dimension:
        raise ParameterError(
            f"param '{name}': expected {kind.dimension} values for Vector({kind.dimension}), got {len(value)}"
        )
    plain = (
        value.dtype.kind == "f" and value.ndim == 1 if isinstance(value, np.ndarray) else {*map(type, value)} == {float}
    )
    if plain:
        with np.errstate(over="ignore"):
            numbers = np.asarray(value, dtype=np.float64).astype(np.float32)
        if np.isfinite(numbers).all():
            return tuple(numbers.tolist())
    # One by one where something is wrong, or may be, so that the message can name it.
    return tuple(_float(name, item, Scalar.F32) for item in value)


_OTHERS: dict[Scalar, Callable[[str, Any], Any]] = {
    Scalar.STRING: _string,
    Scalar.BLOB: _blob,
    Scalar.BOOL: _bool,
    Scalar.DATE: _date,
    Scalar.DATETIME: _datetime,
}


def _kind(value: Any) -> str:
    """What JSON calls the value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float | np.number):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Mapping):
        return "object"
    return "array" if isinstance(value, list | tuple | np.ndarray) else type(value).__name__


def _short(value: Any) -> str:
    text = str(value) if not isinstance(value, int) or abs(value) < 10**40 else "of that size"
    return text if len(text) <= 40 else f"{text[:40]}…"
