"""Arrays made from buffers are those pyarrow makes."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.catalog import arrays

NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")


@pytest.mark.parametrize("name", [*NUMBERS, "bool"])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000])
def test_an_array_of_numpy_is_the_one_pyarrow_makes(name: str, size: int) -> None:
    values = (np.arange(size) % 3).astype(name)
    mask = np.arange(size) % 4 == 1
    for given in (values, values[::2], values[::-1]):
        assert arrays.array(given).equals(pa.array(given))
        assert arrays.array(given, mask=mask[: len(given)]).equals(pa.array(given, mask=mask[: len(given)]))
    arrays.array(values).validate(full=True)


@pytest.mark.parametrize("type", [pa.int64(), pa.int8(), pa.float64(), pa.date32(), pa.timestamp("us")])
def test_a_wanted_type_is_cast_to_and_what_does_not_fit_is_refused(type: pa.DataType) -> None:
    small = np.array([1, 2, 3], dtype=np.int32 if type == pa.date32() else np.int64)
    assert arrays.array(small, type).equals(pa.array(small, type))
    if type == pa.int8():
        with pytest.raises(pa.ArrowInvalid):
            arrays.array(np.array([1_000]), type)


LISTS: list[tuple[list[Any], pa.DataType]] = [
    ([], pa.string()),
    ([], pa.list_(pa.int32())),
    (["a", "", "süß", "𝄞"], pa.string()),
    (["a", None], pa.string()),
    ([None] * 9 + ["b"], pa.string()),
    (["x"] * 1_000, pa.string()),
    ([1, -5, 2**31 - 1], pa.int32()),
    ([True, False], pa.bool_()),
    ([None, True], pa.bool_()),
    ([1.5, float("nan"), float("inf"), 3], pa.float64()),
    ([0.1], pa.float32()),
    ([1.5], pa.int64()),
    ([5, None], pa.int64()),
    ([[1], [2, 3]], pa.list_(pa.int64())),
    (["a"], pa.large_string()),
    ([7], pa.timestamp("ms", "UTC")),
]


@pytest.mark.parametrize(("values", "type"), LISTS, ids=str)
def test_a_list_is_converted_as_pyarrow_converts_it(values: list[Any], type: pa.DataType) -> None:
    made = arrays.array(values, type)
    made.validate(full=True)
    assert made.type == type
    assert str(made) == str(pa.array(values, type))
    for value in values[:5]:
        assert str(arrays.scalar(value, type)) == str(pa.scalar(value, type))
        assert arrays.scalar(value, type).type == type


@pytest.mark.parametrize(
    ("values", "type"),
    [
        ([300], pa.int8()),
        ([-1], pa.uint64()),
        (["a"], pa.int64()),
        ([1], pa.string()),
        ([2**53 + 1], pa.float64()),
        (["\ud800"], pa.string()),
        ([1e300], pa.bool_()),
    ],
    ids=str,
)
def test_what_pyarrow_refuses_is_refused_with_its_error(values: list[Any], type: pa.DataType) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - whichever it is
        pa.array(values, type)
    with pytest.raises(theirs.type):
        arrays.array(values, type)
    with pytest.raises(theirs.type):
        arrays.scalar(values[0], type)


@pytest.mark.parametrize("name", [*NUMBERS, "bool"])
def test_numbers_and_booleans_become_the_numpy_arrays_pyarrow_makes(name: str) -> None:
    whole = pa.array((np.arange(100) % 2).astype(name))
    chunked = pa.chunked_array([whole[:3], whole[7:30]])
    parts = (whole, whole[13:], whole[5:9], whole[:0], chunked, chunked[:2], pa.chunked_array([], whole.type))
    for part in parts:
        ours, theirs = arrays.to_numpy(part), np.asarray(part.to_numpy(zero_copy_only=False))
        assert ours.dtype == theirs.dtype
        assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize(
    "values", [pa.array([1, None]), pa.array([True, None]), pa.array(["a", None]), pa.array([1], pa.timestamp("ns"))]
)
def test_what_needs_more_is_left_to_pyarrow(values: pa.Array) -> None:
    assert str(arrays.to_numpy(values)) == str(values.to_numpy(zero_copy_only=False))


def test_nulls_are_filled_in_arrays_and_in_chunks() -> None:
    for values, value in ((pa.array([1, None], pa.int32()), -1), (pa.chunked_array([["a", None]]), "")):
        assert arrays.fill_null(values, value).equals(pc.fill_null(values, value))
