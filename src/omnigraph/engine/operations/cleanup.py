"""Remove old versions of tables, states without them, refs that nothing publishes, files that nothing refers to.

What is removed is gone. Floors keep it safe: nothing runs while a write is unfinished or a table drifted; a version
that any branch publishes stays, with everything newer; so does what a tag names, of a table or of the whole graph, the
state in which two branches parted, and a version with a file that a branch was given by reference; if any branch cannot
be read, nothing is removed at all. Files of refused and broken writes go at once, whatever their age, unless a living
process may be about to commit them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from msgspec import Struct

from omnigraph.engine.commit.drift import check
from omnigraph.engine.coordination import lease as policy
from omnigraph.engine.coordination.branch_lock import BranchLock, await_branch_changes, cleaning, locked_branch
from omnigraph.engine.coordination.heartbeat import living_writers
from omnigraph.engine.coordination.mutex import Mutexes
from omnigraph.engine.manifest.lineage import live_bases
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.forget import forget_unreadable_states
from omnigraph.engine.operations.orphan_tables import count_files, drop_orphan_tables, unregistered
from omnigraph.engine.recovery.forks import children_first, drop_orphans
from omnigraph.engine.recovery.sweep import refuse_while_pending
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.lent import lenders
from omnigraph.engine.storage.orphans import list_files, remove_files, unreferenced
from omnigraph.engine.storage.residual import CleanupStats
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import ConflictError, GraphError, InputError, NotFoundError
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

    A table that no state of the graph knew is called by the folder it lay in.
    Of the manifest those states are removed that name a version of a table that is gone.
    """

    tables: tuple[TableCleanup, ...]
    manifest: TableCleanup

    @property
    def failed(self) -> bool:
        """True when a table could not be cleaned."""
        return any(table.error is not None for table in (*self.tables, self.manifest))


@dataclass(frozen=True)
class PlannedCleanup:
    """What would be removed of one table: versions by number and time, forks, files that no version knows."""

    table_key: TableKey
    versions: Mapping[int, datetime] = field(default_factory=dict)
    forks: tuple[str, ...] = ()
    orphan_files: int = 0
    orphan_bytes: int = 0
    error: str | None = None


