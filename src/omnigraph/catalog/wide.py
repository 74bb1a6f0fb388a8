"""Columns of any size: the one rule by which they are joined, taken, filtered and cut.

Arrow counts the bytes of texts and the items of lists in 32 bits, so an array of the plain types ends at 2 GiB. Every
plain type has a *wide* one that counts in 64. The rule: a column in memory is one array, plain while that holds it and
wide beyond; a table that is stored or handed out has the plain types always, in as many chunks as that takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

PLAIN_MAX = 2**31 - 1
"""How far the offsets of a plain array count; tests lower it so that small columns go the way of large ones."""

Ints = npt.NDArray[np.int64]
_PLAIN_TO_WIDE = {
    pa.string().id: pa.large_string(),
    pa.binary().id: pa.large_binary(),
}


# --- types -----------------------------------------------------------------------------------------------------------


def wide_type(kind: pa.DataType) -> pa.DataType:
    """The same type with 64-bit offsets all through; types without offsets are what they are.

    >>> wide_type(pa.list_(pa.string()))
    LargeListType(large_list<item: large_string>)
    """
    if kind.id in _PLAIN_TO_WIDE:
        return _PLAIN_TO_WIDE[kind.id]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(wide_type(kind.value_type)))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(wide_type(kind.value_type)), kind.list_size)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(wide_type(field.type)) for field in kind])
    return kind


def is_text(kind: pa.DataType) -> bool:
    """True for texts, plain and wide."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def widened(array: pa.Array) -> pa.Array:
    """The same values in the wide type; only offsets are made anew."""
    kind = wide_type(array.type)
    return array if kind == array.type else array.cast(kind)


def alike(*parts: pa.Array) -> tuple[pa.Array, ...]:
    """Columns of one logical type in one physical type, which some functions of Arrow insist on."""
    return parts if all(part.type == parts[0].type for part in parts) else tuple(widened(part) for part in parts)


# --- sizes -----------------------------------------------------------------------------------------------------------


def has_offsets(kind: pa.DataType) -> bool:
    """True for a type that has a wide one, or is one."""
    if pa.types.is_struct(kind):
        return any(has_offsets(field.type) for field in kind)
    if pa.types.is_fixed_size_list(kind):
        return has_offsets(kind.value_type)
    return kind.id in _PLAIN_TO_WIDE or kind.id in _WIDE or pa.types.is_list(kind) or pa.types.is_large_list(kind)


_WIDE = frozenset(kind.id for kind in _PLAIN_TO_WIDE.values())


