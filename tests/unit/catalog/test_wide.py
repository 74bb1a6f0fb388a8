"""Columns of any size: what is joined, taken, filtered and cut is the same whichever offsets count it."""

import gc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.amounts import EXHAUSTIVE

from omnigraph.catalog import wide
from omnigraph.catalog.arrow import BLOB_STORAGE

TYPES = [
    pa.string(),
    pa.binary(),
    pa.list_(pa.string()),
    pa.list_(pa.int64()),
    pa.list_(pa.list_(pa.string())),
    pa.list_(pa.string(), 2),
    pa.struct([("a", pa.string()), ("b", pa.int32())]),
    BLOB_STORAGE,
    pa.int64(),
    pa.bool_(),
    pa.list_(pa.float32(), 3),
]
WORDS = ["", "a", "harbour", "ä" * 5, "x" * 30]


def value_of(kind: pa.DataType, number: int):
    """Some value, or none, of a type."""
    if number % 7 == 0:
        return None
    if pa.types.is_string(kind):
        return WORDS[number % len(WORDS)]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return WORDS[number % len(WORDS)].encode()
    if pa.types.is_fixed_size_list(kind):
        return [value_of(kind.value_type, number * 3 + item + 1) for item in range(kind.list_size)]
    if pa.types.is_list(kind):
        return [value_of(kind.value_type, number * 5 + item) for item in range(number % 4)]
    if pa.types.is_struct(kind):
        return {field.name: value_of(field.type, number + place + 1) for place, field in enumerate(kind)}
    if pa.types.is_boolean(kind):
        return number % 2 == 0
    return float(number) if pa.types.is_floating(kind) else number


def column(kind: pa.DataType, first: int, count: int) -> pa.Array:
    """A slice of a longer array, so that offsets do not begin at zero."""
    return pa.array([value_of(kind, first + row) for row in range(count + 3)], kind).slice(2, count)


@pytest.fixture(params=[2**31 - 1, 40, 0], autouse=True)
def bound(request, monkeypatch):
    """How far plain offsets count: as they do, hardly, and not at all."""
    monkeypatch.setattr(wide, "PLAIN_MAX", request.param)
    return request.param


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_joined_columns_hold_the_values_of_their_parts(kind, bound):
    parts = [column(kind, 1, 5), column(kind, 9, 0), column(kind, 20, 7), column(kind, 40, 1)]
    expected = [value for part in parts for value in part.to_pylist()]
    for joined in (wide.concat(parts), wide.one_array(pa.chunked_array(parts))):
        assert joined.to_pylist() == expected
        assert joined.type in (kind, wide.wide_type(kind))
        assert wide.extent(joined) <= bound or joined.type == wide.wide_type(kind)
    assert wide.concat([parts[0], wide.widened(parts[2])]).to_pylist() == expected[:12]
    assert wide.one_array(pa.chunked_array([], kind)).to_pylist() == []


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_taken_rows_are_the_rows_asked_for(kind, bound):
    array = column(kind, 3, 9)
    rows = np.array([8, 0, 0, 3, 8, 5, 5, 5, 1])
    found = wide.take(array, rows)
    assert found.to_pylist() == [array[row].as_py() for row in rows.tolist()]
    assert wide.extent(found) <= bound or found.type == wide.wide_type(kind)
    with_none = pa.array([1, None, 2])
    assert wide.take(array, with_none).to_pylist() == [array[1].as_py(), None, array[2].as_py()]
    table = pa.table({"n": pa.array(range(9)), "v": pa.chunked_array([array.slice(0, 4), array.slice(4)])})
    taken = wide.take_rows(table, rows)
    assert taken.schema == table.schema
    assert taken.column("v").to_pylist() == found.to_pylist()
    mask = np.array([True, False, True, True, False, False, True, False, True])
    kept = wide.filter_rows(table, mask)
    assert kept.schema == table.schema
    assert kept.column("v").to_pylist() == [array[row].as_py() for row in np.flatnonzero(mask).tolist()]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_wide_column_is_cut_into_chunks_of_its_plain_type(kind, bound):
    array = column(kind, 2, 11)
    plain = wide.plain_chunks(wide.widened(array), kind)
    assert plain.type == kind
    assert plain.to_pylist() == array.to_pylist()
    assert all(len(chunk) == 1 or wide.extent(chunk) <= bound for chunk in plain.chunks)
    table = pa.table({"v": pa.chunked_array([array.slice(0, 1), array.slice(1)]), "n": pa.array(range(11))})
    pieces = list(wide.pieces(table, 4))
    assert [value for piece in pieces for value in piece.column("v").to_pylist()] == array.to_pylist()
    assert all(piece.num_rows <= 4 for piece in pieces)
    assert all(wide.one_array(piece.column("v")).type == kind for piece in pieces)
    assert [piece.num_rows for piece in wide.pieces(table.slice(0, 0), 4)] == [0]


def test_a_value_repeated_is_one_value_everywhere():
    for value in ("harbour", None, ["a", "b"], 7):
        assert wide.repeat(pa.scalar(value), 9).to_pylist() == [value] * 9


@given(st.lists(st.text(max_size=12)), st.integers(1, 5), st.integers(1, 30))
def test_cuts_hold_every_row_once_within_their_bounds(texts, rows, size):
    array = pa.array(texts, pa.string())
    cuts = list(wide.cuts(array, rows, size))
    assert [text for cut in cuts for text in cut.to_pylist()] == texts
    assert all(len(cut) <= rows and (len(cut) == 1 or wide.extent(cut) <= size) for cut in cuts)


@EXHAUSTIVE
@pytest.mark.parametrize("bound", [2**31 - 1], indirect=True)
def test_columns_beyond_two_gibibytes_are_joined_taken_and_cut(bound):
    """Real sizes, from one buffer that nothing is written to."""
    size = 800 << 20
    letters = pa.py_buffer(np.zeros(size, dtype=np.uint8))
    part = pa.StringArray.from_buffers(4, pa.py_buffer(np.arange(5, dtype=np.int32) * (size // 4)), letters)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 4], pa.int32()), part)
    for plain in (part, lists):
        with pytest.raises(pa.ArrowInvalid):
            pa.concat_arrays([plain] * 3)
        joined = wide.one_array(pa.chunked_array([plain] * 3))
        assert joined.type == wide.wide_type(plain.type)
        assert (len(joined), wide.extent(joined)) == (3 * len(plain), 3 * size)
        cut = wide.plain_chunks(joined.slice(len(joined) - 1), plain.type)
        assert (cut.type, wide.extent(cut.chunk(0))) == (plain.type, wide.extent(plain.slice(len(plain) - 1)))
        del joined, cut
        gc.collect()
    rows = np.zeros(11, dtype=np.int64)
    with pytest.raises(pa.ArrowInvalid):
        part.take(pa.array(rows))
    taken = wide.take(part, rows)
    assert (taken.type, wide.extent(taken)) == (pa.large_string(), 11 * size // 4)
