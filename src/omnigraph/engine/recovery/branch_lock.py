"""The lock of a branch's name: while it is held, the branch is being created or deleted, and nobody writes on it.

Refs have no compare-and-swap, and a branch that is deleted and created anew counts its versions from where it starts,
so a write prepared on the one must never land on the other. Whoever changes a ref stores a record first and then looks
for intents on that branch; a writer stores its intent first and then looks for the record, and for the identity of the
branch it was prepared on. Whichever comes second sees the other. A record whose owner is gone is taken away by whoever
meets it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

from omnigraph.engine.recovery.intent import Intent, WriterKind
from omnigraph.engine.recovery.owner import Liveness, judge, this_process
from omnigraph.engine.recovery.schema_lock import LockRecord, parse_lock
from omnigraph.engine.storage import layout
from omnigraph.errors import ConflictError, GraphError
from omnigraph.ids import MAIN, OperationId, new_ulid, now_micros

if TYPE_CHECKING:
    from omnigraph.engine.recovery.sidecars import IntentStore

_log = logging.getLogger(__name__)

LEASE_SECONDS = 60.0
"""How long another machine's silence means nothing; on the same machine death is seen at once."""
_PREFIX, _SUFFIX = "branch-", ".lock"
_POLL_SECONDS = 0.01


class BranchLock:
    """The right to change the ref of one branch name."""

    def __init__(self, intents: IntentStore, path: str, record: LockRecord) -> None:
        self._intents, self._path, self._record = intents, path, record

    def check(self) -> None:
        """Refuse to go on once the lock was taken away, because its holder stood still for longer than its lease.

        Raises:
            ConflictError: somebody else may be changing the branch by now.
        """
        current = _read(self._intents, self._path)
        if current is None or current.operation_id != self._record.operation_id:
            raise ConflictError("this process stood still while it changed a branch, and lost its lock — retry")


@contextmanager
def locked_branch(intents: IntentStore, branch: str) -> Iterator[BranchLock]:
    """Hold the lock of a name.

    Raises:
        ConflictError: somebody else is changing that branch.
    """
    path = _path(branch)
    record = LockRecord(OperationId(new_ulid()), this_process().leased(LEASE_SECONDS), now_micros())
    found = _read(intents, path)
    if found is not None:
        _clear_if_over(intents, path, found)
    intents.note_lock(record.operation_id, held=True)
    try:
        if not intents.objects.write_text_if_absent(path, record.render()):
            raise ConflictError(f"the branch '{branch}' is being created or deleted — retry")
        yield BranchLock(intents, path, record)
    finally:
        _release(intents, path, record)


def _release(intents: IntentStore, path: str, record: LockRecord) -> None:
    intents.note_lock(record.operation_id, held=False)
    try:
        current = _read(intents, path)
        if current is not None and current.operation_id == record.operation_id:
            intents.objects.delete(path)
    except GraphError as exc:
        _log.warning("the lock %s could not be removed: %s; the next one to meet it does", path, exc)


def refuse_while_branch_changes(intents: IntentStore, branch: str | None) -> None:
    """Refuse to write on a branch that is being created or deleted.

    Raises:
        ConflictError: it is; nothing happened.
    """
    if branch is None or branch == MAIN:
        return
    path = _path(branch)
    found = _read(intents, path) if intents.objects.has(path) else None
    if found is not None and not _clear_if_over(intents, path, found):
        raise ConflictError(f"the branch '{branch}' is being created or deleted — retry")


def clear_leftover_branch_locks(intents: IntentStore) -> list[str]:
    """Remove the records of owners that are gone; returns those of branches that are being changed now."""
    held = []
    for name in sorted(intents.objects.list_dir(layout.RECOVERY_DIR)):
        if name.startswith(_PREFIX) and name.endswith(_SUFFIX):
            path = f"{layout.RECOVERY_DIR}/{name}"
            found = _read(intents, path)
            if found is not None and not _clear_if_over(intents, path, found):
                held.append(path)
    return held


def await_branch_changes(intents: IntentStore, seconds: float) -> None:
    """Wait until no branch is being created or deleted, for a moment at least.

    Raises:
        ConflictError: one was all the time.
    """
    limit = time.monotonic() + seconds
    while held := clear_leftover_branch_locks(intents):
        if time.monotonic() > limit:
            raise ConflictError(f"a branch is being created or deleted ({held[0]}) — retry")
        time.sleep(_POLL_SECONDS)


def _path(branch: str) -> str:
    return f"{layout.RECOVERY_DIR}/{_PREFIX}{quote(branch, safe='')}{_SUFFIX}"


def _read(intents: IntentStore, path: str) -> LockRecord | None:
    text = intents.objects.read_text_if_exists(path)
    if text is None:
        return None
    try:
        return parse_lock(text)
    except (ValueError, KeyError, TypeError) as exc:
        # Locks are written atomically, so this is none of ours; who put it there has to take it away.
        raise ConflictError(f"'{path}' is not a lock ({exc}): remove it when nobody changes that branch") from exc


def _clear_if_over(intents: IntentStore, path: str, found: LockRecord) -> bool:
    """Remove the record of an owner that is gone; the claim keeps two from removing each other's successor."""
    if found.owner.same_process(this_process()):
        alive = intents.holds_lock(found.operation_id)
    else:
        alive = judge(found.owner) is Liveness.LIVE
    if alive:
        return False
    claim = intents.claim(Intent(found.operation_id, WriterKind.MUTATION, None, ()))
    if claim is None:
        return False
    try:
        current = _read(intents, path)
        if current is not None and current.operation_id == found.operation_id:
            _log.warning("the lock %s is removed: its owner is gone", path)
            intents.objects.delete(path)
        return current is None or current.operation_id == found.operation_id
    finally:
        intents.release(claim)
