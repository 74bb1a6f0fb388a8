"""Staging as Spark runs it: one task per list of pieces, or per partition of a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.engine.ingest.sources import Feed, Frame
from omnigraph.engine.ingest.stage import StagePlan, run_task, shape_all, shape_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_REPORT_DDL = "kind string, task long, payload string, rows long, bytes long"

Batches = Iterator[pa.RecordBatch]


def stage_feeds(
    session: SparkSession, plan: StagePlan, tasks: Sequence[Sequence[tuple[int, Feed]]], count: Callable[[int], None]
) -> list[Any]:
    """Run one task per list of numbered feeds; returns the reports."""
    if not tasks:
        return []

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield run_task(plan, number, shape_all(plan, tasks[number]), count)

    reports: list[Any] = task_numbers(session, len(tasks)).mapInArrow(run, _REPORT_DDL).collect()
    return reports


def stage_frame(
    plan: StagePlan, source: int, frame: Frame, data: DataFrame, count: Callable[[int], None], *, first_task: int = 0
) -> list[Any]:
    """Run one task per partition of a DataFrame, numbered from `first_task`; returns the reports."""
    key, columns, texts = frame.table_key, frame.columns, frame.holds_texts

    def run(batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = first_task + (context.partitionId() if context else 0)
        yield run_task(plan, task, shape_batches(plan, source, key, columns, batches, from_text=texts), count)

    reports: list[Any] = data.mapInArrow(run, _REPORT_DDL).collect()
    return reports


def task_numbers(session: SparkSession, tasks: int) -> DataFrame:
    """One partition per task, holding its number."""
    return session.range(0, tasks, 1, tasks)
