"""Settle tables whose heads moved without a publish and without an intent of ours.

That happens when another program writes to a table's folder. Maintenance by such a program (compaction, index builds)
changes no row and may simply be published; anything else is published only by force, or taken away again. No intent
is written: a repair cut short leaves drift as it was, or a restored table, and is simply run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.engine.commit.kinds import REPAIR
from omnigraph.engine.commit.path import commit_once
from omnigraph.engine.commit.request import CommitRequest, TablePointer
from omnigraph.engine.coordination.mutex import Mutexes
from omnigraph.engine.manifest.records import TableEntry, with_message
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery.sweep import refuse_while_pending
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import GraphError, InputError
from omnigraph.ids import FORCED_REPAIR_ACTOR, MAIN, REPAIR_ACTOR, CommitId, TableKey

# Lance's Python binding shows a fragment reservation, the first half of a compaction, as a bare `BaseOperation`.
_HARMLESS = frozenset({"Rewrite", "ReserveFragments", "BaseOperation"})


class Classification(StrEnum):
    """What the commits above a published version are."""

    NO_DRIFT = "no_drift"
    VERIFIED_MAINTENANCE = "verified_maintenance"
    SUSPICIOUS = "suspicious"
    UNVERIFIABLE = "unverifiable"


class RepairAction(StrEnum):
    """What was done about one table."""

    NO_OP = "no_op"
    PREVIEW = "preview"
    HEALED = "healed"
    FORCED = "forced"
    REFUSED = "refused"
    DISCARDED = "discarded"


@dataclass(frozen=True)
class TableRepair:
    """One table: where it stands, what moved it, and what was done."""

    table_key: TableKey
    manifest_version: int
    lance_head_version: int
    classification: Classification
    action: RepairAction
    operations: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class RepairReport:
    """Every table of main; `commit_id` is None when nothing was published."""

    tables: tuple[TableRepair, ...]
    commit_id: CommitId | None = None

    @property
    def refused(self) -> bool:
        """True when a table needs `force` or `discard`."""
        return any(table.action is RepairAction.REFUSED for table in self.tables)


def repair(
    context: GraphContext,
    *,
    confirm: bool = False,
    force: bool = False,
    discard: bool = False,
    message: str | None = None,
) -> RepairReport:
    """Look at every table of main, and settle its drift as far as the flags allow.

    Without `confirm` nothing changes. `force` also publishes rows nobody vouches for; `discard` restores the
    published version instead.

    Raises:
        InputError: `force` or `discard` without `confirm`, or both together.
        RecoveryRequiredError: a write is unfinished.
    """
    said = with_message(message)
    if (force or discard) and not confirm:
        raise InputError(f"--{'force' if force else 'discard'} changes what is published: pass --confirm as well")
    if force and discard:
        raise InputError("--force publishes the drift and --discard removes it: choose one")
    if confirm and context.read_only:
        raise InputError("this graph was opened read-only; open it read-write to repair it")
    refuse_while_pending(context.recovery, "repair")
    snapshot = context.manifest.snapshot(MAIN)
    keys = [(key, None) for key, entry in snapshot.entries.items() if entry.branch is None]

    def settle() -> RepairReport:
        refuse_while_pending(context.recovery, "repair")
        snapshot = context.manifest.snapshot(MAIN)
        seen = [_inspect(context, entry) for entry in snapshot.entries.values() if entry.branch is None]
        tables = tuple(_with_action(table, confirm=confirm, force=force, discard=discard) for table in seen)
        return _carry_out(context, snapshot, tables, said)

    return Mutexes.at(context.root).hold(keys, settle)


def _inspect(context: GraphContext, entry: TableEntry) -> TableRepair:
    head = context.store.open(entry.path)
    if head.version == entry.version:
        return TableRepair(entry.table_key, entry.version, head.version, Classification.NO_DRIFT, RepairAction.NO_OP)
    operations: tuple[str, ...] = ()
    error = None
    try:
        found = context.store.transactions(entry.path, None, after=entry.version, upto=head.version)
        operations = tuple(commit.operation or "unknown" for commit in found)
        classification = _classify(operations, same_rows=head.count_rows() == entry.row_count)
    except GraphError as exc:
        classification, error = Classification.UNVERIFIABLE, str(exc)
    return TableRepair(
        entry.table_key, entry.version, head.version, classification, RepairAction.PREVIEW, operations, error
    )


def _classify(operations: tuple[str, ...], *, same_rows: bool) -> Classification:
    if "unknown" in operations:
        return Classification.UNVERIFIABLE
    harmless = same_rows and _HARMLESS.issuperset(operations)
    return Classification.VERIFIED_MAINTENANCE if harmless else Classification.SUSPICIOUS


def _with_action(table: TableRepair, *, confirm: bool, force: bool, discard: bool) -> TableRepair:
    if table.classification is Classification.NO_DRIFT or not confirm:
        return table
    if discard:
        action = RepairAction.DISCARDED
    elif table.classification is Classification.VERIFIED_MAINTENANCE:
        action = RepairAction.HEALED
    else:
        action = RepairAction.FORCED if force else RepairAction.REFUSED
    facts = {**table.__dict__, "action": action}
    return TableRepair(**facts)


def _carry_out(
    context: GraphContext, snapshot: Snapshot, tables: tuple[TableRepair, ...], said: Mapping[str, str]
) -> RepairReport:
    publishing = [table for table in tables if table.action in (RepairAction.HEALED, RepairAction.FORCED)]
    discarding = [table for table in tables if table.action is RepairAction.DISCARDED]
    if not publishing and not discarding:
        return RepairReport(tables)
    forced = any(table.action is not RepairAction.HEALED for table in [*publishing, *discarding])
    versions = {table.table_key: table.lance_head_version for table in publishing}
    for table in discarding:
        entry = snapshot.entry(table.table_key)
        versions[table.table_key] = context.store.restore(entry.path, None, entry.version, {}).version
    request = CommitRequest(
        REPAIR,
        MAIN,
        snapshot,
        pointers=tuple(_pointer(context, snapshot.entry(key), version) for key, version in sorted(versions.items())),
        actor=FORCED_REPAIR_ACTOR if forced else REPAIR_ACTOR,
        properties=said,
    )
    return RepairReport(tables, commit_once(context.recovery, request).commit_id)


def _pointer(context: GraphContext, entry: TableEntry, version: int) -> TablePointer:
    rows = context.store.open(entry.path, version=version).count_rows()
    return TablePointer(entry, version, None, rows)