@dataclass(frozen=True)
class CleanupPlan:
    """What a cleanup would remove, table by table."""

    tables: tuple[PlannedCleanup, ...]

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to remove."""
        return not any(table.versions or table.forks or table.orphan_files for table in self.tables)


def plan_cleanup(
    context: GraphContext, *, keep_versions: int | None = None, older_than: timedelta | None = None
) -> CleanupPlan:
    """What `cleanup` with these bounds would remove if it ran now, found as it finds it; nothing is changed.

    Raises:
        InputError: neither bound is given, or one makes no sense.
        RecoveryRequiredError: a write is unfinished, so a cleanup would be refused.
    """
    bounds = _bounds(keep_versions, older_than)
    refuse_while_pending(context.recovery, "cleanup")
    snapshots = context.manifest.snapshots()
    main = next(snapshot for snapshot in snapshots if snapshot.branch == MAIN)
    protected = _protected(context)
    tables = [_planned(context, snapshots, protected, key, bounds) for key in main.entries]
    for path in unregistered(context.store.objects, snapshots):
        files, size = count_files(context.store.objects, path)
        tables.append(PlannedCleanup(TableKey(path), orphan_files=files, orphan_bytes=size))
    return CleanupPlan(tuple(tables))


def _planned(
    context: GraphContext, snapshots: list[Snapshot], protected: list[Snapshot], key: TableKey, bounds: _Bounds
) -> PlannedCleanup:
    path = _path_of(snapshots, key)
    try:
        times = context.store.version_times(path)
        doomed = _doomed(context, snapshots, protected, key, bounds)
        # A branch point stays readable although no bound keeps it, because the branch reads its files.
        doomed = [version for version in doomed if version not in context.store.branch_points(path).values()]
        forks = tuple(_orphan_forks(context, [*snapshots, *protected], path))
        orphans = _orphan_files(context, path)
        removed = {version: times[version] for version in doomed}
        return PlannedCleanup(key, removed, forks, len(orphans), sum(orphans.values()))
    except GraphError as exc:
        return PlannedCleanup(key, error=str(exc))


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
    bounds = _bounds(keep_versions, older_than)
    refuse_while_pending(context.recovery, "cleanup")
    maybe_fail(CLEANUP_PRE_GATES)
    snapshots = _snapshots(context)
    main = next(snapshot for snapshot in snapshots if snapshot.branch == MAIN)
    keys = [(key, None) for key in main.entries]
    return Mutexes.at(context.root).hold(
        keys, lambda: cleaning(context.recovery.intents, lambda lock: _holding_mutexes(context, bounds, lock))
    )


class _Bounds(Struct, frozen=True):
    """What is to be kept; a version must be beyond both to go."""

    keep_versions: int | None
    older_than: timedelta | None


def _bounds(keep_versions: int | None, older_than: timedelta | None) -> _Bounds:
    if keep_versions is None and older_than is None:
        raise InputError("cleanup removes history for good: say how much to keep, with --keep or --older-than")
    if keep_versions is not None and keep_versions < 1:
        raise InputError("--keep must be at least 1: the published version always stays")
    return _Bounds(keep_versions, older_than)


def _holding_mutexes(context: GraphContext, bounds: _Bounds, lock: BranchLock) -> CleanupReport:
    # Again, holding the mutexes: from here on no writer of this process can arm an intent.
    refuse_while_pending(context.recovery, "cleanup")
    snapshots = _settled_snapshots(context)
    main = next(snapshot for snapshot in snapshots if snapshot.branch == MAIN)
    check(context.recovery, MAIN, (entry for entry in main.entries.values() if entry.branch is None))
    protected = _protected(context)
    left_over = _drop_manifest_leftovers(context)
    tables = []
    for key in main.entries:
        # A cleanup that stood still for long is taken for dead, and names are given to what it was about to remove.
        lock.check()
        tables.append(_clean(context, snapshots, protected, key, bounds))
    lock.check()
    tables.extend(_drop_orphan_tables(context))
    context.store.objects.drop_temporaries(layout.SMALL_FILES_IN, policy.GRACE_SECONDS)
    lock.check()
    return CleanupReport(tuple(tables), _forget_states(context, left_over))


def _drop_orphan_tables(context: GraphContext) -> list[TableCleanup]:
    """Remove tables that no state of the graph knows; they are told by their folders, because nothing says a name."""
    try:
        removed = drop_orphan_tables(context)
    except GraphError as exc:
        _log.warning("tables that nobody knows could not be removed: %s", exc)
        return [TableCleanup(TableKey(layout.MANIFEST), error=str(exc))]
    return [TableCleanup(TableKey(path), size, orphan_files_removed=files) for path, (files, size) in removed.items()]


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


def _forget_states(context: GraphContext, failures: list[str]) -> TableCleanup:
    key = TableKey(layout.MANIFEST)
    try:
        removed = forget_unreadable_states(context)
        return TableCleanup(key, removed.bytes_removed, removed.old_versions_removed, error="; ".join(failures) or None)
    except GraphError as exc:
        _log.warning("states that cannot be read any more could not be removed: %s", exc)
        return TableCleanup(key, error="; ".join([*failures, str(exc)]))


def _protected(context: GraphContext) -> list[Snapshot]:
    """The states of the whole graph that a tag names, ours or the manifest's, or at which branches parted."""
    tagged = context.store.tags(layout.MANIFEST)
    found = [context.manifest.snapshot(MAIN, version=version) for version in sorted(set(tagged.values()))]
    for tag in context.manifest.history.tags.list():
        try:
            found.append(context.manifest.history.snapshot_at(tag.graph_commit_id))
        except NotFoundError as exc:
            _log.warning("the tag '%s' keeps nothing: %s", tag.name, exc)
    return [*found, *_parted(context)]


def _parted(context: GraphContext) -> list[Snapshot]:
    """The states that merges between branches are compared with, as far as they can still be read."""
    found = []
    for commit in sorted(live_bases(context.manifest)):
        try:
            found.append(context.manifest.history.snapshot_at(commit))
        except NotFoundError as exc:
            _log.warning("branches parted at commit %s, which cannot be kept: %s", commit, exc)
    return found


