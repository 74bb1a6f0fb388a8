"""Decide what happens at named failpoints: fail, die, wait, or nothing.

A plan is text, `name=action;name=action`. Actions: `return` raises `InjectedFailure`, `exit` ends the process as a
crash would, `pause` blocks until released, `off` does nothing; `3*return` acts three times and then is off; `a->b`
continues with `b` once `a` is used up. The command line installs the plan that `OMNIGRAPH_FAILPOINTS` holds.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct, field

from omnigraph import failpoints
from omnigraph.errors import InputError, StorageError

CRASH_EXIT_CODE = 86
PAUSE_SECONDS_MAX = 60.0
_ACTION = re.compile(r"(?:(\d+)\*)?(return|exit|pause|off)\Z")


class InjectedFailure(StorageError):
    """A failure a test asked for; a storage error, because that is what it stands for."""

    def __init__(self, where: str) -> None:
        super().__init__(f"injected failure at {where}", kind="transient")
        self.where = where


class _Stage(Struct):
    """One part of a sequence: what to do, and how often; None means for ever."""

    action: str
    remaining: int | None


class _Point(Struct):
    """The actions of one failpoint, and where a paused caller waits."""

    stages: list[_Stage]
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    hits: int = 0


class FailpointPlan:
    """What each configured failpoint does; install it with `configured`, or for good with `failpoints.install`."""

    def __init__(self, text: str = "") -> None:
        self._points: dict[str, _Point] = {}
        self._lock = threading.Lock()
        for part in filter(None, (piece.strip() for piece in text.split(";"))):
            name, separator, actions = part.partition("=")
            if not separator:
                raise InputError(f"'{part}' is not a failpoint: write name=action")
            self.set(name.strip(), actions.strip())

    def set(self, name: str, actions: str) -> None:
        """Configure one failpoint, forgetting what it did before.

        Raises:
            InputError: there is no such failpoint, or the action is not one.
        """
        if name not in failpoints.names():
            raise InputError(f"there is no failpoint '{name}'")
        stages = []
        for text in actions.split("->"):
            match = _ACTION.match(text.strip())
            if match is None:
                raise InputError(f"'{text}' is not a failpoint action: use return, exit, pause, off or N*action")
            stages.append(_Stage(match[2], int(match[1]) if match[1] else None))
        with self._lock:
            self._points[name] = _Point(stages)

    def hits(self, name: str) -> int:
        """How often a configured failpoint was reached."""
        return self._points[name].hits

    def wait_until_reached(self, name: str, timeout_seconds: float = 30.0) -> bool:
        """Block until some thread stands at the failpoint."""
        return self._points[name].reached.wait(timeout_seconds)

    def set_aside(self, name: str) -> None:
        """Let threads that come later pass, while the paused one goes on waiting."""
        with self._lock:
            self._points[name].stages = []

    def release(self, name: str) -> None:
        """Let a paused thread go on, and every later one pass."""
        self._points[name].released.set()

    def __call__(self, name: str) -> None:
        """Act at a failpoint; the engine calls this through `maybe_fail`."""
        with self._lock:
            point = self._points.get(name)
            action = self._take(point) if point is not None else "off"
        if point is None or action == "off":
            return
        point.reached.set()
        if action == "return":
            raise InjectedFailure(name)
        if action == "exit":
            os._exit(CRASH_EXIT_CODE)
        if not point.released.wait(PAUSE_SECONDS_MAX):
            raise InjectedFailure(f"{name} (paused for {PAUSE_SECONDS_MAX:g} s and never released)")

    @staticmethod
    def _take(point: _Point) -> str:
        point.hits += 1
        for stage in point.stages:
            if stage.remaining is None:
                return stage.action
            if stage.remaining > 0:
                stage.remaining -= 1
                return stage.action
        return "off"


@contextmanager
def configured(text: str) -> Iterator[FailpointPlan]:
    """Run a block with failpoints configured, and put back what was there afterwards."""
    plan = FailpointPlan(text)
    previous = failpoints.install(plan)
    try:
        yield plan
    finally:
        failpoints.install(previous)
