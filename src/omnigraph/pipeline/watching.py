"""How far the tasks of a session are, for whoever watches a phase of a job.

Spark's own status says how many tasks are done: asked for by a thread that only reads, or, of a session far away, sent
along with its answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from omnigraph.engine.ingest.progress import Observe, Watching

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS = 0.2


def tasks_of(session: SparkSession) -> Watching:
    """What observes the tasks that a session runs while a phase lasts."""

    def watching(name: str, observe: Observe) -> AbstractContextManager[None]:
        return _hearing(session, observe) if is_remote(session) else _asking(session.sparkContext, name, observe)

    return watching


def is_remote(session: Any) -> bool:
    """True for a Spark Connect session, which has no context and runs its driver elsewhere."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


@contextmanager
def _hearing(session: Any, observe: Observe) -> Iterator[None]:
    """Take what a Spark Connect server tells about the stages of running queries."""
    seen: dict[int, tuple[int, int]] = {}

    def hear(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        seen.update({stage.stage_id: (stage.num_completed_tasks, stage.num_tasks) for stage in stages or ()})
        observe(*((sum(numbers) for numbers in zip(*seen.values(), strict=True)) if seen else (0, 0)))

    session.registerProgressHandler(hear)
    try:
        yield
    finally:
        session.removeProgressHandler(hear)


@contextmanager
def _asking(context: Any, name: str, observe: Observe) -> Iterator[None]:
    group = f"omnigraph-{threading.get_ident():x}-{name}-{time.monotonic_ns()}"
    context.setJobGroup(group, f"omnigraph: {name}")
    stop = threading.Event()

    def watch() -> None:
        tracker = context.statusTracker()
        while not stop.wait(POLL_SECONDS):
            observe(*_tasks(tracker, group))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join(timeout=5)
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setLocalProperty("spark.job.description", None)


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
