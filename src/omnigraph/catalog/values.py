"""Date and time text and single precision, the same in queries, parameters and load files.

Dates are RFC 3339 with upper-case `T` and `Z`; a space may stand for the `T`, and no offset means UTC. Times finer than
a millisecond are cut, never rounded.
"""

from __future__ import annotations

import datetime as dt
import math
import re

import numpy as np

_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_DATETIME = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})"
    r"(?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d+))?)?(Z|[+-]\d{2}:\d{2})?)?",
    re.ASCII,
)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()


def parse_datetime(text: str) -> dt.datetime:
    """A UTC time to the millisecond.

    Raises:
        ValueError: the text is not a date or time, or names one that does not exist.

    >>> parse_datetime("2026-01-02T04:04:05.1239+01:00").isoformat()
    '2026-01-02T03:04:05.123000+00:00'
    """
    match = _DATETIME.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text}' is not a date-time such as 2026-02-14T10:00:00Z")
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    micros = int(fraction[:3].ljust(3, "0")) * 1000 if fraction else 0
    try:
        local = dt.datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), micros, dt.UTC
        )
        return local - _offset(offset)
    except (ValueError, OverflowError) as failure:
        raise ValueError(f"'{text}' is not a date-time that exists: {failure}") from None


def parse_date(text: str) -> dt.date:
    """A date; a longer date-time text is cut to its UTC date.

    Raises:
        ValueError: the text is not a date, or names one that does not exist.
    """
    match = _DATE.fullmatch(text)
    if match is None:
        try:
            return parse_datetime(text).date()
        except ValueError:
            raise ValueError(f"'{text}' is not a date such as 2026-02-14") from None
    try:
        return dt.date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError as failure:
        raise ValueError(f"'{text}' is not a date that exists: {failure}") from None


def days_of(date: dt.date) -> int:
    """Days since 1970-01-01, the stored form of a Date."""
    return date.toordinal() - _EPOCH_DAY


def millis_of(moment: dt.datetime) -> int:
    """Milliseconds since 1970-01-01T00:00:00Z, the stored form of a DateTime."""
    return (moment - _EPOCH) // dt.timedelta(milliseconds=1)


def round_to_f32(value: int | float) -> np.float32:
    """The nearest Float32, rounded once; a detour through Float64 would round large integers twice."""
    if isinstance(value, float) or abs(value) <= 1 << 53:
        with np.errstate(over="ignore"):
            return np.float32(value)
    shift = abs(value).bit_length() - 24
    quotient, rest = divmod(abs(value), 1 << shift)
    half = 1 << (shift - 1)
    quotient += rest > half or (rest == half and quotient & 1)
    return np.float32(math.copysign(math.ldexp(float(quotient), shift), value))


def _offset(text: str | None) -> dt.timedelta:
    if text is None or text == "Z":
        return dt.timedelta()
    hours, minutes = int(text[1:3]), int(text[4:6])
    if hours > 23 or minutes > 59:
        raise ValueError(f"no such offset {text}")
    shift = dt.timedelta(hours=hours, minutes=minutes)
    return -shift if text[0] == "-" else shift
