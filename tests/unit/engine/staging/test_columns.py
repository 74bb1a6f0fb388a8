from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.staging import columns
from omnigraph.engine.staging.columns import CachedColumn, hash_values


@given(st.lists(st.text(max_size=8)), st.lists(st.text(max_size=8)))
def test_equal_texts_have_equal_hashes_wherever_they_stand(first, second):
    once = dict(zip(first, hash_values(pa.array(first, pa.string())).tolist(), strict=True))
    again = dict(zip(second, hash_values(pa.array(second, pa.string())).tolist(), strict=True))
    assert all(once[text] == again[text] for text in once.keys() & again.keys())


def test_a_million_different_texts_hardly_ever_share_a_hash():
    hashes = hash_values(pa.array([f"key-{n}" for n in range(300_000)]))
    assert len(np.unique(hashes)) == 300_000


@pytest.mark.parametrize(
    "values",
    [
        pa.array([f"k{n % 4000}" for n in range(9_000)] + [None, ""]),
        pa.array([n % 4000 for n in range(9_000)] + [None], pa.int64()),
        pa.array([n % 4000 for n in range(9_000)] + [None], pa.uint32()),
        pa.array([(n % 4000) / 2 for n in range(9_000)] + [None, -0.0]),
        pa.array([n % 4000 for n in range(9_000)] + [None], pa.int32()).cast(pa.date32()),
        pa.array([n % 4000 for n in range(9_000)] + [None], pa.int64()).view(pa.date64()),
        pa.array([2**64 - 1 - n % 4000 for n in range(9_000)] + [None], pa.uint64()),
        pa.array([n % 4000 < 2_000 for n in range(9_000)] + [None]),
    ],
    ids=["texts", "integers", "unsigned", "floats", "dates", "times", "large unsigned", "booleans"],
)
def test_searching_with_and_without_an_index_finds_the_same_rows(values):
    column = CachedColumn(values)
    wanted = values.take(pa.array([5, 4_005, 17]))
    scanned = column.find(wanted)
    assert column.sorted_hashes is None
    indexed = column.find(wanted)
    assert column.sorted_hashes is not None
    assert indexed.tolist() == scanned.tolist()
    assert len(scanned) >= 4
    assert column.find(values.slice(0, 0)).tolist() == []


def test_an_absent_value_is_not_found_by_an_index():
    column = CachedColumn(pa.array([f"k{n}" for n in range(5_000)]))
    for _ in range(3):
        assert column.find(pa.array(["nope", "k4999x", ""])).tolist() == []


def test_the_cache_forgets_the_least_recently_used_beyond_its_bound():
    cache = columns.ColumnCache(bytes_max=40_000)
    from omnigraph.engine.storage.handle import FragmentInfo

    for n in range(5):
        fragment = FragmentInfo(n, 1_000, 0, (f"file-{n}",), None)
        cache.keep(fragment, 0, pa.array(np.arange(1_000) + n))
    assert len(cache._columns) == 5
    cache.keep(FragmentInfo(9, 1_000, 0, ("file-9",), None), 0, pa.array(np.arange(1_000)))
    assert (("file-0",), 0) not in cache._columns
    assert (("file-9",), 0) in cache._columns
