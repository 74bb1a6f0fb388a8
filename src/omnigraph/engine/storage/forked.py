"""Storage does not survive a fork.

Lance works with threads of its own, and a forked process has none of them: the first call that needs one waits for
ever, sometimes, and sometimes after what it was to do is durable. So a process that was forked from one that had used
storage refuses to use it, at once and in words, instead of hanging now and then. Whoever forks first and uses storage
afterwards is not concerned: forkserver, spawn and the workers of Spark work.
"""

from __future__ import annotations

import os

from omnigraph.engine.storage import steps
from omnigraph.errors import ForkedProcessError

_used = False
_forked = False


def note_use() -> None:
    """Remember that this process uses storage from here on.

    Raises:
        ForkedProcessError: the process it was forked from did already.
    """
    global _used
    check_process()
    _used = True


def check_process() -> None:
    """Refuse to go on in a process that was forked after storage was used.

    Raises:
        ForkedProcessError: it was.
    """
    if _forked:
        raise ForkedProcessError(
            "this process was forked from one that had used a graph already, and storage does not survive that: start"
            ' processes with the "spawn" or "forkserver" method, e.g. multiprocessing.get_context("spawn"), and open'
            " the graph in each of them"
        )


class _Refusing:
    """Stands where storage operations pass, in a process that must not begin any."""

    def before(self, name: str, target: str) -> None:
        check_process()

    def after(self, name: str, target: str) -> None:
        """Nothing comes to its end that was not begun."""


def _after_fork() -> None:
    # Called between fork and exec as well, so it must do next to nothing and wait for nobody.
    global _forked
    if _used:
        _forked = True
        steps.observe(_Refusing())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
