"""A small table of people and the changes tests make to it."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.staged import StagedWrite, stage_changes
from omnigraph.engine.storage.tables import TableStore

PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}
PEOPLE = "nodes/40d76f1f51639ec0"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False, metadata=PRIMARY_KEY),
        pa.field("bio", pa.string()),
        pa.field("age", pa.int64()),
    ]
)
VERSIONS = ["id", "_row_created_at_version", "_row_last_updated_at_version"]


def people(ids: Sequence[str], age: int = 1) -> pa.Table:
    return pa.table({"id": list(ids), "bio": [f"note {i}" for i in ids], "age": [age] * len(ids)}, schema=SCHEMA)


def staged_insert(base: TableHandle, *ids: str, age: int = 1) -> StagedWrite:
    staged = stage_changes(base, new_rows=people(ids, age))
    assert staged is not None
    return staged


def find(base: TableHandle, *ids: str) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Addresses and row ids, in the order of `ids`."""
    found = base.scan(["id"], pc.field("id").isin(list(ids)), with_row_id=True, with_row_address=True)
    places = {row["id"]: (row["_rowaddr"], row["_rowid"]) for row in found.to_pylist()}
    addresses = np.array([places[i][0] for i in ids], dtype=np.uint64)
    return addresses, np.array([places[i][1] for i in ids], dtype=np.uint64)


def staged_update(base: TableHandle, *ids: str, age: int) -> StagedWrite:
    addresses, row_ids = find(base, *ids)
    staged = stage_changes(base, updated_rows=people(ids, age), updated_addresses=addresses, updated_row_ids=row_ids)
    assert staged is not None
    return staged


def staged_delete(base: TableHandle, *ids: str) -> StagedWrite:
    staged = stage_changes(base, deleted_addresses=find(base, *ids)[0])
    assert staged is not None
    return staged


def insert(store: TableStore, base: TableHandle, *ids: str, age: int = 1) -> TableHandle:
    return store.commit(base, staged_insert(base, *ids, age=age), {})


def update(store: TableStore, base: TableHandle, *ids: str, age: int) -> TableHandle:
    return store.commit(base, staged_update(base, *ids, age=age), {})


def delete(store: TableStore, base: TableHandle, *ids: str) -> TableHandle:
    return store.commit(base, staged_delete(base, *ids), {})


def identities(handle: TableHandle) -> dict[str, tuple[int, int, int]]:
    """Row id, creation version and version of the last change, by id; refuses a doubled id."""
    found = handle.scan(VERSIONS, with_row_id=True).to_pylist()
    by_id = {row["id"]: (row["_rowid"], row[VERSIONS[1]], row[VERSIONS[2]]) for row in found}
    assert len(by_id) == len(found)
    assert len({row_id for row_id, _, _ in by_id.values()}) == len(by_id)
    return by_id


def ages(handle: TableHandle) -> dict[str, int]:
    rows = handle.scan(["id", "age"]).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["age"] for row in rows}
