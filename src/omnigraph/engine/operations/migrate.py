"""Accept another schema: every table, the manifest and the schema files change at once, or nothing does.

Behind the schema lock the steps of the plan become effects: a strict commit takes each table, a second one changes its
columns; no row is rewritten. New types get empty tables, dropped and renamed ones disappear from view. When every
table is ready the new schema files are staged, one publish shows everything, and the files take their places. A crash
before the files are staged takes all of it back, one after that finishes it.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
from msgspec import Struct

from omnigraph import failpoints
from omnigraph.catalog.arrow import blob_columns, table_schema
from omnigraph.catalog.migration import DROPS_DATA, MigrationPlan, carry_key_order, plan_migration
from omnigraph.catalog.model import Catalog, EdgeType, NodeType
from omnigraph.catalog.resolve import compile_schema
from omnigraph.catalog.steps import (
    AddProperty,
    AddType,
    DropProperty,
    DropType,
    MakeNullable,
    MakeRequired,
    RenameProperty,
    WidenProperty,
)
from omnigraph.engine.commit.kinds import SCHEMA_APPLY
from omnigraph.engine.commit.path import Committed, commit_once
from omnigraph.engine.commit.request import (
    CommitRequest,
    NewTable,
    Requirements,
    SchemaExchange,
    Step,
    TableCommit,
)
from omnigraph.engine.coordination.lock import HeldLock
from omnigraph.engine.coordination.schema_lock import locked_schema
from omnigraph.engine.manifest.records import TableEntry, with_message
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery import RecoveryContext, heal
from omnigraph.engine.rules.existing import examine
from omnigraph.engine.schema.accepted import load_contract
from omnigraph.engine.schema.fills import fills_of
from omnigraph.engine.storage.evolve import Fill, stage_columns
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.maintenance import stage_fence
from omnigraph.engine.storage.staged import StagedWrite, stage_overwrite
from omnigraph.engine.values.blobs import read_blobs
from omnigraph.engine.values.defaults import this_moment
from omnigraph.engine.values.entities import row_schema
from omnigraph.engine.write.attached import attached, foretold
from omnigraph.engine.write.context import GraphContext
from omnigraph.engine.write.settings import strip_main
from omnigraph.errors import ConflictError, GraphError, InputError, SchemaError
from omnigraph.ids import MAIN, CommitId, TableKey

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


def plan_schema(context: GraphContext, desired: str, *, allow_data_loss: bool = False) -> MigrationPlan:
    """The steps to another schema, with what the rows of main say to them and the branches in the way; writes nothing.

    Raises:
        ParseError, SchemaError: it is not valid.
    """
    compiled = compile_schema(desired)
    plan = plan_migration(context.catalog, compiled, allow_data_loss=allow_data_loss)
    examined = examine(context.manifest.snapshot(MAIN), context.catalog, compiled, plan, this_moment())
    return dataclasses.replace(examined, other_branches=_other_branches(context))


def apply_schema(
    context: GraphContext,
    desired: str,
    *,
    allow_data_loss: bool = False,
    confirm_drops: bool = False,
    actor: str | None = None,
    message: str | None = None,
) -> SchemaApplyResult:
    """Make `desired` the schema of the graph.

    What holds data is dropped only with `confirm_drops`, after which earlier commits still have it, or with
    `allow_data_loss`, after which nothing has it.

    Raises:
        ParseError, SchemaError: it is not valid, or not reachable from the accepted one, or drops data without being
            told to; nothing changed.
        ConflictError: there are other branches, another schema change or writers in the way; nothing changed.
        PolicyError: the actor may not change the schema.
        RecoveryRequiredError: it is unfinished; the next write or open of the graph finishes it.
    """
    context.admit("schema_apply", actor, target_branch=MAIN)
    said = with_message(message)
    if context.read_only:
        raise InputError("this graph was opened read-only; open it read-write to change its schema")
    compiled = compile_schema(desired)
    recovery = context.recovery
    heal(recovery)
    strip_main(context, actor)

    def change_schema(lock: HeldLock) -> SchemaApplyResult:
        failpoints.maybe_fail(failpoints.SCHEMA_HOLDING_LOCK)
        _wait_for_writers(recovery)
        _refuse_branches(context)
        accepted_text, accepted = load_contract(context.store, context.manifest)
        snapshot, now = context.manifest.snapshot(MAIN), this_moment()
        plan = plan_migration(accepted, compiled, allow_data_loss=allow_data_loss)
        plan.require_supported()
        plan = examine(snapshot, accepted, compiled, plan, now)
        plan.require_supported()
        if not (allow_data_loss or confirm_drops):
            _refuse_drops(plan)
        if plan.is_empty:
            return SchemaApplyResult(plan, False, snapshot.version)
        target = carry_key_order(accepted, compiled, plan)
        change = _SchemaChange(snapshot, plan, accepted, target, accepted_text, desired, now)
        if allow_data_loss:
            _refuse_tagged(context, change)
        hear = foretold()
        if hear is not None:
            hear(SchemaApplyResult(plan, True, snapshot.version))
        committed = commit_once(recovery, change.request(lock, actor, {**attached(), **said}))
        if allow_data_loss:
            _erase(context, change, committed)
        return SchemaApplyResult(plan, True, committed.snapshot.version, committed.commit_id)

    return locked_schema(recovery, actor, change_schema)


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


def _other_branches(context: GraphContext) -> tuple[str, ...]:
    return tuple(name for name in context.manifest.branches() if name != MAIN)


def _refuse_branches(context: GraphContext) -> None:
    others = _other_branches(context)
    if others:
        raise ConflictError(
            f"the schema cannot be changed while there are other branches ({', '.join(others)}): delete them first"
        )


def _refuse_drops(plan: MigrationPlan) -> None:
    """Refuse to drop what holds data, because nobody has said that it may go.

    Raises:
        SchemaError: the first such step, and how many rows it concerns.
    """
    for step in plan.steps:
        if isinstance(step, DropType | DropProperty) and step.rows:
            if isinstance(step, DropType):
                code, name = DROPS_DATA[step.type_kind], step.name
            else:
                code, name = DROPS_DATA["property"], f"{step.type_name}.{step.property_name}"
            rows = "1 row" if step.rows == 1 else f"{step.rows} rows"
            raise SchemaError(
                f"[{code}] {step.type_kind}:{name}: dropping it takes the data of"
                f" {rows}; confirm the drops (confirm_drops=True, --yes) to keep it in earlier commits only, or allow"
                " data loss (allow_data_loss=True, --allow-data-loss) to remove it there as well"
            )


# --- what the plan does to tables ------------------------------------------------------------------------------------


class _TableChange(Struct, frozen=True):
    """What happens to one published table: taken, perhaps given other columns, perhaps shown under another key or
    not at all (`new_key` None)."""

    entry: TableEntry
    new_key: TableKey | None
    entity: NodeType | EdgeType | None
    renames: Mapping[str, str]
    changes_columns: bool
    rewrites_rows: bool = False
    fills: tuple[Fill, ...] = ()


class _SchemaChange(Struct, frozen=True, dict=True):
    """A supported plan on one snapshot, as what happens to each table."""

    snapshot: Snapshot
    plan: MigrationPlan
    accepted: Catalog
    target: Catalog
    accepted_text: str
    target_text: str
    now: datetime

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
            if isinstance(
                step, AddProperty | RenameProperty | DropProperty | WidenProperty | MakeNullable | MakeRequired
            )
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
            rewrites = new_key in self.erased_columns
            fills = self._fills(key, new_key, renames) if columns and new_key is not None else ()
            found.append(_TableChange(entry, new_key, entity, renames, columns, rewrites, fills))
        return tuple(found)

    def _fills(self, key: TableKey, new_key: TableKey, renames: Mapping[str, str]) -> tuple[Fill, ...]:
        """The columns whose values change; one that has no null needs no default."""
        kind, _, name = new_key.partition(":")
        complete = {
            step.property_name
            for step in self.plan.steps
            if isinstance(step, MakeRequired) and (step.type_kind, step.type_name) == (kind, name) and not step.rows
        }
        before, after = self.accepted.tables[key], self.target.tables[new_key]
        fills = fills_of(before, after, renames, self.now)
        return tuple(
            fill
            for fill in fills.values()
            if fill.name not in complete
            or before.properties[fill.column].type.scalar != after.properties[fill.name].type.scalar
        )

    @cached_property
    def erased_columns(self) -> set[TableKey | None]:
        """The tables that lose a column for good, so that no file may keep it."""
        return {
            TableKey(f"{step.type_kind}:{step.type_name}")
            for step in self.plan.steps
            if isinstance(step, DropProperty) and step.mode == "hard"
        }

    @property
    def created(self) -> tuple[NewTable, ...]:
        """The tables of new types."""
        return tuple(
            NewTable(key, table_schema(self.target.tables[key]))
            for step in self.plan.steps
            if isinstance(step, AddType) and step.type_kind != "interface"
            for key in [TableKey(f"{step.type_kind}:{step.name}")]
        )

    def request(self, lock: HeldLock, actor: str | None, said: Mapping[str, str]) -> CommitRequest:
        """All of it as one commit."""
        return CommitRequest(
            SCHEMA_APPLY,
            MAIN,
            self.snapshot,
            tuple(_table_commit(self.snapshot, table) for table in self.tables),
            creates=self.created,
            schema=SchemaExchange(self.accepted_text, self.target_text, self.target, lock),
            requires=Requirements(head=self.snapshot.head),
            actor=actor,
            properties={**said, SCHEMA_PROPERTY: self.target.schema_hash},
        )


def _table_commit(snapshot: Snapshot, table: _TableChange) -> TableCommit:
    """Take the table by a strict commit, then change its columns, then write its rows anew where a column must go."""
    base = snapshot.open(table.entry.table_key)
    steps: list[Step] = [stage_fence(base)]
    if table.changes_columns and table.entity is not None:
        columns = table_schema(table.entity)
        steps.append(lambda head: stage_columns(head, columns, table.renames, table.fills))
        if table.rewrites_rows:
            steps.append(partial(_rewrite, table.entity))
    return TableCommit(table.entry, tuple(steps), table.new_key, base)


def _rewrite(entity: NodeType | EdgeType, head: TableHandle) -> StagedWrite:
    return stage_overwrite(head, _rows(head, entity))


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


# --- hard drops ------------------------------------------------------------------------------------------------------


def _hard_drops(change: _SchemaChange) -> list[_TableChange]:
    """The tables whose older versions go."""
    hard = {
        TableKey(f"{step.type_kind}:{step.name if isinstance(step, DropType) else step.type_name}")
        for step in change.plan.steps
        if isinstance(step, DropType | DropProperty)
    }
    return [table for table in change.tables if (table.new_key or table.entry.table_key) in hard]


def _refuse_tagged(context: GraphContext, change: _SchemaChange) -> None:
    """Refuse to remove for good what a tag keeps.

    Raises:
        ConflictError: which tag.
    """
    doomed = {table.entry.path for table in _hard_drops(change)}
    for tag in context.manifest.history.tags.list() if doomed else ():
        kept = context.manifest.history.snapshot_at(tag.graph_commit_id)
        if doomed.intersection(entry.path for entry in kept.entries.values()):
            raise ConflictError(f"the tag '{tag.name}' keeps what would be removed for good: delete the tag first")


def _erase(context: GraphContext, change: _SchemaChange, committed: Committed) -> None:
    """Remove the older versions of what was dropped for good; a failure leaves them to cleanup."""
    used = {entry.path for entry in committed.snapshot.entries.values()}
    for table in _hard_drops(change):
        try:
            if table.entry.path not in used:
                context.store.objects.delete_prefix(table.entry.path)
                continue
            reached = committed.tables[table.entry.table_key].head.version
            older = [version for version in context.store.versions(table.entry.path) if version < reached]
            context.store.residual.cleanup_versions(table.entry.path, versions=older)
        except GraphError as exc:
            _log.warning("older versions of %s are left to cleanup: %s", table.entry.table_key, exc)
    context.store.forget()
