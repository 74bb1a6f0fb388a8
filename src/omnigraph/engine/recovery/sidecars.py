"""Where intents are kept: one small file per write in flight, below `__recovery/`.

`IntentStore` writes, rewrites, lists and removes them, and knows which ones this process is still working on. A
writer holds its intent from `arm` to `disarm`; whoever takes over an intent from somebody else first puts a *claim*
beside it, an object that only one can create, so that two processes never undo one write at the same time.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from omnigraph.dataclass import dataclass
from omnigraph.engine.recovery.branch_lock import refuse_while_branch_changes
from omnigraph.engine.recovery.intent import Intent, WriterKind, parse_intent, render_intent
from omnigraph.engine.recovery.owner import LEASE_SECONDS, Liveness, Owner, judge, this_process
from omnigraph.engine.recovery.schema_lock import refuse_while_locked
from omnigraph.engine.storage.layout import RECOVERY_DIR
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import FormatError, GraphError
from omnigraph.failpoints import (
    SIDECAR_CONFIRM,
    SIDECAR_DELETE,
    SIDECAR_LIST,
    SIDECAR_LISTED,
    SIDECAR_WRITE,
    maybe_fail,
)
from omnigraph.ids import OperationId, TableKey, now_micros

_log = logging.getLogger(__name__)
_SUFFIX = ".json"
_CLAIM = ".claim-"


@dataclass
class _Armed:
    """An operation this process works on; the lock keeps a lease renewal from rewriting a file that just went."""

    store: IntentStore
    intent: Intent
    rewrites: bool
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Live:
    """The operations of this process, and the one thread that keeps long ones' leases fresh."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: dict[OperationId, _Armed] = {}
        self._keeper: threading.Thread | None = None
        self._pid = 0

    def enter(self, armed: _Armed) -> bool:
        """Register an operation; False when this process is working on it already."""
        with self._lock:
            if self._pid != this_process().pid:
                # After a fork the child owns none of its parent's operations, nor its threads.
                self._pid, self._armed, self._keeper = this_process().pid, {}, None
            if armed.intent.operation_id in self._armed:
                return False
            self._armed[armed.intent.operation_id] = armed
            if armed.rewrites and self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, name="omnigraph-leases", daemon=True)
                self._keeper.start()
            return True

    def leave(self, operation_id: OperationId) -> None:
        with self._lock:
            self._armed.pop(operation_id, None)

    def get(self, operation_id: OperationId) -> _Armed | None:
        with self._lock:
            return self._armed.get(operation_id) if self._pid == this_process().pid else None

    def _keep(self) -> None:
        pause = threading.Event()
        while True:
            with self._lock:
                due = [armed for armed in self._armed.values() if armed.rewrites]
                shortest = min((armed.store.lease_seconds for armed in due), default=LEASE_SECONDS)
            for armed in due:
                armed.store.renew(armed)
            pause.wait(min(shortest, LEASE_SECONDS) / 6)


_LIVE = _Live()
_LOCKS: set[OperationId] = set()


