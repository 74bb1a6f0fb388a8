"""The two zeros are one value wherever values are compared by hash."""

import math

import pyarrow as pa
import pytest

from omnigraph.catalog.zeros import both_zeros, one_zero


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_every_zero_becomes_the_positive_one(kind: pa.DataType) -> None:
    values = pa.array([-0.0, 0.0, None, -1.5, float("nan")], kind)
    found = one_zero(values).to_pylist()
    assert [math.copysign(1, value) for value in found[:2]] == [1, 1]
    assert found[2:4] == [None, -1.5]
    assert len(one_zero(pa.chunked_array([values])).slice(0, 2).unique()) == 1


def test_whoever_looks_for_a_zero_finds_both() -> None:
    assert len(both_zeros(pa.array([0.0, 2.0]))) == 3
    assert both_zeros(pa.array([2.0])).to_pylist() == [2.0]
    assert both_zeros(pa.array([0])).to_pylist() == [0]


def test_what_has_no_zero_stays_as_it_is() -> None:
    for values in (pa.array([1.0, None]), pa.array(["a"]), pa.array([], pa.float64())):
        assert one_zero(values) is values
