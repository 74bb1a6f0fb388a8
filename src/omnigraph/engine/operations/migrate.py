"""Accept another schema: every table, the manifest and the schema files change at once, or nothing does.

Behind the schema lock the steps of the plan become effects: a strict commit takes each table, a second one changes its
columns; no row is rewritten. New types get empty tables, dropped and renamed ones disappear from view. When every
table is ready the new schema files are staged, one publish shows everything, and the files take their places. A crash
before the files are staged takes all of it back, one after that finishes it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from omnigraph import failpoints
from omnigraph.catalog.arrow import blob_columns, table_schema
from omnigraph.catalog.migration import MigrationPlan, carry_key_order, key_orders, plan_migration
from omnigraph.catalog.model import Catalog, EdgeType, NodeType
from omnigraph.catalog.resolve import compile_schema
from omnigraph.catalog.steps import AddProperty, AddType, DropProperty, DropType, RenameProperty
from omnigraph.engine.manifest.delta import Change, Lineage, RegisterTable, SetSchema, TombstoneTable, UpdateTable
from omnigraph.engine.manifest.records import SchemaRecord, TableEntry
from omnigraph.engine.manifest.schemas import keep_texts
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery import Effect, Intent, RecoveryContext, WriterKind, heal, new_intent, roll_back
from omnigraph.engine.recovery.contract import load_contract
from omnigraph.engine.recovery.decide import RecoveryKind
from omnigraph.engine.recovery.intent import Registration, TableTombstone
from omnigraph.engine.recovery.schema_files import promote, stage_files
from omnigraph.engine.recovery.schema_lock import LockRecord, acquire_lock, release_lock, still_holds
from omnigraph.engine.staging.blobs import read_blobs
from omnigraph.engine.staging.context import GraphContext
from omnigraph.engine.staging.entities import row_schema
from omnigraph.engine.staging.settings import strip_main
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.evolve import stage_columns
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.maintenance import stage_fence
from omnigraph.engine.storage.staged import stage_overwrite
from omnigraph.errors import ConflictError, GraphError, InputError, InternalError, RecoveryRequiredError
from omnigraph.ids import MAIN, CommitId, TableKey, check_actor, now_micros

_log = logging.getLogger(__name__)

WRITERS_WAIT_SECONDS = 15.0
"""How long writers that were there first are given to finish."""
SCHEMA_PROPERTY = "omnigraph.schema_hash"
"""The commit property that marks a commit as a change of the schema."""


@dataclass(frozen=True)
class SchemaApplyResult:
    """What became of a schema that was to be accepted; without steps nothing is applied and there is no commit."""

    plan: MigrationPlan
    applied: bool
    manifest_version: int
    commit_id: CommitId | None = None

    @property
    def supported(self) -> bool:
        """True: what is not supported is refused with an error."""
        return self.plan.is_supported

    @property
    def steps(self) -> tuple[Any, ...]:
        """The steps in their order."""
        return self.plan.steps

    def to_json(self) -> dict[str, Any]:
        """`supported`, `applied`, `step_count`, `manifest_version` and `steps`."""
        plan = self.plan.to_json()
        return {
            "supported": plan["supported"],
            "applied": self.applied,
            "step_count": plan["step_count"],
            "manifest_version": self.manifest_version,
            "steps": plan["steps"],
        }


def apply_schema(
    context: GraphContext, desired: str, *, allow_data_loss: bool = False, actor: str | None = None
) -> SchemaApplyResult:
    """Make `desired` the schema of the graph.

    Raises:
        ParseError, SchemaError: it is not valid, or not reachable from the accepted one; nothing changed.
        ConflictError: there are other branches, another schema change or writers in the way; nothing changed.
        RecoveryRequiredError: it is unfinished; the next write or open of the graph finishes it.
    """
    check_actor(actor)
    if context.read_only:
        raise InputError("this graph was opened read-only; open it read-write to change its schema")
    compiled = compile_schema(desired)
    recovery = context.recovery
    heal(recovery)
    strip_main(context, actor)
    lock = acquire_lock(recovery, actor)
    try:
        failpoints.maybe_fail(failpoints.SCHEMA_HOLDING_LOCK)
        _wait_for_writers(recovery)
        _refuse_branches(context)
        accepted_text, accepted = load_contract(context.store, context.manifest)
        plan = plan_migration(accepted, compiled, allow_data_loss=allow_data_loss)
        plan.require_supported()
        snapshot = context.manifest.snapshot(MAIN)
        if plan.is_empty:
            return SchemaApplyResult(plan, False, snapshot.version)
        target = carry_key_order(accepted, compiled, plan)
        change = _SchemaChange(snapshot, plan, accepted, target, accepted_text, desired)
        published, commit_id = _run(recovery, change, lock, actor)
        if allow_data_loss:
            _erase(context, change, published)
        return SchemaApplyResult(plan, True, published.version, commit_id)
    finally:
        release_lock(recovery, lock)


def _wait_for_writers(recovery: RecoveryContext) -> None:
    """Let those finish who stored their intent before the lock was there; nobody can after."""
    limit = time.monotonic() + WRITERS_WAIT_SECONDS
    while recovery.intents.list():
        heal(recovery)
        waiting = recovery.intents.list()
        if waiting and time.monotonic() > limit:
            raise ConflictError(
                f"a write is in flight ({waiting[0]}) and the schema cannot be changed beside it — retry"
            )
        if waiting:
            time.sleep(0.01)


def _refuse_branches(context: GraphContext) -> None:
    others = [name for name in context.manifest.branches() if name != MAIN]
    if others:
        raise ConflictError(
            f"the schema cannot be changed while there are other branches ({', '.join(others)}): delete them first"
        )


# --- what the plan does to tables ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _TableChange:
    """What happens to one published table: taken, perhaps given other columns, perhaps shown under another key or
    not at all (`new_key` None)."""

    entry: TableEntry
    new_key: TableKey | None
    entity: NodeType | EdgeType | None
    renames: Mapping[str, str]
    changes_columns: bool
    rewrites_rows: bool = False

    @property
    def steps(self) -> int:
        return 1 + self.changes_columns + self.rewrites_rows

    @property
    def version(self) -> int:
        """The version the table reaches."""
        return self.entry.version + self.steps

    @property
    def disappears(self) -> bool:
        return self.new_key != self.entry.table_key


@dataclass(frozen=True)
class _SchemaChange:
    """A supported plan on one snapshot, as effects, registrations and tombstones."""

    snapshot: Snapshot
    plan: MigrationPlan
    accepted: Catalog
    target: Catalog
    accepted_text: str
    target_text: str

    @cached_property
    def tables(self) -> tuple[_TableChange, ...]:
        """The published tables that change, in key order."""
        new_keys = {
            TableKey(f"{kind}:{old}"): TableKey(f"{kind}:{new}")
            for kind in ("node", "edge")
            for old, new in self.plan.type_renames(kind).items()
        }
        dropped = {TableKey(f"{step.type_kind}:{step.name}") for step in self.plan.steps if isinstance(step, DropType)}
        moved = {
            TableKey(f"{step.type_kind}:{step.type_name}")
            for step in self.plan.steps
            if isinstance(step, AddProperty | RenameProperty | DropProperty)
        }
        found = []
        for key, entry in self.snapshot.entries.items():
            new_key = None if key in dropped else new_keys.get(key, key)
            entity = None if new_key is None else self.target.tables.get(new_key)
            if new_key == key and key not in moved:
                continue
            kind, _, name = (new_key or key).partition(":")
            renames = self.plan.property_renames(kind, name)
            columns = new_key is not None and new_key in moved
            found.append(_TableChange(entry, new_key, entity, renames, columns, new_key in self.erased_columns))
        return tuple(found)

    @cached_property
    def erased_columns(self) -> set[TableKey | None]:
        """The tables that lose a column for good, so that no file may keep it."""
        return {
            TableKey(f"{step.type_kind}:{step.type_name}")
            for step in self.plan.steps
            if isinstance(step, DropProperty) and step.mode == "hard"
        }

    @cached_property
    def created(self) -> dict[TableKey, Registration]:
        """The tables of new types, each at a place where none ever was."""
        return {
            key: Registration(key, layout.table_path(key, self._incarnation(key)), None, self._incarnation(key))
            for step in self.plan.steps
            if isinstance(step, AddType) and step.type_kind != "interface"
            for key in [TableKey(f"{step.type_kind}:{step.name}")]
        }

    @cached_property
    def registrations(self) -> tuple[Registration, ...]:
        """Every key that becomes visible: new types, and old tables under new names."""
        renamed = [
            Registration(table.new_key, table.entry.path, None, self._incarnation(table.new_key))
            for table in self.tables
            if table.new_key is not None and table.disappears
        ]
        return (*self.created.values(), *renamed)

    def _incarnation(self, key: TableKey) -> int:
        known = self.snapshot.state.locations.get(key)
        return 1 if known is None else known.incarnation + 1

    @property
    def record(self) -> SchemaRecord:
        """What the manifest is to say of the schema."""
        return SchemaRecord(self.target.schema_hash, key_orders(self.target))

    def intent(self, actor: str | None) -> Intent:
        """The note of all of it."""
        return new_intent(
            WriterKind.SCHEMA_APPLY,
            None,
            tuple(Effect.on(t.entry.table_key, t.entry.path, t.entry.version, steps=t.steps) for t in self.tables),
            actor_id=actor,
            expected_head=self.snapshot.head,
            registrations=self.registrations,
            tombstones=tuple(TableTombstone(t.entry.table_key, t.version) for t in self.tables if t.disappears),
            target_schema_hash=self.target.schema_hash,
            commit_properties={SCHEMA_PROPERTY: self.target.schema_hash},
        )

    def changes(self) -> list[Change]:
        """What the publish says."""
        changes: list[Change] = [RegisterTable(r.table_key, r.table_path, r.incarnation) for r in self.registrations]
        changes.extend(UpdateTable(key, 1, None, 0) for key in self.created)
        for table in self.tables:
            if table.new_key is not None:
                changes.append(UpdateTable(table.new_key, table.version, None, table.entry.row_count))
            if table.disappears:
                changes.append(TombstoneTable(table.entry.table_key, table.version))
        return [*changes, SetSchema(self.record)]

    def expected(self) -> dict[TableKey, int]:
        """The versions everything rests on."""
        expected = {table.entry.table_key: table.entry.version for table in self.tables}
        for registration in self.registrations:
            expected[registration.table_key] = self.snapshot.state.current_version(registration.table_key)
        return expected


# --- carrying it out -------------------------------------------------------------------------------------------------


def _run(
    recovery: RecoveryContext, change: _SchemaChange, lock: LockRecord, actor: str | None
) -> tuple[Snapshot, CommitId]:
    intent = recovery.intents.arm(change.intent(actor))
    try:
        _apply(recovery, change, intent)
        if not still_holds(recovery, lock):
            raise ConflictError("schema apply lost its lock; nothing was published — retry")
        failpoints.maybe_fail(failpoints.SCHEMA_BEFORE_STAGING)
        objects = recovery.store.objects
        keep_texts(
            objects,
            change.snapshot.state,
            accepted=change.accepted_text,
            desired=change.target_text,
            desired_hash=change.target.schema_hash,
        )
        stage_files(objects, change.target_text, change.target)
    except BaseException as failure:
        _undo(recovery, intent, failure)
        raise
    return _publish(recovery, change, intent)


def _apply(recovery: RecoveryContext, change: _SchemaChange, intent: Intent) -> None:
    store = recovery.store
    for key, registration in sorted(change.created.items()):
        if store.exists(registration.table_path):
            # Left by an attempt that never published it, so nobody can have read or written it.
            store.objects.delete_prefix(registration.table_path)
        handle = store.create(registration.table_path, table_schema(change.target.tables[key], blobs="stored"))
        if handle.version != 1:
            raise InternalError(f"a new table of '{key}' began at version {handle.version}")
    for table in change.tables:
        base = change.snapshot.open(table.entry.table_key)
        head = store.commit(base, stage_fence(base), intent.properties(1))
        if table.changes_columns and table.entity is not None:
            columns = stage_columns(head, table_schema(table.entity, blobs="stored"), table.renames)
            head = store.commit(head, columns, intent.properties(2))
            if table.rewrites_rows:
                head = store.commit(head, stage_overwrite(head, _rows(head, table.entity)), intent.properties(3))
        if head.version != table.version:
            raise InternalError(f"'{table.entry.table_key}' reached version {head.version}, not {table.version}")
        failpoints.maybe_fail(failpoints.SCHEMA_POST_TABLE_COMMIT)


def _rows(handle: TableHandle, entity: NodeType | EdgeType) -> pa.RecordBatchReader:
    """Every row as it is to be stored, in a stream, so that memory does not grow with the table."""
    schema, blobs = row_schema(entity), blob_columns(entity)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in handle.scan_batches(schema.names, with_row_id=True):
            columns = [
                read_blobs(handle, field.name, batch.column("_rowid").to_numpy())
                if field.name in blobs
                else batch.column(field.name)
                for field in schema
            ]
            yield pa.record_batch(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _publish(recovery: RecoveryContext, change: _SchemaChange, intent: Intent) -> tuple[Snapshot, CommitId]:
    commit_id = intent.commit_id
    if commit_id is None:
        raise InternalError("an intent without a commit id cannot be published")
    try:
        failpoints.maybe_fail(failpoints.SCHEMA_AFTER_STAGING)
        published = recovery.manifest.publish(
            MAIN,
            change.changes(),
            lineage=Lineage(commit_id, intent.actor_id, now_micros(), None, dict(intent.commit_properties)),
            expected=change.expected(),
            expected_head=change.snapshot.head,
            operation_id=intent.operation_id,
        )
        failpoints.maybe_fail(failpoints.SCHEMA_AFTER_MANIFEST_COMMIT)
        promote(recovery.store.objects)
    except ConflictError as refused:
        if not _undo(recovery, intent, refused):
            raise ConflictError(f"schema apply lost its write lease; nothing changed — retry ({refused})") from refused
        return recovery.manifest.snapshot(MAIN), commit_id
    except BaseException as failure:
        # The tables and the files are ready, only the publish or the renames are in doubt. Whoever comes next ends it.
        recovery.intents.abandon(intent.operation_id)
        if isinstance(failure, GraphError):
            raise RecoveryRequiredError(
                f"the schema change {intent.operation_id} is prepared but unfinished ({failure}) — the next write or"
                " open of the graph finishes it",
                operation_id=intent.operation_id,
            ) from failure
        raise
    recovery.intents.disarm(intent.operation_id)
    return published, commit_id


def _undo(recovery: RecoveryContext, intent: Intent, failure: BaseException) -> bool:
    """Take everything back; True when it turns out to be published after all.

    Raises:
        RecoveryRequiredError: that was not possible now; recovery will do it.
    """
    resolution = roll_back(recovery, intent)
    if resolution is not None and resolution.settled:
        return resolution.outcome is RecoveryKind.ROLLED_FORWARD
    raise RecoveryRequiredError(
        f"the schema change {intent.operation_id} failed ({failure}) and could not be undone yet — the next write or"
        " open of the graph does that",
        operation_id=intent.operation_id,
    ) from failure


# --- hard drops ------------------------------------------------------------------------------------------------------


def _erase(context: GraphContext, change: _SchemaChange, published: Snapshot) -> None:
    """Remove the older versions of what was dropped for good; a failure leaves them to cleanup."""
    hard = {
        TableKey(f"{step.type_kind}:{step.name if isinstance(step, DropType) else step.type_name}")
        for step in change.plan.steps
        if isinstance(step, DropType | DropProperty)
    }
    used = {entry.path for entry in published.entries.values()}
    for table in change.tables:
        if (table.new_key or table.entry.table_key) not in hard:
            continue
        try:
            if table.entry.path not in used:
                context.store.objects.delete_prefix(table.entry.path)
                continue
            older = [version for version in context.store.versions(table.entry.path) if version < table.version]
            context.store.residual.cleanup_versions(table.entry.path, versions=older)
        except GraphError as exc:
            _log.warning("older versions of %s are left to cleanup: %s", table.entry.table_key, exc)
    context.store.forget()
