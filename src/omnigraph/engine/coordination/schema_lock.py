"""The lock of a schema change: while it is held, nobody else writes.

The record `__schema_apply_lock.json` is created by exactly one process and says whose it is; the internal branch of
the same purpose follows it, for tools that know only branches. A writer looks for the record after it has stored its
intent, and a schema change looks for intents after it has stored the record: whichever comes second sees the other,
so the two never run side by side. A record whose owner is provably dead, or has been silent for longer than its
lease, is removed by whoever meets it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from omnigraph.engine.coordination.context import RecoveryContext
from omnigraph.engine.coordination.intent import WriterKind
from omnigraph.engine.coordination.intents import IntentStore
from omnigraph.engine.coordination.lock import HeldLock, LockRecord, is_alive, parse_lock, remove_if_same
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import ConflictError, FormatError
from omnigraph.ids import SCHEMA_LOCK_BRANCH
from omnigraph.interrupts import holding

_log = logging.getLogger(__name__)

T = TypeVar("T")


def read_lock(objects: ObjectStore) -> LockRecord | None:
    """The record as it is now, or None.

    Raises:
        FormatError: it cannot be read; `omnigraph schema unlock` removes it.
    """
    text = objects.read_text_if_exists(layout.SCHEMA_LOCK) if objects.has(layout.SCHEMA_LOCK) else None
    if text is None:
        return None
    try:
        return parse_lock(text)
    except (ValueError, KeyError, TypeError) as exc:
        raise FormatError(
            f"{layout.SCHEMA_LOCK} is corrupt ({exc}): when no schema change runs, remove it with"
            " `omnigraph schema unlock --confirm`"
        ) from exc


def refuse_while_locked(intents: IntentStore, verb: str) -> None:
    """Refuse an operation that must not run beside a schema change; a dead owner's lock is removed instead.

    Raises:
        ConflictError: a schema change is in progress; nothing happened.
    """
    objects = intents.objects
    if not objects.has(layout.SCHEMA_LOCK):
        return
    lock = read_lock(objects)
    if lock is None or _clear_if_dead(intents, lock):
        return
    raise ConflictError(f"{verb} is unavailable while schema apply is in progress — retry")


def _clear_if_dead(intents: IntentStore, lock: LockRecord) -> bool:
    """Remove the record of an owner that is gone; True when the lock is no longer held by it."""
    if is_alive(intents, lock) or any(i.writer_kind is WriterKind.SCHEMA_APPLY for i in intents.pending()):
        return False
    return remove_if_same(intents, layout.SCHEMA_LOCK, lock, partial(read_lock, intents.objects))


def locked_schema(ctx: RecoveryContext, actor: str | None, body: Callable[[HeldLock], T]) -> T:
    """Run `body` while holding the lock.

    Raises:
        ConflictError: another schema change is in progress.
    """
    clear_leftover_lock(ctx)
    lock = new_lock(ctx, actor)
    return holding(lambda: acquire_lock(ctx, lock), lambda: body(lock), lambda: release_lock(ctx, lock))


def new_lock(ctx: RecoveryContext, actor: str | None) -> HeldLock:
    """A lock in the name of this process, not stored yet."""
    return HeldLock(ctx.intents, layout.SCHEMA_LOCK, partial(read_lock, ctx.store.objects), actor)


def acquire_lock(ctx: RecoveryContext, lock: HeldLock) -> None:
    """Take the lock; the caller releases it, also when this failed.

    Raises:
        ConflictError: another schema change is in progress.
    """
    if not lock.take():
        raise ConflictError("schema apply is already in progress — retry when it is done")
    version = ctx.manifest.snapshot().version
    ctx.store.residual.create_branch(layout.MANIFEST, SCHEMA_LOCK_BRANCH, source=None, version=version)


def release_lock(ctx: RecoveryContext, lock: HeldLock) -> None:
    """Give the lock back; doing so twice, or after it was taken away, is harmless."""
    lock.give_back(lambda: ctx.store.residual.delete_branch(layout.MANIFEST, SCHEMA_LOCK_BRANCH))


def clear_leftover_lock(ctx: RecoveryContext) -> None:
    """Remove what a schema change that was cut short has left of its lock; a living one's stays."""
    lock = read_lock(ctx.store.objects)
    if lock is not None and not _clear_if_dead(ctx.intents, lock):
        return
    if SCHEMA_LOCK_BRANCH in ctx.store.table_branches(layout.MANIFEST) and read_lock(ctx.store.objects) is None:
        _log.warning("the branch of a schema lock that nobody holds is removed")
        ctx.store.residual.delete_branch(layout.MANIFEST, SCHEMA_LOCK_BRANCH)


def force_unlock(ctx: RecoveryContext) -> bool:
    """Remove the lock whoever holds it, for an operator who knows that nobody does; False when there was none."""
    held = ctx.store.objects.has(layout.SCHEMA_LOCK)
    branch = SCHEMA_LOCK_BRANCH in ctx.store.table_branches(layout.MANIFEST)
    ctx.store.residual.delete_branch(layout.MANIFEST, SCHEMA_LOCK_BRANCH)
    ctx.store.objects.delete(layout.SCHEMA_LOCK)
    return held or branch
