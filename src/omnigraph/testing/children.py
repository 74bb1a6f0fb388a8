"""Processes of their own, for what must be killed or must come from elsewhere.

They are forked by a server that has imported everything and used nothing of storage, because a process forked after
Lance was used may hang, and a fresh interpreter for each of some thousand cases would take an hour.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from typing import Any

CHILD_SECONDS_MAX = 60.0
# Modules that are not installed are passed over by the server.
_PRELOADED = ["pandas", "pyspark.sql", "omnigraph.testing.crash", "omnigraph.testing.warm"]


def child_process(target: Callable[..., object], *arguments: Any) -> ForkServerProcess:
    """A process that will run a function once it is started; it dies with the process that made it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context.Process(target=target, args=arguments, daemon=True)


def run_child(target: Callable[..., object], *arguments: Any, timeout_seconds: float = CHILD_SECONDS_MAX) -> int | None:
    """Run a function in a process of its own and return its exit code."""
    child = child_process(target, *arguments)
    child.start()
    child.join(timeout_seconds)
    if child.is_alive():
        child.kill()
        child.join()
        raise AssertionError(f"a child process did not end within {timeout_seconds:g} s")
    return child.exitcode
