"""Values from outside become columns of the schema's types, strictly and a column at a time.

JSON arrives here as Arrow columns of the kind JSON has (`json_type`); `finish_json` turns such a column into the stored
type and reports every value that does not fit by its position. Arrow columns a caller hands over go through
`finish_arrow` to the same end. A value of the wrong kind is always a problem and never silently null.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog.arrow import BLOB_STORAGE, arrow_type
from omnigraph.catalog.types import FLOATS, INTEGER_RANGES, INTEGERS, PropertyType, Scalar
from omnigraph.engine.values import temporal
from omnigraph.engine.values.temporal import Mask, null_mask
from omnigraph.engine.values.texts import text_faults

PROBLEMS_MAX = 100
"""Problems reported per column and batch; more of them would help nobody."""

BLOB_STRUCT = BLOB_STORAGE
"""A blob before it is stored: inline bytes or a reference, never both; null is no blob."""

_BASE64 = "base64:"


class Problem(Struct, frozen=True):
    """A value that does not fit: its position in the column, and why."""

    row: int
    message: str


Finished = tuple[pa.Array, list[Problem]]


def column_type(kind: PropertyType) -> pa.DataType:
    """The type a property's column has while it is staged; blobs are `BLOB_STRUCT` until storage encodes them."""
    return BLOB_STRUCT if kind.scalar is Scalar.BLOB else arrow_type(kind)


def json_type(kind: PropertyType, *, dates_as_numbers: bool = False) -> pa.DataType:
    """The type a JSON column is parsed into; date properties are texts or numbers, never both in one column."""
    if kind.scalar is Scalar.VECTOR:
        return pa.list_(pa.float64())
    if kind.scalar in (Scalar.DATE, Scalar.DATETIME):
        item = pa.int64() if dates_as_numbers else pa.string()
    elif kind.scalar in FLOATS:
        item = pa.float64()
    elif kind.scalar is Scalar.BLOB:
        item = pa.string()
    else:
        item = arrow_type(PropertyType(kind.scalar))
    return pa.list_(item) if kind.is_list else item


# --- JSON kinds to stored types --------------------------------------------------------------------------------------


def finish_json(raw: pa.Array, kind: PropertyType) -> Finished:
    """The stored column of a parsed JSON column; rows with a problem are null in it."""
    if kind.scalar is Scalar.VECTOR:
        return _finish_vector(raw, kind)
    return _finish_list(raw, kind) if kind.is_list else _finish_plain(raw, kind)


def _finish_plain(raw: pa.Array, kind: PropertyType) -> Finished:
    scalar = kind.scalar
    if scalar in FLOATS:
        return _finish_float(raw, scalar)
    if scalar is Scalar.DATE:
        return _finish_date(raw)
    if scalar is Scalar.DATETIME:
        return _finish_datetime(raw)
    if scalar is Scalar.BLOB:
        return _finish_blob(raw)
    return raw, []


def _finish_float(raw: pa.Array, scalar: Scalar) -> Finished:
    numbers = raw.cast(pa.float64(), safe=False)
    plain = np.asarray(pc.fill_null(numbers, 0.0), dtype=np.float64)
    bad = ~np.isfinite(plain)
    problems = _problems(bad, lambda row: not_finite(plain[row], scalar))
    if scalar is Scalar.F32:
        rounded = _float32(plain)
        wide = ~np.isfinite(rounded) & ~bad
        problems += _problems(wide, lambda row: f"{plain[row]} is out of range for F32")
        nulls = null_mask(numbers) | bad | wide
        return pa.array(rounded, mask=nulls if nulls.any() else None), problems
    return (pc.if_else(pa.array(bad), None, numbers) if problems else numbers), problems


def _float32(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32)


def _finish_date(raw: pa.Array) -> Finished:
    if pa.types.is_integer(raw.type):
        days = np.asarray(pc.fill_null(raw, 0), dtype=np.int64)
        bad = (days < temporal.DAY_MIN) | (days > temporal.DAY_MAX)
        column = pa.array(np.where(bad, 0, days).astype(np.int32), mask=null_mask(raw) | bad).cast(pa.date32())
        return column, _problems(bad, lambda row: f"{days[row]} is not a day number between the years 1 and 9999")
    column, bad = temporal.parse_date_texts(raw)
    return column, _problems(bad, lambda row: f"'{raw[row].as_py()}' is not a Date (YYYY-MM-DD)")


