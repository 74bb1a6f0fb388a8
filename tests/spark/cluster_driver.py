"""A driver program of its own: loads slowly enough to be disturbed, on a cluster of two executor processes.

python cluster_driver.py ROOT ROWS MASTER
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.graph import connect
from omnigraph.pipeline import run_job
from omnigraph.pipeline.session import obtain_session

PARTITIONS = 8


def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(0.7)
        names = pc.binary_join_element_wise(pa.scalar("p"), batch.column(0).cast(pa.string()), "")
        yield pa.RecordBatch.from_arrays([names], names=["name"])


def main(root: str, rows: int, master: str) -> None:
    settings = {"spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"}
    session = obtain_session(master=master, conf=settings)
    print("ready", flush=True)
    people = session.range(0, rows, 1, PARTITIONS).mapInArrow(slowly, "name string")
    result = run_job(connect(root).context, {"Person": people}, mode="append", spark=session)
    print(f"committed {result.commit_id}", flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
