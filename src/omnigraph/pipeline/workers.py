"""Executors as the workers of a merge.

Ids are shuffled once, into groups that each are decided by one task; rows are read and written where the tasks run. The
driver collects decisions and descriptions of fragments, never a value of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.engine.operations.merge.workers import DECIDED, READ, Act
from omnigraph.pipeline.frames import spark_schema
from omnigraph.pipeline.job import spark_errors
from omnigraph.pipeline.tasks import task_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterator[pa.RecordBatch]


class SparkWorkers:
    """The workers of one session."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def by_id(self, read: Callable[[int], Batches], tasks: int, groups: int, act: Act) -> pa.Table:
        """One task per read, one shuffle by id, and one call per group."""
        from pyspark.sql import functions as F

        def run(batches: Batches) -> Batches:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from read(number)

        with spark_errors():
            rows = task_numbers(self._session, tasks).mapInArrow(run, spark_schema(READ))
            number = F.pmod(F.xxhash64("id"), F.lit(groups))
            return _acted(rows.withColumn("group", number), act, DECIDED)

    def by_group(self, rows: pa.Table, act: Act, schema: pa.Schema) -> pa.Table:
        """One call per group of rows that the driver has."""
        with spark_errors():
            return _acted(self._session.createDataFrame(rows), act, schema)


def _acted(rows: DataFrame, act: Act, schema: pa.Schema) -> pa.Table:
    def run(group: pa.Table) -> pa.Table:
        # Spark counts the arguments of what it is given, and takes a method for a function of two.
        return act(group)

    found = rows.groupBy("group").applyInArrow(run, spark_schema(schema)).toArrow()
    return found.select(schema.names).cast(schema)