def _finish_datetime(raw: pa.Array) -> Finished:
    if pa.types.is_integer(raw.type):
        millis = np.asarray(pc.fill_null(raw, 0), dtype=np.int64)
        bad = (millis < temporal.MILLIS_MIN) | (millis > temporal.MILLIS_MAX)
        column = temporal.instants(np.where(bad, 0, millis), null_mask(raw) | bad)
        return column, _problems(bad, lambda row: f"{millis[row]} ms is not between the years 1 and 9999")
    column, bad = temporal.parse_datetime_texts(raw)
    return column, _problems(bad, lambda row: f"'{raw[row].as_py()}' is not a DateTime (YYYY-MM-DDTHH:MM:SSZ)")


def _finish_blob(raw: pa.Array) -> Finished:
    problems: list[Problem] = []
    data: list[bytes | None] = []
    references: list[str | None] = []
    # Base64 has no Arrow kernel; the payload dwarfs the cost of this loop.
    for row, text in enumerate(raw.to_pylist()):
        inline, reference = None, None
        if text is not None and text.startswith(_BASE64):
            try:
                inline = base64.b64decode(text[len(_BASE64) :].encode("ascii"), validate=True)
            except (binascii.Error, UnicodeEncodeError):
                problems.append(Problem(row, "the text after 'base64:' is not standard base64"))
        elif text is not None:
            reference = text
            if not text.strip():
                problems.append(Problem(row, "a blob is 'base64:…' or the URI of its bytes, and this text is blank"))
        data.append(inline)
        references.append(reference)
    return blob_column(data, references), problems


def blob_column(data: list[bytes | None], references: list[str | None]) -> pa.Array:
    """Blobs from inline bytes and references; where both are missing the blob is null."""
    inline, uri = pa.array(data, pa.large_binary()), pa.array(references, pa.string())
    nothing = pa.nulls(len(inline), pa.uint64())
    return pa.StructArray.from_arrays(
        [inline, uri, nothing, nothing],
        fields=list(BLOB_STRUCT),
        mask=pc.and_(pc.is_null(inline), pc.is_null(uri)),
    )


def _finish_list(raw: pa.Array, kind: PropertyType) -> Finished:
    lengths = np.asarray(pc.fill_null(pc.list_value_length(raw), 0), dtype=np.int64)
    items, parents = _items(raw), np.repeat(np.arange(len(raw)), lengths)
    problems = [Problem(int(parents[p.row]), p.message) for p in _problems(null_mask(items), _null_item)]
    finished, found = _finish_plain(items, kind)
    problems += [Problem(int(parents[p.row]), f"item {p.message}") for p in found]
    offsets = np.zeros(len(raw) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    nulls = pc.is_null(raw) if raw.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), finished, type=column_type(kind), mask=nulls), problems


def _items(lists: pa.Array) -> pa.Array:
    """The items of all lists; none at all are a fresh array, for Lance refuses an empty slice from within another."""
    items = lists.flatten()
    return items if len(items) else pa.nulls(0, items.type)


def _null_item(row: int) -> str:
    return "a list must not contain null"


def _finish_vector(raw: pa.Array, kind: PropertyType) -> Finished:
    dimension = kind.dimension or 0
    lengths = np.asarray(pc.fill_null(pc.list_value_length(raw), 0), dtype=np.int64)
    nulls = null_mask(raw)
    wrong = (lengths != dimension) & ~nulls
    problems = _problems(wrong, lambda row: f"expected {dimension} numbers, found {lengths[row]}")
    numbers = _elements(_items(raw))
    bad = np.flatnonzero(~np.isfinite(numbers))[:PROBLEMS_MAX]
    parents = np.searchsorted(np.cumsum(lengths), bad, side="right")
    problems += [Problem(int(row), _BAD_ELEMENT) for row in parents]
    missing = nulls | wrong
    if missing.any():
        matrix = np.zeros((len(raw), dimension), dtype=np.float32)
        matrix[~missing] = numbers[np.repeat(~wrong, lengths)].reshape(-1, dimension)
        numbers = matrix.reshape(-1)
    return _vectors(pa.array(numbers), kind, missing), problems


def _elements(items: pa.Array) -> npt.NDArray[np.float32]:
    """Numbers as a vector holds them; what is no number there is not finite, and what is one already is not copied."""
    if pa.types.is_float32(items.type):
        plain = items if not items.null_count else pc.fill_null(items, np.float32(np.nan))
        return np.asarray(plain, dtype=np.float32)
    return _float32(np.asarray(pc.fill_null(items.cast(pa.float64(), safe=False), np.nan), dtype=np.float64))


