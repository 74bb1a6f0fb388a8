"""Arrow arrays and scalars from Python and numpy, made without pyarrow's look for pandas.

`pa.array` and `pa.scalar` first ask whether what they were given is of pandas, and import pandas to find out: 0.2 s for
a process that has nothing of the kind. What a read converts is numbers of numpy, a few texts and plain values, so these
are put together from their buffers; everything else is left to pyarrow.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NUMBERS: dict[Any, pa.DataType] = {
    np.dtype(name): getattr(pa, name)()
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
}
_DTYPES = {kind.id: dtype for dtype, kind in _NUMBERS.items()}

_BOOL, _STRING = pa.bool_(), pa.string()
_FLOATS = (pa.float32().id, pa.float64().id)
_LIST_MAX = 256
"""Longer lists are left to pyarrow, which converts them faster."""


def array(values: Any, type: pa.DataType | None = None, mask: Any = None) -> pa.Array:
    """What `pa.array` makes of a numpy array, or of a list whose type is given; `mask` is true for nulls."""
    made = None
    if isinstance(values, np.ndarray) and values.ndim == 1:
        kind = _NUMBERS.get(values.dtype)
        if kind is not None:
            made = _from_buffer(kind, np.ascontiguousarray(values), len(values), mask)
        elif values.dtype == np.bool_:
            made = _from_buffer(_BOOL, np.packbits(values, bitorder="little"), len(values), mask)
        if made is not None:
            return made if type is None or type == made.type else made.cast(type)
    elif mask is None and type is not None and isinstance(values, list) and len(values) <= _LIST_MAX:
        made = _from_list(values, type)
    return pa.array(values, type, mask=mask) if made is None else made


def scalar(value: Any, type: pa.DataType) -> pa.Scalar:
    """What `pa.scalar` makes of a value."""
    made = _from_list([value], type)
    return pa.scalar(value, type) if made is None else made[0]


def fill_null(values: Any, value: Any) -> Any:
    """An array or a chunked one with a value where it has none, as `pc.fill_null` makes it."""
    return pc.fill_null(values, scalar(value, values.type))


def to_numpy(values: Any) -> Any:
    """What `to_numpy` makes of numbers and booleans, of one array or of a chunked one; only numbers are not copied."""
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    dtype, kind = _DTYPES.get(values.type.id), values.type.id
    if values.null_count or (dtype is None and kind != _BOOL.id):
        return values.to_numpy(zero_copy_only=False)
    if not len(values):
        return np.empty(0, dtype or np.bool_)
    data, begin = values.buffers()[1], values.offset
    if dtype is not None:
        return np.frombuffer(data, dtype, len(values), begin * dtype.itemsize)
    bits = np.unpackbits(np.frombuffer(data, np.uint8), count=begin + len(values), bitorder="little")
    return bits[begin:].view(np.bool_)


def _from_list(values: list[Any], type: pa.DataType) -> pa.Array | None:
    """None where pyarrow has to convert, or to refuse, what does not fit as it is."""
    if not values:
        return pa.nulls(0, type)
    if type.id == _STRING.id:
        return _from_texts(values) if all(value is None or isinstance(value, str) for value in values) else None
    if type.id == _BOOL.id and all(value is True or value is False for value in values):
        return array(np.array(values, np.bool_))
    dtype, exact = _DTYPES.get(type.id), _is_float if type.id in _FLOATS else _is_integer
    if dtype is None or not all(exact(value) for value in values):
        return None
    try:
        return _from_buffer(type, struct.pack(f"{len(values)}{dtype.char}", *values), len(values))
    except (struct.error, OverflowError):
        return None


def _from_texts(values: list[str | None]) -> pa.Array:
    parts = [b"" if value is None else value.encode() for value in values]
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    known = [value is not None for value in values]
    valid = None if all(known) else pa.py_buffer(np.packbits(known, bitorder="little"))
    buffers = [valid, pa.py_buffer(struct.pack(f"={len(ends)}i", *ends)), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(_STRING, len(values), buffers)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_float(value: Any) -> bool:
    """A float, or an integer that every float can hold."""
    return isinstance(value, float) or (_is_integer(value) and abs(value) < 1 << 24)


def _from_buffer(kind: pa.DataType, data: Any, size: int, mask: Any = None) -> pa.Array:
    valid = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    return pa.Array.from_buffers(kind, size, [valid, pa.py_buffer(data)])
