"""From staged to visible: arm, apply, publish, disarm.

The one path by which anything becomes visible. Behind the gates of its tables a write is compared with the newest
snapshot, leaves its intent, commits each table in ascending key order strictly at the version it was staged on, and
publishes with an expectation for every table it wrote or read. What fails before the first effect leaves nothing;
what fails after it is undone by the writer itself, unless only the publish is missing, which recovery then supplies.
"""

from __future__ import annotations

import logging
import time

from omnigraph import failpoints
from omnigraph.dataclass import dataclass
from omnigraph.engine.manifest.delta import Change, Lineage, UpdateTable
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery import Effect, Intent, RecoveryContext, drift, heal, new_intent, roll_back, was_published
from omnigraph.engine.recovery.decide import RecoveryKind
from omnigraph.engine.recovery.drift import Drift, DriftKind
from omnigraph.engine.recovery.forks import children_first, drop_fork
from omnigraph.engine.recovery.owner import Liveness
from omnigraph.engine.recovery.schema_lock import refuse_while_locked
from omnigraph.engine.staging.columns import ColumnCache
from omnigraph.engine.staging.fencing import BranchFence, check_staged_files
from omnigraph.engine.staging.transaction import TableWrite, Transaction
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.errors import (
    ConflictError,
    ExpectedVersionMismatchError,
    GraphError,
    InternalError,
    PreconditionFailedError,
    PublishContentionError,
    RecoveryRequiredError,
)
from omnigraph.ids import CommitId, TableKey, now_micros, overlaps, stored_branch

logger = logging.getLogger(__name__)

IN_FLIGHT_WAIT_SECONDS = 30.0
IN_FLIGHT_POLL_SECONDS = 0.003
PUBLISH_WAIT_SECONDS = 20.0


class StaleAttempt(Exception):  # never leaves this package: the writer repeats or raises `conflict`
    """Nothing of this attempt is left, and its snapshot is outdated; `conflict` is what a caller would be told."""

    def __init__(self, conflict: GraphError, *, counts: bool = True) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict
        self.counts = counts


@dataclass(frozen=True)
class Committed:
    """A published write."""

    snapshot: Snapshot
    commit_id: CommitId


def commit(recovery: RecoveryContext, transaction: Transaction, deadline: float) -> Committed:
    """Make a staged transaction visible. The caller holds the gates of every table it writes.

    Raises:
        StaleAttempt: the snapshot is outdated; nothing is left of this attempt.
        ExpectedVersionMismatchError: a table that must not have changed did.
        PreconditionFailedError: the branch head is not the one demanded.
        DriftError: a table holds commits that are not published and not ours to undo.
        RecoveryRequiredError: the write is unfinished; the next write or open resolves it.
    """
    fence = BranchFence.at(recovery, transaction.request.branch)
    _check_current(recovery, transaction)
    _check_drift(recovery, transaction, deadline)
    _check_forks(recovery, transaction, deadline)
    transaction.request.cancellation.check()
    failpoints.maybe_fail(failpoints.MUTATION_PRE_ARM)
    intent = recovery.intents.arm(_intent(transaction))
    _secure(recovery, transaction, intent, fence)
    _secure_forks(recovery, transaction, intent)
    handles = _apply(recovery, transaction, intent, fence)
    settle = transaction.snapshot.hand_over(handles)
    committed = _publish(recovery, transaction, intent, handles, fence)
    settle(committed.snapshot)
    return committed


def _intent(transaction: Transaction) -> Intent:
    request = transaction.request
    branch = stored_branch(request.branch)
    effects = tuple(
        Effect.on(key, write.entry.path, write.entry.version, branch=branch, fork=write.forks)
        for key, write in sorted(transaction.writes.items())
    )
    return new_intent(
        request.kind,
        branch,
        effects,
        actor_id=request.actor,
        read_set=transaction.read_set,
        merge_source_commit_id=request.merged_parent,
        expected_head=request.if_commit,
        commit_properties=dict(request.properties),
    )


# --- before any effect -----------------------------------------------------------------------------------------------


