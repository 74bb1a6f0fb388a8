"""Looking rows up by value gives the rows that testing every value gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.storage.sorted_values import sort_values
from omnigraph.testing.thresholds import lowered_thresholds

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


@settings(max_examples=200, deadline=None)
@given(SHARED, st.lists(st.text(alphabet="aé\0z", max_size=5), min_size=1, max_size=40), TEXTS)
def test_short_texts_are_sorted_as_numbers_are_and_long_ones_as_texts(shared, texts, others):
    column = pa.array([shared + text for text in texts], pa.string())
    as_texts = sort_values(column)
    with lowered_thresholds():
        as_numbers = sort_values(column)
        wanted = pa.array([*texts, *[text for text in others if text is not None]], pa.string())
        wanted = pa.concat_arrays([wanted, column.slice(0, 5)])
        among = sorted(set(as_numbers.among(wanted).tolist()))
    assert as_numbers.values.to_pylist() == as_texts.values.to_pylist()  # of the wide type beyond a lowered bound
    assert as_numbers.rows.tolist() == as_texts.rows.tolist()
    assert among == np.flatnonzero(np.asarray(pc.is_in(column, value_set=wanted))).tolist()
    assert sorted(set(as_texts.among(wanted).tolist())) == among


@pytest.mark.parametrize("kind", [pa.int32(), pa.uint64(), pa.float64(), pa.bool_(), pa.date32()])
def test_rows_that_hold_one_of_several_values_are_found_at_once(kind):
    column = pa.array([0, 1, None, 1, 0, None, 1], pa.int32()).cast(pa.bool_() if kind == pa.bool_() else kind)
    found = sort_values(column).among(column.slice(0, 1))
    assert sorted(found.tolist()) == [0, 4]
    assert sorted(set(sort_values(column).among(column.drop_null()).tolist())) == [0, 1, 3, 4, 6]
