"""What whoever asks for a write says about it once, whatever verb makes it: facts for its commit, and its patience.

A server notes in the commit which request it answers, so that a request repeated after a crash finds what the first one
did; it hears what a write will report before that is published, so that nothing of the answer can be lost with the
process; and it has promised an answer in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

_ATTACHED: ContextVar[Mapping[str, str]] = ContextVar("omnigraph-attached", default={})  # noqa: B039 - never changed


@contextmanager
def attaching(properties: Mapping[str, str]) -> Iterator[None]:
    """Let every commit that this thread makes meanwhile carry these properties."""
    token = _ATTACHED.set({**_ATTACHED.get(), **properties})
    try:
        yield
    finally:
        _ATTACHED.reset(token)


def attached() -> dict[str, str]:
    """The properties a commit made here and now carries."""
    return dict(_ATTACHED.get())


@contextmanager
def detached() -> Iterator[None]:
    """Let the commits that this thread makes meanwhile carry nothing but their own."""
    token = _ATTACHED.set({})
    try:
        yield
    finally:
        _ATTACHED.reset(token)


Foretold: TypeAlias = Callable[[Any], Mapping[str, str]]
"""Hears what a write will report, all but its commit, and says which properties that commit carries for it."""
_FORETOLD: ContextVar[Foretold | None] = ContextVar("omnigraph-foretold", default=None)


@contextmanager
def foretelling(hear: Foretold) -> Iterator[None]:
    """Let this hear, before they are published, what the writes report that this thread asks for meanwhile.

    A write that is prepared again is told again. What it raises keeps the write from being published.
    """
    token = _FORETOLD.set(hear)
    try:
        yield
    finally:
        _FORETOLD.reset(token)


def foretold() -> Foretold | None:
    """Who wants to hear beforehand what the write that is asked for here will report."""
    return _FORETOLD.get()


_PATIENCE: ContextVar[float | None] = ContextVar("omnigraph-patience", default=None)


@contextmanager
def waiting_until(moment: float) -> Iterator[None]:
    """Let no write that this thread asks for begin later than this moment of the monotonic clock."""
    token = _PATIENCE.set(moment)
    try:
        yield
    finally:
        _PATIENCE.reset(token)


def patience() -> float | None:
    """Until when a write that is asked for here may wait for its turn; None for as long as it takes."""
    return _PATIENCE.get()
