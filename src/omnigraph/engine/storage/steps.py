"""The one place every storage operation passes, so that faults can be injected and orders recorded.

In production nothing observes and a step costs one comparison. Tests install an observer (see `omnigraph.testing`)
that counts, records, fails or kills before or after the N-th step; because each durable operation of this package is
a step, a crash loop finds its points by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable


class StepObserver(Protocol):
    """Told of every storage operation, before it starts and after it took effect."""

    def before(self, name: str, target: str) -> None:
        """Called before the operation; raising prevents it."""

    def after(self, name: str, target: str) -> None:
        """Called after the operation took effect; raising does not undo it."""


@runtime_checkable
class FailureObserver(Protocol):
    """An observer that is also told of operations that failed by themselves, like reading what is not there."""

    def failed(self, name: str, target: str) -> None:
        """Called after the failure, before anybody has handled it."""


_observer: StepObserver | None = None


def observe(observer: StepObserver | None) -> StepObserver | None:
    """Install an observer for this process, or None to remove it; returns the one that was there."""
    global _observer
    previous, _observer = _observer, observer
    return previous


def are_observed() -> bool:
    """Whether somebody counts the operations of this process, and wants each in its place."""
    return _observer is not None


class _Free:
    """A context manager that does nothing, shared so that an unobserved step allocates nothing."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None


_FREE = _Free()


@contextmanager
def _observed(observer: StepObserver, name: str, target: str) -> Iterator[None]:
    observer.before(name, target)
    try:
        yield
    except BaseException:
        if isinstance(observer, FailureObserver):
            observer.failed(name, target)
        raise
    observer.after(name, target)


def step(name: str, target: str):  # type: ignore[no-untyped-def]  # either of two context managers
    """Wrap one storage operation: `with step("commit", path): …`."""
    observer = _observer
    return _FREE if observer is None else _observed(observer, name, target)
