"""A writer that sees its own failure undoes its effects at once, instead of leaving them to the next one.

It still owns everything above the published versions of its tables, so restoring is safe in a living process. Should
the undoing fail as well, the intent stays and says `aborted`: recovery will undo it, and never finish it.
"""

from __future__ import annotations

import logging

from omnigraph.engine.coordination.context import RecoveryContext
from omnigraph.engine.coordination.intent import Intent, WriterKind
from omnigraph.engine.coordination.intents import Claim
from omnigraph.engine.recovery.observe import find_commit
from omnigraph.engine.recovery.resolve import Resolution, resolve
from omnigraph.errors import GraphError
from omnigraph.ids import MAIN

_log = logging.getLogger(__name__)


def roll_back(ctx: RecoveryContext, intent: Intent) -> Resolution | None:
    """Undo this process's own armed write; the caller then raises the error that made it necessary.

    The resolution says what really happened: `RolledForward` means that the publish had landed although it was
    reported as failed, and the write stands. None means that undoing failed, or that somebody else, who took this
    writer for dead, is at it; ask `was_published` before telling the user anything but "unfinished".
    """
    try:
        resolution = ctx.intents.claimed(intent.operation_id, lambda claim: _undo(ctx, intent, claim), own=True)
    except GraphError as exc:
        _log.warning("undoing %s failed (%s); the next write or open does it", intent.operation_id, exc)
        resolution = None
    if resolution is not None and resolution.settled:
        ctx.intents.forget(intent.operation_id)
    else:
        ctx.intents.abandon(intent.operation_id)
    return resolution


def _undo(ctx: RecoveryContext, intent: Intent, claim: Claim) -> Resolution | None:
    if intent.writer_kind is WriterKind.SCHEMA_APPLY and not ctx.intents.exists(intent.operation_id):
        return None  # Who took this writer for dead has settled it; what is staged or created by now may be theirs.
    resolution = resolve(ctx, ctx.intents.mark_aborted(intent), may_restore=True)
    if resolution.settled:
        ctx.intents.remove(claim)
    return resolution


def was_published(ctx: RecoveryContext, intent: Intent) -> bool:
    """Whether the write's own commit is in the history, by whomever it was published."""
    return find_commit(ctx.manifest, intent.branch or MAIN, intent.commit_id) is not None
