"""Looking rows up by value gives the rows that testing every value gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.reading.lookup import sort_values

TEXTS = st.lists(st.none() | st.text(alphabet="aé\0z", max_size=14), max_size=30)
SHARED = st.sampled_from(["", "a", "https://example.org/item/", "é", "aaaaaaaaaaaaaaaa"])


@settings(max_examples=200, deadline=None)
@given(SHARED, TEXTS, TEXTS, st.text(alphabet="aé\0z", max_size=14))
def test_a_text_is_found_wherever_it_is(shared, first, more, sought):
    texts = [None if text is None else shared + text for text in first]
    later = [None if text is None else shared + text for text in more]
    index = sort_values(pa.array(texts, pa.string()))
    if later:
        index = index.followed_by(sort_values(pa.array(later, pa.string())), len(texts))
    everything = texts + later
    for value in {*everything, sought, shared + sought} - {None}:
        assert sorted(index.equal(value).tolist()) == [n for n, text in enumerate(everything) if text == value]


@pytest.mark.parametrize("kind", [pa.int32(), pa.uint64(), pa.int64()])
def test_a_number_is_found_wherever_it_is(kind):
    numbers = [3, 1, None, 3, 2**31 - 1, 0, 3]
    index = sort_values(pa.array(numbers, kind))
    assert sorted(index.equal(3).tolist()) == [0, 3, 6]
    assert index.equal(7).tolist() == []
    grown = index.followed_by(sort_values(pa.array([None, 3], kind)), len(numbers))
    assert sorted(grown.equal(3).tolist()) == [0, 3, 6, 8]


def test_a_part_of_an_array_is_sorted_by_its_own_values():
    column = pa.array([f"key{n:04d}" for n in range(100)]).slice(10, 50)
    index = sort_values(column)
    assert index.equal("key0010").tolist() == [0]
    assert index.equal("key0059").tolist() == [49]
    assert index.equal("key0060").tolist() == []
    assert index.nbytes > 0
    assert np.array_equal(np.sort(index.equal("key0033")), [23])
