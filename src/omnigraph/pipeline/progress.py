"""What a running job tells whoever watches.

A job passes through named phases; inside a phase Spark's own status says how many tasks are done. Watching happens in
a thread that only reads, so a slow listener never slows the job, and nothing here draws: a listener does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Progress:
    """One observation: the phase, how far it is in tasks, and the rows counted so far in this job.

    `tasks_total` is 0 while it is not known yet. `note` carries a sentence when there is something to say.
    """

    phase: str
    seconds: float
    tasks_done: int = 0
    tasks_total: int = 0
    rows: int = 0
    note: str = ""

    @property
    def fraction(self) -> float | None:
        """How much of the phase is done, None while that is unknown."""
        return self.tasks_done / self.tasks_total if self.tasks_total else None

    @property
    def rows_per_second(self) -> float:
        """The mean rate since the job began."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0


Listener = Callable[[Progress], None]


@dataclass
class Phases:
    """Times the phases of one job and passes observations on to the listener."""

    listener: Listener | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    _began: float = field(default_factory=time.perf_counter)
    _rows: Callable[[], int] = field(default=lambda: 0)
    _opened: dict[str, float] = field(default_factory=dict)

    def count_rows_with(self, rows: Callable[[], int]) -> None:
        """Say where the number of rows counted so far can be read."""
        self._rows = rows

    def say(self, note: str, phase: str = "starting") -> None:
        """Pass a sentence on."""
        self._tell(Progress(phase, self._elapsed(), rows=self._rows(), note=note))

    def open(self, name: str) -> None:
        """Begin a phase that ends elsewhere, with `close`; beginning it again starts it anew."""
        self._opened[name] = time.perf_counter()
        self._tell(Progress(name, self._elapsed(), rows=self._rows()))

    def close(self, name: str) -> None:
        """End a phase begun with `open`."""
        if name in self._opened:
            self.seconds[name] = time.perf_counter() - self._opened.pop(name)

    @contextmanager
    def phase(self, name: str, session: SparkSession | None = None) -> Iterator[None]:
        """Time a block under a name and, when it runs Spark jobs, report their tasks while they run."""
        began = time.perf_counter()
        self._tell(Progress(name, self._elapsed(), rows=self._rows()))
        context = _context(session) if self.listener else None
        try:
            if context is None:
                yield
            else:
                with self._watching(name, context):
                    yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    @contextmanager
    def _watching(self, name: str, context: Any) -> Iterator[None]:
        group = f"omnigraph-{id(self):x}-{name}-{time.monotonic_ns()}"
        context.setJobGroup(group, f"omnigraph: {name}")
        stop = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(name, group, context, stop), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join(timeout=5)
            context.setLocalProperty("spark.jobGroup.id", None)
            context.setLocalProperty("spark.job.description", None)

    def _watch(self, name: str, group: str, context: Any, stop: threading.Event) -> None:
        tracker = context.statusTracker()
        while not stop.wait(POLL_SECONDS):
            done, total = _tasks(tracker, group)
            self._tell(Progress(name, self._elapsed(), done, total, self._rows()))

    def _tell(self, progress: Progress) -> None:
        if self.listener is not None:
            self.listener(progress)

    def _elapsed(self) -> float:
        return time.perf_counter() - self._began


def _context(session: SparkSession | None) -> Any | None:
    """The session's context, None where there is none to ask (Spark Connect)."""
    if session is None:
        return None
    try:
        return session.sparkContext
    except Exception:  # noqa: BLE001 -- a Connect session says so with a class that may not be installed.
        return None


def _tasks(tracker: Any, group: str) -> tuple[int, int]:
    """Done and all tasks of the stages of a job group that Spark still remembers."""
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage_id in info.stageIds if info else ():
            stage = tracker.getStageInfo(stage_id)
            if stage is not None:
                done += stage.numCompletedTasks
                total += stage.numTasks
    return done, total
