"""Work that is done beside a wait, because nobody has to see it yet.

While a write waits for its tables to be committed, the manifest that will show them can be written: it says which
versions they have reached, and where everything goes well these are known beforehand. What comes too early is merely a
file that nothing refers to, so a failure here is nobody's failure: whoever needs the result does the work himself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Generic, TypeVar

from omnigraph import failpoints
from omnigraph.engine.storage import steps
from omnigraph.errors import GraphError

logger = logging.getLogger(__name__)

T = TypeVar("T")

THREADS_MAX = 2
"""More writes than that at a time keep the processors busy by themselves."""
_pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="omnigraph-ahead")
"""Kept, because a commit would wait for a new thread to be scheduled; it has no thread before the first commit."""


class Ahead(Generic[T]):
    """One piece of work in another thread, with the context of whoever asked for it.

    Where storage operations are observed, or failpoints are set, it is done at once instead, so that whoever counts
    operations, or stops between two, finds each in its place.
    """

    def __init__(self, work: Callable[[], T | None]) -> None:
        self._work = work
        self._result: T | None = None
        self._running: Future[None] | None = None
        if steps.are_observed() or failpoints.are_set():
            self._do()
            return
        try:
            self._running = _pool.submit(copy_context().run, self._do)
        except RuntimeError as exc:
            # No thread can be had, or the interpreter is about to end.
            logger.debug("nothing is done ahead: %s", exc)

    def result(self) -> T | None:
        """What the work gave, once it is done; None when it failed, or when no thread has come to it until now."""
        if self._running is not None and not self._running.cancel():
            self._running.result()
        return self._result

    def _do(self) -> None:
        try:
            self._result = self._work()
        except GraphError as exc:
            logger.debug("not done ahead: %s", exc)
