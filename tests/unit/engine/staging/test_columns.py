from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.reading.tables import TableView
from omnigraph.engine.staging import columns
from omnigraph.engine.staging.columns import CachedColumn, hash_values
from omnigraph.engine.storage.cache import SHARED, ByteCache, column_key
from omnigraph.engine.storage.handle import FragmentInfo


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
    cache = ByteCache(bytes_max=45_000)
    kept = columns.ColumnCache(cache)

    def fragment(n):
        return FragmentInfo(n, 1_000, 0, (f"file-{n}",), None)

    for n in range(5):
        kept.keep(fragment(n), 0, pa.array(np.arange(1_000) + n))
    assert all(cache.get(column_key((f"file-{n}",), 0)) is not None for n in range(5))
    kept.keep(fragment(9), 0, pa.array(np.arange(1_000)))
    assert cache.get(column_key(("file-0",), 0)) is None
    assert cache.get(column_key(("file-9",), 0)) is not None
    assert cache.use().bytes <= 45_000


def test_an_index_counts_for_its_bytes_and_outlives_a_single_search():
    cache = ByteCache()
    kept = columns.ColumnCache(cache)
    large = FragmentInfo(1, 10_000, 0, ("large",), None)
    values = pa.array([f"k{n}" for n in range(10_000)])
    kept.keep(large, 0, values)
    before = cache.use().bytes
    for _ in range(3):
        assert kept.keep(large, 0, values).find(pa.array(["k77"])).tolist() == [77]
    assert kept.keep(large, 0, values).sorted_hashes is not None
    assert cache.use().bytes == before + 12 * 10_000


def test_a_column_that_a_query_read_is_not_read_again_by_a_write(harbour):
    snapshot = harbour.context.manifest.snapshot()
    handle = snapshot.open("node:Berth")
    SHARED.clear()
    view = TableView(handle)
    for group in view.groups:
        for fragment in group.fragments:
            view.chunk(fragment, "id")
    assert all(columns.ColumnCache.shared().holds(handle, fragment, "id") for fragment in handle.fragments())