@dataclass(frozen=True)
class Claim:
    """The right to resolve an intent; `number` grows with each take-over of a claim whose holder died."""

    operation_id: OperationId
    number: int
    own: bool = False


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

        Raises:
            StorageError: it could not be written; no effect may follow, and nothing is left to recover.
            ConflictError: a schema change is in progress, or the branch is being created or deleted; likewise.
        """
        owned = replace(intent, owner=this_process().leased(self.lease_seconds))
        _LIVE.enter(_Armed(self, owned, rewrites=True))
        try:
            maybe_fail(SIDECAR_WRITE)
            self._objects.write_text(self._path(owned.operation_id), render_intent(owned))
            if owned.writer_kind is not WriterKind.SCHEMA_APPLY:
                # Looked for after the intent is there: a schema change looks for intents after its lock is.
                refuse_while_locked(self, "writing")
            refuse_while_branch_changes(self, owned.branch)
        except BaseException:
            # The write may have taken effect before it failed; a leftover would be found and closed by the next heal.
            self.disarm(owned.operation_id)
            raise
        return owned

    def confirm(self, intent: Intent, achieved: Mapping[TableKey, int]) -> Intent:
        """Record the version every effect reached: from here on the write is finished, never undone."""
        confirmed = intent.confirmed(achieved)
        maybe_fail(SIDECAR_CONFIRM)
        return self._rewrite(confirmed)

    def mark_aborted(self, intent: Intent) -> Intent:
        """Record that the writer undoes this: from here on it is never finished."""
        return self._rewrite(replace(intent, aborted=True))

    def disarm(self, operation_id: OperationId) -> bool:
        """Remove the intent of a finished write; a failure is only logged, because the write itself is durable."""
        armed = _LIVE.get(operation_id)
        lock = armed.lock if armed is not None else threading.Lock()
        with lock:
            _LIVE.leave(operation_id)
            try:
                maybe_fail(SIDECAR_DELETE)
                self._objects.delete(self._path(operation_id))
            except GraphError as exc:
                _log.warning("could not remove the recovery sidecar of %s: %s; the next write does", operation_id, exc)
                return False
        return True

    def abandon(self, operation_id: OperationId) -> None:
        """Give an unfinished write up to whoever comes next; it no longer counts as this process's work."""
        armed = _LIVE.get(operation_id)
        if armed is None:
            return
        with armed.lock:
            _LIVE.leave(operation_id)
            if not armed.rewrites:
                return
            intent = armed.intent
            try:
                owner = replace(intent.owner, lease_until=0) if intent.owner else None
                self._objects.write_text(self._path(operation_id), render_intent(replace(intent, owner=owner)))
            except GraphError as exc:
                _log.warning("could not release the recovery sidecar of %s: %s; its lease will", operation_id, exc)

    def forget(self, operation_id: OperationId) -> None:
        """An intent that is removed is no longer this process's work."""
        _LIVE.leave(operation_id)

    def renew(self, armed: _Armed) -> None:
        """Extend the lease of a long operation; called by the lease thread alone."""
        with armed.lock:
            owner = armed.intent.owner
            if owner is None or _LIVE.get(armed.intent.operation_id) is not armed:
                return
            if owner.lease_until - now_micros() > self.lease_seconds * 1_000_000 * 2 / 3:
                return
            renewed = replace(armed.intent, owner=owner.leased(self.lease_seconds))
            path = self._path(renewed.operation_id)
            try:
                if self._objects.read_text_if_exists(path) is None:
                    return
                self._objects.write_text(path, render_intent(renewed))
            except GraphError as exc:
                _log.warning("could not renew the lease of %s: %s", renewed.operation_id, exc)
                return
            armed.intent = renewed

    def _rewrite(self, intent: Intent) -> Intent:
        armed = _LIVE.get(intent.operation_id)
        if armed is None or not armed.rewrites:
            self._objects.write_text(self._path(intent.operation_id), render_intent(intent))
            return intent
        with armed.lock:
            current = replace(intent, owner=armed.intent.owner)
            self._objects.write_text(self._path(intent.operation_id), render_intent(current))
            armed.intent = current
        return current

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

    def claim(self, intent: Intent, *, own: bool = False) -> Claim | None:
        """Obtain the sole right to resolve an intent, or None when somebody alive has it; `own` is for its writer."""
        operation_id = intent.operation_id
        if not own and not _LIVE.enter(_Armed(self, intent, rewrites=False)):
            return None
        try:
            number, holder = self._last_claim(operation_id)
            free = holder is None or self._claim_is_over(holder)
            body = json.dumps(this_process().leased(self.lease_seconds).to_json())
            if free and self._objects.write_text_if_absent(self._claim_path(operation_id, number + 1), body):
                return Claim(operation_id, number + 1, own)
        except BaseException:
            if not own:
                _LIVE.leave(operation_id)
            raise
        if not own:
            _LIVE.leave(operation_id)
        return None

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
        self._objects.delete(self._path(claim.operation_id))

    def release(self, claim: Claim) -> None:
        """Give the claim back, resolved or not; a failure only makes others wait for its lease.

        A writer that claimed its own intent stays its owner; it ends that by `forget` or `abandon`.
        """
        if not claim.own:
            _LIVE.leave(claim.operation_id)
        try:
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
