"""Where the synchronous engine runs: threads for reads, others for writes, and the queue in front of the writes.

Reads never wait for writes, because they do not share threads. Writes of one branch take turns, and those that the
engine can publish together share one; a write that does not get its turn in time is refused without having begun, and
one that has begun is carried to its end whatever becomes of its client.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from omnigraph.engine.write.attached import waiting_until
from omnigraph.engine.write.queue import TOGETHER_MAX
from omnigraph.server.errors import HttpRefusal
from omnigraph.server.settings import Settings
from omnigraph.server.turns import Turn

_log = logging.getLogger("omnigraph.server")
T = TypeVar("T")
ANONYMOUS = "anonymous"
BODY_THREADS = 2
"""How many large bodies are read at once; more would only take turns at the interpreter."""


class Work:
    """The threads and queues of one server process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reads = ThreadPoolExecutor(settings.read_threads, thread_name_prefix="read")
        self._writes = ThreadPoolExecutor(settings.write_threads, thread_name_prefix="write")
        self._small = ThreadPoolExecutor(settings.write_threads, thread_name_prefix="note")
        self._bodies = ThreadPoolExecutor(BODY_THREADS, thread_name_prefix="body")
        self._together = ThreadPoolExecutor(TOGETHER_MAX, thread_name_prefix="together")
        self._free_writers = asyncio.Semaphore(settings.write_threads)
        self._free_together = asyncio.Semaphore(TOGETHER_MAX)
        self._turns: dict[tuple[str, str], Turn] = defaultdict(Turn)
        self._admitted: dict[str, tuple[int, int]] = {}
        self._started: set[asyncio.Task[Any]] = set()
        self._reading: set[asyncio.Future[Any]] = set()
        self._cut = False
        self._streams = 0
        self.export_slots = asyncio.Semaphore(settings.exports_max)
        self.stopping = asyncio.Event()

    async def read(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run something that only reads.

        Raises:
            HttpRefusal: 503, the server stops and cannot wait for it.
        """
        running = self._run(self._reads, function, *arguments)
        self._reading.add(running)
        try:
            return await running
        except asyncio.CancelledError:
            if self._cut:
                raise HttpRefusal(503, "the server is stopping: ask another one, or again later") from None
            raise
        finally:
            self._reading.discard(running)

    def open_stream(self) -> None:
        """Take one of the places for streams without end.

        Raises:
            HttpRefusal: 503, all are taken.
        """
        if self._streams >= self._settings.streams_max:
            raise HttpRefusal(503, "as many change streams as this server allows are open: poll, or try again later")
        self._streams += 1

    def close_stream(self) -> None:
        """Give the place back."""
        self._streams -= 1

    def cut_reads(self) -> None:
        """Give up on the reads that are running; their callers are told to come again."""
        self._cut = True
        for running in tuple(self._reading):
            running.cancel()

    async def note(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a small look at, or change of, the notes a server keeps beside the graph."""
        return await self._run(self._small, function, *arguments)

    async def shape(self, function: Callable[..., T], *arguments: Any) -> T:
        """Make something of a large body, beside the event loop and whatever else runs."""
        return await self._run(self._bodies, function, *arguments)

    @staticmethod
    def _run(pool: ThreadPoolExecutor, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        context = contextvars.copy_context()
        return asyncio.get_running_loop().run_in_executor(pool, context.run, function, *arguments)

    async def write(self, graph_id: str, branch: str, function: Callable[[], T], *, together: bool = False) -> T:
        """Run a write when its branch and a thread are free; `together`, it shares both with others of its branch.

        Raises:
            HttpRefusal: 503, it did not start in time; nothing happened.
        """
        until = time.monotonic() + self._settings.write_queue_seconds
        async with self._turn(graph_id, branch, shared=together):
            if not together:
                return await self._run(self._writes, function)
            # It goes on waiting inside the engine, for the group that is being written.
            with waiting_until(until):
                return await self._run(self._together, function)

    @asynccontextmanager
    async def _turn(self, graph_id: str, branch: str, *, shared: bool) -> AsyncIterator[None]:
        key = (graph_id, branch)
        turn, free = self._turns[key], self._free_together if shared else self._free_writers
        try:
            await self._take(turn, free, branch, shared=shared)
            try:
                yield
            finally:
                free.release()
                turn.give(shared=shared)
        finally:
            # Whoever waits stands in it, so one that is idle is nobody's; branches come and go.
            if turn.is_idle and self._turns.get(key) is turn:
                del self._turns[key]

    async def _take(self, turn: Turn, free: asyncio.Semaphore, branch: str, *, shared: bool) -> None:
        """Wait for the turn and then for a thread, as long as a write may wait."""
        if turn.is_free(shared=shared) and not free.locked():
            # Neither is waited for, so that there is no time to be watched.
            await turn.take(shared=shared)
            await free.acquire()
            return
        try:
            async with asyncio.timeout(self._settings.write_queue_seconds):
                await turn.take(shared=shared)
                try:
                    await free.acquire()
                except BaseException:
                    turn.give(shared=shared)
                    raise
        except TimeoutError:
            raise HttpRefusal(
                503,
                f"the write did not start within {self._settings.write_queue_seconds:g} s, because others on branch"
                f" '{branch}' are ahead of it; nothing changed, try again",
                headers={"Retry-After": "2"},
            ) from None

    def admit(self, actor: str | None, size: int) -> None:
        """Take a place for one write of an actor, who gives it back with `leave`.

        Raises:
            HttpRefusal: 429, the actor has too much in flight; nothing happened.
        """
        key = actor or ANONYMOUS
        count, held = self._admitted.get(key, (0, 0))
        if count >= self._settings.actor_writes_max or held + size > self._settings.actor_bytes_max:
            raise HttpRefusal(
                429,
                f"actor '{key}' has {count} writes of {held} bytes in flight; at most"
                f" {self._settings.actor_writes_max} of {self._settings.actor_bytes_max} bytes are allowed: wait for"
                " some of them",
            )
        self._admitted[key] = (count + 1, held + size)

    def leave(self, actor: str | None, size: int) -> None:
        """Give the place of one write back."""
        key = actor or ANONYMOUS
        count, held = self._admitted[key]
        if count == 1:
            del self._admitted[key]
        else:
            self._admitted[key] = (count - 1, held - size)

    async def to_its_end(self, work: Awaitable[T]) -> T:
        """Await something that goes on when the waiting is cancelled, as it is when a client leaves."""
        task: asyncio.Task[T] = asyncio.ensure_future(work)
        self._started.add(task)
        task.add_done_callback(self._started.discard)
        return await asyncio.shield(task)

    @property
    def writes_in_flight(self) -> int:
        """How many writes are admitted at this moment."""
        return sum(count for count, _ in self._admitted.values())

    async def end_writes(self) -> None:
        """Wait for everything that has begun and must not be cut."""
        self.stopping.set()
        if self._started:
            _log.info("waiting for %d writes to end", len(self._started))
            await asyncio.gather(*self._started, return_exceptions=True)

    def end(self) -> None:
        """Give the threads back."""
        self._writes.shutdown(wait=True)
        self._together.shutdown(wait=True)
        self._small.shutdown(wait=True)
        self._bodies.shutdown(wait=False, cancel_futures=True)
        self._reads.shutdown(wait=False, cancel_futures=True)
