"""A branch gets its own line of a table with its first write to it.

Refs have no compare-and-swap, so of the writers that want to make the same one all but one make way.
"""

from __future__ import annotations

from collections.abc import Callable

from omnigraph import failpoints
from omnigraph.engine.commit.request import CommitRequest, TableCommit
from omnigraph.engine.commit.stale import StaleWrite
from omnigraph.engine.coordination.intent import Intent
from omnigraph.engine.coordination.owner import Liveness
from omnigraph.engine.recovery import RecoveryContext, heal
from omnigraph.engine.recovery.forks import children_first, drop_fork
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.errors import ConflictError, ExpectedVersionMismatchError, InternalError, StorageError
from omnigraph.ids import TableKey, overlaps, stored_branch


def secure_forks(context: RecoveryContext, request: CommitRequest, intent: Intent) -> None:
    """Make sure, now that the intent is stored, that no one else is giving the branch a line of the same tables.

    Everybody looks at the intents after storing their own, so of two writers at least one sees the other and makes
    way. What the newest manifest then does not place on the branch is nobody's, and a ref of that name may go.
    """
    forks = {table.table_key for table in request.tables if table.forks}
    if not forks:
        return
    try:
        failpoints.maybe_fail(failpoints.FORK_BEFORE_CLASSIFY)
        others = [other for other in context.intents.pending() if _forks_too(other, intent, forks)]
        if others:
            if all(context.intents.liveness(other) is not Liveness.LIVE for other in others):
                heal(context)
            raise ConflictError(f"another writer is committing to '{request.branch}' for the first time — retry")
        failpoints.maybe_fail(failpoints.CLASSIFY_FRESH_READ)
        current = context.manifest.snapshot(request.branch)
        for key in sorted(forks):
            if current.entry(key) != request.base.entry(key):
                seen, actual = request.base.entry(key).version, current.entry(key).version
                raise ExpectedVersionMismatchError(table_key=key, expected=seen, actual=actual)
    except ConflictError as refused:
        raise StaleWrite(refused, counts=False) from refused


def _forks_too(other: Intent, own: Intent, forks: set[TableKey]) -> bool:
    return other.operation_id != own.operation_id and any(
        effect.fork and effect.table_key in forks and effect.table_branch == own.branch for effect in other.effects
    )


def fork(
    context: RecoveryContext, request: CommitRequest, table: TableCommit, check_owned: Callable[[], None]
) -> TableHandle:
    """Give the branch its own line of the table, at the version it has inherited; returns that, opened.

    `check_owned` raises when others have settled the write, because this process stood still: then a line of the table
    may be theirs, and published.
    """
    entry, store = table.entry, context.store
    branch = stored_branch(request.branch)
    if branch is None:
        raise InternalError(f"main inherits '{table.table_key}' from branch '{entry.branch}'")
    failpoints.maybe_fail(failpoints.MUTATION_PRE_FORK)
    # The newest manifest does not place the table on this branch, so a ref of its name is what a crash or an earlier
    # branch of that name left behind. So is one whose name contains the other's: live branches never do that, and
    # the folders of both would lie in each other.
    for name in [name for name in children_first(store.branch_parents(entry.path)) if overlaps(name, branch)]:
        failpoints.maybe_fail(failpoints.FORK_BEFORE_RECLAIM)
        check_owned()
        drop_fork(context, entry.path, name)
    try:
        store.residual.create_branch(entry.path, branch, source=entry.branch, version=entry.version)
        failpoints.maybe_fail(failpoints.MUTATION_POST_FORK)
        return store.open(entry.path, branch=branch)
    except StorageError:
        check_owned()
        raise