def _clean(
    context: GraphContext,
    snapshots: list[Snapshot],
    protected: list[Snapshot],
    key: TableKey,
    bounds: _Bounds,
) -> TableCleanup:
    path = _path_of(snapshots, key)
    try:
        maybe_fail(CLEANUP_TABLE)
        failures: list[str] = []
        forks = _drop_orphan_forks(context, [*snapshots, *protected], path, failures)
        doomed = _doomed(context, snapshots, protected, key, bounds)
        orphans = _reclaim_orphans(context, path)
        removed = CleanupStats(0, 0)
        if doomed:
            removed = context.store.residual.cleanup_versions(path, versions=doomed)
        freed = removed.bytes_removed + sum(orphans.values())
        error = "; ".join(failures) or None
        return TableCleanup(key, freed, removed.old_versions_removed, forks, len(orphans), error)
    except GraphError as exc:
        _log.warning("cleaning %s failed: %s", key, exc)
        return TableCleanup(key, error=str(exc))


def _path_of(snapshots: list[Snapshot], key: TableKey) -> str:
    return next(snapshot for snapshot in snapshots if key in snapshot.entries).entry(key).path


def _doomed(
    context: GraphContext, snapshots: list[Snapshot], protected: list[Snapshot], key: TableKey, bounds: _Bounds
) -> list[int]:
    """The versions of a table that the bounds give up and nothing keeps."""
    path = _path_of(snapshots, key)
    pinned = [
        entry.version
        for snapshot in snapshots
        if (entry := snapshot.entries.get(key)) is not None and entry.branch is None and entry.path == path
    ]
    kept = set(context.store.tags(path).values()).union(
        entry.version for tagged in protected for entry in tagged.entries.values() if entry.path == path
    )
    times = context.store.version_times(path)
    found = removable(times, pinned, bounds.keep_versions, bounds.older_than, datetime.now(UTC), kept=kept)
    lending = lenders(context.store, path, found)
    return [version for version in found if version not in lending]


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
        below = [version for version in below if now - times[version] >= older_than]
    return below


def _drop_manifest_leftovers(context: GraphContext) -> list[str]:
    """Remove the files of branches whose deletion was cut short after it had counted; returns what failed."""
    store = context.store
    failures: list[str] = []
    for name in _without_ref(store, layout.MANIFEST):
        try:
            locked_branch(context.recovery.intents, name, partial(_drop_leftover, store, name))
        except GraphError as exc:
            _log.warning("what is left of the branch %s could not be removed: %s", name, exc)
            failures.append(str(exc))
    return failures


def _drop_leftover(store: TableStore, name: str, lock: BranchLock) -> None:
    if name in _without_ref(store, layout.MANIFEST):
        lock.check()
        store.residual.delete_branch(layout.MANIFEST, name)


def _without_ref(store: TableStore, path: str) -> list[str]:
    """The branches of a table that have files but no ref, and lie in no other."""
    folders = store.branch_folders(path)
    refs = {*store.table_branches(path), SCHEMA_LOCK_BRANCH}
    return [name for name in folders if not any(overlaps(name, ref) for ref in refs)]


def _drop_orphan_forks(
    context: GraphContext, snapshots: list[Snapshot], path: str, failures: list[str]
) -> tuple[str, ...]:
    """Delete table refs that no branch publishes, and files without a ref, children before parents."""
    return drop_orphans(context.recovery, path, _orphan_forks(context, snapshots, path), failures)


def _orphan_forks(context: GraphContext, snapshots: list[Snapshot], path: str) -> list[str]:
    owned = {entry.branch for snapshot in snapshots for entry in snapshot.entries.values() if entry.path == path}
    parents = context.store.branch_parents(path)
    orphans = [*_without_ref(context.store, path), *children_first(parents)]
    return [name for name in orphans if name not in owned]


def _reclaim_orphans(context: GraphContext, path: str) -> dict[str, int]:
    """Remove the files that no version refers to, unless somebody may be about to commit them."""
    orphans = _orphan_files(context, path)
    remove_files(context.store, orphans)
    return orphans


def _orphan_files(context: GraphContext, path: str) -> dict[str, int]:
    """The files that no version refers to and nobody may be about to commit, with their sizes.

    The order matters: whoever stages leaves a note before its first file. With no living note after the files were
    listed, each of them is referred to by now, or never will be.
    """
    files = list_files(context.store, path)
    writers = living_writers(context.store.objects)
    if writers:
        _log.info("files that nothing refers to stay in %s: process %d may be writing", path, writers[0].pid)
        return {}
    return unreferenced(context.store, path, files)
