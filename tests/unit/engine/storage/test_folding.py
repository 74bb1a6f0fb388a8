"""Folding keeps commits cheap and is invisible: same rows, ids, versions, and search answers."""

import pytest
from tests.unit.engine.storage.people import ages, delete, identities, insert, update

from omnigraph.catalog.indexes import IndexKind, IndexSpec
from omnigraph.engine.storage.folding import FOLD_FRAGMENTS
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.maintenance import index_gaps, on_top, stage_compaction, stage_fence, stage_indexes
from omnigraph.engine.storage.tables import TableStore

INDEXES = [IndexSpec("id", IndexKind.BTREE), IndexSpec("bio", IndexKind.TEXT)]


def _indexed(store: TableStore, handle: TableHandle) -> TableHandle:
    handle = store.commit(handle, stage_fence(handle), {})
    staged = stage_indexes(handle, index_gaps(handle, INDEXES))
    assert staged is not None
    return store.commit(handle, staged, {})


def _answers(handle: TableHandle, ids: list[str]) -> None:
    """Every lookup, by key and by word, finds its row exactly once."""
    for key in ids:
        assert handle.scan(["id"], f"id = '{key}'")["id"].to_pylist() == [key]
        words = handle.scan(["id"], full_text_query=key)["id"].to_pylist()
        assert words == [key]


def test_many_small_writes_leave_few_fragments(store: TableStore, table: TableHandle) -> None:
    for number in range(2 * FOLD_FRAGMENTS):
        table = insert(store, table, f"p{number}")
        assert len(table.fragments()) <= FOLD_FRAGMENTS + 1
    assert table.count_rows() == 2 * FOLD_FRAGMENTS
    table.dataset.validate()


def test_writes_that_always_touch_a_small_fragment_are_folded_too(store: TableStore, table: TableHandle) -> None:
    keys = [f"p{number}" for number in range(50)]
    for key in keys:
        table = insert(store, table, key)
    for round_number in range(2):
        for key in keys:
            table = update(store, table, key, age=round_number)
            assert len(table.fragments()) <= 2 * FOLD_FRAGMENTS
    assert ages(table) == dict.fromkeys(keys, 1)
    table.dataset.validate()


def test_folded_rows_keep_their_ids_and_versions(store: TableStore, table: TableHandle) -> None:
    for number in range(FOLD_FRAGMENTS):
        table = insert(store, table, f"p{number}", f"q{number}")
    table = update(store, table, "p3", age=7)
    table = delete(store, table, "q5")
    before = identities(table)
    table = insert(store, table, "last")
    assert len(table.fragments()) < FOLD_FRAGMENTS / 2
    after = identities(table)
    assert after.pop("last")[1:] == (table.version, table.version)
    assert after == before
    table = insert(store, table, "later")
    assert identities(table)["later"][0] not in {row_id for row_id, _, _ in before.values()}


def test_compacted_rows_keep_their_ids_and_versions(store: TableStore, table: TableHandle) -> None:
    for number in range(6):
        table = insert(store, table, f"p{number}", f"q{number}")
    table = delete(store, update(store, table, "p1", "q4", age=9), "q2")
    before = identities(table)
    staged = stage_compaction(table)
    assert staged is not None
    table = store.commit(table, staged, {})
    assert len(table.fragments()) == 1
    assert identities(table) == before


@pytest.mark.parametrize("rewrite", ["fold", "compaction"])
@pytest.mark.parametrize("covered", ["all", "some", "none"])
def test_rewritten_rows_keep_their_versions_and_are_found_whatever_an_index_covered(
    store: TableStore, table: TableHandle, covered: str, rewrite: str
) -> None:
    half = FOLD_FRAGMENTS // 2
    table = insert(store, table, "a0")
    if covered == "none":
        table = _indexed(store, table)
    for number in range(half):
        table = insert(store, table, f"b{number}")
    table = update(store, table, "b3", age=7)
    if covered == "some":
        table = _indexed(store, table)
    for number in range(half):
        table = insert(store, table, f"c{number}")
    if covered == "all":
        table = _indexed(store, table)
    if rewrite == "fold":
        for number in range(FOLD_FRAGMENTS):
            table = insert(store, table, f"d{number}")
        before = identities(table)
        table = insert(store, table, "last")
        after = identities(table)
        assert after.pop("last")[1:] == (table.version, table.version)
        assert len(table.fragments()) <= FOLD_FRAGMENTS + 6
    else:
        before = identities(table)
        staged = stage_compaction(table)
        assert staged is not None
        table = store.commit(table, stage_fence(table), {})
        table = store.commit(table, on_top(staged, table), {})
        after = identities(table)
        assert len(table.fragments()) <= 2
    assert after == before
    _answers(table, ["a0", "b0", "b3", f"b{half - 1}", "c0", f"c{half - 1}"])
    table = update(store, table, "c1", age=5)
    table = _indexed(store, table)
    _answers(table, ["a0", "b1", "c0", "c1"])
    table.dataset.validate()
