"""Where intents are kept: one small file per write in flight, below `__recovery/`.

`IntentStore` writes, rewrites, lists and removes them, and knows which ones this process is still working on. A
writer holds its intent from `arm` to `disarm`; whoever takes over an intent from somebody else first puts a *claim*
beside it, an object that only one can create, so that two processes never undo one write at the same time.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from omnigraph.engine.coordination.intent import Intent, parse_intent, render_intent
from omnigraph.engine.coordination.lease import KEEPER, LEASE_SECONDS, Lease
from omnigraph.engine.coordination.owner import Liveness, Owner, judge, this_process
from omnigraph.engine.storage.layout import RECOVERY_DIR
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import ConflictError, FormatError, GraphError
from omnigraph.failpoints import (
    SIDECAR_CONFIRM,
    SIDECAR_DELETE,
    SIDECAR_LIST,
    SIDECAR_LISTED,
    SIDECAR_WRITE,
    maybe_fail,
)
from omnigraph.ids import OperationId, TableKey
from omnigraph.interrupts import holding, nothing

_log = logging.getLogger(__name__)
_SUFFIX = ".json"
_CLAIM = ".claim-"

T = TypeVar("T")


class _AtWork(Struct, frozen=True):
    """An operation this process works on: its own, then with the lease of its intent, or somebody else's it settles."""

    operation_id: OperationId
    lease: Lease | None = None


class _Live:
    """The operations of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_work: dict[OperationId, _AtWork] = {}
        self._pid = 0

    def enter(self, work: _AtWork) -> bool:
        """Register an operation; False when this process is working on it already."""
        with self._lock:
            if self._pid != this_process().pid:
                # After a fork the child owns none of its parent's operations.
                self._pid, self._at_work = this_process().pid, {}
            if work.operation_id in self._at_work:
                return False
            self._at_work[work.operation_id] = work
        if work.lease is not None:
            KEEPER.keep(work.lease)
        return True

    def leave(self, operation_id: OperationId) -> None:
        """An operation is done with; the caller holds the lock of its lease, if it has one."""
        work = self.get(operation_id)
        if work is not None and work.lease is not None:
            work.lease.ended = True
            KEEPER.drop(work.lease)
        with self._lock:
            self._at_work.pop(operation_id, None)

    def withdraw(self, work: _AtWork) -> None:
        """Take a registration back, and nobody else's; harmless when it is not there."""
        with self._lock:
            if self._at_work.get(work.operation_id) is work:
                del self._at_work[work.operation_id]

    def get(self, operation_id: OperationId) -> _AtWork | None:
        with self._lock:
            return self._at_work.get(operation_id) if self._pid == this_process().pid else None

    def lease(self, operation_id: OperationId) -> Lease | None:
        work = self.get(operation_id)
        return None if work is None else work.lease


_LIVE = _Live()
_LOCKS: set[OperationId] = set()


class Claim(Struct, frozen=True):
    """The right to resolve an intent; `number` grows with each take-over of a claim whose holder died."""

    operation_id: OperationId
    number: int


