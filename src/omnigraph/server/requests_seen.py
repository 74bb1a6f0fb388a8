"""Requests that carry a key are answered once: notes beside the graph, seen by every server and after every restart.

A note is made before the write begins and completed when it is answered; creating it is a conditional put, so of two
equal requests one does the work. A note whose server died tells nothing about the write, so the graph is asked: each
commit carries the name of its request (`ATTACHED`), and what has a name of its own, a branch or a tag, is told from
another one of that name by what the note says it was `about`. A key that is used again when its time is over stands for
another request, which does not take for its own what the earlier one has left in the graph. Notes are taken over by a
further attempt, never replaced, so that of two who find one abandoned one goes on. One whose request is refused before
anything happened is taken away where the store can do so safely, so that refusals use nothing up. What could not be
written into a note is owed: it is answered from memory here, and written once the store takes it, so that other servers
do not wait for as long as this one lives.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from omnigraph.engine.coordination.owner import Liveness, Owner, judge, this_process
from omnigraph.engine.manifest.records import REQUEST
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import GraphError
from omnigraph.ids import new_ulid, now_micros
from omnigraph.server.errors import Answer, HttpRefusal

KEPT = timedelta(hours=24)
KEY_LENGTH_MAX = 128
LEASE_SECONDS = 60.0
"""How long a note of another machine is believed to be worked on."""
ATTEMPTS_MAX = 1_000
OWED_MAX = 1_000
"""Of so many notes at most it is remembered what could not be written into them."""
ATTACHED = REQUEST
"""The commit property that names the request a commit answers."""

REPLAYED = {"Idempotency-Replayed": "true"}
"""The header of an answer to a request that was carried out before."""

_active: dict[str, float] = {}
"""The marks of the notes this process is working on, and when each was made by the monotonic clock."""
_LOCKS = tuple(threading.Lock() for _ in range(64))
"""By name, so that a note that is renewed and settled at one moment stays settled."""


def checked_key(key: str) -> str:
    """An idempotency key as it may be used.

    Raises:
        HttpRefusal: 400.
    """
    if not 1 <= len(key) <= KEY_LENGTH_MAX or not key.isprintable() or not key.isascii():
        raise HttpRefusal(400, f"an Idempotency-Key has 1 to {KEY_LENGTH_MAX} printable ASCII characters")
    return key


class Note(Struct, frozen=True):
    """One attempt at one request, ours to complete."""

    name: str
    """Where the notes of its key lie."""
    attempt: int
    digest: str
    taken_over: bool
    """True when an earlier attempt was abandoned, so that its write may have happened."""
    began: int = 0
    """When the first attempt began, Unix microseconds."""
    key: str = ""
    """The key of the request, as its caller gave it."""
    about: str | None = None
    """The identity of what the request named when it was first made, empty when there was none; None where a note of an
    older release does not say."""
    mark: str = ""
    """What no other note has, so that whoever settles it later knows it as its own."""

    @property
    def request(self) -> str:
        """What all attempts at the request have in common, and no earlier or later request with its key."""
        return f"{self.name}.{self.began}"

    @property
    def path(self) -> str:
        """Where the note lies."""
        return _path(self.name, self.attempt)

    def is_gone(self, there: str) -> bool:
        """Whether what the request named when it was first made is gone, `there` being what has its name now."""
        return there == "" if self.about is None else self.about not in ("", there)


class Room(Struct, frozen=True):
    """How much may be kept of one graph's answered requests."""

    notes_max: int
    bytes_max: int


