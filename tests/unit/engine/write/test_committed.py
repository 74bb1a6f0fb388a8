from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.operations.optimize import optimize
from omnigraph.engine.storage.columns import ColumnCache
from omnigraph.engine.write import committed
from omnigraph.engine.write.committed import SnapshotView


@pytest.fixture
def busy(harbour):
    """A table with several fragments, deleted rows and rewritten ones."""
    for number in range(4):
        harbour.load(*(f'{{"type":"Berth","data":{{"code":"B{number}-{n}\'q","depth_m":{n}}}}}' for n in range(50)))
    harbour.mutate("delete Berth where depth_m >= 40.0")
    harbour.mutate("update Berth set { depth_m: 99.0 } where depth_m < 3.0")
    return harbour


def view(harbour):
    return SnapshotView(harbour.context.manifest.snapshot(), ColumnCache())


def test_ids_are_located_where_their_live_rows_are(busy):
    ids = pa.array(["N1", "nope", "B0-2'q", "B3-45'q", "B1-30'q"])
    addresses, found = view(busy).locate("node:Berth", ids)
    assert found.tolist() == [True, False, True, False, True]
    handle = busy.context.manifest.snapshot().open("node:Berth")
    assert (
        handle.take_addresses(addresses[found], ["id"]).column("id").to_pylist()
        == ids.filter(pa.array(found)).to_pylist()
    )


def test_a_table_index_and_columns_in_memory_find_the_same_rows(busy, monkeypatch):
    ids = pa.array(["N1", "nope", "B0-2'q", "B3-45'q", "B1-30'q"])
    optimize(busy.context)
    assert busy.context.manifest.snapshot().open("node:Berth").indexes()
    busy.load('{"type":"Berth","data":{"code":"late","depth_m":1}}')
    wanted = pa.concat_arrays([ids, pa.array(["late"])])
    by_column = view(busy).locate("node:Berth", wanted)
    asked = []
    original = committed._ask_index
    monkeypatch.setattr(committed, "INDEX_ROWS_MIN", 0)
    monkeypatch.setattr(committed, "_ask_index", lambda *arguments: asked.append(1) or original(*arguments))
    by_index = view(busy).locate("node:Berth", wanted)
    assert asked
    assert by_index[1].tolist() == by_column[1].tolist()
    assert by_index[0].tolist() == by_column[0].tolist()


def test_a_process_that_keeps_asking_reads_the_column(busy, monkeypatch):
    optimize(busy.context)
    monkeypatch.setattr(committed, "INDEX_ROWS_MIN", 0)
    cache = ColumnCache()
    snapshot = busy.context.manifest.snapshot()
    handle = snapshot.open("node:Berth")
    for _ in range(committed.INDEX_ASKS_MAX + 2):
        assert SnapshotView(snapshot, cache).contains("node:Berth", pa.array(["N1"])).to_pylist() == [True]
    assert all(cache.holds(handle, fragment, "id") for fragment in handle.fragments())


def test_edges_are_found_by_either_end_with_the_columns_asked_for(harbour):
    rows = view(harbour).rows_where_in("edge:Tows", "dst", pa.array(["AB-2"]), ["src", "id"], with_address=True)
    assert rows.column_names == ["src", "id", "_rowaddr"]
    assert sorted(rows.column("src").to_pylist()) == ["AB-3", "AB-4"]
    assert rows.column("_rowaddr").to_numpy().dtype == np.uint64


def test_everything_asked_about_is_remembered_as_read(harbour):
    looked = view(harbour)
    looked.contains("node:LogEntry", pa.array(["x"]))
    looked.rows_where_in("edge:Tows", "src", pa.array([], pa.string()), ["id"])
    looked.all_rows("node:Berth", ["id"])
    assert looked.read == {"node:LogEntry", "edge:Tows", "node:Berth"}
