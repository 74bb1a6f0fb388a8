"""What is taken is given back, whenever an interrupt arrives.

Ctrl-C, or any exception that another thread or a signal handler raises, may come between any two steps of Python code:
after something was taken and before it was noted, or at the first step of the very function that gives it back.
`holding` is the one pattern of this package that stands that. It begins to guard before anything is taken, and what
gives back is called once more when it was cut short, at its first step or later; so it has to be harmless when nothing
was taken yet, and when it is called twice. A `with` statement is no substitute, unless its manager is written in C like
a lock: an interrupt at the first step of `__exit__` leaves everything taken, for as long as somebody keeps the
traceback, and an interactive session does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from omnigraph.errors import GraphError

T = TypeVar("T")


def holding(take: Callable[[], object], body: Callable[[], T], give: Callable[[], object]) -> T:
    """Run `body` after `take`, and `give` at the end of either, however it comes.

    An error of ours that `give` raises is final; whatever else stops it makes it run again before that goes on.

    >>> holding(lambda: print("take"), lambda: "done", lambda: print("give"))
    take
    give
    'done'
    """
    try:
        take()
        return body()
    finally:
        try:
            give()
        except GraphError:
            raise
        except BaseException:
            give()
            raise


def interrupt_behind(error: BaseException) -> BaseException | None:
    """The interrupt that an error stands for: one that arrives while a class is made leaves as a `RuntimeError`."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt | SystemExit):
        cause = cause.__cause__
    return cause


def nothing() -> None:
    """For those who have nothing to take before the body, because it takes as it goes."""


def uncut(work: Callable[[], T]) -> T:
    """Run what must not be left half done: an interrupt that comes meanwhile is raised when it is at its end.

    It runs in a thread of its own, because signals are raised in the main thread only. Where foreign code gives up a
    call in the middle, a part of it may still take effect later, when others have cleared away the rest.

    >>> uncut(lambda: "done")
    'done'
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as exc:  # noqa: BLE001 - it goes on where it is waited for
            outcome.set_exception(exc)

    thread = threading.Thread(target=run, name="omnigraph-uncut")
    # Not `Thread.join`, which takes the thread for ended once it was interrupted.
    holding(thread.start, outcome.exception, lambda: thread.is_alive() and outcome.exception())
    return outcome.result()
