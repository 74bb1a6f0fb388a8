"""Index builds and fences: staged, strict through the fence, and never visible in an answer."""

import pyarrow as pa
import pytest
from tests.unit.engine.storage.people import PEOPLE, SCHEMA, delete, find, insert, staged_insert, update

from omnigraph.catalog.indexes import IndexKind, IndexSpec
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.maintenance import index_gaps, stage_compaction, stage_fence, stage_indexes
from omnigraph.engine.storage.staged import stage_changes
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import ConflictError

SPECS = [
    IndexSpec("age", IndexKind.BTREE),
    IndexSpec("bio", IndexKind.TEXT),
    IndexSpec("id", IndexKind.BTREE),
]


def _indexed(store: TableStore, handle: TableHandle) -> TableHandle:
    handle = store.commit(handle, stage_fence(handle), {})
    staged = stage_indexes(handle, index_gaps(handle, SPECS))
    assert staged is not None
    return store.commit(handle, staged, {})


def _words(handle: TableHandle, word: str) -> list[str]:
    return sorted(handle.scan(["id"], full_text_query=word)["id"].to_pylist())


def test_a_completed_word_index_finds_an_updated_row_once_and_not_by_the_words_it_lost(
    store: TableStore, table: TableHandle
) -> None:
    table = _indexed(store, insert(store, table, "ann", "bob", "cat"))
    addresses, row_ids = find(table, "bob")
    row = pa.table({"id": ["bob"], "bio": ["sailor"], "age": [1]}, schema=SCHEMA)
    staged = stage_changes(table, updated_rows=row, updated_addresses=addresses, updated_row_ids=row_ids)
    assert staged is not None
    table = _indexed(store, store.commit(table, staged, {}))
    assert index_gaps(table, SPECS) == []
    assert _words(table, "sailor") == ["bob"]
    assert _words(table, "note") == ["ann", "cat"]
    assert _words(table, "cat") == ["cat"]


def test_indexes_of_appended_rows_gain_a_segment_and_of_changed_ones_stay_right(
    store: TableStore, table: TableHandle
) -> None:
    table = _indexed(store, insert(store, table, "ann", "bob"))
    table = _indexed(store, insert(store, table, "cat"))
    assert len([index for index in table.indexes() if index.name == "bio_text"]) == 2
    table = _indexed(store, update(store, table, "ann", age=5))
    table = _indexed(store, delete(store, insert(store, table, "dan"), "bob"))
    for use_index in (True, False):
        assert table.scan(["id"], "age = 1", use_scalar_index=use_index)["id"].to_pylist() == ["cat", "dan"]
        assert table.scan(["id"], "age = 5", use_scalar_index=use_index)["id"].to_pylist() == ["ann"]
    assert _words(table, "note") == ["ann", "cat", "dan"]


@pytest.mark.parametrize("first", ["fence", "compaction"])
def test_maintenance_and_a_writer_from_one_version_exclude_each_other(
    store: TableStore, table: TableHandle, first: str
) -> None:
    for name in ("ann", "bob", "cat"):
        table = insert(store, table, name)
    upkeep = stage_fence(table) if first == "fence" else stage_compaction(table)
    assert upkeep is not None
    write = staged_insert(table, "dan")
    other = store.open(PEOPLE)
    store.commit(table, upkeep, {})
    with pytest.raises(ConflictError):
        store.commit(other, write, {})
    table = store.open(PEOPLE)
    upkeep_again = stage_fence(table)
    table = insert(store, table, "eve")
    with pytest.raises(ConflictError):
        store.commit(store.open(PEOPLE, version=table.version - 1), upkeep_again, {})
    assert table.count_rows() == 4
