"""The lock of a schema change: while it is held, nobody else writes.

The record `__schema_apply_lock.json` is created by exactly one process and says whose it is; the internal branch of
the same purpose follows it, for tools that know only branches. A writer looks for the record after it has stored its
intent, and a schema change looks for intents after it has stored the record: whichever comes second sees the other,
so the two never run side by side. A record whose owner is provably dead, or has been silent for longer than its
lease, is removed by whoever meets it.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from omnigraph.dataclass import dataclass
from omnigraph.engine.recovery.intent import Intent, WriterKind
from omnigraph.engine.recovery.owner import Liveness, Owner, judge, this_process
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import ConflictError, FormatError
from omnigraph.ids import SCHEMA_LOCK_BRANCH, OperationId, new_ulid, now_micros

if TYPE_CHECKING:
    from omnigraph.engine.recovery.observe import RecoveryContext
    from omnigraph.engine.recovery.sidecars import IntentStore

_log = logging.getLogger(__name__)

LOCK_LEASE_SECONDS = 300.0
"""How long another machine's silence means nothing; on the same machine death is seen at once."""


@dataclass(frozen=True)
class LockRecord:
    """Who holds the lock, and since when."""

    operation_id: OperationId
    owner: Owner
    started_at: int
    actor_id: str | None = None

    def render(self) -> str:
        """The text of the record."""
        body = {
            "operation_id": self.operation_id,
            "started_at": self.started_at,
            "actor_id": self.actor_id,
            "owner": self.owner.to_json(),
        }
        return json.dumps(body, indent=2) + "\n"


def parse_lock(text: str) -> LockRecord:
    """Read a record; raises what reading JSON of another shape raises."""
    body = json.loads(text)
    return LockRecord(
        OperationId(str(body["operation_id"])),
        Owner.from_json(body["owner"]),
        int(body["started_at"]),
        body.get("actor_id"),
    )


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
    """Remove the record of an owner that is gone; True when the lock is no longer held by it.

    The claim makes sure that a record which somebody else has put there meanwhile is not removed in its place.
    """
    if lock.owner.same_process(this_process()):
        alive = intents.holds_lock(lock.operation_id)
    else:
        alive = judge(lock.owner) is Liveness.LIVE
    if alive or any(intent.writer_kind is WriterKind.SCHEMA_APPLY for intent in intents.pending()):
        return False
    claim = intents.claim(Intent(lock.operation_id, WriterKind.SCHEMA_APPLY, None, ()))
    if claim is None:
        return False
    try:
        current = read_lock(intents.objects)
        if current is not None and current.operation_id == lock.operation_id:
            _log.warning("the schema lock of %s is removed: its owner is gone", lock.operation_id)
            intents.objects.delete(layout.SCHEMA_LOCK)
        return current is None or current.operation_id == lock.operation_id
    finally:
        intents.release(claim)


def acquire_lock(ctx: RecoveryContext, actor: str | None) -> LockRecord:
    """Take the lock.

    Raises:
        ConflictError: another schema change is in progress.
    """
    objects = ctx.store.objects
    clear_leftover_lock(ctx)
    lock = LockRecord(OperationId(new_ulid()), this_process().leased(LOCK_LEASE_SECONDS), now_micros(), actor)
    ctx.intents.note_lock(lock.operation_id, held=True)
    try:
        if not objects.write_text_if_absent(layout.SCHEMA_LOCK, lock.render()):
            raise ConflictError("schema apply is already in progress — retry when it is done")
        version = ctx.manifest.snapshot().version
        ctx.store.residual.create_branch(layout.MANIFEST, SCHEMA_LOCK_BRANCH, source=None, version=version)
    except BaseException:
        release_lock(ctx, lock)
        raise
    return lock


def still_holds(ctx: RecoveryContext, lock: LockRecord) -> bool:
    """True while nobody has taken the lock away."""
    current = read_lock(ctx.store.objects)
    return current is not None and current.operation_id == lock.operation_id


def release_lock(ctx: RecoveryContext, lock: LockRecord) -> None:
    """Give the lock back; doing so twice, or after it was taken away, is harmless."""
    try:
        if still_holds(ctx, lock):
            ctx.store.residual.delete_branch(layout.MANIFEST, SCHEMA_LOCK_BRANCH)
            ctx.store.objects.delete(layout.SCHEMA_LOCK)
    finally:
        ctx.intents.note_lock(lock.operation_id, held=False)


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
