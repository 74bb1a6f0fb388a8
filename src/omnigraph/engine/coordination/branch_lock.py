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
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from omnigraph.engine.coordination.intents import IntentStore
from omnigraph.engine.coordination.lock import HeldLock, LockRecord, is_alive, parse_lock, remove_if_same
from omnigraph.engine.storage import layout
from omnigraph.errors import ConflictError, GraphError
from omnigraph.ids import MAIN, new_ulid
from omnigraph.interrupts import holding

_log = logging.getLogger(__name__)

_PREFIX, _SUFFIX = "branch-", ".lock"
_POLL_SECONDS = 0.01
CLEANUP, TAG = "cleanup:", "tag:"
"""What the names of other locks than those of branches begin with; no branch can be named so."""
CLEANING = "a cleanup is removing old versions — retry when it is done"
KEEPING_WAIT_SECONDS = 10.0

T = TypeVar("T")


class BranchLock:
    """The right to change the ref of one branch name."""

    def __init__(self, held: HeldLock) -> None:
        self._held = held

    def check(self) -> None:
        """Refuse to go on once the lock was taken away, because its holder stood still for longer than its lease.

        Raises:
            ConflictError: somebody else may be changing the branch by now.
        """
        if not self._held.is_held:
            raise ConflictError("this process stood still while it changed a branch, and lost its lock — retry")


def locked_branch(intents: IntentStore, branch: str, body: Callable[[BranchLock], T]) -> T:
    """Run `body` while holding the lock of a name.

    Raises:
        ConflictError: somebody else is changing that branch.
    """
    path = _path(branch)
    found = _read(intents, path)
    if found is not None:
        _clear_if_over(intents, path, found)
    held = HeldLock(intents, path, partial(_read, intents, path))

    def take() -> None:
        if not held.take():
            raise ConflictError(f"{_told(branch)} — retry")

    return holding(take, lambda: body(BranchLock(held)), lambda: _release(path, held))


def _release(path: str, held: HeldLock) -> None:
    try:
        held.give_back()
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
    """Wait until no branch or tag is being created or deleted, for a moment at least.

    Raises:
        ConflictError: one was all the time.
    """
    limit = time.monotonic() + seconds
    while held := [path for path in clear_leftover_branch_locks(intents) if not _is_of(path, CLEANUP)]:
        if time.monotonic() > limit:
            raise ConflictError(f"a branch or tag is being created or deleted ({held[0]}) — retry")
        time.sleep(_POLL_SECONDS)


def keeping(intents: IntentStore, name: str, body: Callable[[BranchLock], T]) -> T:
    """Run `body`, which gives a state of the past a name, while holding the lock of that name and beside no cleanup.

    Raises:
        ConflictError: a cleanup did not end in time, or somebody else is at that name.
    """
    limit = time.monotonic() + KEEPING_WAIT_SECONDS

    def unless_cleaning(lock: BranchLock) -> tuple[T] | None:
        # A cleanup that begins from here on waits for this lock. For one that runs this one makes way, or both wait.
        if is_cleaned(intents):
            return None
        return (body(lock),)

    while True:
        done = locked_branch(intents, name, unless_cleaning)
        if done is not None:
            return done[0]
        if time.monotonic() > limit:
            raise ConflictError(CLEANING)
        time.sleep(_POLL_SECONDS)


def is_cleaned(intents: IntentStore) -> bool:
    """Whether somebody is removing old versions."""
    return any(_is_of(path, CLEANUP) for path in clear_leftover_branch_locks(intents))


def cleaning(intents: IntentStore, body: Callable[[BranchLock], T]) -> T:
    """Run `body`, which removes old versions, so that whoever wants to keep one knows of it."""
    return locked_branch(intents, f"{CLEANUP}{new_ulid()}", body)


def tags_being_made(intents: IntentStore) -> bool:
    """Whether somebody is making a tag."""
    return any(_is_of(path, TAG) for path in clear_leftover_branch_locks(intents))


def _is_of(path: str, kind: str) -> bool:
    return path.startswith(_path(kind).removesuffix(_SUFFIX))


def _told(name: str) -> str:
    if name.startswith(TAG):
        return f"the tag '{name.removeprefix(TAG)}' is being created or deleted"
    return f"the branch '{name}' is being created or deleted"


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
    """Remove the record of an owner that is gone."""
    return not is_alive(intents, found) and remove_if_same(intents, path, found, partial(_read, intents, path))
