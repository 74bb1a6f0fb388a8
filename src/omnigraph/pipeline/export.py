"""A snapshot written out as files: JSON lines that load back, or Parquet per type.

Executors write, or this process where that is enough. Each task writes one file under a name of its own and reports it;
the driver gives the reported files their final names, so a task that was tried twice leaves no second copy.
"""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from omnigraph.catalog.arrow import blob_columns
from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.engine.manifest.schemas import schema_of
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.export import chosen_tables, json_lines, read_rows, table_lines
from omnigraph.engine.staging.context import GraphContext
from omnigraph.errors import AlreadyExistsError, InputError
from omnigraph.ids import MAIN, TableKey, parse_branch
from omnigraph.pipeline.files import open_filesystem
from omnigraph.pipeline.frames import ROW_ADDRESS, TableAt, fragment_groups, table_frame
from omnigraph.pipeline.job import spark_errors
from omnigraph.pipeline.progress import Listener, Phases
from omnigraph.pipeline.session import obtain_session
from omnigraph.pipeline.stage import SchemaText, task_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("jsonl", "parquet")
LINES_PER_FILE = 1_000_000
SPARK_FROM_ROWS = 10_000_000
_DDL = "name string, rows long, part long"

Batches = Iterator[pa.RecordBatch]
Entity = NodeType | EdgeType


@dataclass(frozen=True)
class ExportResult:
    """What an export wrote: the files in loading order, rows per table, and the engine that wrote them."""

    files: tuple[str, ...]
    rows: Mapping[TableKey, int]
    engine: str


def export_graph(
    context: GraphContext,
    target: str,
    *,
    format: str = "jsonl",
    types: Sequence[str] = (),
    tables: Sequence[str] = (),
    branch: str = MAIN,
    at: str | int | None = None,
    snapshot: Snapshot | None = None,
    engine: str = "auto",
    spark: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    progress: Listener | None = None,
) -> ExportResult:
    """Write a snapshot into a new folder, as `jsonl` (rows by id, ready for `load`) or `parquet` (a folder per type).

    `snapshot` is what to write, by default that of `branch` and `at`. `engine` is `spark`, `local` (this process, a
    bounded batch at a time) or `auto`, which takes Spark for large graphs and when a session or settings are given.

    Raises:
        InputError: the format, the engine or a type is not known.
        AlreadyExistsError: the folder holds files already.
    """
    if format not in FORMATS:
        raise InputError(f"an export format is {' or '.join(FORMATS)}, not '{format}'")
    if engine not in ("auto", "local", "spark"):
        raise InputError(f"an engine is 'auto', 'local' or 'spark', not '{engine}'")
    seen = snapshot or _snapshot(context, branch, at)
    chosen = chosen_tables(context.catalog, types, tables)
    rows = {key: seen.entry(key).row_count for key in chosen}
    uses_spark = engine == "spark" or (engine == "auto" and bool(spark or master or conf or _is_large(rows)))
    earlier = schema_of(context.store.objects, seen.state.schema)
    schema = SchemaText.of(context.schema_source if earlier is None else earlier[0], context.catalog)
    phases = Phases(progress)
    folder = _new_folder(target)
    session = obtain_session(spark, master=master, conf=conf, notify=phases.say) if uses_spark else None
    files: list[str] = []
    written = 0
    for number, key in enumerate(chosen):
        if not rows[key]:
            continue
        job = _Job(schema, key, TableAt.of(context.root, seen.entry(key)), folder, format)
        with phases.phase(f"export {key}", session), _emptying(folder), spark_errors():
            reports = job.in_this_process() if session is None else job.on_spark(session)
            files += _rename(folder, f"{number:03d}-{key.replace(':', '-')}", format, reports)
        written += rows[key]
        phases.count_rows_with(partial(int, written))
    return ExportResult(tuple(files), rows, "local" if session is None else "spark")


def _snapshot(context: GraphContext, branch: str, at: str | int | None) -> Snapshot:
    name = parse_branch(branch)
    return context.manifest.snapshot(name) if at is None else context.manifest.history.snapshot_at(at, name)


def _is_large(rows: Mapping[TableKey, int]) -> bool:
    return sum(rows.values()) >= SPARK_FROM_ROWS and importlib.util.find_spec("pyspark") is not None


def _new_folder(target: str) -> str:
    folder = target.rstrip("/")
    filesystem, inside = open_filesystem(folder)
    if filesystem.get_file_info(inside).type != pafs.FileType.NotFound and filesystem.get_file_info(
        pafs.FileSelector(inside, recursive=True)
    ):
        raise AlreadyExistsError(f"'{target}' holds files already: export into a new folder")
    filesystem.create_dir(inside, recursive=True)
    return folder


@contextmanager
def _emptying(folder: str) -> Iterator[None]:
    """An export that fails leaves its folder empty, not half full."""
    try:
        yield
    except BaseException:
        filesystem, inside = open_filesystem(folder)
        filesystem.delete_dir_contents(inside, missing_dir_ok=True)
        raise


@dataclass(frozen=True)
class _Job:
    """One table of an export; it travels to executors."""

    schema: SchemaText
    key: TableKey
    table: TableAt
    folder: str
    format: str

    @property
    def entity(self) -> Entity:
        return self.schema.catalog.tables[self.key]

    def on_spark(self, session: SparkSession) -> list[Any]:
        """One report per file."""
        if self.format == "parquet":
            groups = fragment_groups(self.table.open())

            def write_parquet(batches: Batches) -> Batches:
                for batch in batches:
                    for number in batch.column(0).to_pylist():
                        yield _parquet_file(self.table, self.entity, groups[number], self.folder, number)

            found: list[Any] = task_numbers(session, len(groups)).mapInArrow(write_parquet, _DDL).collect()
            return found

        def write_lines(batches: Batches) -> Batches:
            from pyspark import TaskContext

            context = TaskContext.get()
            part = context.partitionId() if context else 0
            yield _lines_file(self.table, self.entity, batches, self.folder, part)

        written: list[Any] = _by_id(session, self.table).mapInArrow(write_lines, _DDL).collect()
        return written

    def in_this_process(self) -> list[Any]:
        """The same files without Spark, one after the other."""
        handle = self.table.open()
        if self.format == "parquet":
            groups = fragment_groups(handle)
            parts = [
                _parquet_file(self.table, self.entity, group, self.folder, part) for part, group in enumerate(groups)
            ]
        else:
            name = f".part-{uuid.uuid4().hex}"
            filesystem, path = open_filesystem(f"{self.folder}/{name}")
            count = 0
            with filesystem.open_output_stream(path) as stream:
                for lines in table_lines(handle, self.entity):
                    stream.write(("\n".join(lines) + "\n").encode())
                    count += len(lines)
            parts = [_report(name, count, 0)]
        return [row for part in parts for row in part.to_pylist()]


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
