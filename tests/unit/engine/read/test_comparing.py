from __future__ import annotations

import datetime as dt
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.engine.read.columns.values import Column, Constant, compare, to_physical
from omnigraph.plan.operators import ComparisonOperator


def satisfied(column, kind, operator, value):
    given = PropertyType({int: Scalar.I64, float: Scalar.F64}.get(type(value), kind.scalar))
    return compare(operator, Column(column, kind), Constant(to_physical(value, given), given), len(column))


_PYTHON = {
    ComparisonOperator.EQ: lambda a, b: a == b,
    ComparisonOperator.NE: lambda a, b: a != b,
    ComparisonOperator.LT: lambda a, b: a < b,
    ComparisonOperator.LE: lambda a, b: a <= b,
    ComparisonOperator.GT: lambda a, b: a > b,
    ComparisonOperator.GE: lambda a, b: a >= b,
}
_INT64 = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-5, 5))
_NUMBERS = st.one_of(_INT64, st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**70), 2**70))


@given(st.lists(st.none() | _INT64), st.sampled_from(ComparisonOperator), _NUMBERS)
def test_integers_compare_by_value_with_any_number(values, operator, sought):
    got = satisfied(pa.array(values, pa.int64()), PropertyType(Scalar.I64), operator, sought)
    exact = Fraction(sought)
    assert got.tolist() == [value is not None and _PYTHON[operator](value, exact) for value in values]


@given(
    st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)),
    st.sampled_from(ComparisonOperator),
    _NUMBERS,
)
def test_floats_compare_by_value_with_any_number(values, operator, sought):
    got = satisfied(pa.array(values, pa.float64()), PropertyType(Scalar.F64), operator, sought)
    exact = Fraction(sought)
    assert got.tolist() == [value is not None and _PYTHON[operator](Fraction(value), exact) for value in values]


def test_an_f32_column_compares_after_rounding_the_value():
    column = pa.array([0.1, 0.2], pa.float32())
    assert satisfied(column, PropertyType(Scalar.F32), ComparisonOperator.EQ, 0.1).tolist() == [True, False]


@pytest.mark.parametrize(
    ("column", "scalar", "value", "expected"),
    [
        (pa.array([False, True, None]), "Bool", True, [True, False, False]),
        (pa.array([0, 1], pa.int32()).cast(pa.date32()), "Date", dt.date(1970, 1, 2), [True, False]),
        (
            pa.array([999, 1000], pa.int64()).view(pa.date64()),
            "DateTime",
            dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC),
            [True, False],
        ),
        (pa.array(["a", "é", "B"]), "String", "a", [False, False, True]),
    ],
)
def test_less_than_follows_the_order_of_each_type(column, scalar, value, expected):
    assert satisfied(column, PropertyType(Scalar(scalar)), ComparisonOperator.LT, value).tolist() == expected


def test_a_null_value_satisfies_nothing():
    for operator in ComparisonOperator:
        assert not np.any(satisfied(pa.array(["a", None]), PropertyType(Scalar.STRING), operator, None))
