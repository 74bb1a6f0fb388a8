"""The record of a lock: an object that only one can create, and that says whose it is.

A record whose owner is gone, or has been silent for longer than its lease, is removed by whoever meets it. The claim on
its operation keeps two from removing each other's successor.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from omnigraph.engine.coordination.intents import IntentStore
from omnigraph.engine.coordination.lease import KEEPER, Lease
from omnigraph.engine.coordination.owner import Liveness, Owner, judge, this_process
from omnigraph.ids import OperationId, new_ulid, now_micros
from omnigraph.interrupts import nothing

_log = logging.getLogger(__name__)


class LockRecord(Struct, frozen=True):
    """Who holds a lock, and since when."""

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


Read = Callable[[], LockRecord | None]
"""Gives the record as it is now."""


class HeldLock:
    """A lock of this process at one path: taken, kept and given back within `interrupts.holding`."""

    def __init__(self, intents: IntentStore, path: str, read: Read, actor: str | None = None) -> None:
        self._intents, self._path, self._read = intents, path, read
        self._lease = Lease(self._store, intents.lease_seconds)
        self.record = LockRecord(OperationId(new_ulid()), self._lease.begin(), now_micros(), actor)

    def take(self) -> bool:
        """Store the record; False when somebody else's is there."""
        self._intents.note_lock(self.record.operation_id, held=True)
        if not self._intents.objects.write_text_if_absent(self._path, self.record.render()):
            return False
        KEEPER.keep(self._lease)
        return True

    @property
    def is_held(self) -> bool:
        """True while nobody has taken the lock away."""
        current = self._read()
        return current is not None and current.operation_id == self.record.operation_id

    def give_back(self, before: Callable[[], None] = nothing) -> None:
        """End the lease, and after `before` remove the record if it is still this one's, and not one that has come
        since; twice, or before `take`, is harmless."""
        self._lease.end()
        try:
            mark = _mark(self._intents, self._path, self.record)
            if mark is not None:
                before()
                self._intents.objects.delete_if_same(self._path, mark)
        finally:
            self._intents.note_lock(self.record.operation_id, held=False)

    def _store(self, owner: Owner) -> bool:
        mark = _mark(self._intents, self._path, self.record)
        text = replace(self.record, owner=owner).render()
        return mark is not None and self._intents.objects.replace_if_same(self._path, text, mark)


def is_alive(intents: IntentStore, record: LockRecord) -> bool:
    """Whether the holder of a lock may still act."""
    if record.owner.same_process(this_process()):
        return intents.holds_lock(record.operation_id)
    return judge(record.owner) is Liveness.LIVE


def remove_if_same(intents: IntentStore, path: str, found: LockRecord, read: Read) -> bool:
    """Remove the record of an owner that is gone; True when the lock is no longer held by it."""

    def clear(_: object) -> bool:
        mark = _mark(intents, path, found)
        if mark is None:
            return read() is None
        _log.warning("the lock %s is removed: its owner is gone", path)
        return intents.objects.delete_if_same(path, mark) or read() is None

    return intents.claimed(found.operation_id, clear) or False


def _mark(intents: IntentStore, path: str, record: LockRecord) -> object | None:
    """What tells a stored record from the one of any other holder; None when it is not there any more."""
    found = intents.objects.read_marked(path)
    if found is None:
        return None
    try:
        current = parse_lock(found[0])
    except (ValueError, KeyError, TypeError):
        return None  # Nobody who takes this lock writes such a thing; whoever reads it says so.
    return found[1] if current.operation_id == record.operation_id else None