class RequestsSeen:
    """The notes of one graph; how much they take is counted, and counted anew with every sweep."""

    def __init__(self, objects: ObjectStore, room: Room = Room(1_000_000, 1 << 30)) -> None:  # noqa: B008 - a value
        self._objects, self._room = objects, room
        self._notes = self._bytes = 0
        self._owed: dict[str, tuple[Note, str]] = {}

    def begin(
        self, *, actor: str | None, key: str, digest: str, about: Callable[[], str] = lambda: ""
    ) -> Note | Answer:
        """Take a request on, or give the answer it already got; `about` tells what it names, before anything happens.

        Raises:
            HttpRefusal: 409, the key was used for another request, or its request is being worked on; 503, no more can
                be kept; nothing happened.
        """
        name = _name(actor, key)
        self._demand_room(name)
        fresh: str = about()
        named: str | None = fresh
        taken_over, began, attempt = False, now_micros(), 0
        for _ in range(ATTEMPTS_MAX):
            note = Note(name, attempt, digest, taken_over, began, key, named, new_ulid())
            if self._create(note):
                return note
            found = self._read(note.path)
            if found is None:
                continue  # It was swept at this very moment, and its place is where the next one begins.
            if _expired(found):
                attempt += 1
                taken_over, began, named = False, now_micros(), fresh
                continue
            answer = self._judged(found, digest)
            if answer is not None:
                return answer
            if found["state"] == "running" and self._read(note.path) is None:
                continue  # It was taken away while it was judged, so nothing happened, and its place is free.
            attempt += 1
            if found["state"] != "withdrawn" and not taken_over:
                taken_over, named = True, found.get("about")
            began = int(found["began"])
        raise HttpRefusal(409, "this Idempotency-Key was tried too often: use a new key")

    def answered(self, *, actor: str | None, key: str, digest: str) -> Answer | None:
        """The answer a request already got, None when it has none; leaves nothing behind.

        Raises:
            HttpRefusal: 409, the key was used for another request, or its request is being worked on.
        """
        name = _name(actor, key)
        for attempt in range(ATTEMPTS_MAX):
            found = self._read(_path(name, attempt))
            if found is None:
                return None
            answer = None if _expired(found) else self._judged(found, digest)
            if answer is not None:
                return answer
        return None

    def has_begun(self, *, actor: str | None, key: str, digest: str) -> bool:
        """Whether a request was taken on before, whatever became of it: then its actor was allowed to make it."""
        name = _name(actor, key)
        for attempt in range(ATTEMPTS_MAX):
            found = self._read(_path(name, attempt))
            if found is None:
                return False
            if not _expired(found):
                return bool(found["digest"] == digest)
        return False

    def _create(self, note: Note) -> bool:
        """Make a note, marked as worked on before anybody can see it; False when there is one already."""
        created = False
        _active[note.mark] = time.monotonic()
        try:
            created = self._objects.write_text_if_absent(note.path, _running(note))
        except GraphError:
            # It may be there all the same, and nobody works on it.
            self._owe(note, _settled(note, {"state": "withdrawn"}))
            raise
        finally:
            if not created:
                _active.pop(note.mark, None)
        self._notes += created
        return created

    def _judged(self, found: dict[str, Any], digest: str) -> Answer | None:
        """The answer a note has; None when its request is there to be taken over.

        Raises:
            HttpRefusal: 409, it is a note of another request, or is being worked on.
        """
        if found["digest"] != digest:
            raise HttpRefusal(409, "this Idempotency-Key was used for another request: use a new key")
        if found["state"] == "done":
            answer = Answer(int(found["status"]), found["body"], {**found.get("headers", {}), **REPLAYED})
            _ = answer.content  # Written here, not by the event loop.
            return answer
        if found["state"] == "running" and self._worked_on(found):
            raise HttpRefusal(
                409, "the request of this Idempotency-Key is being worked on", headers={"Retry-After": "1"}
            )
        return None

    def _demand_room(self, name: str) -> None:
        """Refuse a further key while there is no room for its answer: none that is kept is forgotten before its time.

        Raises:
            HttpRefusal: 503.
        """
        if self._notes < self._room.notes_max and self._bytes < self._room.bytes_max:
            return
        if self._read(_path(name, 0)) is None:
            raise HttpRefusal(
                503,
                f"the answers to {self._notes} requests with a key are kept already, {self._bytes} bytes, each for"
                f" {KEPT.total_seconds() / 3600:g} hours, and at most {self._room.notes_max} of {self._room.bytes_max}"
                " bytes are: ask without a key where repeating does no harm, or try again later; nothing changed",
                headers={"Retry-After": "60"},
            )

    def foretell(self, note: Note, text: str) -> None:
        """Keep what the request is going to be answered, should nobody live to complete its note."""
        self._bytes += len(text)
        self._objects.write_text(_receipt_path(note.request, note.attempt), text)

    def foretold(self, note: Note) -> str | None:
        """What the newest attempt before this one was going to answer, where it came so far."""
        earlier = (_receipt_path(note.request, attempt) for attempt in reversed(range(note.attempt)))
        return next((text for text in map(self._objects.read_text_if_exists, earlier) if text is not None), None)

    def renew(self, note: Note) -> None:
        """Say that the request is still worked on, for servers that cannot see this process."""
        with _lock_of(note):
            if note.mark in _active:
                self._objects.write_text(note.path, _running(note))

    def _worked_on(self, found: dict[str, Any]) -> bool:
        """Whether somebody still is at it: a process of this machine is looked up, another one has its lease."""
        owner, here = Owner.from_json(found["owner"]), this_process()
        if owner.same_process(here):
            return found.get("mark") in _active
        liveness = judge(owner)
        return liveness is Liveness.LIVE or (liveness is Liveness.SILENT and owner.same_machine(here))

    def _settle(self, note: Note, facts: Mapping[str, Any]) -> None:
        with _lock_of(note):
            _active.pop(note.mark, None)
            text = _settled(note, facts)
            self._bytes += len(text)
            try:
                self._objects.write_text(note.path, text)
            except GraphError:
                self._owe(note, text)
                raise

    def _owe(self, note: Note, text: str) -> None:
        """Remember what a note has yet to say; of too many the oldest are given up, and end with this process."""
        self._owed[note.mark] = (note, text)
        for mark in tuple(self._owed)[: len(self._owed) - OWED_MAX]:
            self._owed.pop(mark, None)

    def pay(self) -> int:
        """Write into notes what could not be written before; returns into how many.

        Raises:
            GraphError: the store still does not take it.
        """
        paid = 0
        for mark, (note, text) in tuple(self._owed.items()):
            stored = self._stored(note.path)
            # Only this process changes a note it has made, so what is seen to be its own stays so.
            if stored is not None and stored.get("state") == "running" and stored.get("mark") == mark:
                self._objects.write_text(note.path, text)
                paid += 1
            self._owed.pop(mark, None)
        return paid

    @property
    def owes(self) -> bool:
        """Whether there are notes that do not say yet what became of their requests."""
        return bool(self._owed)

    def complete(self, note: Note, answer: Answer) -> None:
        """Keep the answer, for whoever asks again."""
        done = {"state": "done", "status": answer.status, "body": answer.body, "headers": dict(answer.headers)}
        self._settle(note, done)

    def withdraw(self, note: Note, *, uncertain: bool) -> None:
        """Let the next attempt have the request; `uncertain` says that this one may have changed the graph."""
        if uncertain or not self._take_away(note):
            self._settle(note, {"state": "abandoned" if uncertain else "withdrawn"})

    def _take_away(self, note: Note) -> bool:
        """Remove the note of a request that came to nothing, as if it had never been; False where that is not safe.

        Behind a note that is gone there must be no further attempt, or the next request would begin at the gap and be
        carried out beside it. Nobody makes one while the note is believed to be worked on, so it is only taken away
        well before its lease and its day are over; and it counts as worked on until it is gone. An object store may
        carry a removal out a second time, when its place is another's, so there it stays.
        """
        if not layout.is_local(self._objects.root):
            return False
        with _lock_of(note):
            made = _active.get(note.mark)
            young = now_micros() - note.began < KEPT.total_seconds() * 500_000
            if made is None or time.monotonic() - made > LEASE_SECONDS / 2 or not young:
                return False
            try:
                self._objects.delete(_receipt_path(note.request, note.attempt))
                self._objects.delete(note.path)
            except GraphError:
                return False
            finally:
                _active.pop(note.mark, None)
            self._notes -= 1
        return True

    def sweep(self) -> int:
        """Remove notes that are older than they are kept; returns how many.

        All attempts at a request go together: were an old one to go before a newer one, the next request with the key
        would find its place free and be carried out a second time.
        """
        limit = datetime.now(UTC) - KEPT
        found = {str(each["path"]).rpartition("/")[2]: each for each in self._objects.entries(layout.REQUESTS_DIR)}
        young = {_key_of(file) for file, each in found.items() if each["last_modified"] >= limit}
        old = [file for file in found if _key_of(file) not in young]
        for file in old:
            self._objects.delete(f"{layout.REQUESTS_DIR}/{file}")
            found.pop(file)
        self._notes, self._bytes = len(found), sum(int(each["size"]) for each in found.values())
        return len(old)

    def _read(self, path: str) -> dict[str, Any] | None:
        """What a note says, or would say had it taken what it was to."""
        found = self._stored(path)
        owed = None if found is None else self._owed.get(found.get("mark", ""))
        return found if owed is None else json.loads(owed[1])

    def _stored(self, path: str) -> dict[str, Any] | None:
        text = self._objects.read_text_if_exists(path)
        if text is None:
            return None
        found = json.loads(text)
        return found if isinstance(found, dict) else None


def _name(actor: str | None, key: str) -> str:
    return hashlib.sha256(json.dumps([actor, key]).encode()).hexdigest()


def _key_of(file: str) -> str:
    """The key, as notes have it, that a file belongs to; what is said of a branch belongs to none."""
    return file if file.startswith("branch-") else file.partition(".")[0]


def _lock_of(note: Note) -> threading.Lock:
    return _LOCKS[int(note.name[:8], 16) % len(_LOCKS)]


def _path(name: str, attempt: int) -> str:
    return f"{layout.REQUESTS_DIR}/{name}.{attempt}.json"


def _receipt_path(request: str, attempt: int) -> str:
    return f"{layout.REQUESTS_DIR}/{request}.{attempt}.receipt.json"


def _running(note: Note) -> str:
    owner = this_process().leased(LEASE_SECONDS).to_json()
    return _settled(note, {"state": "running", "owner": owner})


def _settled(note: Note, facts: Mapping[str, Any]) -> str:
    known = {"digest": note.digest, "began": note.began, "about": note.about, "mark": note.mark}
    return json.dumps({**facts, **known})


def _expired(found: dict[str, Any]) -> bool:
    return now_micros() - int(found["began"]) > KEPT.total_seconds() * 1_000_000