def _check_current(recovery: RecoveryContext, transaction: Transaction) -> None:
    """Compare what the attempt saw with what is published now."""
    request = transaction.request
    current = recovery.manifest.snapshot(request.branch)
    if request.if_commit is not None and current.head != request.if_commit:
        raise PreconditionFailedError(expected=request.if_commit, actual=current.head)
    if (current.version, current.head) == (transaction.snapshot.version, transaction.snapshot.head):
        return
    if current.schema_hash != transaction.snapshot.schema_hash:
        raise ConflictError("the schema has been changed since this write was prepared — retry")
    strict = set(transaction.strict_tables)
    stale: ConflictError | None = None
    for key, seen in transaction.expected.items():
        actual = current.state.current_version(key)
        if actual == seen and current.entry(key).branch == transaction.snapshot.entry(key).branch:
            continue
        mismatch = ExpectedVersionMismatchError(table_key=key, expected=seen, actual=actual)
        if key in strict:
            raise mismatch
        stale = stale or mismatch
    if stale is not None:
        raise StaleAttempt(stale)


def _check_drift(recovery: RecoveryContext, transaction: Transaction, deadline: float) -> None:
    """Make sure that no table holds unpublished commits; wait for, heal or undo what is in the way."""
    branch = transaction.request.branch
    entries = [write.entry for _, write in sorted(transaction.writes.items()) if not write.forks]
    for found in drift.find_drift(recovery, branch, entries):
        if found.kind is DriftKind.IN_FLIGHT:
            refuse_while_locked(recovery.intents, "writing")
            _await_writer(recovery, branch, found, deadline)
        elif found.kind is DriftKind.PENDING:
            heal(recovery)
        elif found.kind is DriftKind.LATE:
            drift.undo_late(recovery, branch, found)
        else:
            raise found.error()
        raise StaleAttempt(found.error(), counts=found.kind is not DriftKind.IN_FLIGHT)


def _check_forks(recovery: RecoveryContext, transaction: Transaction, deadline: float) -> None:
    """Wait for a living writer that is giving the branch its own line of the same table."""
    branch = stored_branch(transaction.request.branch)
    forks = {key for key, write in transaction.writes.items() if write.forks}
    limit = min(deadline, time.monotonic() + IN_FLIGHT_WAIT_SECONDS)
    waited = False
    while forks:
        others = [
            effect.table_key
            for intent in recovery.intents.pending()
            if recovery.intents.liveness(intent) is Liveness.LIVE
            for effect in intent.effects
            if effect.table_key in forks and effect.table_branch == branch
        ]
        if not others:
            break
        if time.monotonic() > limit:
            raise ConflictError(f"another writer is committing to '{others[0]}' on '{branch}' — retry")
        waited = True
        time.sleep(IN_FLIGHT_POLL_SECONDS)
    if waited:
        raise StaleAttempt(ConflictError(f"another writer has just written to '{branch}' — retry"), counts=False)


def _secure(recovery: RecoveryContext, transaction: Transaction, intent: Intent, fence: BranchFence) -> None:
    """Make sure that what this write rests on is still there, now that the intent keeps others from taking it away.

    That is the branch it has seen, and the files it has staged.
    """
    try:
        fence.check_same()
    except ConflictError as refused:
        recovery.intents.disarm(intent.operation_id)
        raise StaleAttempt(refused) from refused
    except BaseException:
        recovery.intents.disarm(intent.operation_id)
        raise
    try:
        check_staged_files(recovery.store, transaction)
    except BaseException:
        recovery.intents.disarm(intent.operation_id)
        raise


def _secure_forks(recovery: RecoveryContext, transaction: Transaction, intent: Intent) -> None:
    """Make sure, now that the intent is stored, that no one else is giving the branch a line of the same tables.

    Everybody looks at the intents after storing their own, so of two writers at least one sees the other and makes
    way. What the newest manifest then does not place on the branch is nobody's, and a ref of that name may go.
    """
    forks = {key for key, write in transaction.writes.items() if write.forks}
    if not forks:
        return
    branch = transaction.request.branch
    try:
        failpoints.maybe_fail(failpoints.FORK_BEFORE_CLASSIFY)
        others = [other for other in recovery.intents.pending() if _forks_too(other, intent, forks)]
        if others:
            if all(recovery.intents.liveness(other) is not Liveness.LIVE for other in others):
                heal(recovery)
            raise ConflictError(f"another writer is committing to '{branch}' for the first time — retry")
        failpoints.maybe_fail(failpoints.CLASSIFY_FRESH_READ)
        current = recovery.manifest.snapshot(branch)
        for key in sorted(forks):
            if current.entry(key) != transaction.snapshot.entry(key):
                seen, actual = transaction.snapshot.entry(key).version, current.entry(key).version
                raise ExpectedVersionMismatchError(table_key=key, expected=seen, actual=actual)
    except ConflictError as refused:
        recovery.intents.disarm(intent.operation_id)
        raise StaleAttempt(refused, counts=False) from refused
    except BaseException:
        recovery.intents.disarm(intent.operation_id)
        raise


