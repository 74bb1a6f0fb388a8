from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.read.columns.tables import TableView
from omnigraph.engine.storage import columns
from omnigraph.engine.storage.cache import ENTRY_BYTES, SHARED, ByteCache, column_key, sorted_key
from omnigraph.engine.storage.columns import CachedColumn, JoinedColumn, find_in_all
from omnigraph.engine.storage.handle import FragmentInfo
from omnigraph.engine.storage.sorted_values import SortedTexts


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
    assert column.cache.get(sorted_key((), 0)) is None
    indexed = column.find(wanted)
    assert column.cache.get(sorted_key((), 0)) is not None
    assert indexed.tolist() == scanned.tolist()
    assert len(scanned) >= 4
    assert column.find(values.slice(0, 0)).tolist() == []


def test_an_absent_value_is_not_found_by_an_index():
    column = CachedColumn(pa.array([f"k{n}" for n in range(5_000)]))
    for _ in range(3):
        assert column.find(pa.array(["nope", "k4999x", ""])).tolist() == []


@pytest.mark.parametrize("wanted_type", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("held_type", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("seed", range(60))
def test_texts_are_found_by_their_bytes_as_by_comparing_them(seed, held_type, wanted_type):
    chance = random.Random(seed)
    # Beginnings that end inside a character, texts that differ in zeros alone, and many that share eight bytes.
    begin, letters = (
        chance.choice(["", "abc", "éé", "x" * 9]),
        chance.choice(["ab", "aé", "a\0", "\U0010ffffa", "0189"]),
    )

    def text() -> str:
        return begin + "".join(chance.choices(letters, k=chance.choice([0, 1, 3, 8, 9, 12])))

    held = [text() for _ in range(chance.choice([0, 1, 2, 50, 300]))]
    wanted = [*chance.sample(held, min(len(held), 40)), *(text() for _ in range(20)), "", "zz", begin]
    found = SortedTexts.of(pa.array(held, held_type)).among(pa.array(wanted, wanted_type))
    assert sorted(set(found.tolist())) == [row for row, value in enumerate(held) if value in set(wanted)]


@pytest.mark.parametrize("held", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("sought", ["a", "b", "", "never", None])
def test_one_text_is_compared_as_several_are(held, sought):
    column = CachedColumn(pa.array(["a", None, "", "b", "a"], held))
    twice = column.compare(pa.array([sought, sought], pa.string()))
    assert column.compare(pa.array([sought], pa.string())).tolist() == twice.tolist()
    assert CachedColumn(pa.array([], held)).compare(pa.array([sought], pa.string())).tolist() == []


def test_one_text_is_found_as_several_are():
    values = [f"k{n % 4_500}" for n in range(9_000)]
    column = CachedColumn(pa.array([*values, None]))
    for _ in range(3):
        for text in ("k7", "k4499", "nope", ""):
            want = [row for row, value in enumerate(values) if value == text]
            assert column.find(pa.array([text])).tolist() == want
            assert column.find(pa.array([text], pa.large_string())).tolist() == want
        assert column.find(pa.array([None], pa.string())).tolist() == []


@pytest.mark.parametrize("is_known", [True, False], ids=["after a search", "without one"])
def test_one_text_is_found_among_small_fragments_as_by_looking_at_all(is_known):
    texts = [["a", "b"], [None, "a", "a"], [], ["é", ""], ["b"], ["a", None]]
    parts = [pa.array(each, pa.string()) for each in texts]
    fragments = tuple(FragmentInfo(n, len(each), 0, (f"file-{n}",), None) for n, each in enumerate(texts))
    joined = JoinedColumn(tuple(parts[:3]), fragments[:3])
    for known in (3, 4, 5, 6):
        if known > 3:
            joined = joined.followed_by(parts[known - 1 : known], fragments[:known])
        for text in ("a", "b", "é", "", "nope", None) if is_known or known == 6 else ():
            for kind in (pa.string(), pa.large_string()):
                wanted = pa.array([text], kind)
                found, plain = (
                    [(fragment.id, offsets.tolist()) for fragment, offsets in hits]
                    for hits in (joined.find(wanted), joined.compare(wanted))
                )
                assert found == plain
                assert found == [
                    (n, [at for at, value in enumerate(each) if value == text])
                    for n, each in enumerate(texts[:known])
                    if text is not None and text in each
                ]


def test_columns_searched_together_give_what_each_gives_by_itself():
    kinds = [pa.string(), pa.large_string(), pa.string(), pa.string(), pa.string()]
    lengths = [10, 200, 0, 6_000, 100_000]
    columns_held = [
        CachedColumn(pa.array([f"k{place}-{n % 97}" if n % 5 else None for n in range(length)], kind), (str(place),))
        for place, (kind, length) in enumerate(zip(kinds, lengths, strict=True))
    ]
    for count in (2, 30, 500):
        wanted = pa.array([f"k{n % 6}-{n % 101}" for n in range(count)] + [None])
        assert not all(column.is_compared(wanted) for column in columns_held)
        assert [len(hits) for hits in find_in_all(columns_held, wanted)] != [0] * 5
        for together, column in zip(find_in_all(columns_held, wanted), columns_held, strict=True):
            assert together.dtype == np.int64
            assert together.tolist() == column.compare(wanted).tolist()


def test_the_cache_forgets_the_least_recently_used_beyond_its_bound():
    cache = ByteCache(bytes_max=45_000, entry_bytes=0)
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
    held = cache.get(sorted_key(("large",), 0))
    assert held is not None
    assert cache.use().bytes == before + columns.NOTE_BYTES + held.nbytes + 2 * ENTRY_BYTES


def test_a_column_that_a_query_read_is_not_read_again_by_a_write(harbour):
    snapshot = harbour.context.manifest.snapshot()
    handle = snapshot.open("node:Berth")
    SHARED.clear()
    view = TableView(handle)
    for group in view.groups:
        for fragment in group.fragments:
            view.chunk(fragment, "id")
    assert all(columns.ColumnCache.shared().holds(handle, fragment, "id") for fragment in handle.fragments())
