"""Remove old versions of tables, and table refs that nothing publishes. What is removed is gone.

Floors keep it safe: nothing runs while a write is unfinished or a table drifted; a version that any branch publishes
stays, with everything newer; if any branch cannot be read, nothing is removed at all.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery.drift import check
from omnigraph.engine.recovery.sweep import refuse_while_pending
from omnigraph.engine.staging.context import GraphContext
from omnigraph.engine.staging.gates import Gates
from omnigraph.errors import GraphError, InputError
from omnigraph.failpoints import CLEANUP_BRANCH_SNAPSHOT, CLEANUP_FORK, CLEANUP_PRE_GATES, CLEANUP_TABLE, maybe_fail
from omnigraph.ids import MAIN, TableKey

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableCleanup:
    """What was removed of one table, or why not; `forks_removed` are refs that no branch published."""

    table_key: TableKey
    bytes_removed: int = 0
    old_versions_removed: int = 0
    forks_removed: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class CleanupReport:
    """Every table; one table's failure does not stop the others."""

    tables: tuple[TableCleanup, ...]

    @property
    def failed(self) -> bool:
        """True when a table could not be cleaned."""
        return any(table.error is not None for table in self.tables)


def cleanup(
    context: GraphContext, *, keep_versions: int | None = None, older_than: timedelta | None = None
) -> CleanupReport:
    """Remove versions beyond the newest `keep_versions` and older than `older_than`; given both, beyond both.

    Raises:
        InputError: neither bound is given, or one makes no sense.
        RecoveryRequiredError: a write is unfinished; its way back may be one of the versions.
        DriftError: a table's head is not what is published.
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
        snapshots = _snapshots(context)
        main = next(snapshot for snapshot in snapshots if snapshot.branch == MAIN)
        check(context.recovery, MAIN, (entry for entry in main.entries.values() if entry.branch is None))
        return CleanupReport(tuple(_clean(context, snapshots, key, keep_versions, older_than) for key in main.entries))


def _snapshots(context: GraphContext) -> list[Snapshot]:
    maybe_fail(CLEANUP_BRANCH_SNAPSHOT)
    return [context.manifest.snapshot(branch) for branch in context.manifest.branches()]


def _clean(
    context: GraphContext,
    snapshots: list[Snapshot],
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
        doomed = removable(context.store.version_times(path), pinned, keep_versions, older_than, datetime.now(UTC))
        if not doomed:
            return TableCleanup(key, forks_removed=forks)
        stats = context.store.residual.cleanup_versions(path, versions=doomed)
        return TableCleanup(key, stats.bytes_removed, stats.old_versions_removed, forks)
    except GraphError as exc:
        _log.warning("cleaning %s failed: %s", key, exc)
        return TableCleanup(key, error=str(exc))


def removable(
    times: dict[int, datetime],
    pinned: Iterable[int],
    keep_versions: int | None,
    older_than: timedelta | None,
    now: datetime,
) -> list[int]:
    """The versions that may go: below everything published, beyond the newest to keep, and old enough.

    Kept versions are counted in the list of those that exist, because numbers have gaps.
    """
    floor = min(pinned, default=0)
    below = [version for version in sorted(times) if version < floor]
    if keep_versions is not None:
        newest = set(sorted(times)[-keep_versions:])
        below = [version for version in below if version not in newest]
    if older_than is not None:
        below = [version for version in below if times[version] <= now - older_than]
    return below


def _drop_orphan_forks(context: GraphContext, snapshots: list[Snapshot], path: str) -> tuple[str, ...]:
    """Delete table refs that no branch publishes, children before parents."""
    owned = {entry.branch for snapshot in snapshots for entry in snapshot.entries.values() if entry.path == path}
    orphans = sorted(set(context.store.table_branches(path)) - owned, key=lambda name: (-len(name), name))
    removed = []
    for orphan in orphans:
        try:
            maybe_fail(CLEANUP_FORK)
            context.store.residual.delete_branch(path, orphan)
            removed.append(orphan)
        except GraphError as exc:
            _log.warning("the unpublished ref %s of %s could not be removed: %s", orphan, path, exc)
    return tuple(removed)