def _counted(array: pa.Array, at: Ints) -> list[Ints]:
    """What the offsets of an array, and of those inside it, count up to before each of some rows."""
    kind = array.type
    if kind.id in _PLAIN_TO_WIDE or kind.id in _WIDE:
        return [_offsets(array, kind.id in _WIDE, at)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _offsets(array, pa.types.is_large_list(kind), at)
        return [inner, *_counted(array.values, inner)]
    if pa.types.is_fixed_size_list(kind):
        return _counted(array.values, (at + array.offset) * kind.list_size) if has_offsets(kind.value_type) else []
    if pa.types.is_struct(kind):
        # A field taken from a struct is already cut to its rows.
        fields = [array.field(place) for place in range(kind.num_fields) if has_offsets(kind.field(place).type)]
        return [count for field in fields for count in _counted(field, at)]
    return []


def _offsets(array: pa.Array, is_wide: bool, at: Ints) -> Ints:
    buffer = array.buffers()[1]
    if buffer is None or not buffer.size:
        return np.zeros(len(at), dtype=np.int64)
    offsets: npt.NDArray[Any] = np.frombuffer(buffer, dtype=np.int64 if is_wide else np.int32)
    return np.asarray(offsets[at + array.offset], dtype=np.int64)


def extent(array: pa.Array) -> int:
    """The furthest that an offset of these rows would count: bytes of texts, or items of lists."""
    if not has_offsets(array.type) or not len(array):
        return 0
    return max((int(count[1] - count[0]) for count in _counted(array, np.array([0, len(array)]))), default=0)


def _is_short(parts: Sequence[pa.Array], times: int = 1) -> bool:
    """True for texts that plain offsets surely hold, even so many times: they take more bytes than these count."""
    return parts[0].type.id in _PLAIN_TO_WIDE and sum([part.nbytes for part in parts]) * times <= PLAIN_MAX


def _column_extent(column: pa.ChunkedArray) -> int:
    """At least as much as the offsets of the column would count in one array."""
    return sum(extent(chunk) for chunk in column.chunks) if has_offsets(column.type) else 0


def _taken_extent(array: pa.Array, rows: Ints) -> int:
    if extent(array) * len(rows) <= PLAIN_MAX:
        return 0
    before, after = _counted(array, rows), _counted(array, rows + 1)
    return max((int((end - begin).sum()) for begin, end in zip(before, after, strict=True)), default=0)


# --- arrays ----------------------------------------------------------------------------------------------------------


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return concat(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def concat(parts: Sequence[pa.Array]) -> pa.Array:
    """Arrays of one logical type, at least one of them, put one after the other."""
    if len(parts) == 1:
        return parts[0]
    kind = parts[0].type
    if has_offsets(kind):
        is_mixed = any(part.type != kind for part in parts)
        if is_mixed or not (_is_short(parts) or sum(extent(part) for part in parts) <= PLAIN_MAX):
            parts = [widened(part) for part in parts]
    return pa.concat_arrays(parts)


def take(column: pa.Array | pa.ChunkedArray, rows: npt.NDArray[Any] | pa.Array) -> pa.Array:
    """Rows of a column by number, repeats included; no number is no value."""
    array = one_array(column)
    numbers = pa.array(rows) if isinstance(rows, np.ndarray) else rows
    if _is_short([array], len(numbers)):
        return array.take(numbers)
    if has_offsets(array.type) and wide_type(array.type) != array.type and len(array):
        known = numbers if not numbers.null_count else numbers.drop_null()
        if _taken_extent(array, known.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)) > PLAIN_MAX:
            array = widened(array)
    return array.take(numbers)


def repeat(value: pa.Scalar, count: int) -> pa.Array:
    """The same value so many times."""
    if count <= 1 or not has_offsets(value.type):
        return pa.repeat(value, count)
    return take(pa.repeat(value, 1), np.zeros(count, dtype=np.int64))


def cuts(array: pa.Array, rows_max: int, extent_max: int | None = None) -> Iterator[pa.Array]:
    """Slices of an array, in order, of at most so many rows and so large an extent; a row is never cut.

    A slice is a view, so this costs nothing; an array without rows has none.
    """
    bound = PLAIN_MAX if extent_max is None else min(extent_max, PLAIN_MAX)
    begin = 0
    while begin < len(array):
        count = min(rows_max, len(array) - begin)
        while count > 1 and extent(array.slice(begin, count)) > bound:
            count = (count + 1) // 2
        yield array.slice(begin, count)
        begin += count


# --- tables ----------------------------------------------------------------------------------------------------------


def plain_chunks(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.ChunkedArray:
    """A column in a plain type, in as many chunks as that takes."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if column.type == kind:
        return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array(chunks, kind)
    parts = [_plain(part, kind) for chunk in chunks for part in cuts(chunk, max(len(chunk), 1))]
    return pa.chunked_array(parts, kind)


def _plain(part: pa.Array, kind: pa.DataType) -> pa.Array:
    """A slice of a wide array in the plain type; offsets that begin far behind zero are made to begin there."""
    furthest = max((int(count[0]) for count in _counted(part, np.array([len(part)]))), default=0)
    if furthest > PLAIN_MAX:
        part = pa.concat_arrays([part, part.slice(0, 0)])
    return part.cast(kind)


def plain_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table under a schema of plain types; columns are found by name."""
    columns = [plain_chunks(table.column(field.name), field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def pieces(table: pa.Table, rows_max: int, extent_max: int | None = None) -> Iterator[pa.Table]:
    """The rows of a table in runs of at most so many, and of columns that plain arrays, or `extent_max`, hold.

    A table without rows is one empty run.
    """
    bound = PLAIN_MAX if extent_max is None else min(extent_max, PLAIN_MAX)
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in table.to_batches(max_chunksize=rows_max):
        for part in _fitting(batch, bound):
            extra = max((extent(column) for column in part.columns), default=0)
            if held and (rows + part.num_rows > rows_max or size + extra > bound):
                yield pa.Table.from_batches(held)
                held, rows, size = [], 0, 0
            held.append(part)
            rows, size = rows + part.num_rows, size + extra
    yield pa.Table.from_batches(held, table.schema)


def _fitting(batch: pa.RecordBatch, bound: int) -> Iterator[pa.RecordBatch]:
    if batch.num_rows > 1 and any(extent(column) > bound for column in batch.columns):
        half = batch.num_rows // 2
        yield from _fitting(batch.slice(0, half), bound)
        yield from _fitting(batch.slice(half), bound)
    else:
        yield batch


def compacted(table: pa.Table) -> pa.Table:
    """The same rows with every column in one chunk, where one chunk holds it."""
    columns = [
        column if column.num_chunks == 1 or _column_extent(column) > PLAIN_MAX else one_array(column)
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def take_rows(table: pa.Table, rows: npt.NDArray[Any] | pa.Array) -> pa.Table:
    """Rows of a table by number, in the types it has."""
    numbers = pa.array(rows) if isinstance(rows, np.ndarray) else rows
    if not any(has_offsets(field.type) for field in table.schema):
        return table.take(numbers)
    columns = [
        plain_chunks(take(column, numbers), column.type)
        if _column_extent(column) * max(len(numbers), 1) > PLAIN_MAX
        else column.take(numbers)
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def filter_rows(table: pa.Table, mask: npt.NDArray[np.bool_] | pa.Array | pa.ChunkedArray) -> pa.Table:
    """The rows of a table where a mask is true, chunk by chunk, so that no chunk outgrows the one it comes from."""
    chosen = mask.to_numpy(zero_copy_only=False) if isinstance(mask, pa.Array | pa.ChunkedArray) else mask
    parts, begin = [], 0
    for batch in table.to_batches():
        here = chosen[begin : begin + batch.num_rows]
        begin += batch.num_rows
        parts.append(batch if here.all() else batch.filter(pa.array(here)))
    return pa.Table.from_batches(parts, schema=table.schema)
