"""Settings that other programs store with a table, and that make Lance remove versions inside commits.

Whether a version may go is decided by `cleanup`, which knows the branches and the writes in flight; Lance does not. A
table that was made, or configured, by another program may have automatic removal on, and then any commit to it may take
away what a branch reads. So such settings are taken off before anything else is committed: as one commit of the graph
like any other, by the same five steps, because a table's version without a publish would be drift.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from omnigraph.engine.commit.kinds import SETTINGS
from omnigraph.engine.commit.path import commit_once
from omnigraph.engine.commit.request import CommitRequest, TableCommit
from omnigraph.engine.coordination.mutex import Mutexes
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery import RecoveryContext
from omnigraph.engine.storage.staged import stage_config
from omnigraph.engine.write.context import GraphContext
from omnigraph.ids import MAIN, TableKey, stored_branch

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
        keys = [(key, None) for key in found]
        Mutexes.at(context.root).hold(keys, lambda: strip(context.recovery, MAIN, found, actor))
    return bool(found)


def strip(recovery: RecoveryContext, branch: str, keys: Iterable[TableKey], actor: str | None = None) -> None:
    """Take the settings off some tables of a branch, as one commit; the caller holds their mutexes.

    Raises:
        ConflictError: another writer was faster; nothing changed.
        RecoveryRequiredError: it is unfinished; the next write or open of the graph finishes it.
    """
    snapshot = recovery.manifest.snapshot(branch)
    found = tables_with_removal(snapshot, keys)
    if not found:
        return
    logger.warning("automatic removal of versions is taken off %s", ", ".join(found))
    tables = tuple(_without_removal(snapshot, key) for key in found)
    commit_once(recovery, CommitRequest(SETTINGS, branch, snapshot, tables, actor=actor))


def _without_removal(snapshot: Snapshot, key: TableKey) -> TableCommit:
    base = snapshot.open(key)
    gone = stage_config(base, dict.fromkeys(base.removal_settings))
    return TableCommit(snapshot.entry(key), (gone,), key, base)
