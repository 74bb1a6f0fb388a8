"""Keys that sort rows: texts by their bytes, however they are compared."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.read.operators import ordering
from omnigraph.engine.read.operators.ordering import order_rows, sort_key

LETTERS = ["a", "b", "\0", "é", "\U0001f600", "zzzzzzzz", "p0000000", " "]


def texts(rng: random.Random, count: int, longest: int, *, nulls: bool = False) -> list[str | None]:
    made: list[str | None] = ["".join(rng.choices(LETTERS, k=rng.randrange(longest + 1))) for _ in range(count)]
    return [None if nulls and rng.random() < 0.2 else text for text in made]


WAYS = {
    "by words": {},
    "by their dictionary": {"WORDS_ROWS_MIN": 10**9, "FEW_TEXTS": 0, "LONG_TEXT_BYTES": 10**9},
    "where they lie": {"WORDS_ROWS_MIN": 10**9, "FEW_TEXTS": 0, "LONG_TEXT_BYTES": 0},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("longest", [1, 2, 9])
@pytest.mark.parametrize("nulls", [False, True])
def test_texts_are_ordered_by_their_bytes(way, longest, nulls, monkeypatch):
    monkeypatch.setattr(ordering, "WORDS_ROWS_MIN", 0)
    for name, value in WAYS[way].items():
        monkeypatch.setattr(ordering, name, value)
    rng = random.Random(longest)
    for count in (1, 5, 200, 700):
        values = texts(rng, count, longest, nulls=nulls)
        # A slice shares the buffers of a longer array.
        array = pa.array(["front", *values, "back"]).slice(1, count)
        for descending in (False, True):
            key = sort_key(array, descending)
            wanted = sorted(values, key=lambda text: (text is not None, (text or "").encode()), reverse=descending)
            assert len(set(key.tolist())) == len(set(values))
            assert [values[i] for i in np.argsort(key, kind="stable")] == wanted


def test_texts_of_eight_bytes_need_no_ranks():
    keys = pa.array([f"p{number:07d}" for number in range(99, -1, -1)])
    assert sort_key(keys).dtype == np.uint64
    assert np.argsort(sort_key(keys, descending=True)).tolist() == list(range(100))


@pytest.mark.parametrize("limit", [None, 1, 3, 10, 400])
def test_later_keys_decide_among_rows_the_earlier_leave_equal(limit):
    rng = np.random.default_rng(3)
    columns = [rng.integers(0, high, 300) for high in (3, 5, 1000)]
    asked = []

    def key(column):
        return lambda rows: asked.append(1) or (column if rows is None else column[rows])

    found = order_rows(300, [key(column) for column in columns], limit)
    assert found.tolist() == np.lexsort(columns[::-1])[:limit].tolist()
    assert asked
