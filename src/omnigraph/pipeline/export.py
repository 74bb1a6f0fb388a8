"""A snapshot written out by executors: JSON lines that load back, or Parquet per type.

Each task writes one file under a name of its own and reports it; the driver gives the reported files their final
names, so a task that was tried twice leaves no second copy.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from omnigraph.catalog.arrow import blob_columns
from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.export import chosen_tables, json_lines, read_rows
from omnigraph.engine.staging.context import GraphContext
from omnigraph.errors import AlreadyExistsError, InputError
from omnigraph.ids import MAIN, TableKey, parse_branch
from omnigraph.pipeline.files import open_filesystem
from omnigraph.pipeline.frames import ROW_ADDRESS, TableAt, fragment_groups, table_frame
from omnigraph.pipeline.job import spark_errors
from omnigraph.pipeline.session import obtain_session
from omnigraph.pipeline.stage import compiled, task_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINES_PER_FILE = 1_000_000
_DDL = "name string, rows long, part long"

Batches = Iterator[pa.RecordBatch]
Entity = NodeType | EdgeType


@dataclass(frozen=True)
class ExportResult:
    """What an export wrote: the files in loading order, and rows per table."""

    files: tuple[str, ...]
    rows: Mapping[TableKey, int]


def export_graph(
    context: GraphContext,
    target: str,
    *,
    format: str = "jsonl",
    types: Sequence[str] = (),
    branch: str = MAIN,
    at: str | int | None = None,
    spark: SparkSession | None = None,
) -> ExportResult:
    """Write a snapshot into a new folder, as `jsonl` (rows by id, ready for `load`) or `parquet` (a folder per type).

    Raises:
        InputError: the format or a type is not known.
        AlreadyExistsError: the folder holds files already.
    """
    if format not in ("jsonl", "parquet"):
        raise InputError(f"an export format is jsonl or parquet, not '{format}'")
    name = parse_branch(branch)
    snapshot: Snapshot = (
        context.manifest.snapshot(name) if at is None else context.manifest.history.snapshot_at(at, name)
    )
    session = obtain_session(spark)
    folder = target.rstrip("/")
    filesystem, inside = open_filesystem(folder)
    if filesystem.get_file_info(inside).type != pafs.FileType.NotFound and filesystem.get_file_info(
        pafs.FileSelector(inside, recursive=True)
    ):
        raise AlreadyExistsError(f"'{target}' holds files already: export into a new folder")
    filesystem.create_dir(inside, recursive=True)
    files: list[str] = []
    rows: dict[TableKey, int] = {}
    with spark_errors():
        for number, key in enumerate(chosen_tables(context.catalog, types, ())):
            rows[key] = snapshot.entry(key).row_count
            if rows[key]:
                table = TableAt.of(context.root, snapshot.entry(key))
                written = _export(session, context, table, key, folder, format)
                files += _rename(folder, f"{number:03d}-{key.replace(':', '-')}", format, written)
    return ExportResult(tuple(files), rows)


def _export(
    session: SparkSession, context: GraphContext, table: TableAt, key: TableKey, folder: str, format: str
) -> list[Any]:
    source = context.schema_source
    if format == "parquet":
        groups = fragment_groups(table.open())

        def write_parquet(batches: Batches) -> Batches:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield _parquet_file(table, compiled(source).tables[key], groups[number], folder, number)

        found: list[Any] = task_numbers(session, len(groups)).mapInArrow(write_parquet, _DDL).collect()
        return found

    def write_lines(batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield _lines_file(table, compiled(source).tables[key], batches, folder, context.partitionId() if context else 0)

    written: list[Any] = _by_id(session, table).mapInArrow(write_lines, _DDL).collect()
    return written


def _by_id(session: SparkSession, table: TableAt) -> DataFrame:
    """The addresses of all rows in the order of ids, cut into files; no other column is shuffled."""
    ids = table_frame(session, table, ["id"], with_address=True).select("id", ROW_ADDRESS)
    parts = max(1, -(-table.open().count_rows() // LINES_PER_FILE))
    return ids.repartitionByRange(parts, "id").sortWithinPartitions("id")


def _lines_file(table: TableAt, entity: Entity, batches: Batches, folder: str, part: int) -> pa.RecordBatch:
    handle, count = table.open(), 0
    blobs = bool(blob_columns(entity))
    name = f".part-{uuid.uuid4().hex}"
    filesystem, path = open_filesystem(f"{folder}/{name}")
    with filesystem.open_output_stream(path) as stream:
        for batch in batches:
            if not batch.num_rows:
                continue
            if blobs:
                first, last = batch.column("id")[0].as_py(), batch.column("id")[-1].as_py()
                rows = read_rows(handle, entity, f"id >= {_quoted(first)} AND id <= {_quoted(last)}").sort_by("id")
            else:
                addresses = np.asarray(batch.column(ROW_ADDRESS), dtype=np.int64).astype(np.uint64)
                rows = handle.take_addresses(addresses, _columns(entity))
            lines = json_lines(entity, rows).to_pylist()
            stream.write(("\n".join(lines) + "\n").encode())
            count += len(lines)
    return _report(name, count, part)


def _parquet_file(table: TableAt, entity: Entity, fragments: Sequence[int], folder: str, part: int) -> pa.RecordBatch:
    count = 0
    name = f".part-{uuid.uuid4().hex}"
    filesystem, path = open_filesystem(f"{folder}/{name}")
    reader = table.open().scan_batches(_columns(entity), fragment_ids=list(fragments), blob_bytes=True)
    # Parquet's only date is a day, so a moment travels as a timestamp.
    plain = pa.schema([_timestamped(field.remove_metadata()) for field in reader.schema])
    with filesystem.open_output_stream(path) as stream, pq.ParquetWriter(stream, plain) as writer:
        for batch in reader:
            columns = [column.cast(field.type) for column, field in zip(batch.columns, plain, strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=plain))
            count += batch.num_rows
    return _report(name, count, part)


def _timestamped(field: pa.Field) -> pa.Field:
    return field.with_type(pa.timestamp("ms")) if pa.types.is_date64(field.type) else field


def _columns(entity: Entity) -> list[str]:
    return ["id", *(["src", "dst"] if isinstance(entity, EdgeType) else []), *entity.properties]


def _report(name: str, rows: int, part: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"name": [name], "rows": pa.array([rows], pa.int64()), "part": pa.array([part], pa.int64())}
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _rename(folder: str, prefix: str, format: str, written: Sequence[Any]) -> list[str]:
    """Give reported files their names, and remove what attempts that do not count left."""
    filesystem, inside = open_filesystem(folder)
    kept: list[str] = []
    separator = "/" if format == "parquet" else "-"
    if format == "parquet":
        filesystem.create_dir(f"{inside}/{prefix}", recursive=True)
    for part in sorted(written, key=lambda each: each["part"]):
        if part["rows"]:
            final = f"{prefix}{separator}{part['part']:05d}.{format}"
            filesystem.move(f"{inside}/{part['name']}", f"{inside}/{final}")
            kept.append(f"{folder}/{final}")
    for leftover in filesystem.get_file_info(pafs.FileSelector(inside)):
        if leftover.base_name.startswith(".part-"):
            filesystem.delete_file(leftover.path)
    return kept
