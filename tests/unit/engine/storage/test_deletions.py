from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from omnigraph.engine.storage.lance_internals.deletions import decode_roaring
from omnigraph.engine.storage.staged import stage_changes
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import FormatError

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
