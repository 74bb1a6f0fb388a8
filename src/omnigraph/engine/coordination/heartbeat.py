"""Who may be writing files that no version has yet: each process that stages has a heartbeat, a note with a lease.

Between staging a file and arming the intent nothing names it, so whoever reclaims unreferenced files has to know that
nobody is about to commit them. A process that stages leaves a note with its identity and a lease in `__writers/`, one
for each graph and for as long as it lives, renewed while it stages. With no living note, an unreferenced file that was
there before the notes were read is nobody's. A writer whose note ran out while it stood still, or whose files others
have staged, looks for them once its intent is armed, which keeps reclaiming away.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
from collections.abc import Callable
from functools import cached_property
from typing import ClassVar, TypeVar

from omnigraph.engine.coordination import lease as policy
from omnigraph.engine.coordination.lease import KEEPER, Lease
from omnigraph.engine.coordination.owner import Liveness, Owner, judge, this_process
from omnigraph.engine.storage.layout import WRITERS_DIR, is_local
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import GraphError
from omnigraph.ids import new_ulid, now_micros
from omnigraph.interrupts import holding

_log = logging.getLogger(__name__)

BEGUN_BELOW = 1 / 2
"""A write that begins with less than this share of the lease left renews it first."""
_SUFFIX = ".json"

T = TypeVar("T")


class Heartbeat:
    """The note of this process at one graph; `Heartbeat.at` gives every handle of a root the same one."""

    _shared: ClassVar[dict[tuple[str, int], Heartbeat]] = {}
    _shared_lock = threading.Lock()

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._stagings: set[object] = set()
        self._since = 0
        self._is_kept = False
        self.lease = Lease(self._store, wanted=lambda: bool(self._stagings))
        """What is renewed while this process stages."""

    @cached_property
    def path(self) -> str:
        """Where the note is, chosen when it is first written."""
        return f"{WRITERS_DIR}/{new_ulid()}{_SUFFIX}"

    def is_at(self, path: str) -> bool:
        """Whether a note is this one; a process that only reads has none."""
        return "path" in self.__dict__ and self.path == path

    @classmethod
    def at(cls, objects: ObjectStore) -> Heartbeat:
        """The note of this process, not of the one it was forked from, at a root."""
        key = (objects.root, os.getpid())
        with cls._shared_lock:
            found = cls._shared.get(key)
            if found is None:
                found = cls._shared[key] = cls(objects)
            return found

    @property
    def stagings(self) -> int:
        """How many writes of this process may be staging right now."""
        return len(self._stagings)

    def staging(self, body: Callable[[], T]) -> T:
        """Run `body`, which makes files that nothing refers to yet: what it stages is nobody else's to remove.

        Raises:
            StorageError: the note could not be written; nothing may be staged.
        """
        mark = object()

        def take() -> None:
            self._stagings.add(mark)
            self._renew()

        return holding(take, body, lambda: self._stagings.discard(mark))

    def covers(self, since: int) -> bool:
        """True when the note has been there without a gap from that moment until now."""
        with self.lease.lock:
            return self._since <= since and not self.lease.is_over

    def _renew(self) -> None:
        with self._lock:
            self.lease.renew(below=BEGUN_BELOW)
            KEEPER.keep(self.lease)
            if not self._is_kept:
                if is_local(self._objects.root):
                    # Elsewhere the end of a process must not wait for a network; the next open removes the note.
                    atexit.register(self._withdraw, os.getpid())
                self._is_kept = True

    def _store(self, owner: Owner) -> bool:
        if self.lease.is_over:
            self._since = now_micros()
        self._objects.write_text(self.path, json.dumps(owner.to_json()))
        return True

    def _withdraw(self, pid: int) -> None:
        """Take the note away at the end of the process that left it."""
        if pid != os.getpid():
            return
        try:
            self._objects.delete(self.path)
        except GraphError as exc:
            _log.info("the note of this writer is left to the next open: %s", exc)

    @classmethod
    def leave(cls, root: str) -> None:
        """Take the note away and end its thread when a graph is closed; a write that is under way keeps both."""
        with cls._shared_lock:
            found = cls._shared.get((root, os.getpid()))
        if found is not None:
            found._end()

    def _end(self) -> None:
        with self._lock:
            if self._stagings or not self._is_kept:
                return
            self._is_kept = False
            # Under the locks, so that a write that begins now leaves its note after this one has gone.
            with self.lease.lock:
                KEEPER.drop(self.lease)
                self.lease.owner = this_process()
                self._withdraw(os.getpid())
        atexit.unregister(self._withdraw)


def living_writers(objects: ObjectStore) -> list[Owner]:
    """The processes that may be staging, this one included while it does; notes of those that are gone are removed."""
    own = Heartbeat.at(objects)
    living = []
    for name in sorted(objects.list_dir(WRITERS_DIR)):
        path = f"{WRITERS_DIR}/{name}"
        text = objects.read_text_if_exists(path)
        owner = None if text is None else _parse(text)
        if owner is None:
            continue
        if own.is_at(path):
            if own.stagings:
                living.append(owner)
        elif not owner.same_process(this_process()) and _may_write(owner):
            living.append(owner)
        else:
            objects.delete(path)
    return living


def _parse(text: str) -> Owner | None:
    try:
        return Owner.from_json(json.loads(text))
    except (ValueError, KeyError, TypeError):
        return None


def _may_write(owner: Owner) -> bool:
    liveness = judge(owner)
    if liveness is Liveness.SILENT and not owner.same_machine(this_process()):
        return now_micros() < owner.lease_until + int(policy.GRACE_SECONDS * 1_000_000)
    return liveness is Liveness.LIVE


def clear_leftover_notes(objects: ObjectStore) -> None:
    """Remove the notes of processes that are gone; trouble is logged, because a note only keeps files from going."""
    try:
        living_writers(objects)
    except GraphError as exc:
        _log.warning("notes of writers that are gone could not be removed: %s", exc)
