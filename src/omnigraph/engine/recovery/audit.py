"""The record of what recovery did: one row per operation, for ever.

A row is appended strictly at the version that was searched for an earlier one, so that an operation never has two,
whoever resolves it, however often, and from wherever.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import asdict

from omnigraph.engine.recovery.decide import RecoveryKind
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.layout import RECOVERIES
from omnigraph.engine.storage.staged import stage_changes
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import ConflictError, StorageError
from omnigraph.failpoints import RECOVERY_AUDIT, RECOVERY_DISCARD_AUDIT, maybe_fail
from omnigraph.ids import CommitId, OperationId, TableKey, storable

_ATTEMPTS = 20

RECOVERIES_SCHEMA = pa.schema(
    [
        pa.field("graph_commit_id", pa.utf8(), nullable=False),
        pa.field("recovery_kind", pa.utf8(), nullable=False),
        pa.field("recovery_for_actor", pa.utf8()),
        pa.field("operation_id", pa.utf8(), nullable=False),
        pa.field("sidecar_writer_kind", pa.utf8(), nullable=False),
        pa.field("per_table_outcomes_json", pa.utf8(), nullable=False),
        pa.field("created_at", pa.timestamp("us"), nullable=False),
    ]
)


class TableOutcome(Struct, frozen=True):
    """What recovery did to one table: forward, from the expected to the published version; back, from the head to
    the version it was taken back to."""

    table_key: TableKey
    from_version: int
    to_version: int


class AuditRow(Struct, frozen=True):
    """What became of one operation; `commit_id` is recovery's own commit, `actor` who the write was for."""

    operation_id: OperationId
    kind: RecoveryKind
    commit_id: CommitId
    actor: str | None
    writer_kind: str
    outcomes: tuple[TableOutcome, ...]
    created_at: int


def find(store: TableStore, operation_id: OperationId) -> AuditRow | None:
    """The row of an operation, or None."""
    handle = _open(store)
    return None if handle is None else _find_in(handle, operation_id)


def rows(store: TableStore) -> list[AuditRow]:
    """Every row, oldest first."""
    handle = _open(store)
    if handle is None:
        return []
    found = [_read(row) for row in _plain(handle.scan())]
    return sorted(found, key=lambda row: (row.created_at, row.operation_id))


def record(store: TableStore, row: AuditRow) -> AuditRow:
    """Append the row unless its operation has one; returns the one that stands.

    Raises:
        StorageError: it could not be written; the intent must stay, so that the next pass records it.
    """
    discard = row.kind is RecoveryKind.ORPHANED_BRANCH_DISCARDED
    maybe_fail(RECOVERY_DISCARD_AUDIT if discard else RECOVERY_AUDIT)
    for _ in range(_ATTEMPTS):
        handle = _open(store) or _create(store)
        found = _find_in(handle, row.operation_id)
        if found is not None:
            return found
        staged = stage_changes(handle, new_rows=_to_table([row]))
        if staged is None:
            raise StorageError("the recovery audit row was not staged")
        try:
            store.commit(handle, staged, {})
        except ConflictError:
            continue
        return row
    raise ConflictError("other processes kept writing recovery audit rows — retry")


def _open(store: TableStore) -> TableHandle | None:
    try:
        return store.open(RECOVERIES)
    except StorageError as exc:
        if exc.kind != "not_found":
            raise
        return None


def _create(store: TableStore) -> TableHandle:
    try:
        return store.create(RECOVERIES, RECOVERIES_SCHEMA)
    except StorageError as exc:
        # Somebody else created it first; if not, opening it fails with the right error.
        if exc.kind not in ("precondition", "not_found"):
            raise
        return store.open(RECOVERIES)


def _find_in(handle: TableHandle, operation_id: OperationId) -> AuditRow | None:
    found = _plain(handle.scan(None, pc.field("operation_id") == operation_id))
    return _read(found[0]) if found else None


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    moments = table["created_at"].cast(pa.int64())
    plain: list[dict[str, Any]] = table.set_column(
        table.schema.get_field_index("created_at"), "created_at", moments
    ).to_pylist()
    return plain


def _read(row: dict[str, Any]) -> AuditRow:
    outcomes = tuple(
        TableOutcome(TableKey(item["table_key"]), int(item["from_version"]), int(item["to_version"]))
        for item in json.loads(row["per_table_outcomes_json"])
    )
    return AuditRow(
        operation_id=OperationId(row["operation_id"]),
        kind=RecoveryKind(row["recovery_kind"]),
        commit_id=CommitId(row["graph_commit_id"]),
        actor=row["recovery_for_actor"],
        writer_kind=row["sidecar_writer_kind"],
        outcomes=outcomes,
        created_at=int(row["created_at"]),
    )


def _to_table(new: Sequence[AuditRow]) -> pa.Table:
    return pa.table(
        {
            "graph_commit_id": [row.commit_id for row in new],
            "recovery_kind": [row.kind.value for row in new],
            "recovery_for_actor": [None if row.actor is None else storable(row.actor) for row in new],
            "operation_id": [row.operation_id for row in new],
            "sidecar_writer_kind": [row.writer_kind for row in new],
            "per_table_outcomes_json": [json.dumps([asdict(o) for o in row.outcomes]) for row in new],
            "created_at": [row.created_at for row in new],
        },
        schema=RECOVERIES_SCHEMA,
    )
