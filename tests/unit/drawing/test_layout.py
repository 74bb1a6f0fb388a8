"""Boxes come to stand apart, near what they are joined to, and always in the same places."""

import numpy as np
import pytest

from omnigraph.drawing.layout import APART, place


def overlaps(centres: np.ndarray, sizes: np.ndarray) -> int:
    one, other = np.triu_indices(len(centres), 1)
    apart = np.abs(centres[one] - centres[other])
    return int((apart < (sizes[one] + sizes[other]) / 2 - 0.5).all(axis=1).sum())


def star(count: int) -> np.ndarray:
    return np.array([(0, leaf) for leaf in range(1, count)])


def ring(count: int) -> np.ndarray:
    return np.array([(number, (number + 1) % count) for number in range(count)])


def tree(count: int) -> np.ndarray:
    return np.array([((number - 1) // 3, number) for number in range(1, count)])


def dense(count: int) -> np.ndarray:
    return np.array([(one, other) for one in range(count) for other in range(one)])


@pytest.mark.parametrize("pairs", [star(60), ring(12), tree(50), dense(15), star(2)], ids=["s", "r", "t", "d", "two"])
def test_no_two_boxes_overlap_and_everything_is_within_the_whole(pairs: np.ndarray) -> None:
    count = int(pairs.max()) + 1
    sizes = np.stack([60.0 + 7 * (np.arange(count) % 9), np.full(count, 26.0)], axis=1)
    centres, whole = place(sizes, pairs, np.full(len(pairs), 60.0))
    assert overlaps(centres, sizes) == 0
    assert (centres - sizes / 2 >= -0.01).all()
    assert (centres + sizes / 2 <= whole + 0.01).all()


def test_what_is_joined_is_nearer_than_what_is_not() -> None:
    pairs = ring(10)
    centres, _ = place(np.full((10, 2), 20.0), pairs, np.full(10, 60.0))
    distances = np.linalg.norm(centres[:, None] - centres[None], axis=2)
    joined = distances[pairs[:, 0], pairs[:, 1]].max()
    assert joined < distances[0, 5] / 2


def test_one_graph_has_one_picture() -> None:
    sizes = np.full((50, 2), [90.0, 26.0])
    first, second = (place(sizes.copy(), tree(50), np.full(49, 60.0))[0] for _ in range(2))
    assert np.array_equal(first, second)


def test_parts_that_nothing_joins_stand_beside_each_other() -> None:
    pairs = np.array([(0, 1), (2, 3)])
    sizes = np.full((6, 2), [80.0, 26.0])
    centres, _ = place(sizes, pairs, np.full(2, 60.0))
    assert overlaps(centres, sizes + APART / 2) == 0


def test_nothing_and_one_have_places() -> None:
    none = np.zeros((0, 2), dtype=np.int64)
    assert place(np.zeros((0, 2)), none, np.zeros(0))[1].tolist() == [0.0, 0.0]
    centres, whole = place(np.array([[80.0, 26.0]]), none, np.zeros(0))
    assert centres.tolist() == [[40.0, 13.0]]
    assert whole.tolist() == [80.0, 26.0]


def test_a_long_chain_is_laid_out_in_rows_that_can_be_read() -> None:
    pairs = np.array([(number, number + 1) for number in range(59)])
    sizes = np.full((60, 2), [60.0, 26.0])
    centres, whole = place(sizes, pairs, np.full(59, 60.0))
    assert whole[0] < 3 * whole[1]
    assert overlaps(centres, sizes) == 0
    steps = np.linalg.norm(centres[pairs[:, 0]] - centres[pairs[:, 1]], axis=1)
    assert steps.max() < 4 * np.median(steps)