def _forks_too(other: Intent, own: Intent, forks: set[TableKey]) -> bool:
    return other.operation_id != own.operation_id and any(
        effect.fork and effect.table_key in forks and effect.table_branch == own.branch for effect in other.effects
    )


def _await_writer(recovery: RecoveryContext, branch: str, found: Drift, deadline: float) -> None:
    """Wait until a living writer elsewhere has published or undone its commit to the table."""
    limit = min(deadline, time.monotonic() + IN_FLIGHT_WAIT_SECONDS)
    while time.monotonic() < limit:
        time.sleep(IN_FLIGHT_POLL_SECONDS)
        entry = recovery.manifest.snapshot(branch).entries.get(found.entry.table_key)
        if entry is None or entry.version != found.entry.version:
            return
        if all(again.kind is not DriftKind.IN_FLIGHT for again in drift.find_drift(recovery, branch, [entry])):
            return
    raise found.error()


# --- effects ---------------------------------------------------------------------------------------------------------


def _apply(
    recovery: RecoveryContext, transaction: Transaction, intent: Intent, fence: BranchFence
) -> dict[TableKey, TableHandle]:
    handles: dict[TableKey, TableHandle] = {}
    try:
        for key, write in sorted(transaction.writes.items()):
            fence.check_owned(intent)
            handles[key] = _apply_one(recovery, transaction, write, intent)
            failpoints.maybe_fail(failpoints.MUTATION_POST_TABLE_COMMIT)
    except ConflictError as refused:
        # The refused commit did nothing. Without an effect before it there is nothing to undo either.
        if not handles and not any(write.forks for write in transaction.writes.values()):
            recovery.intents.disarm(intent.operation_id)
        else:
            _undo(recovery, intent, refused)
        raise StaleAttempt(refused) from refused
    except BaseException as failure:
        _undo(recovery, intent, failure)
        raise
    return handles


def _apply_one(recovery: RecoveryContext, transaction: Transaction, write: TableWrite, intent: Intent) -> TableHandle:
    if write.forks:
        _fork(recovery, transaction, write)
    if write.base is None or write.staged is None:
        raise InternalError(f"the change of '{write.table_key}' was not staged")
    return recovery.store.commit(write.base, write.staged, intent.properties())


def _fork(recovery: RecoveryContext, transaction: Transaction, write: TableWrite) -> None:
    """Give the branch its own line of the table, at the version it has inherited, and stage there."""
    entry, store = write.entry, recovery.store
    branch = stored_branch(transaction.request.branch)
    if branch is None:
        raise InternalError(f"main inherits '{write.table_key}' from branch '{entry.branch}'")
    failpoints.maybe_fail(failpoints.MUTATION_PRE_FORK)
    # The newest manifest does not place the table on this branch, so a ref of its name is what a crash or an earlier
    # branch of that name left behind. So is one whose name contains the other's: live branches never do that, and
    # the folders of both would lie in each other.
    for name in [name for name in children_first(store.branch_parents(entry.path)) if overlaps(name, branch)]:
        failpoints.maybe_fail(failpoints.FORK_BEFORE_RECLAIM)
        drop_fork(recovery, entry.path, name)
    store.residual.create_branch(entry.path, branch, source=entry.branch, version=entry.version)
    failpoints.maybe_fail(failpoints.MUTATION_POST_FORK)
    transaction.stage_table(write, store.open(entry.path, branch=branch))


def _undo(recovery: RecoveryContext, intent: Intent, failure: BaseException) -> bool:
    """Undo this write's effects; True when it turns out to be published after all.

    Raises:
        RecoveryRequiredError: undoing was not possible now; recovery will do it.
    """
    resolution = roll_back(recovery, intent)
    if resolution is not None and resolution.settled:
        return resolution.outcome is RecoveryKind.ROLLED_FORWARD
    if resolution is None and not recovery.intents.exists(intent.operation_id):
        # Somebody who took this writer for dead has resolved it; the history says how.
        return was_published(recovery, intent)
    recovery.intents.abandon(intent.operation_id)
    raise RecoveryRequiredError(
        f"the write {intent.operation_id} failed ({failure}) and could not be undone yet — the next write or open of"
        " the graph does that",
        operation_id=intent.operation_id,
    ) from failure