def _vectors(numbers: pa.Array, kind: PropertyType, missing: Mask) -> pa.Array:
    mask = pa.array(missing) if missing.any() else None
    return pa.FixedSizeListArray.from_arrays(numbers, type=column_type(kind), mask=mask)


def _stored_vectors(raw: pa.Array, kind: PropertyType) -> pa.Array | None:
    """A column that holds what is stored, as it is; None where something has to be converted, or said against it."""
    found, dimension = raw.type, kind.dimension or 0
    if not (pa.types.is_fixed_size_list(found) and found.list_size == dimension):
        return None
    numbers = raw.values.slice(raw.offset * dimension, len(raw) * dimension)
    if not pa.types.is_float32(numbers.type) or numbers.null_count:
        return None
    finite = np.isfinite(np.asarray(numbers))
    missing = null_mask(raw)
    # What lies under a null is nobody's value, and need not be a number.
    if not (finite.all() if not raw.null_count else finite.reshape(-1, dimension).all(axis=1)[~missing].all()):
        return None
    return raw if found == column_type(kind) else _vectors(numbers, kind, missing)


_BAD_ELEMENT = "a vector element must be a finite number that F32 can hold"


# --- Arrow columns a caller hands over -------------------------------------------------------------------------------


def finish_arrow(raw: pa.Array, kind: PropertyType) -> Finished:
    """The stored column of a caller's Arrow column, which must already be of a fitting kind."""
    if pa.types.is_dictionary(raw.type):
        raw = raw.dictionary_decode()
    if raw.null_count == len(raw):
        # Nulls fit every property, whatever their type: pandas gives a column without values as floats.
        return pa.nulls(len(raw), column_type(kind)), []
    unreadable = [Problem(row, message) for row, message in text_faults(raw)]
    if unreadable:
        return pa.nulls(len(raw), column_type(kind)), unreadable
    if kind.scalar is Scalar.VECTOR or kind.is_list:
        if not _is_list(raw.type):
            return _refused(raw, kind)
        stored = _stored_vectors(raw, kind) if kind.scalar is Scalar.VECTOR else None
        if stored is not None:
            return stored, []
        item, problems = _arrow_kind(_items(raw), kind)
        if problems:
            return _refused(raw, kind)
        lengths = np.asarray(pc.fill_null(pc.list_value_length(raw), 0), dtype=np.int64)
        offsets = np.zeros(len(raw) + 1, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        nulls = pc.is_null(raw) if raw.null_count else None
        return finish_json(pa.ListArray.from_arrays(pa.array(offsets), item, mask=nulls), kind)
    plain, problems = _arrow_kind(raw, kind)
    if problems:
        return pa.nulls(len(raw), column_type(kind)), problems
    # A column of floats is of the stored type already and may still hold what no float property takes.
    finished = plain.type == column_type(kind) and kind.scalar not in FLOATS
    return (plain, []) if finished else finish_json(plain, kind)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _refused(raw: pa.Array, kind: PropertyType) -> Finished:
    message = f"a column of Arrow type {raw.type} cannot become {kind}"
    return pa.nulls(len(raw), column_type(kind)), [Problem(0, message)]


def _arrow_kind(raw: pa.Array, kind: PropertyType) -> Finished:
    """The column as the JSON kind `finish_json` expects, or already stored where Arrow is richer than JSON."""
    scalar, found = kind.scalar, raw.type
    if pa.types.is_dictionary(found):
        return _arrow_kind(raw.dictionary_decode(), kind)
    numeric = pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found)
    if scalar in INTEGERS and (pa.types.is_integer(found) or pa.types.is_decimal(found)):
        # Spark has no unsigned integers and gives U64 as decimals; in SQL 0.5 is a decimal, and so is 2 * 0.5.
        return _narrowed(raw, scalar)
    if scalar in INTEGERS and pa.types.is_floating(found):
        return _integral(raw, scalar)
    if scalar is Scalar.VECTOR and pa.types.is_float32(found):
        return raw, []
    if (scalar in FLOATS or scalar is Scalar.VECTOR) and numeric:
        return raw.cast(pa.float64(), safe=False), []
    if scalar is Scalar.BOOL and pa.types.is_boolean(found):
        return raw, []
    if scalar in (Scalar.DATE, Scalar.DATETIME) and (pa.types.is_integer(found) or pa.types.is_temporal(found)):
        return _arrow_time(raw, scalar)
    if scalar is Scalar.BLOB and (pa.types.is_binary(found) or pa.types.is_large_binary(found)):
        data = raw.cast(pa.large_binary()).to_pylist()
        return blob_column(data, [None] * len(data)), []
    if scalar is Scalar.BLOB and found == BLOB_STRUCT:
        return raw, []
    texts = pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found)
    if texts and scalar in (Scalar.STRING, Scalar.DATE, Scalar.DATETIME, Scalar.BLOB):
        return raw.cast(pa.string()), []
    return _refused(raw, kind)


