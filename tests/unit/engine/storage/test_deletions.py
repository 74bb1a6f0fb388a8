from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from omnigraph import create
from omnigraph.engine.storage import handle as storage_handle
from omnigraph.engine.storage.lance_internals.deletions import decode_roaring
from omnigraph.engine.storage.staged import stage_changes
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import FormatError, InternalError
from omnigraph.ids import node_key

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("n", pa.int64()),
    ]
)
ROWS = 200_000


@pytest.fixture
def table(tmp_path):
    store = TableStore(str(tmp_path))
    empty = store.create("nodes/x", SCHEMA)
    rows = pa.table({"id": [f"k{n}" for n in range(ROWS)], "n": range(ROWS)}, schema=SCHEMA)
    return store, store.commit(empty, stage_changes(empty, new_rows=rows), {})


@pytest.mark.parametrize(
    "gone",
    [
        np.array([0, 1, 5]),
        np.arange(0, ROWS, 3),
        np.arange(1_000, 150_000),
        np.r_[np.arange(70_000), np.arange(80_000, ROWS, 17)],
        np.arange(0, ROWS, 40),
    ],
    ids=["few", "every third", "one run", "runs and more", "sparse"],
)
def test_deleted_offsets_are_those_that_were_deleted(table, gone):
    store, base = table
    changed = store.commit(base, stage_changes(base, deleted_addresses=gone.astype(np.uint64)), {})
    [fragment] = changed.fragments()
    assert changed.deleted_offsets(fragment).tolist() == gone.tolist()
    live = np.setdiff1d(np.arange(ROWS), gone)[[0, 7, -1]]
    rows = changed.take_addresses(live.astype(np.uint64)[::-1], ["id"])
    assert rows.column("id").to_pylist() == [f"k{n}" for n in live[::-1]]
    assert changed.row_ids(live.astype(np.uint64)).tolist() == live.tolist()


@pytest.mark.parametrize("content", [b"", b"\x00" * 16, b"deleted!", BitMap(range(100)).serialize()[:-3]])
def test_bytes_that_are_no_bitmap_are_refused(content):
    with pytest.raises(FormatError):
        decode_roaring(content)


ALL_KINDS = """
node P {
    name: String @key
    text: String?
    n: I64?
    u: U64?
    f: F32?
    when: DateTime?
    day: Date?
    yes: Bool?
    tags: [String]
    v: Vector(3)?
    picture: Blob?
}
"""


def test_rows_are_the_same_however_they_are_taken_from_beside_deleted_ones(tmp_path, monkeypatch):
    graph = create(tmp_path / "g", ALL_KINDS)
    rows = [
        {
            "name": f"k{n:03d}",
            "text": "x" * (n % 5) if n % 4 else None,
            "n": n if n % 3 else None,
            "u": 2**63 + n,
            "f": n / 2,
            "when": "2020-01-02T03:04:05Z" if n % 2 else None,
            "day": "2021-02-03",
            "yes": n % 2 == 0,
            "tags": ["a"] * (n % 3),
            "v": [n, 1, 2] if n % 6 else None,
            "picture": "base64:AAEC" if n % 5 else None,
        }
        for n in range(400)
    ]
    graph.load({"P": rows[:300]})
    graph.load({"P": rows[300:]})
    graph.mutate('query d() { delete P where name >= "k010" and name < "k200" or name > "k350" }')
    graph.schema.apply(ALL_KINDS.replace("text: String?", "words: String? @rename_from(text)\n    more: I32?"))
    graph.branches.create("b")
    graph.mutate('query d() { delete P where name < "k005" }', branch="b")
    for branch in ("main", "b"):
        handle = graph.snapshot(branch=branch).open(node_key("P"))
        columns = [name for name in handle.schema.names if name not in ("id", "picture")]
        live = handle.scan(["id"], with_row_address=True)
        addresses = live["_rowaddr"].to_numpy()
        order = np.random.default_rng(5).integers(0, len(addresses), 300)
        taken = {}
        for counted, sought in ((1 << 60, 4_096), (0, 4_096), (0, 7)):
            monkeypatch.setattr(storage_handle, "COUNTED_MAX", counted)
            monkeypatch.setattr(storage_handle, "SOUGHT_ROWS", sought)
            taken[counted, sought] = handle.take_addresses(addresses[order], ["id", *columns])
        plain, *others = taken.values()
        assert plain["id"].to_pylist() == live["id"].take(pa.array(order)).to_pylist()
        for other in others:
            assert other.schema == plain.schema
            assert other.to_pylist() == plain.to_pylist()
    graph.close()


def test_a_deleted_row_is_not_taken_for_another(table, monkeypatch):
    store, base = table
    changed = store.commit(base, stage_changes(base, deleted_addresses=np.arange(50, dtype=np.uint64)), {})
    monkeypatch.setattr(storage_handle, "COUNTED_MAX", 0)
    with pytest.raises(InternalError, match="asked for that it has not"):
        changed.take_addresses(np.array([49, 50], dtype=np.uint64), ["id"])
