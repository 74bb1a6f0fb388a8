"""Writes that are published together, in a known order and by one thread.

Threads that meet by chance form other groups at every run. `written_together` asks for each write, stops it where it
would stand in the line, and then leads all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from omnigraph.engine.manifest.records import CommitWrite
from omnigraph.engine.write.context import GraphContext
from omnigraph.engine.write.group import Group, Member
from omnigraph.engine.write.line import Line, Lines
from omnigraph.engine.write.writer import Written
from omnigraph.errors import GraphError

Ask = Callable[[GraphContext], object]
"""Asks for one write, on the context it is given."""


class _Stopped(GraphError):
    """The write stands in the line, and its caller goes away."""


class _Collecting(Line[Any]):
    """A line that keeps who comes and lets nobody wait."""

    def __init__(self) -> None:
        super().__init__()
        self.members: list[Member[Any]] = []

    def carry_out(self, place: Any, lead: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self.members.append(place)
        raise _Stopped("the write waits")


class _One(Lines):
    def __init__(self, line: Line[Any]) -> None:
        super().__init__()
        self._line = line

    def of(self, branch: str, *, full: bool) -> Line[Any]:
        return self._line


Outcome = tuple[CommitWrite | None, Written[Any] | GraphError] | GraphError
"""What a write did as its commit lists it, and its receipt or refusal; or why it never came to stand in the line."""


def written_together(context: GraphContext, asks: Sequence[Ask]) -> list[Outcome]:
    """Publish several writes together; the outcome of each, in order."""
    line = _Collecting()
    waiting = replace(context, lines=_One(line))
    early: dict[int, GraphError] = {}
    for number, ask in enumerate(asks):
        try:
            ask(waiting)
        except _Stopped:
            continue
        except GraphError as refused:
            early[number] = refused
    left: Sequence[Member[Any]] = tuple(line.members)
    while left:
        left = Group(left).carry_out()
    ended = iter(line.members)
    return [early[number] if number in early else _outcome(next(ended)) for number in range(len(asks))]


def _outcome(member: Member[Any]) -> Outcome:
    try:
        return member.listed, member.outcome()
    except GraphError as refused:
        return member.listed, refused
