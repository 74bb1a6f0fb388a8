"""Comparison by value, against Python's own exact comparison of numbers."""

import datetime as dt
import itertools
import operator

import numpy as np
import pyarrow as pa
import pytest
from tests.plain.evaluator import f32

from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.engine.read.columns.values import (
    Column,
    Constant,
    compare,
    contains,
    round_to_f32,
    string_test,
    to_physical,
)
from omnigraph.plan.operators import ComparisonOperator as Op

PYTHON = {
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
}
NUMBERS = {
    Scalar.I32: (pa.int32(), [-(2**31), -1, 0, 1, 3, 2**31 - 1]),
    Scalar.I64: (pa.int64(), [-(2**63), -(2**53) - 1, -1, 0, 3, 2**53, 2**53 + 1, 2**63 - 1]),
    Scalar.U32: (pa.uint32(), [0, 1, 3, 2**32 - 1]),
    Scalar.U64: (pa.uint64(), [0, 1, 3, 2**53 + 1, 2**63, 2**64 - 1]),
    Scalar.F64: (pa.float64(), [float("-inf"), -1.5, -0.0, 0.1, 3.0, 2.0**53, 2.0**63, 1e300, float("nan")]),
}


@pytest.mark.parametrize("left", NUMBERS)
def test_numbers_compare_by_value_across_widths(left):
    left_type, left_values = NUMBERS[left]
    column = Column(pa.array(left_values, left_type), PropertyType(left))
    for (right, (right_type, right_values)), op in itertools.product(NUMBERS.items(), Op):
        pairs = list(itertools.product(left_values, right_values))
        a = Column(pa.array([x for x, _ in pairs], left_type), PropertyType(left))
        b = Column(pa.array([y for _, y in pairs], right_type), PropertyType(right))
        assert compare(op, a, b, len(pairs)).tolist() == [PYTHON[op](x, y) for x, y in pairs]
        for value in right_values:
            constant = Constant(value, PropertyType(right))
            count = len(left_values)
            assert compare(op, column, constant, count).tolist() == [PYTHON[op](x, value) for x in left_values]
            assert compare(op, constant, column, count).tolist() == [PYTHON[op](value, x) for x in left_values]


def test_a_float32_column_compares_after_rounding_the_other_side():
    column = Column(pa.array([0.1, 0.2], pa.float32()), PropertyType(Scalar.F32))
    assert compare(Op.EQ, column, Constant(0.1, PropertyType(Scalar.F64)), 2).tolist() == [True, False]
    wide = Column(pa.array([0.1, 0.1], pa.float64()), PropertyType(Scalar.F64))
    assert compare(Op.EQ, column, wide, 2).tolist() == [True, False]
    assert compare(Op.EQ, wide, Constant(float(np.float32(0.1)), PropertyType(Scalar.F32)), 2).tolist() == [False] * 2


def test_an_integer_is_rounded_to_float32_once():
    for value in (2**24 + 1, 2**60 + 2**36 + 1, -(2**60 + 2**36 + 1), 2**64 - 1, 2**53 + 1):
        assert float(round_to_f32(value)) == f32(value)


@pytest.mark.parametrize("op", list(Op))
def test_a_null_on_either_side_satisfies_nothing(op):
    column = Column(pa.array([None, 1], pa.int64()), PropertyType(Scalar.I64, nullable=True))
    assert compare(op, column, column, 2).tolist()[0] is False
    assert not compare(op, column, Constant(None, column.type), 2).any()
    text = Column(pa.array([None, "a"]), PropertyType(Scalar.STRING, nullable=True))
    assert compare(op, text, text, 2).tolist()[0] is False


def test_strings_compare_by_bytes():
    column = Column(pa.array(["Z", "a", "é", "\U0001f600", "￿"]), PropertyType(Scalar.STRING))
    below = compare(Op.LT, column, Constant("￿", PropertyType(Scalar.STRING)), 5)
    assert below.tolist() == [True, True, True, False, False]


def test_membership_ignores_nulls_and_rounds_for_float32_lists():
    lists = Column(
        pa.array([[0.1, None], None, [], [0.2]], pa.list_(pa.float32())), PropertyType(Scalar.F32, is_list=True)
    )
    assert contains(lists, Constant(0.1, PropertyType(Scalar.F64)), 4).tolist() == [True, False, False, False]
    assert not contains(lists, Constant(None, PropertyType(Scalar.F64)), 4).any()
    value = Column(pa.array([0.1, 0.2, 0.2, 0.2], pa.float64()), PropertyType(Scalar.F64))
    assert contains(lists, value, 4).tolist() == [True, False, False, True]


def test_string_tests_take_their_needle_literally_and_per_row():
    text = Column(pa.array(["a.c", "abc", None]), PropertyType(Scalar.STRING))
    assert string_test("contains", text, Constant(".", PropertyType(Scalar.STRING)), 3).tolist() == [True, False, False]
    needles = Column(pa.array(["a.", "ab", "x"]), PropertyType(Scalar.STRING))
    assert string_test("starts_with", text, needles, 3).tolist() == [True, True, False]
    assert string_test("contains", Constant("xa.b", PropertyType(Scalar.STRING)), needles, 3).tolist() == [
        True,
        False,
        True,
    ]


def test_instants_are_cut_to_milliseconds_and_days_count_from_1970():
    moment = dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)
    assert to_physical(moment, PropertyType(Scalar.DATETIME)) == -1
    assert to_physical(dt.date(1970, 1, 2), PropertyType(Scalar.DATE)) == 1
