"""Before any effect: is what the write was prepared on still what is published, and are its tables free?

What is outdated is told as `StaleWrite`, so that the writer prepares again; a table that must not have changed refuses
the write. Drift of others is waited for, healed or undone.
"""

from __future__ import annotations

import time

from omnigraph.engine.commit import drift
from omnigraph.engine.commit.drift import Drift, DriftKind
from omnigraph.engine.commit.request import CommitRequest
from omnigraph.engine.commit.stale import StaleWrite
from omnigraph.engine.coordination.owner import Liveness
from omnigraph.engine.coordination.schema_lock import refuse_while_locked
from omnigraph.engine.recovery import RecoveryContext, heal
from omnigraph.errors import ConflictError, ExpectedVersionMismatchError, PreconditionFailedError
from omnigraph.ids import stored_branch

IN_FLIGHT_WAIT_SECONDS = 30.0
IN_FLIGHT_POLL_SECONDS = 0.003


def guard(context: RecoveryContext, request: CommitRequest) -> None:
    """Compare a request with the newest state.

    Raises:
        StaleWrite: its base is outdated, or a writer was waited for.
        ExpectedVersionMismatchError: a table that must not have changed did.
        PreconditionFailedError: the branch is not at the commit demanded.
        DriftError: a table holds commits that are not published and not ours to undo.
    """
    _check_current(context, request)
    _check_drift(context, request)
    _check_forks(context, request)


def _check_current(context: RecoveryContext, request: CommitRequest) -> None:
    """Compare what the write saw with what is published now."""
    wanted, base = request.requires.head, request.base
    current = context.manifest.snapshot(request.branch)
    if wanted is not None and current.head != wanted:
        raise PreconditionFailedError(expected=wanted, actual=current.head)
    if (current.version, current.head) == (base.version, base.head):
        return
    if current.schema_hash != base.schema_hash:
        raise ConflictError("the schema has been changed since this write was prepared — retry")
    stale: ConflictError | None = None
    for key, seen in request.seen.items():
        actual = current.state.current_version(key)
        if actual == seen and current.entry(key).branch == base.entry(key).branch:
            continue
        mismatch = ExpectedVersionMismatchError(table_key=key, expected=seen, actual=actual)
        if key in request.requires.strict:
            raise mismatch
        stale = stale or mismatch
    if stale is not None:
        raise StaleWrite(stale)


def _check_drift(context: RecoveryContext, request: CommitRequest) -> None:
    """Make sure that no table holds unpublished commits; wait for, heal or undo what is in the way."""
    entries = [table.entry for table in request.ordered if not table.forks]
    for found in drift.find_drift(context, request.branch, entries):
        if found.kind is DriftKind.IN_FLIGHT:
            refuse_while_locked(context.intents, "writing")
            _await_writer(context, request, found)
        elif found.kind is DriftKind.PENDING:
            heal(context)
        elif found.kind is DriftKind.LATE:
            drift.undo_late(context, request.branch, found)
        else:
            raise found.error()
        raise StaleWrite(found.error(), counts=found.kind is not DriftKind.IN_FLIGHT)


def _await_writer(context: RecoveryContext, request: CommitRequest, found: Drift) -> None:
    """Wait until a living writer elsewhere has published or undone its commit to the table."""
    limit = min(request.requires.deadline, time.monotonic() + IN_FLIGHT_WAIT_SECONDS)
    while time.monotonic() < limit:
        time.sleep(IN_FLIGHT_POLL_SECONDS)
        entry = context.manifest.snapshot(request.branch).entries.get(found.entry.table_key)
        if entry is None or entry.version != found.entry.version:
            return
        if all(again.kind is not DriftKind.IN_FLIGHT for again in drift.find_drift(context, request.branch, [entry])):
            return
    raise found.error()


def _check_forks(context: RecoveryContext, request: CommitRequest) -> None:
    """Wait for a living writer that is giving the branch its own line of the same table."""
    branch = stored_branch(request.branch)
    forks = {table.table_key for table in request.tables if table.forks}
    limit = min(request.requires.deadline, time.monotonic() + IN_FLIGHT_WAIT_SECONDS)
    waited = False
    while forks:
        others = [
            effect.table_key
            for intent in context.intents.pending()
            if context.intents.liveness(intent) is Liveness.LIVE
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
        raise StaleWrite(ConflictError(f"another writer has just written to '{branch}' — retry"), counts=False)
