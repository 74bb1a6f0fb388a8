"""A driver program of its own: loads slowly enough to be disturbed, on a cluster of executor processes.

python cluster_driver.py ROOT ROWS MASTER MARKS

With MARKS, a folder, two of its tasks misbehave on their first attempt: one writes rows and then fails, one writes rows
and then hangs until a speculative copy has overtaken it. What happened is noted there.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import connect
from omnigraph.engine.ingest import stage
from omnigraph.pipeline import run_job
from omnigraph.pipeline.session import obtain_session

PARTITIONS = 8
FAILING, HANGING = 1, 2
HANG_SECONDS = 120.0
BATCHES_BEFORE = 4
"""More than what lies in buffers between here and the process that writes."""

Batches = Iterator[pa.RecordBatch]

SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    # Small batches, so that a task has written something long before it ends.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2500",
}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
}


def slowly(batches: Batches) -> Batches:
    for batch in batches:
        time.sleep(0.2)
        yield named(batch)


def named(batch: pa.RecordBatch) -> pa.RecordBatch:
    names = pc.binary_join_element_wise(pa.scalar("p"), batch.column(0).cast(pa.string()), "")
    return pa.RecordBatch.from_arrays([names], names=["name"])


def misbehaving(marks: str) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        task, attempt = context.partitionId(), context.attemptNumber()
        for number, batch in enumerate(batches):
            yield named(batch)
            if number == BATCHES_BEFORE and attempt == 0 and task in (FAILING, HANGING):
                Path(marks, f"{task}-first").touch()
                time.sleep(2 if task == FAILING else HANG_SECONDS)
                raise RuntimeError("this attempt fails after it has written rows")
        Path(marks, f"{task}-{attempt}-done").touch()

    return run


def main(root: str, rows: int, master: str, marks: str | None = None) -> None:
    stage.BUFFER_BYTES = 1
    session = obtain_session(master=master, conf={**SETTINGS, **(SPECULATION if marks else {})})
    print("ready", flush=True)
    numbers = session.range(0, rows, 1, PARTITIONS)
    people = numbers.mapInArrow(misbehaving(marks) if marks else slowly, "name string")
    result = run_job(connect(root).context, {"Person": people}, mode="append", spark=session)
    print(f"committed {result.commit_id}", flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