def _undo_refused(recovery: RecoveryContext, intent: Intent, refused: ConflictError) -> bool:
    """Undo a write whose publish was refused; whatever stops this leaves the intent to others."""
    try:
        failpoints.maybe_fail(failpoints.PUBLISH_REJECTED)
        return _undo(recovery, intent, refused)
    except BaseException:
        recovery.intents.abandon(intent.operation_id)
        raise


def _remember_ids(write: TableWrite, handle: TableHandle) -> None:
    """Keep the ids just written, which the next write would otherwise read back from disk."""
    if write.rows is None or write.staged is None or "src" in handle.schema.names:
        return
    written = [fragment for fragment in handle.fragments() if f"data/{fragment.files[0]}" in write.staged.files]
    rows = write.rows.rows
    if len(written) == 1 and written[0].physical_rows == rows.num_rows:
        ids = rows.column("id").combine_chunks()
        ColumnCache.shared().keep(written[0], handle.field_ids["id"], ids)


# --- visibility ------------------------------------------------------------------------------------------------------


def _publish(
    recovery: RecoveryContext,
    transaction: Transaction,
    intent: Intent,
    handles: dict[TableKey, TableHandle],
    fence: BranchFence,
) -> Committed:
    commit_id = intent.commit_id
    if commit_id is None:
        raise InternalError("an intent without a commit id cannot be published")
    try:
        failpoints.maybe_fail(failpoints.MUTATION_POST_FINALIZE)
        snapshot = _publish_patiently(recovery, transaction, intent, commit_id, handles, fence)
        failpoints.maybe_fail(failpoints.PUBLISH_AFTER_COMMIT)
    except ConflictError as refused:
        if not _undo_refused(recovery, intent, refused):
            raise StaleAttempt(refused) from refused
        snapshot = recovery.manifest.snapshot(transaction.request.branch)
    except BaseException as failure:
        # Every effect is there, only the publish is in doubt. Whoever comes next finishes it.
        recovery.intents.abandon(intent.operation_id)
        if isinstance(failure, GraphError):
            raise RecoveryRequiredError(
                f"the write {intent.operation_id} took effect but could not be published ({failure}) — the next write"
                " or open of the graph finishes it",
                operation_id=intent.operation_id,
            ) from failure
        raise
    recovery.intents.disarm(intent.operation_id)
    for key, handle in handles.items():
        handle.memo.update(intent.table_facts(handle.branch))
        recovery.store.remember(handle, tag=snapshot.entry(key).e_tag)
        try:
            _remember_ids(transaction.writes[key], handle)
        except GraphError as exc:
            # The write is acknowledged, whatever becomes of a convenience for the next one.
            logger.warning("the ids just written to '%s' will be read again: %s", key, exc)
    return Committed(snapshot, commit_id)


def _publish_patiently(
    recovery: RecoveryContext,
    transaction: Transaction,
    intent: Intent,
    commit_id: CommitId,
    handles: dict[TableKey, TableHandle],
    fence: BranchFence,
) -> Snapshot:
    """Publish; losing races against unrelated writers is no reason to undo finished work."""
    request = transaction.request
    lineage = Lineage(commit_id, request.actor, now_micros(), request.merged_parent, dict(request.properties))
    limit = time.monotonic() + PUBLISH_WAIT_SECONDS
    while True:
        try:
            return recovery.manifest.publish(
                request.branch,
                _changes(transaction, handles, intent),
                lineage=lineage,
                expected=transaction.expected,
                expected_head=request.if_commit,
                operation_id=intent.operation_id,
                fence=lambda: fence.check_owned(intent),
            )
        except PublishContentionError:
            if time.monotonic() > limit:
                raise


def _changes(transaction: Transaction, handles: dict[TableKey, TableHandle], intent: Intent) -> list[Change]:
    changes: list[Change] = []
    for key, write in sorted(transaction.writes.items()):
        if write.staged is None:
            raise InternalError(f"the change of '{key}' was not staged")
        rows = write.entry.row_count + write.staged.row_delta
        branch = handles[key].branch
        changes.append(UpdateTable(key, handles[key].version, branch, rows, intent.table_facts(branch)))
    return changes