def _integral(raw: pa.Array, scalar: Scalar) -> Finished:
    """Integers that came as floats, as frame libraries give them where some are missing; a fraction is refused."""
    low, high = INTEGER_RANGES[scalar]
    plain = np.asarray(pc.fill_null(raw.cast(pa.float64()), 0.0), dtype=np.float64)
    fraction = ~np.isfinite(plain) | (np.trunc(plain) != plain)
    # The upper bound is compared from above, because the greatest integer of 64 bits is no float.
    outside = ~fraction & ((plain < float(low)) | (plain >= float(high + 1)))
    problems = _problems(fraction, lambda row: f"{plain[row]} is not an integer")
    problems += _problems(outside, lambda row: out_of_range(int(plain[row]), scalar))
    target = arrow_type(PropertyType(scalar))
    if problems:
        return pa.nulls(len(raw), target), problems
    return raw.cast(target, safe=False), []


def _narrowed(raw: pa.Array, scalar: Scalar) -> Finished:
    low, high = INTEGER_RANGES[scalar]
    target = arrow_type(PropertyType(scalar))
    try:
        return raw.cast(target), []
    except pa.ArrowInvalid:
        values = [0 if value is None else value for value in raw.to_pylist()]
        fraction = np.asarray([value % 1 != 0 for value in values], dtype=np.bool_)
        outside = ~fraction & np.asarray([not low <= value <= high for value in values], dtype=np.bool_)
        problems = _problems(fraction, lambda row: f"{values[row]} is not an integer")
        problems += _problems(outside, lambda row: out_of_range(int(values[row]), scalar))
        return pa.nulls(len(raw), target), problems


def _arrow_time(raw: pa.Array, scalar: Scalar) -> Finished:
    if pa.types.is_integer(raw.type):
        return _narrowed(raw, Scalar.I64)
    if pa.types.is_time(raw.type) or pa.types.is_duration(raw.type):
        return _refused(raw, PropertyType(scalar))
    if pa.types.is_date64(raw.type):
        millis = raw.view(pa.int64())
    elif pa.types.is_date32(raw.type):
        millis = pc.multiply(raw.cast(pa.int32()).cast(pa.int64()), temporal.MILLIS_PER_DAY)
    else:
        unit = {"s": 1, "ms": 1, "us": 1_000, "ns": 1_000_000}[raw.type.unit]
        ticks = raw.cast(pa.int64())
        millis = _from_seconds(ticks) if raw.type.unit == "s" else _floored(ticks, unit)
    return (millis, []) if scalar is Scalar.DATETIME else (_floored(millis, temporal.MILLIS_PER_DAY), [])


def _from_seconds(ticks: pa.Array) -> pa.Array:
    """Milliseconds; what is far out of range stays so instead of coming round to a time that exists."""
    low, high = temporal.MILLIS_MIN // 1_000 - 1, temporal.MILLIS_MAX // 1_000 + 1
    return pc.multiply(
        pc.min_element_wise(pc.max_element_wise(ticks, low, skip_nulls=False), high, skip_nulls=False), 1_000
    )


def _floored(ticks: pa.Array, unit: int) -> pa.Array:
    plain = np.asarray(pc.fill_null(ticks, 0), dtype=np.int64)
    return pa.array(np.floor_divide(plain, unit), mask=null_mask(ticks))


# --- shared ----------------------------------------------------------------------------------------------------------


def not_finite(value: object, scalar: Scalar) -> str:
    """The one wording for a NaN or an infinity, which no property holds."""
    return f"{value} is not a finite number, and {scalar} holds no others: leave it null"


def out_of_range(value: int, scalar: Scalar) -> str:
    """The one wording for an integer its column cannot hold."""
    low, high = INTEGER_RANGES[scalar]
    verb = "exceeds" if value > high else "is below"
    return f"{value} {verb} the range of {scalar} ({low} to {high})"


def _problems(bad: Mask, message: Callable[[int], str]) -> list[Problem]:
    if not bad.any():
        return []
    return [Problem(int(row), message(int(row))) for row in np.flatnonzero(bad)[:PROBLEMS_MAX]]
