"""Settings that other programs store with a table, and that make Lance remove versions inside commits.

Whether a version may go is decided by `cleanup`, which knows the branches and the writes in flight; Lance does not. A
table that was made, or configured, by another program may have automatic removal on, and then any commit to it may take
away what a branch reads. So such settings are taken off before anything else is committed: as one commit of the graph
like any other, by the same five steps, because a table's version without a publish would be drift.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from omnigraph.engine.manifest.delta import Lineage, UpdateTable
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery import Effect, Intent, RecoveryContext, WriterKind, new_intent, roll_back
from omnigraph.engine.staging.context import GraphContext
from omnigraph.engine.staging.gates import Gates
from omnigraph.errors import ConflictError, GraphError, RecoveryRequiredError
from omnigraph.ids import MAIN, CommitId, TableKey, now_micros, stored_branch

logger = logging.getLogger(__name__)


def tables_with_removal(snapshot: Snapshot, keys: Iterable[TableKey] | None = None) -> list[TableKey]:
    """The tables of the snapshot's own branch, of all or of some, in which commits would remove versions."""
    branch = stored_branch(snapshot.branch)
    asked = snapshot.entries if keys is None else keys
    return [
        key for key in sorted(asked) if snapshot.entry(key).branch == branch and snapshot.open(key).removal_settings
    ]


def strip_main(context: GraphContext, actor: str | None = None) -> bool:
    """Take the settings off every table of main; False when there was none."""
    found = tables_with_removal(context.manifest.snapshot(MAIN))
    if found:
        with Gates.at(context.root).acquire((key, None) for key in found):
            strip(context.recovery, MAIN, found, actor)
    return bool(found)


def strip(recovery: RecoveryContext, branch: str, keys: Iterable[TableKey], actor: str | None = None) -> None:
    """Take the settings off some tables of a branch, as one commit; the caller holds their gates.

    Raises:
        ConflictError: another writer was faster; nothing changed.
        RecoveryRequiredError: it is unfinished; the next write or open of the graph finishes it.
    """
    snapshot = recovery.manifest.snapshot(branch)
    found = tables_with_removal(snapshot, keys)
    if not found:
        return
    logger.warning("automatic removal of versions is taken off %s", ", ".join(found))
    stored = stored_branch(branch)
    entries = [snapshot.entry(key) for key in found]
    effects = tuple(Effect.on(e.table_key, e.path, e.version, branch=stored) for e in entries)
    intent = recovery.intents.arm(new_intent(WriterKind.OPTIMIZE, stored, effects, actor_id=actor))
    try:
        changes = [_strip_one(recovery, snapshot, intent, key) for key in found]
        recovery.manifest.publish(
            branch,
            changes,
            expected={entry.table_key: entry.version for entry in entries},
            lineage=Lineage(_commit_id(intent), actor, now_micros()),
            operation_id=intent.operation_id,
        )
    except ConflictError:
        roll_back(recovery, intent)
        raise
    except GraphError as failure:
        recovery.intents.abandon(intent.operation_id)
        raise RecoveryRequiredError(
            f"settings were taken off tables but this is not published ({failure}) — the next write or open of the"
            " graph does that",
            operation_id=intent.operation_id,
        ) from failure
    recovery.intents.disarm(intent.operation_id)


def _strip_one(recovery: RecoveryContext, snapshot: Snapshot, intent: Intent, key: TableKey) -> UpdateTable:
    entry, base = snapshot.entry(key), snapshot.open(key)
    gone = dict.fromkeys(base.removal_settings)
    handle = recovery.store.annotate(base, config=gone, properties=intent.properties(1))
    if handle.version != entry.version + 1:
        raise ConflictError(f"another writer changed '{key}' first — retry")
    return UpdateTable(key, handle.version, entry.branch, entry.row_count, intent.table_facts(entry.branch))


def _commit_id(intent: Intent) -> CommitId:
    assert intent.commit_id is not None  # minted by new_intent
    return intent.commit_id
