"""Read results as JSON values: one implementation for the API, the command line and the server.

Conversion goes column by column on Arrow; the rows are only put together at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.plan.parameters import SAFE_INTEGER_MAX


def rows_to_json(table: pa.Table | pa.RecordBatch, *, js_safe: bool = False) -> list[dict[str, Any]]:
    """The rows as JSON-ready objects in column order.

    With `js_safe`, 64-bit integers that JavaScript cannot represent become decimal strings.
    """
    return columns_to_json(table.schema.names, table.columns, table.num_rows, js_safe=js_safe)


def columns_to_json(
    names: Sequence[str], columns: Sequence[pa.Array | pa.ChunkedArray], rows: int, *, js_safe: bool = False
) -> list[dict[str, Any]]:
    """The rows of named columns as JSON-ready objects."""
    if not names:
        return [{} for _ in range(rows)]
    converted = [column_to_json(column, js_safe=js_safe) for column in columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*converted, strict=True)]


def column_to_json(column: pa.Array | pa.ChunkedArray, *, js_safe: bool = False) -> list[Any]:
    """One column as JSON-ready values."""
    kind = column.type
    if kind.id in _AS_THEY_ARE:
        return column.to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_dictionary(kind):
        return column_to_json(column.cast(kind.value_type), js_safe=js_safe)
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in column_to_json(chunk, js_safe=js_safe)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(column, js_safe)
    if pa.types.is_struct(kind):
        return column.to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_int64(kind) or pa.types.is_uint64(kind):
        return _integers(column, js_safe)
    return _texts(column).to_pylist()  # type: ignore[no-any-return]


def _texts(column: pa.Array) -> pa.Array:
    """Dates and times as text; everything else is as it is."""
    kind = column.type
    if pa.types.is_date32(kind):
        return pc.strftime(column, format="%Y-%m-%d")
    if pa.types.is_date64(kind):
        return pc.strftime(column.cast(pa.timestamp("ms")), format="%Y-%m-%dT%H:%M:%SZ")
    if pa.types.is_timestamp(kind):
        millis = column.cast(pa.timestamp("ms"), safe=False)
        return pc.strftime(millis, format="%Y-%m-%dT%H:%M:%SZ")
    return column


def _floats(column: pa.Array) -> list[Any]:
    values: list[Any] = column.cast(pa.float64()).to_pylist()
    odd = pc.fill_null(pc.invert(pc.is_finite(column)), False)
    if pc.any(odd, min_count=0).as_py():
        for position in np.flatnonzero(odd.to_numpy(zero_copy_only=False)):
            values[position] = _ODD_FLOATS[repr(values[position])]
    return values


def _integers(column: pa.Array, js_safe: bool) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if js_safe:
        return [
            str(value) if value is not None and not -SAFE_INTEGER_MAX <= value <= SAFE_INTEGER_MAX else value
            for value in values
        ]
    return values


def _lists(column: pa.Array, js_safe: bool) -> list[Any]:
    if pa.types.is_fixed_size_list(column.type):
        width = column.type.list_size
        start = column.offset * width
        items = column_to_json(column.values.slice(start, len(column) * width), js_safe=js_safe)
        bounds = [position * width for position in range(len(column) + 1)]
    else:
        offsets = column.offsets.to_numpy(zero_copy_only=False)
        items = column_to_json(column.values.slice(offsets[0], offsets[-1] - offsets[0]), js_safe=js_safe)
        bounds = (offsets - offsets[0]).tolist()
    present = column.is_valid().to_pylist()
    return [items[bounds[i] : bounds[i + 1]] if present[i] else None for i in range(len(column))]


_AS_THEY_ARE = frozenset(
    kind.id for kind in (pa.string(), pa.large_string(), pa.bool_(), pa.int32(), pa.uint32(), pa.int16(), pa.int8())
)
"""Types whose values are JSON-ready as Python gives them."""
_ODD_FLOATS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
