"""What a running job tells whoever watches.

A job passes through named phases; inside a phase Spark's own status says how many tasks are done: asked for by a thread
that only reads, or, of a session far away, sent along with its answers. Nothing here draws: a listener does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
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
        try:
            with self._watching(name, session if self.listener else None):
                yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    @contextmanager
    def _watching(self, name: str, session: SparkSession | None) -> Iterator[None]:
        if session is None:
            yield
            return
        around = self._hearing(name, session) if is_remote(session) else self._asking(name, session.sparkContext)
        with around:
            yield

    @contextmanager
    def _hearing(self, name: str, session: Any) -> Iterator[None]:
        """Take what a Spark Connect server tells about the stages of running queries."""
        seen: dict[int, tuple[int, int]] = {}

        def hear(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
            seen.update({stage.stage_id: (stage.num_completed_tasks, stage.num_tasks) for stage in stages or ()})
            finished, total = (sum(numbers) for numbers in zip(*seen.values(), strict=True)) if seen else (0, 0)
            self._tell(Progress(name, self._elapsed(), finished, total, self._rows()))

        session.registerProgressHandler(hear)
        try:
            yield
        finally:
            session.removeProgressHandler(hear)

    @contextmanager
    def _asking(self, name: str, context: Any) -> Iterator[None]:
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


def local_listener(listener: Listener | None) -> Callable[[str, int], None] | None:
    """What the engine in this process reports to: the name of a phase, and the rows read so far."""
    if listener is None:
        return None
    began = time.perf_counter()
    return lambda phase, rows: listener(Progress(phase, time.perf_counter() - began, rows=rows))


def is_remote(session: Any) -> bool:
    """True for a Spark Connect session, which has no context and runs its driver elsewhere."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


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
