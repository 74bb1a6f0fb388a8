"""Writes that are published together, in a known order and by one thread.

Threads that meet by chance form other groups at every run. `written_together` asks for each write, stops it where it
would wait in the queue, and then leads all of them. The second half comes while the first is prepared, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from omnigraph.engine.manifest.records import CommitWrite
from omnigraph.engine.write.context import GraphContext
from omnigraph.engine.write.group import Group, Member
from omnigraph.engine.write.queue import Lead, WriteQueue, WriteQueues
from omnigraph.engine.write.writer import Written
from omnigraph.errors import GraphError

Ask = Callable[[GraphContext], object]
"""Asks for one write, on the context it is given."""


class _Stopped(GraphError):
    """The write waits in the queue, and its caller goes away."""


class _Collecting(WriteQueue[Any]):
    """A queue that keeps who comes and lets nobody wait."""

    def __init__(self) -> None:
        super().__init__()
        self.members: list[Member[Any]] = []

    def carry_out(self, place: Any, lead: Lead[Any]) -> None:
        self.members.append(place)
        raise _Stopped("the write waits")


class _One(WriteQueues):
    def __init__(self, queue: WriteQueue[Any]) -> None:
        super().__init__()
        self._queue = queue

    def of(self, branch: str, *, full: bool) -> WriteQueue[Any]:
        return self._queue


Outcome = tuple[CommitWrite | None, Written[Any] | GraphError] | GraphError
"""What a write did as its commit lists it, and its receipt or refusal; or why it never came to wait in the queue."""


def written_together(context: GraphContext, asks: Sequence[Ask]) -> list[Outcome]:
    """Publish several writes together; the outcome of each, in order."""
    queue = _Collecting()
    waiting = replace(context, queues=_One(queue))
    early: dict[int, GraphError] = {}
    for number, ask in enumerate(asks):
        try:
            ask(waiting)
        except _Stopped:
            continue
        except GraphError as refused:
            early[number] = refused
    half = (len(queue.members) + 1) // 2
    late = iter(queue.members[half:])
    left: Sequence[Member[Any]] = tuple(queue.members[:half])
    while left:
        left = Group(left, lambda: tuple(islice(late, 1))).carry_out() or tuple(late)
    ended = iter(queue.members)
    return [early[number] if number in early else _outcome(next(ended)) for number in range(len(asks))]


def _outcome(member: Member[Any]) -> Outcome:
    try:
        return member.listed, member.outcome()
    except GraphError as refused:
        return member.listed, refused
