"""Rows remembered after writing: equal to what the store holds, and never more than that."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.engine.storage import handle as handle_module
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.staged import stage_changes
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.storage.written import COLUMN_BYTES, ROWS_MAX, WrittenRows

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("age", pa.int32())])


def appended(store: TableStore, rows: pa.Table) -> TableHandle:
    base = store.create("nodes/1", SCHEMA, pa.table({"id": ["first"], "age": [1]}, SCHEMA))
    staged = stage_changes(base, new_rows=rows)
    assert staged is not None
    return store.commit(base, staged, {})


def test_rows_just_written_read_the_same_as_from_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"id": ["a", "b"], "age": [None, 4]}, SCHEMA)
    handle = appended(TableStore(str(tmp_path)), rows)
    remembered = handle.read_fragment_columns(handle.fragments()[-1], ["age", "id"])
    monkeypatch.setattr(handle_module, "WRITTEN", WrittenRows())
    stored = handle.read_fragment_columns(handle.fragments()[-1], ["age", "id"])
    assert remembered.equals(stored)
    assert remembered.schema.types == stored.schema.types


def test_rows_just_written_are_not_read_from_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = appended(TableStore(str(tmp_path)), pa.table({"id": ["a"], "age": [7]}, SCHEMA))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the store was asked")

    monkeypatch.setattr(TableHandle, "scanner", refuse)
    assert handle.read_fragment_columns(handle.fragments()[-1], ["age"])["age"].to_pylist() == [7]


def test_a_column_of_another_number_or_type_is_not_known() -> None:
    memory = WrittenRows()
    memory.keep("file", pa.table({"id": ["a"], "age": [7]}, SCHEMA), {"id": 0, "age": 1})
    found = memory.find("file", {"renamed": 1}, pa.schema([("renamed", pa.int32())]))
    assert found is not None
    assert found.to_pydict() == {"renamed": [7]}
    assert memory.find("file", {"age": 2}, SCHEMA) is None
    assert memory.find("file", {"age": 1}, pa.schema([("age", pa.int64())])) is None
    assert memory.find("other", {"age": 1}, SCHEMA) is None


def test_what_is_remembered_is_bounded() -> None:
    rows = pa.table({"age": pa.array(range(100), pa.int64())})
    memory = WrittenRows(bytes_max=2 * (rows.nbytes + 2 * COLUMN_BYTES))
    for name in ("one", "two", "three"):
        memory.keep(name, rows, {"age": 0})
    kept = [name for name in ("one", "two", "three") if memory.find(name, {"age": 0}, rows.schema) is not None]
    assert kept == ["two", "three"]


def test_large_files_and_slices_of_large_memory_are_left_to_the_store() -> None:
    memory = WrittenRows()
    memory.keep("large", pa.table({"age": pa.array(range(ROWS_MAX + 1))}), {"age": 0})
    memory.keep("slice", pa.table({"age": pa.array(range(1 << 20))}).slice(3, 1), {"age": 0})
    schema = pa.schema([("age", pa.int64())])
    assert memory.find("large", {"age": 0}, schema) is None
    assert memory.find("slice", {"age": 0}, schema) is None
