"""Look for writes that nobody is finishing, and bring each to its end.

`heal` runs before every write and on refresh: with nothing pending it costs one directory listing. It resolves what a
provably dead or silent writer left behind, and leaves living writers alone. `sweep` runs at a read-write open and
resolves everything that may be resolved at all, refusing to open what it cannot.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from omnigraph.engine.coordination.branch_lock import clear_leftover_branch_locks
from omnigraph.engine.coordination.context import RecoveryContext
from omnigraph.engine.coordination.heartbeat import clear_leftover_notes
from omnigraph.engine.coordination.intent import Intent
from omnigraph.engine.coordination.intents import Claim
from omnigraph.engine.coordination.owner import Liveness
from omnigraph.engine.coordination.schema_lock import refuse_while_locked
from omnigraph.engine.recovery.resolve import Resolution, resolve
from omnigraph.errors import RecoveryRequiredError
from omnigraph.failpoints import RECOVERY_POST_LIST, maybe_fail
from omnigraph.ids import OperationId

_log = logging.getLogger(__name__)

IN_FLIGHT_WAIT_SECONDS = 5.0
_POLL_SECONDS = 0.01


def heal(ctx: RecoveryContext) -> list[Resolution]:
    """Resolve what dead writers left, in a process that has other work to do.

    Raises:
        StorageError: intents cannot be listed or read; recovery is never skipped silently.
        FormatError: an intent is corrupt or newer than this release.
    """
    return _run(ctx, sweeping=False)


def settle(ctx: RecoveryContext, concerns: Callable[[Intent], bool]) -> None:
    """Return when no write is unfinished that concerns the caller, so that the history tells whether it was made.

    `heal` leaves alone what somebody else is resolving at this moment, and that may be published a moment later.

    Raises:
        RecoveryRequiredError: one of them stays unfinished.
    """
    deadline = time.monotonic() + IN_FLIGHT_WAIT_SECONDS
    while True:
        heal(ctx)
        waiting = next(filter(concerns, ctx.intents.pending()), None)
        if waiting is None:
            return
        if time.monotonic() > deadline:
            raise RecoveryRequiredError(
                f"whether the write {waiting.operation_id} was made is not known before it is resolved — retry",
                operation_id=waiting.operation_id,
            )
        time.sleep(_POLL_SECONDS)


def sweep(ctx: RecoveryContext) -> list[Resolution]:
    """Resolve what dead writers left, before a graph is opened for writing.

    Raises:
        InternalError: a table contradicts what is published; the intent is kept for review.
        StorageError: intents cannot be listed or read.
        FormatError: an intent is corrupt or newer than this release.
    """
    resolutions = _run(ctx, sweeping=True)
    clear_leftover_branch_locks(ctx.intents)
    clear_leftover_notes(ctx.store.objects)
    ctx.intents.drop_leftover_claims()
    return resolutions


def _run(ctx: RecoveryContext, *, sweeping: bool) -> list[Resolution]:
    operations = ctx.intents.list()
    if not operations:
        return []
    maybe_fail(RECOVERY_POST_LIST)
    found = (_settle(ctx, operation_id, sweeping) for operation_id in operations)
    return [resolution for resolution in found if resolution is not None]


def _settle(ctx: RecoveryContext, operation_id: OperationId, sweeping: bool) -> Resolution | None:
    """Resolve one intent; None when its writer lives, finished meanwhile, or somebody else is resolving it."""
    intent = ctx.intents.read(operation_id)
    if intent is None or ctx.intents.liveness(intent) is Liveness.LIVE:
        return None
    try:
        return ctx.intents.claimed(intent.operation_id, lambda claim: _settle_claimed(ctx, claim, sweeping))
    except RecoveryRequiredError:
        if sweeping:
            raise
        _log.warning("the unfinished write %s stays pending: its tables kept moving", operation_id)
        return None


def _settle_claimed(ctx: RecoveryContext, claim: Claim, sweeping: bool) -> Resolution | None:
    # Read again: what was seen before the claim may be finished, or its writer may have come back to life.
    intent = ctx.intents.read(claim.operation_id)
    liveness = Liveness.LIVE if intent is None else ctx.intents.liveness(intent, claimed=True)
    if intent is None or liveness is Liveness.LIVE:
        return None
    resolution = resolve(
        ctx,
        intent,
        sweeping=sweeping,
        may_restore=sweeping or _may_restore(intent),
        supersede=liveness is Liveness.SILENT,
    )
    if resolution.settled:
        ctx.intents.remove(claim)
        _log.warning("the unfinished write %s of %s: %s", intent.operation_id, intent.actor_id, resolution.outcome)
    return resolution


def _may_restore(intent: Intent) -> bool:
    """Restoring takes away whatever lies above the published version, so it needs to be known whose that is."""
    return intent.by_identity and intent.owner is not None


def refuse_while_pending(ctx: RecoveryContext, verb: str) -> None:
    """Refuse a maintenance operation that must not run beside an unfinished write.

    Writers that are at work right now get a moment to finish; those that start later work on newer versions, and the
    operation's own strictness keeps the two apart.

    Raises:
        RecoveryRequiredError: a write is still unfinished after healing what could be healed.
        ConflictError: a schema change is in progress.
    """
    heal(ctx)
    refuse_while_locked(ctx.intents, verb)
    waiting = ctx.intents.list()
    deadline = time.monotonic() + IN_FLIGHT_WAIT_SECONDS
    while waiting and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        heal(ctx)
        waiting = sorted(set(waiting).intersection(ctx.intents.list()))
    if waiting:
        raise RecoveryRequiredError(
            f"{verb} cannot run while a write is unfinished ({len(waiting)} pending, the first is {waiting[0]})"
            " — wait for its writer, or reopen the graph read-write",
            operation_id=waiting[0],
        )