class IntentStore:
    """The intents of one graph."""

    def __init__(self, objects: ObjectStore, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._objects = objects
        self.lease_seconds = lease_seconds

    @property
    def objects(self) -> ObjectStore:
        """Where the intents lie, and the lock that keeps new ones away."""
        return self._objects

    # --- the writer's side -----------------------------------------------------------------------------------------

    def arm(self, intent: Intent) -> Intent:
        """Make the intent durable under this process's name; returns it with its owner.

        Whoever arms looks for locks afterwards, because those who lock look for intents afterwards.

        Raises:
            StorageError: it could not be written; no effect may follow, and nothing is left to recover.
        """
        lease = Lease(lambda owner: self._store_again(intent.operation_id, owner), self.lease_seconds)
        owned = replace(intent, owner=lease.begin())
        try:
            _LIVE.enter(_AtWork(owned.operation_id, lease))
            maybe_fail(SIDECAR_WRITE)
            self._write(owned)
        except BaseException:
            # The write may have taken effect before it failed; a leftover would be found and closed by the next heal.
            self.disarm(owned.operation_id)
            raise
        return owned

    def confirm(self, intent: Intent, achieved: Mapping[TableKey, int]) -> Intent:
        """Record the version every effect reached: from here on the write is finished, never undone.

        Raises:
            ConflictError: others have settled it, because this process stood still; it must not come back.
        """
        confirmed = intent.confirmed(achieved)
        maybe_fail(SIDECAR_CONFIRM)
        path, lease = self._path(intent.operation_id), _LIVE.lease(intent.operation_id)
        with lease.lock if lease is not None else threading.Lock():
            current = confirmed if lease is None else replace(confirmed, owner=lease.owner)
            found = self._objects.read_marked(path)
            if found is None or not self._objects.replace_if_same(path, render_intent(current), found[1]):
                raise ConflictError(f"the write {intent.operation_id} was settled by another process — retry")
        return current

    def mark_aborted(self, intent: Intent) -> Intent:
        """Record that the writer undoes this: from here on it is never finished.

        Where others have settled it, the intent comes back on purpose: what landed too late is undone under it.
        """
        return self._rewrite(replace(intent, aborted=True))

    def disarm(self, operation_id: OperationId) -> bool:
        """Remove the intent of a finished write; a failure is only logged, because the write itself is durable."""
        lease = _LIVE.lease(operation_id)
        with lease.lock if lease is not None else threading.Lock():
            removed = False
            try:
                maybe_fail(SIDECAR_DELETE)
                self._objects.delete(self._path(operation_id))
                removed = True
            except GraphError as exc:
                _log.warning("could not remove the recovery sidecar of %s: %s; the next write does", operation_id, exc)
            # Last: what an interrupt has stopped before this is still known here, and can be abandoned.
            _LIVE.leave(operation_id)
        return removed

    def abandon(self, operation_id: OperationId) -> None:
        """Give an unfinished write up to whoever comes next; it no longer counts as this process's work.

        Harmless for one that is finished, and doing it again completes what an interrupt has cut short.
        """
        lease = _LIVE.lease(operation_id)
        if lease is None:
            return
        lease.ended = True
        with lease.lock:
            try:
                self._store_again(operation_id, replace(lease.owner, lease_until=0))
            except GraphError as exc:
                _log.warning("could not release the recovery sidecar of %s: %s; its lease will", operation_id, exc)
            _LIVE.leave(operation_id)

    def forget(self, operation_id: OperationId) -> None:
        """An intent that is removed is no longer this process's work."""
        _LIVE.leave(operation_id)

    def _store_again(self, operation_id: OperationId, owner: Owner) -> bool:
        """Store an intent under another lease; what is gone was finished, and must not come back."""
        found = self._objects.read_marked(self._path(operation_id))
        if found is None:
            return False
        text, mark = found
        again = replace(parse_intent(text, operation_id), owner=owner)
        return self._objects.replace_if_same(self._path(operation_id), render_intent(again), mark)

    def _rewrite(self, intent: Intent) -> Intent:
        lease = _LIVE.lease(intent.operation_id)
        if lease is None:
            self._write(intent)
            return intent
        with lease.lock:
            current = replace(intent, owner=lease.owner)
            self._write(current)
        return current

    def _write(self, intent: Intent) -> None:
        self._objects.write_text(self._path(intent.operation_id), render_intent(intent))

    # --- everybody's side ------------------------------------------------------------------------------------------

    def list(self) -> list[OperationId]:
        """The operations that have an intent, oldest first.

        Raises:
            StorageError: the folder cannot be listed; nobody may take that for "there are none".
        """
        maybe_fail(SIDECAR_LIST)
        names = self._objects.list_dir(RECOVERY_DIR)
        return sorted(OperationId(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX))

    def read(self, operation_id: OperationId) -> Intent | None:
        """An intent as it is now, or None when its writer has finished meanwhile.

        Raises:
            FormatError: the file is corrupt or newer than this release.
        """
        maybe_fail(SIDECAR_LISTED)
        text = self._objects.read_text_if_exists(self._path(operation_id))
        if text is None:
            return None
        intent = parse_intent(text, f"{RECOVERY_DIR}/{operation_id}{_SUFFIX}")
        if intent.operation_id != operation_id:
            raise FormatError(f"recovery sidecar '{operation_id}{_SUFFIX}' names operation {intent.operation_id}")
        return intent

    def pending(self) -> Sequence[Intent]:
        """Every intent there is, oldest first."""
        return [intent for operation_id in self.list() if (intent := self.read(operation_id)) is not None]

    def liveness(self, intent: Intent, *, claimed: bool = False) -> Liveness:
        """Whether the intent's writer may still act; files of releases without owners count as dead.

        `claimed` says that the caller is this process's only one at work on it.
        """
        if intent.owner is None:
            return Liveness.DEAD
        if intent.owner.same_process(this_process()):
            at_work = _LIVE.get(intent.operation_id) is not None and not claimed
            return Liveness.LIVE if at_work else Liveness.DEAD
        return judge(intent.owner)

    def exists(self, operation_id: OperationId) -> bool:
        """True while the intent is there."""
        return self._objects.read_text_if_exists(self._path(operation_id)) is not None

    def resurrect(self, intent: Intent) -> bool:
        """Write an intent only if its operation has none; True when this caller did it.

        An effect that lands after its write was resolved is undone under its own operation id again.
        """
        return self._objects.write_text_if_absent(self._path(intent.operation_id), render_intent(intent))

    def note_lock(self, operation_id: OperationId, *, held: bool) -> None:
        """Remember which schema locks this very process holds, because its own death cannot be looked up."""
        (_LOCKS.add if held else _LOCKS.discard)(operation_id)

    def holds_lock(self, operation_id: OperationId) -> bool:
        """True when this process holds the schema lock of this operation."""
        return operation_id in _LOCKS

    # --- claims ----------------------------------------------------------------------------------------------------

    def claimed(self, operation_id: OperationId, body: Callable[[Claim], T], *, own: bool = False) -> T | None:
        """Run `body` with the sole right to settle an operation; None when somebody alive has it.

        `own` is for the operation's writer, who stays its owner; it ends that by `forget` or `abandon`.
        """
        work = None if own else _AtWork(operation_id)
        # What was claimed, noted before the object can exist: releasing looks for it, and finds none if it does not.
        noted: dict[Claim, Lease] = {}

        def run() -> T | None:
            claim = self._claim(operation_id, work, noted)
            return None if claim is None else body(claim)

        def release() -> None:
            for claim, lease in noted.items():
                lease.end()
                self._release(claim)
            if work is not None:
                _LIVE.withdraw(work)

        return holding(nothing, run, release)

    def _claim(self, operation_id: OperationId, work: _AtWork | None, noted: dict[Claim, Lease]) -> Claim | None:
        if work is not None and not _LIVE.enter(work):
            return None
        number, holder = self._last_claim(operation_id)
        if holder is not None and not self._claim_is_over(holder):
            return None
        claim, path = Claim(operation_id, number + 1), self._claim_path(operation_id, number + 1)
        lease = Lease(lambda owner: self._store_claim(path, owner), self.lease_seconds)
        noted[claim] = lease
        if self._objects.write_text_if_absent(path, json.dumps(lease.begin().to_json())):
            KEEPER.keep(lease)
            return claim
        del noted[claim]
        return None

    def _store_claim(self, path: str, owner: Owner) -> bool:
        found = self._objects.read_marked(path)
        return found is not None and self._objects.replace_if_same(path, json.dumps(owner.to_json()), found[1])

    def is_claimed(self, operation_id: OperationId) -> bool:
        """True while somebody alive, in this process or another, is resolving the intent."""
        if _LIVE.get(operation_id) is not None:
            return True
        _, holder = self._last_claim(operation_id)
        return holder is not None and not self._claim_is_over(holder)

    def remove(self, claim: Claim) -> None:
        """Remove a resolved intent.

        Raises:
            StorageError: it could not be removed; the next pass finds it resolved and removes it.
        """
        maybe_fail(SIDECAR_DELETE)
        lease = _LIVE.lease(claim.operation_id)
        with lease.lock if lease is not None else threading.Lock():
            self._objects.delete(self._path(claim.operation_id))

    def _release(self, claim: Claim) -> None:
        """Give the claim back, resolved or not; a failure only makes others wait for its lease."""
        try:
            _, holder = self._last_claim(claim.operation_id)
            if holder is not None and holder.same_process(this_process()):
                self._delete_claims(claim.operation_id)
        except GraphError as exc:
            _log.warning("could not remove the claim on %s: %s", claim.operation_id, exc)

    def drop_leftover_claims(self) -> None:
        """Remove claims whose intent is gone and whose holder is too."""
        names = self._objects.list_dir(RECOVERY_DIR)
        claimed = {OperationId(name.partition(_CLAIM)[0]) for name in names if _CLAIM in name}
        for operation_id in sorted(claimed - {OperationId(name.removesuffix(_SUFFIX)) for name in names}):
            _, holder = self._last_claim(operation_id)
            if _LIVE.get(operation_id) is None and (holder is None or self._claim_is_over(holder)):
                self._delete_claims(operation_id)

    def _claim_is_over(self, holder: Owner) -> bool:
        # A claim of this very process that nobody in it works on was left behind by a failure.
        return holder.same_process(this_process()) or judge(holder) is not Liveness.LIVE

    def _last_claim(self, operation_id: OperationId) -> tuple[int, Owner | None]:
        prefix = f"{operation_id}{_CLAIM}"
        numbers = [
            int(name.removeprefix(prefix)) for name in self._objects.list_dir(RECOVERY_DIR) if name.startswith(prefix)
        ]
        if not numbers:
            return 0, None
        text = self._objects.read_text_if_exists(self._claim_path(operation_id, max(numbers)))
        return max(numbers), Owner.from_json(json.loads(text)) if text else None

    def _delete_claims(self, operation_id: OperationId) -> None:
        prefix = f"{operation_id}{_CLAIM}"
        for name in sorted(name for name in self._objects.list_dir(RECOVERY_DIR) if name.startswith(prefix)):
            self._objects.delete(f"{RECOVERY_DIR}/{name}")

    @staticmethod
    def _path(operation_id: OperationId) -> str:
        return f"{RECOVERY_DIR}/{operation_id}{_SUFFIX}"

    @staticmethod
    def _claim_path(operation_id: OperationId, number: int) -> str:
        return f"{RECOVERY_DIR}/{operation_id}{_CLAIM}{number:06d}"
