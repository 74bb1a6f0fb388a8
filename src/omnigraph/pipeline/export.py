"""Exports whose files executors write: a task a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.engine.ingest.progress import Listener, Phases
from omnigraph.engine.ingest.staged import ROW_ADDRESS, fragment_groups
from omnigraph.engine.ingest.tables_at import TableAt
from omnigraph.engine.operations.bulk import BulkPlace
from omnigraph.engine.operations.export_files import ExportResult, FileExport, TableExport, lines_file, parquet_file
from omnigraph.pipeline.frames import table_frame
from omnigraph.pipeline.job import spark_errors
from omnigraph.pipeline.session import obtain_session
from omnigraph.pipeline.tasks import task_numbers
from omnigraph.pipeline.watching import tasks_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINES_PER_FILE = 1_000_000
_DDL = "name string, rows long, part long"

Batches = Iterator[pa.RecordBatch]


def run_export(export: FileExport, place: BulkPlace, progress: Listener | None = None) -> ExportResult:
    """Write an export by Spark."""
    phases = Phases(progress)
    session = obtain_session(place.session, master=place.master, conf=place.conf, notify=phases.say)

    def write(table: TableExport) -> list[Any]:
        with spark_errors():
            return _written(session, table)

    return export.run(phases, write, watching=tasks_of(session), engine="spark")


def _written(session: SparkSession, export: TableExport) -> list[Any]:
    """One report per file."""
    if export.format == "parquet":
        groups = fragment_groups(export.table.open())

        def write_parquet(batches: Batches) -> Batches:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield parquet_file(export, groups[number], number)

        found: list[Any] = task_numbers(session, len(groups)).mapInArrow(write_parquet, _DDL).collect()
        return found

    def write_lines(batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield lines_file(export, batches, context.partitionId() if context else 0)

    written: list[Any] = _by_id(session, export.table).mapInArrow(write_lines, _DDL).collect()
    return written


def _by_id(session: SparkSession, table: TableAt) -> DataFrame:
    """The addresses of all rows in the order of ids, cut into files; no other column is shuffled."""
    ids = table_frame(session, table, ["id"], with_address=True).select("id", ROW_ADDRESS)
    parts = max(1, -(-table.open().count_rows() // LINES_PER_FILE))
    return ids.repartitionByRange(parts, "id").sortWithinPartitions("id")
