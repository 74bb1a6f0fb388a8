"""Those who wait for the same branch of a graph, and the one of them who leads.

A writer waits in the queue until somebody has carried its write out. Whoever finds nobody leading leads: it takes all
who wait, itself included, and is given their writes to carry out together; those who come while it still prepares can
be taken as well. The lead is held by a lock of C in a `with`
statement and a place is taken by one assignment, so an interrupt at any step leaves nothing held; a writer that hears
nothing looks by itself.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from omnigraph.errors import UnavailableError

TOGETHER_MAX = 64
"""How many writes are carried out together."""
_LOOK_SECONDS = 0.05
"""How often a waiting write looks by itself, should the one that led have gone without a word."""


class Place:
    """A place in a queue: waiting, taken by a leader, and done. Only those of the same `kind` are taken together."""

    def __init__(self, kind: object, patience: float | None) -> None:
        self.kind, self.patience = kind, patience
        self.wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.done = False
        self.abandoned = False
        """True when its leader was interrupted before it told what became of it."""
        self._owner: dict[str, str] = {}

    def claim(self, who: str) -> bool:
        """Take it, as its leader or by leaving the queue; of two who try one succeeds."""
        return self._owner.setdefault("owner", who) == who

    def put_back(self) -> None:
        """Let another leader take it."""
        self._owner.clear()

    def abandon(self) -> None:
        """Let its writer find out by itself what became of it."""
        self.abandoned = True
        self.finish()

    def finish(self) -> None:
        """Let its writer go on."""
        self.done = True
        self.wake.put(None)


P = TypeVar("P", bound=Place)
More = Callable[[], Sequence[P]]
"""Takes those who have come since, and may still go along; nobody when there are none."""
Lead = Callable[[Sequence[P], More[P]], Sequence[P]]
"""Carries writes out, with more of them while it can; returns those it has left for the next."""


class WriteQueue(Generic[P]):
    """Who waits for one branch, first come first."""

    def __init__(self) -> None:
        self._waiting: deque[P] = deque()
        self._leading = threading.Lock()

    def carry_out(self, place: P, lead: Lead[P]) -> None:
        """Wait until this write is done, or lead.

        Raises:
            UnavailableError: nobody took it in time.
        """
        self._waiting.append(place)
        try:
            while not place.done:
                if self._leading.locked():
                    self._wait(place)
                    continue
                with self._leading:
                    if not place.done and place in self._waiting:
                        self._lead(lead)
                    elif not place.done:
                        # Whoever led was interrupted with this write in its hands, and nobody else will tell of it.
                        place.abandon()
                self._call_next()
        finally:
            place.claim("gone")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let nobody lead meanwhile, so that all who come wait for each other; for tests."""
        with self._leading:
            yield

    @property
    def length(self) -> int:
        """How many wait at this moment."""
        return len(self._waiting)

    def _wait(self, place: P) -> None:
        left = None if place.patience is None else place.patience - time.monotonic()
        try:
            place.wake.get(timeout=_LOOK_SECONDS if left is None else max(0.0, min(_LOOK_SECONDS, left)))
        except queue.Empty:
            if left is not None and left <= 0 and not place.done and place.claim("gone"):
                raise UnavailableError(
                    "the write did not start in time, because others of its branch are ahead of it; nothing changed,"
                    " try again"
                ) from None

    def _lead(self, lead: Lead[P]) -> None:
        taken: list[P] = []
        left: Sequence[P] = ()
        try:
            if self._take(taken):
                left = lead(tuple(taken), lambda: self._take(taken))
        finally:
            for place in reversed(taken):
                if place in left:
                    place.put_back()
                    self._waiting.appendleft(place)
                elif not place.done:
                    place.abandon()

    def _take(self, taken: list[P]) -> Sequence[P]:
        """Take everybody who waits and may go with those already taken; returns the new ones."""
        before = len(taken)
        while self._waiting and len(taken) < TOGETHER_MAX:
            first = self._waiting[0]
            if taken and first.kind is not taken[0].kind:
                break
            self._waiting.popleft()
            if first.claim("led"):
                taken.append(first)
        return tuple(taken[before:])

    def _call_next(self) -> None:
        for waiting in tuple(self._waiting)[:1]:
            waiting.wake.put(None)


class WriteQueues:
    """The queues of one graph: of one branch those whose writes are to survive the same.

    A queue is there for as long as somebody waits in it, because branches come and go.
    """

    def __init__(self) -> None:
        self._queues: weakref.WeakValueDictionary[tuple[str, bool], WriteQueue[Any]] = weakref.WeakValueDictionary()
        self._finding = threading.Lock()

    def of(self, branch: str, *, full: bool) -> WriteQueue[Any]:
        """The queue of a branch; whoever holds it keeps it."""
        with self._finding:
            found = self._queues.get((branch, full))
            if found is None:
                found = self._queues[branch, full] = WriteQueue()
            return found

    def __len__(self) -> int:
        """How many queues there are at this moment."""
        return len(self._queues)
