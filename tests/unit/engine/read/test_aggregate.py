"""Sums that do not depend on the order of rows."""

import math
import random
import sys
from fractions import Fraction

import numpy as np
import pytest

from omnigraph.engine.read.operators.aggregate import float_sums, integer_sums


@pytest.mark.parametrize("seed", range(20))
def test_float_sums_are_the_exact_sums_rounded(seed):
    rng = random.Random(seed)
    values = [rng.choice([1, -1]) * rng.random() * 10.0 ** rng.choice([-300, -20, -3, 0, 5, 15]) for _ in range(300)]
    groups = [rng.randrange(4) for _ in values]
    found = float_sums(np.array(values), np.array(groups), None, 4)
    for group in range(4):
        exact = math.fsum(v for v, g in zip(values, groups, strict=True) if g == group)
        assert found[group] == exact
    order = list(range(len(values)))
    rng.shuffle(order)
    again = float_sums(np.array(values)[order], np.array(groups)[order], None, 4)
    assert again.tolist() == found.tolist()


def test_a_little_decides_between_two_floats_that_are_as_near():
    values = [3.3, 3.3e300, 1e300, 3.3, 0.1, 2.0**53, -1.5, 3.3e300]
    for signs in ([1.0], [-1.0], [1.0, -1.0]):
        signed = [sign * value for sign in signs for value in values[: 8 - len(signs) + 1]]
        found = float_sums(np.array(signed), np.zeros(len(signed), dtype=np.int64), None, 1)
        assert found[0] == math.fsum(signed)


def test_cancellation_leaves_what_is_left():
    values = np.array([1e300, 1.0, -1e300, 2.0**-1074])
    assert float_sums(values, np.zeros(4, dtype=np.int64), None, 1).tolist() == [1.0]


def test_weights_count_a_value_several_times():
    values, member, weights = np.array([0.1, 0.2]), np.array([0, 0]), np.array([10, 3])
    assert float_sums(values, member, weights, 1)[0] == math.fsum([0.1] * 10 + [0.2] * 3)
    assert integer_sums(np.array([2**62, 1]), member, weights, 1)[0] == float(2**62 * 10 + 3)


@pytest.mark.parametrize("bits", [20, 34, 45, 57])
@pytest.mark.parametrize("seed", range(5))
def test_weights_of_any_size_give_the_exact_sums_rounded(seed, bits):
    rng = random.Random(seed)
    values = [rng.choice([1, -1]) * rng.random() * 10.0 ** rng.choice([-300, -20, -3, 0, 5, 280]) for _ in range(40)]
    weights = [rng.randrange(1 << rng.randrange(1, bits)) + 1 for _ in values]
    groups = [rng.randrange(3) for _ in values]
    found = float_sums(np.array(values), np.array(groups), np.array(weights), 3)
    for group in range(3):
        terms = zip(values, weights, groups, strict=True)
        assert found[group] == float(sum(Fraction(v) * w for v, w, g in terms if g == group))


def test_infinities_and_nan_decide_their_group():
    values = np.array([1.0, math.inf, math.inf, -math.inf, 5.0, math.nan])
    member = np.array([0, 0, 1, 1, 2, 3])
    found = float_sums(values, member, None, 4)
    assert found[0] == math.inf
    assert math.isnan(found[1])
    assert found[2] == 5.0
    assert math.isnan(found[3])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([sys.float_info.max], sys.float_info.max),
        ([1e308, 1e308], math.inf),
        ([-1e308, -1e308, 5.0], -math.inf),
        ([1e308, 1e308, -1.5e308], 5e307),
        ([sys.float_info.max, 1.0, -sys.float_info.max, 5e-324], 1.0),
        ([0.1] * 3 + [2.0**1020, -(2.0**1020)], math.fsum([0.1] * 3)),
    ],
)
def test_sums_near_the_largest_float_are_exact_or_infinite(values, expected):
    """Also beside a group of ordinary values, with weights, and without a warning of numpy."""
    numbers = np.array([*values, 0.1, 0.2])
    member = np.array([1] * len(values) + [0, 0])
    with np.errstate(all="raise"):
        assert float_sums(numbers, member, None, 2).tolist() == [0.1 + 0.2, expected]
        assert float_sums(numbers, member, np.full(len(numbers), 2), 2).tolist() == [2 * (0.1 + 0.2), 2 * expected]


def test_large_integers_add_exactly():
    values = np.array([2**63 - 1, 2**63 - 1, -5], dtype=np.int64)
    assert integer_sums(values, np.zeros(3, dtype=np.int64), None, 1)[0] == float(2 * (2**63 - 1) - 5)
    assert integer_sums(np.array([2**64 - 1] * 2, dtype=np.uint64), np.zeros(2, dtype=np.int64), None, 1)[0] == 2.0**65
