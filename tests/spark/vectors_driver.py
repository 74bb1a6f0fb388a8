"""A driver program of its own: long vectors onto one executor of 1 GB, with the memory its Python worker needed.

python vectors_driver.py FOLDER ROWS...
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.load import DIMENSIONS, Memory, write_vectors

from omnigraph import create
from omnigraph.engine.ingest import stage
from omnigraph.pipeline import run_job
from omnigraph.pipeline.session import obtain_session

BUFFER_BYTES = 32 << 20
"""Less than the smallest input, so that what is held does not depend on what is read."""


def main(folder: Path, sizes: list[int]) -> dict[str, Any]:
    stage.BUFFER_BYTES = BUFFER_BYTES
    settings = {"spark.executor.memory": "1g", "spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"}
    session = obtain_session(master="local-cluster[1,1,1024]", conf=settings)
    found: dict[str, Any] = {}
    for rows in sizes:
        graph = create(folder / f"graph-{rows}", f"node Item {{ code: I64 @key  vec: Vector({DIMENSIONS}) }}")
        for mode, first in (("append", 0), ("merge", rows // 2)):
            path = write_vectors(folder / f"{rows}-{first}.parquet", rows, first)
            with Memory() as memory:
                run_job(graph.context, {"Item": str(path)}, mode=mode, spark=session)
            found[f"{mode} {rows}"] = memory.peaks["workers"]
        found[f"rows {rows}"] = graph.snapshot().open("node:Item").count_rows()
    session.stop()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), [int(text) for text in sys.argv[2:]])))
