"""Remove old versions of tables, states without them, refs that nothing publishes, files that nothing refers to.

What is removed is gone. Floors keep it safe: nothing runs while a write is unfinished or a table drifted; a version
that any branch publishes stays, with everything newer; so does what a tag names, of a table or of the whole graph; if
any branch cannot be read, nothing is removed at all. Files of refused and broken loads go at once, whatever their age,
unless a living process may be about to commit them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.forget import forget_unreadable_states
from omnigraph.engine.recovery.branch_lock import await_branch_changes, locked_branch
from omnigraph.engine.recovery.drift import check
from omnigraph.engine.recovery.forks import children_first, drop_orphans
from omnigraph.engine.recovery.presence import living_writers
from omnigraph.engine.recovery.sweep import refuse_while_pending
from omnigraph.engine.staging.context import GraphContext
from omnigraph.engine.staging.gates import Gates
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.orphans import list_files, remove_files, unreferenced
from omnigraph.engine.storage.residual import CleanupStats
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import ConflictError, GraphError, InputError
from omnigraph.failpoints import CLEANUP_BRANCH_SNAPSHOT, CLEANUP_PRE_GATES, CLEANUP_TABLE, maybe_fail
from omnigraph.ids import MAIN, SCHEMA_LOCK_BRANCH, TableKey, overlaps

_log = logging.getLogger(__name__)
BRANCH_WAIT_SECONDS = 10.0


@dataclass(frozen=True)
class TableCleanup:
    """What was removed of one table, or why not.

    `forks_removed` are refs that no branch published, `orphan_files_removed` counts files that no version knew.
    """

    table_key: TableKey
    bytes_removed: int = 0
    old_versions_removed: int = 0
    forks_removed: tuple[str, ...] = ()
    orphan_files_removed: int = 0
    error: str | None = None


@dataclass(frozen=True)
class CleanupReport:
    """Every table, and the manifest; one table's failure does not stop the others.

    Of the manifest those states are removed that name a version of a table that is gone.
    """

    tables: tuple[TableCleanup, ...]
    manifest: TableCleanup

    @property
    def failed(self) -> bool:
        """True when a table could not be cleaned."""
        return any(table.error is not None for table in (*self.tables, self.manifest))


def cleanup(
    context: GraphContext, *, keep_versions: int | None = None, older_than: timedelta | None = None
) -> CleanupReport:
    """Remove versions beyond the newest `keep_versions` and older than `older_than`; given both, beyond both.

    Raises:
        InputError: neither bound is given, or one makes no sense.
        RecoveryRequiredError: a write is unfinished; its way back may be one of the versions.
        DriftError: a table's head is not what is published.
        ConflictError: branches were being created or deleted all the time.
    """
    if context.read_only:
        raise InputError("this graph was opened read-only; open it read-write to clean it up")
    if keep_versions is None and older_than is None:
        raise InputError("cleanup removes history for good: say how much to keep, with --keep or --older-than")
    if keep_versions is not None and keep_versions < 1:
        raise InputError("--keep must be at least 1: the published version always stays")
    refuse_while_pending(context.recovery, "cleanup")
    maybe_fail(CLEANUP_PRE_GATES)
    snapshots = _snapshots(context)
    main = next(snapshot for snapshot in snapshots if snapshot.branch == MAIN)
    gates = Gates.at(context.root)
    with gates.acquire((key, None) for key in main.entries):
        # Again, behind the gates: from here on no writer of this process can arm an intent.
        refuse_while_pending(context.recovery, "cleanup")
        snapshots = _settled_snapshots(context)
        main = next(snapshot for snapshot in snapshots if snapshot.branch == MAIN)
        check(context.recovery, MAIN, (entry for entry in main.entries.values() if entry.branch is None))
        protected = _protected(context)
        _drop_manifest_leftovers(context)
        tables = [_clean(context, snapshots, protected, key, keep_versions, older_than) for key in main.entries]
        return CleanupReport(tuple(tables), _forget_states(context))


def _snapshots(context: GraphContext) -> list[Snapshot]:
    maybe_fail(CLEANUP_BRANCH_SNAPSHOT)
    return context.manifest.snapshots()


def _settled_snapshots(context: GraphContext) -> list[Snapshot]:
    """The state of every branch, of those included that were being created while they were read.

    A branch that begins to be created after that begins at a state of main that is not older than the one read here.
    """
    limit = time.monotonic() + BRANCH_WAIT_SECONDS
    while True:
        snapshots = _snapshots(context)
        await_branch_changes(context.recovery.intents, max(0.0, limit - time.monotonic()))
        if {snapshot.branch for snapshot in snapshots}.issuperset(context.manifest.branches()):
            return snapshots
        if time.monotonic() > limit:
            raise ConflictError("new branches kept coming while all were read — retry")


def _forget_states(context: GraphContext) -> TableCleanup:
    key = TableKey(layout.MANIFEST)
    try:
        removed = forget_unreadable_states(context)
        return TableCleanup(key, removed.bytes_removed, removed.old_versions_removed)
    except GraphError as exc:
        _log.warning("states that cannot be read any more could not be removed: %s", exc)
        return TableCleanup(key, error=str(exc))


def _protected(context: GraphContext) -> list[Snapshot]:
    """The states of the whole graph that a tag of the manifest names."""
    tagged = context.store.tags(layout.MANIFEST)
    return [context.manifest.snapshot(MAIN, version=version) for version in sorted(set(tagged.values()))]


def _clean(
    context: GraphContext,
    snapshots: list[Snapshot],
    protected: list[Snapshot],
    key: TableKey,
    keep_versions: int | None,
    older_than: timedelta | None,
) -> TableCleanup:
    path = next(snapshot for snapshot in snapshots if key in snapshot.entries).entry(key).path
    try:
        maybe_fail(CLEANUP_TABLE)
        forks = _drop_orphan_forks(context, snapshots, path)
        pinned = [
            entry.version
            for snapshot in snapshots
            if (entry := snapshot.entries.get(key)) is not None and entry.branch is None and entry.path == path
        ]
        kept = set(context.store.tags(path).values()).union(
            entry.version for tagged in protected for entry in tagged.entries.values() if entry.path == path
        )
        doomed = removable(
            context.store.version_times(path), pinned, keep_versions, older_than, datetime.now(UTC), kept=kept
        )
        orphans = _reclaim_orphans(context, path)
        removed = CleanupStats(0, 0)
        if doomed:
            removed = context.store.residual.cleanup_versions(path, versions=doomed)
        freed = removed.bytes_removed + sum(orphans.values())
        return TableCleanup(key, freed, removed.old_versions_removed, forks, len(orphans))
    except GraphError as exc:
        _log.warning("cleaning %s failed: %s", key, exc)
        return TableCleanup(key, error=str(exc))


def removable(
    times: dict[int, datetime],
    pinned: Iterable[int],
    keep_versions: int | None,
    older_than: timedelta | None,
    now: datetime,
    *,
    kept: Collection[int] = (),
) -> list[int]:
    """The versions that may go: below everything published, not `kept`, beyond the newest to keep, and old enough.

    Kept versions are counted in the list of those that exist, because numbers have gaps.
    """
    floor = min(pinned, default=0)
    below = [version for version in sorted(times) if version < floor and version not in kept]
    if keep_versions is not None:
        newest = set(sorted(times)[-keep_versions:])
        below = [version for version in below if version not in newest]
    if older_than is not None:
        below = [version for version in below if times[version] <= now - older_than]
    return below


def _drop_manifest_leftovers(context: GraphContext) -> None:
    """Remove the files of branches whose deletion was cut short after it had counted."""
    store = context.store
    for name in _without_ref(store, layout.MANIFEST):
        try:
            with locked_branch(context.recovery.intents, name) as lock:
                if name in _without_ref(store, layout.MANIFEST):
                    lock.check()
                    store.residual.delete_branch(layout.MANIFEST, name)
        except GraphError as exc:
            _log.warning("what is left of the branch %s could not be removed: %s", name, exc)


def _without_ref(store: TableStore, path: str) -> list[str]:
    """The branches of a table that have files but no ref, and lie in no other."""
    folders = store.branch_folders(path)
    refs = {*store.table_branches(path), SCHEMA_LOCK_BRANCH}
    return [name for name in folders if not any(overlaps(name, ref) for ref in refs)]


def _drop_orphan_forks(context: GraphContext, snapshots: list[Snapshot], path: str) -> tuple[str, ...]:
    """Delete table refs that no branch publishes, and files without a ref, children before parents."""
    owned = {entry.branch for snapshot in snapshots for entry in snapshot.entries.values() if entry.path == path}
    parents = context.store.branch_parents(path)
    orphans = [*_without_ref(context.store, path), *children_first(parents)]
    return drop_orphans(context.recovery, path, [name for name in orphans if name not in owned])


def _reclaim_orphans(context: GraphContext, path: str) -> dict[str, int]:
    """Remove the files that no version refers to, unless somebody may be about to commit them.

    The order matters: whoever stages leaves a note before its first file. With no living note after the files were
    listed, each of them is referred to by now, or never will be.
    """
    files = list_files(context.store, path)
    writers = living_writers(context.store.objects)
    if writers:
        _log.info("files that nothing refers to stay in %s: process %d may be writing", path, writers[0].pid)
        return {}
    orphans = unreferenced(context.store, path, files)
    remove_files(context.store, orphans)
    return orphans
