"""One writer at a time per table and branch, within one process.

Mutexes order the writers of a process so that they rarely meet in storage. Writers of other processes on the machine
are asked to take turns (`turns`), but nothing is protected from them here: the strict table commit and the publish
decide. A write holds the mutexes of every table it writes while it arms, applies, publishes and disarms; staging needs
none.

Writers stand in one line per graph, and each waits for those before it that want a table it wants, so no two wait for
each other. An interrupt may come at any step, so there is no lock that somebody could leave locked: standing in the
line is one append, leaving it is one assignment, and a writer that is gone without leaving no longer counts.
"""

from __future__ import annotations

import io
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import ClassVar, TypeVar

from omnigraph.engine.coordination.file_lock import Turns
from omnigraph.errors import ConflictError, InternalError
from omnigraph.ids import TableKey
from omnigraph.interrupts import holding

MutexKey = tuple[TableKey, str | None]
"""A table and the branch written, None being main."""

WAIT_SECONDS = 60.0
TURN_SECONDS = 5.0
"""How long a writer of another process is given its turn before this one goes on without."""
LOOK_SECONDS = 0.02
"""How often a waiting writer looks by itself, should the one before it have left without a word."""

T = TypeVar("T")


def _order(key: MutexKey) -> tuple[str, str]:
    return (key[0], key[1] or "")


class Mutexes:
    """The mutexes of one graph in this process; `Mutexes.at` gives every handle of a root the same ones."""

    _shared: ClassVar[dict[str, Mutexes]] = {}

    def __init__(self, turns: Turns | None = None) -> None:
        self._turns = turns
        # References that do not keep a writer alive: one that is gone holds nothing any more.
        self._line: deque[weakref.ref[_Place]] = deque()

    @classmethod
    def at(cls, root: str) -> Mutexes:
        """The process-wide mutexes of a canonical root."""
        found = cls._shared.get(root)
        # Of two threads that come at once, both are given what the first has put there.
        return found if found is not None else cls._shared.setdefault(root, cls(Turns(root)))

    def busy(self, keys: Iterable[MutexKey]) -> bool:
        """True when somebody holds one of the mutexes, or has the turn, right now; only a hint."""
        wanted = frozenset(keys)
        if any(wanted & other.keys for other in self._standing()):
            return True
        return self._turns is not None and self._turns.busy(wanted)

    def hold(self, keys: Iterable[MutexKey], body: Callable[[], T], *, timeout_seconds: float = WAIT_SECONDS) -> T:
        """Run `body` while holding all of these mutexes.

        Raises:
            ConflictError: another writer of this process kept a table for longer than the timeout.
            InternalError: this thread holds one of them already.
        """
        held = self.holder()
        return holding(lambda: held.take(keys, timeout_seconds=timeout_seconds), body, held.release)

    def holder(self) -> HeldMutexes:
        """Somebody who may take mutexes, and holds none yet."""
        return HeldMutexes(self, self._turns)

    def _before(self, place: _Place) -> _Place | None:
        """Who came first and wants a mutex that this one wants."""
        for other in self._standing():
            if other is place:
                return None
            if other.keys & place.keys:
                if other.thread == place.thread:
                    raise InternalError(f"this writer already holds the mutex of '{place.shared_with(other)[0]}'")
                return other
        return None

    def _wake_others(self, place: _Place) -> None:
        for other in self._standing():
            if other.keys & place.keys:
                other.wake.put(None)

    def _standing(self) -> list[_Place]:
        """Those in the line, first come first; the ones that are gone are taken out."""
        standing = []
        for reference in tuple(self._line):
            other = reference()
            if other is not None and other.standing:
                standing.append(other)
            else:
                self._forget(reference)
        return standing

    def _forget(self, reference: weakref.ref[_Place]) -> None:
        try:
            self._line.remove(reference)
        except ValueError:
            return  # somebody else has taken it out


class _Place:
    """A place in the line, until `standing` is taken back; nobody comes twice with the same."""

    __slots__ = ("__weakref__", "keys", "standing", "thread", "wake")

    def __init__(self, keys: Iterable[MutexKey]) -> None:
        self.keys = frozenset(keys)
        self.thread = threading.get_ident()
        self.wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.standing = True

    def shared_with(self, other: _Place) -> MutexKey:
        return min(self.keys & other.keys, key=_order)


class HeldMutexes:
    """The mutexes one writer holds: none before `take`, and none after `release`. Use it within `holding`."""

    def __init__(self, mutexes: Mutexes, turns: Turns | None) -> None:
        self._mutexes, self._turns = mutexes, turns
        self._place: _Place | None = None
        self._turns_held: list[io.FileIO] = []

    def take(self, keys: Iterable[MutexKey], *, timeout_seconds: float = WAIT_SECONDS) -> None:
        """Wait for all of these mutexes; whoever holds some gives them back first.

        Raises:
            ConflictError: another writer of this process kept a table for longer than the timeout.
            InternalError: this thread holds one of them already.
        """
        self.release()
        deadline = time.monotonic() + timeout_seconds
        place = self._place = _Place(keys)
        self._mutexes._line.append(weakref.ref(place))
        while (before := self._mutexes._before(place)) is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ConflictError(
                    f"another write kept '{place.shared_with(before)[0]}' busy for more than {timeout_seconds:g} s"
                    " — retry later"
                )
            try:
                place.wake.get(timeout=min(LOOK_SECONDS, left))
            except queue.Empty:
                continue
        if self._turns is not None:
            for key in sorted(place.keys, key=_order):
                turn = self._turns.take(key, min(deadline, time.monotonic() + TURN_SECONDS))
                if turn is not None:
                    self._turns_held.append(turn)

    def covers(self, keys: Iterable[MutexKey]) -> bool:
        """True when all of these mutexes are held."""
        return self._place is not None and self._place.keys.issuperset(keys)

    def release(self) -> None:
        """Give the mutexes back; doing so twice, or before any is held, is harmless."""
        while self._turns_held:
            self._turns_held[-1].close()
            self._turns_held.pop()
        place = self._place
        if place is not None:
            place.standing = False
            self._place = None
            self._mutexes._wake_others(place)
