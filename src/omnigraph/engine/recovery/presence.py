"""Who may be writing files that no version has yet.

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
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import ClassVar

from omnigraph.engine.recovery.owner import Liveness, Owner, judge, this_process
from omnigraph.engine.storage.layout import WRITERS_DIR, is_local
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import GraphError
from omnigraph.ids import new_ulid, now_micros

_log = logging.getLogger(__name__)

LEASE_SECONDS = 60.0
GRACE_SECONDS = 300.0
"""How long after its lease a note of another machine still counts, because clocks differ."""
_SUFFIX = ".json"


class Presence:
    """The note of this process at one graph; `Presence.at` gives every handle of a root the same one."""

    _shared: ClassVar[dict[tuple[str, int], Presence]] = {}
    _shared_lock = threading.Lock()

    def __init__(self, objects: ObjectStore, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._objects, self.lease_seconds = objects, lease_seconds
        self._lock = threading.Lock()
        self._stagings = 0
        self._since = self._until = 0
        self._keeper: threading.Thread | None = None

    @cached_property
    def path(self) -> str:
        """Where the note is, chosen when it is first written."""
        return f"{WRITERS_DIR}/{new_ulid()}{_SUFFIX}"

    def is_at(self, path: str) -> bool:
        """Whether a note is this one; a process that only reads has none."""
        return "path" in self.__dict__ and self.path == path

    @classmethod
    def at(cls, objects: ObjectStore) -> Presence:
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
        return self._stagings

    @contextmanager
    def staging(self) -> Iterator[None]:
        """Announce files that nothing refers to yet; what is staged within is nobody else's to remove.

        Raises:
            StorageError: the note could not be written; nothing may be staged.
        """
        with self._lock:
            self._stagings += 1
        try:
            self._renew(self.lease_seconds / 2)
            yield
        finally:
            with self._lock:
                self._stagings -= 1

    def covers(self, since: int) -> bool:
        """True when the note has been there without a gap from that moment until now."""
        with self._lock:
            return self._since <= since and now_micros() < self._until

    def _renew(self, left_seconds: float) -> None:
        with self._lock:
            now = now_micros()
            if self._until - now > left_seconds * 1_000_000:
                return
            if now >= self._until:
                self._since = now
            owner = this_process().leased(self.lease_seconds)
            self._objects.write_text(self.path, json.dumps(owner.to_json()))
            self._until = owner.lease_until
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, name="omnigraph-presence", daemon=True)
                self._keeper.start()
                if is_local(self._objects.root):
                    # Elsewhere the end of a process must not wait for a network; the next open removes the note.
                    atexit.register(self._withdraw, os.getpid())

    def _withdraw(self, pid: int) -> None:
        """Take the note away at the end of the process that left it."""
        if pid != os.getpid():
            return
        try:
            self._objects.delete(self.path)
        except GraphError as exc:
            _log.info("the note of this writer is left to the next open: %s", exc)

    def _keep(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(self.lease_seconds / 6)
            if self._stagings:
                try:
                    self._renew(self.lease_seconds * 2 / 3)
                except GraphError as exc:
                    _log.warning("could not renew the note of this writer: %s", exc)


def living_writers(objects: ObjectStore) -> list[Owner]:
    """The processes that may be staging, this one included while it does; notes of those that are gone are removed."""
    own = Presence.at(objects)
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
        return now_micros() < owner.lease_until + int(GRACE_SECONDS * 1_000_000)
    return liveness is Liveness.LIVE


def clear_leftover_notes(objects: ObjectStore) -> None:
    """Remove the notes of processes that are gone; trouble is logged, because a note only keeps files from going."""
    try:
        living_writers(objects)
    except GraphError as exc:
        _log.warning("notes of writers that are gone could not be removed: %s", exc)
