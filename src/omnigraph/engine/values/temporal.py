"""Date and date-time texts become day and millisecond numbers, a whole column at a time.

The accepted texts are RFC 3339 with upper-case `T` and `Z`, a date alone, minutes without seconds, and any number of
fraction digits, of which three are kept. The calendar is computed in numpy, so nothing depends on the time zone data
or the locale of the machine.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]

MILLIS_PER_DAY = 86_400_000
DAY_MIN, DAY_MAX = -719_162, 2_932_896
"""The day numbers of 0001-01-01 and 9999-12-31."""
MILLIS_MIN, MILLIS_MAX = DAY_MIN * MILLIS_PER_DAY, (DAY_MAX + 1) * MILLIS_PER_DAY - 1

_DATE = r"(?P<y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})"
_TIME = r"(?P<H>[0-9]{2}):(?P<M>[0-9]{2})(?::(?P<S>[0-9]{2})(?:\.(?P<f>[0-9]+))?)?"
_ZONE = r"(?P<z>Z|[+-][0-9]{2}:[0-9]{2})?"
_PATTERN = rf"\A{_DATE}(?:[T ]{_TIME}{_ZONE})?\z"
_DAYS_IN_MONTH = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], dtype=np.int64)


def parse_date_texts(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Day numbers (date32) of the texts, cut to their UTC date, and a mask of the texts that are not dates."""
    millis, bad = _parse(texts)
    days = np.floor_divide(millis, MILLIS_PER_DAY).astype(np.int32)
    return pa.array(days, mask=null_mask(texts) | bad).cast(pa.date32()), bad


def parse_datetime_texts(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Millisecond instants (date64) of the texts and a mask of the texts that are not date-times."""
    millis, bad = _parse(texts)
    return instants(millis, null_mask(texts) | bad), bad


def instants(millis: npt.NDArray[np.int64], nulls: Mask) -> pa.Array:
    """A date64 column that keeps milliseconds within the day, which an Arrow cast would refuse or floor."""
    plain = pa.array(millis, mask=nulls)
    return pa.Array.from_buffers(pa.date64(), len(plain), plain.buffers(), plain.null_count)


def null_mask(column: pa.Array) -> Mask:
    """Where a column is null."""
    return np.asarray(pc.is_null(column).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _parse(texts: pa.Array) -> tuple[npt.NDArray[np.int64], Mask]:
    """UTC milliseconds of every text (0 where it is null or malformed), and which non-null texts are malformed."""
    nulls = null_mask(texts)
    fields = pc.extract_regex(texts, _PATTERN)
    shaped = np.asarray(pc.is_valid(fields).to_numpy(zero_copy_only=False), dtype=np.bool_)

    year, month, day = (_number(fields, name) for name in "ymd")
    hour, minute, second = (_number(fields, name) for name in "HMS")
    millis = _fraction(fields)
    offset, offset_ok = _offset_minutes(fields)

    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    month_ok = (month >= 1) & (month <= 12)
    last = _DAYS_IN_MONTH[np.where(month_ok, month, 0)] + (leap & (month == 2))
    good = shaped & (year >= 1) & month_ok & (day >= 1) & (day <= last)
    good &= (hour <= 23) & (minute <= 59) & (second <= 59) & offset_ok

    total = _day_number(year, month, day) * 1_440 + hour * 60 + minute - offset
    total = (total * 60 + second) * 1_000 + millis
    good &= (total >= MILLIS_MIN) & (total <= MILLIS_MAX)
    return np.where(good, total, 0), ~good & ~nulls


def _number(fields: pa.StructArray, name: str) -> npt.NDArray[np.int64]:
    """One group as integers; a group that did not take part counts as 0."""
    text = pc.struct_field(fields, name)
    text = pc.if_else(pc.equal(pc.fill_null(pc.binary_length(text), 0), 0), "0", text)
    return np.asarray(pc.cast(text, pa.int64()).to_numpy(zero_copy_only=False), dtype=np.int64)


def _fraction(fields: pa.StructArray) -> npt.NDArray[np.int64]:
    """Milliseconds: the first three fraction digits, finer ones cut off."""
    digits = pc.fill_null(pc.struct_field(fields, "f"), "")
    digits = pc.utf8_slice_codeunits(pc.utf8_rpad(digits, width=3, padding="0"), start=0, stop=3)
    return np.asarray(pc.cast(digits, pa.int64()).to_numpy(zero_copy_only=False), dtype=np.int64)


def _offset_minutes(fields: pa.StructArray) -> tuple[npt.NDArray[np.int64], Mask]:
    """Minutes east of UTC, and whether the offset is one a clock can have."""
    zone = pc.fill_null(pc.struct_field(fields, "z"), "")
    zone = pc.if_else(pc.less(pc.binary_length(zone), 6), "+00:00", zone)
    hours = np.asarray(pc.cast(pc.utf8_slice_codeunits(zone, 1, 3), pa.int64()), dtype=np.int64)
    minutes = np.asarray(pc.cast(pc.utf8_slice_codeunits(zone, 4, 6), pa.int64()), dtype=np.int64)
    sign = np.where(np.asarray(pc.starts_with(zone, "-"), dtype=np.bool_), -1, 1)
    return sign * (hours * 60 + minutes), (hours <= 23) & (minutes <= 59)


def _day_number(
    year: npt.NDArray[np.int64], month: npt.NDArray[np.int64], day: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Days since 1970-01-01 in the proleptic Gregorian calendar; years start in March, so that a leap day is last."""
    shifted = year - (month <= 2)
    era = np.floor_divide(shifted, 400)
    year_of_era = shifted - era * 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    days: npt.NDArray[np.int64] = era * 146_097 + day_of_era - 719_468
    return days
