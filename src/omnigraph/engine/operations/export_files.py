"""A snapshot written out as files per type: JSON lines that load back, or Parquet.

A table's files are written by this process, or by the tasks of a bulk engine. Each is written under a name of its own
and reported; what was reported gets its final name, so a task that was tried twice leaves no second copy.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from msgspec import Struct, field

from omnigraph.catalog.arrow import blob_columns, outside_field
from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.engine.ingest.files import absolute, open_filesystem
from omnigraph.engine.ingest.progress import Phases, Watching
from omnigraph.engine.ingest.stage import SchemaText
from omnigraph.engine.ingest.staged import ROW_ADDRESS, fragment_groups
from omnigraph.engine.ingest.tables_at import TableAt
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.export import by_id, chosen_tables, line_runs, read_rows, table_lines
from omnigraph.engine.schema.history import schema_of
from omnigraph.engine.storage.literals import literal
from omnigraph.engine.values.blobs import refuse_references
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import AlreadyExistsError, InputError
from omnigraph.ids import TableKey

FORMATS = ("jsonl", "parquet")
BULK_FROM_ROWS = 10_000_000

Batches = Iterator[pa.RecordBatch]
Entity = NodeType | EdgeType


class ExportResult(Struct, frozen=True):
    """What an export wrote: the files in loading order, rows per table, and the engine that wrote them."""

    files: tuple[str, ...]
    rows: Mapping[TableKey, int]
    engine: str


class TableExport(Struct, frozen=True):
    """One table of an export; it travels to executors."""

    schema: SchemaText
    key: TableKey
    table: TableAt
    folder: str
    format: str

    @property
    def entity(self) -> Entity:
        """The type of the table."""
        return self.schema.catalog.tables[self.key]


WriteTable = Callable[[TableExport], list[Any]]
"""Writes a table's files and reports each: its name, rows and part."""


class FileExport(Struct, frozen=True):
    """An export that was looked over and can begin."""

    context: GraphContext
    snapshot: Snapshot
    target: str
    format: str
    rows: Mapping[TableKey, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        context: GraphContext,
        snapshot: Snapshot,
        target: str,
        *,
        format: str = "jsonl",
        types: Sequence[str] = (),
        tables: Sequence[str] = (),
    ) -> FileExport:
        """An export into a new folder, as `jsonl` (rows by id, ready for `load`) or `parquet` (a folder per type).

        Raises:
            InputError: the format or a type is not known.
        """
        if format not in FORMATS:
            raise InputError(f"an export format is {' or '.join(FORMATS)}, not '{format}'")
        chosen = chosen_tables(context.catalog, types, tables)
        return cls(context, snapshot, target, format, {key: snapshot.entry(key).row_count for key in chosen})

    @property
    def is_large(self) -> bool:
        """True when a bulk engine is worth starting for it."""
        return sum(self.rows.values()) >= BULK_FROM_ROWS

    def run(
        self,
        phases: Phases,
        write: WriteTable | None = None,
        *,
        watching: Watching | None = None,
        engine: str = "local",
    ) -> ExportResult:
        """Write every table, by this process unless `write` does it elsewhere.

        Raises:
            AlreadyExistsError: the folder holds files already.
        """
        context, seen = self.context, self.snapshot
        earlier = schema_of(context.store.objects, seen.state.schema)
        schema = SchemaText.of(context.schema_source if earlier is None else earlier[0], context.catalog)
        folder = _new_folder(self.target)
        files: list[str] = []
        written = 0
        for number, (key, count) in enumerate(self.rows.items()):
            if not count:
                continue
            export = TableExport(schema, key, TableAt.of(context.root, seen.entry(key)), absolute(folder), self.format)
            with phases.phase(f"export {key}", watching), _emptying(folder):
                reports = (write or written_here)(export)
                files += _rename(folder, f"{number:03d}-{key.replace(':', '-')}", self.format, reports)
            written += count
            phases.count_rows_with(partial(int, written))
        return ExportResult(tuple(files), self.rows, engine)


def _new_folder(target: str) -> str:
    folder = target.rstrip("/") or "/"
    filesystem, inside = open_filesystem(folder)
    try:
        found = filesystem.get_file_info(inside).type
        if found not in (pafs.FileType.NotFound, pafs.FileType.Directory):
            raise InputError(f"'{target}' is not a folder, and files per type need one: name a new folder")
        if found is pafs.FileType.Directory and filesystem.get_file_info(pafs.FileSelector(inside, recursive=True)):
            raise AlreadyExistsError(f"'{target}' holds files already: export into a new folder")
        filesystem.create_dir(inside, recursive=True)
    except OSError as exc:
        raise InputError(f"'{target}' cannot be written: {exc}") from exc
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


def written_here(export: TableExport) -> list[Any]:
    """Write a table's files in this process, one after the other; one report per file."""
    handle = export.table.open()
    if export.format == "parquet":
        groups = fragment_groups(handle)
        parts = [parquet_file(export, group, part) for part, group in enumerate(groups)]
    else:
        parts = [_written(export, table_lines(handle, export.entity), 0)]
    return [row for part in parts for row in part.to_pylist()]


def lines_file(export: TableExport, batches: Batches, part: int) -> pa.RecordBatch:
    """Write the rows at the addresses of some batches, in their order, as one file of JSON lines; its report."""
    handle, entity = export.table.open(), export.entity
    blobs = bool(blob_columns(entity))

    def lines() -> Iterator[list[str]]:
        for batch in batches:
            if not batch.num_rows:
                continue
            if blobs:
                first, last = batch.column("id")[0].as_py(), batch.column("id")[-1].as_py()
                rows = by_id(read_rows(handle, entity, f"id >= {literal(first)} AND id <= {literal(last)}"))
            else:
                addresses = np.asarray(batch.column(ROW_ADDRESS), dtype=np.int64).astype(np.uint64)
                rows = handle.take_addresses(addresses, _columns(entity))
            yield from line_runs(entity, rows)

    return _written(export, lines(), part)


def _written(export: TableExport, runs: Iterable[list[str]], part: int) -> pa.RecordBatch:
    """Write runs of lines as one file; its report."""
    name, count = f".part-{uuid.uuid4().hex}", 0
    filesystem, path = open_filesystem(f"{export.folder}/{name}")
    with filesystem.open_output_stream(path) as stream:
        for lines in runs:
            stream.write(("\n".join(lines) + "\n").encode())
            count += len(lines)
    return _report(name, count, part)


def parquet_file(export: TableExport, fragments: Sequence[int], part: int) -> pa.RecordBatch:
    """Write the rows of some fragments as one Parquet file; its report."""
    entity, count = export.entity, 0
    name = f".part-{uuid.uuid4().hex}"
    filesystem, path = open_filesystem(f"{export.folder}/{name}")
    handle = export.table.open()
    refuse_references(handle, list(blob_columns(entity)), entity.name, fragment_ids=list(fragments))
    reader = handle.scan_batches(_columns(entity), fragment_ids=list(fragments), blob_bytes=True)
    plain = pa.schema([outside_field(field.remove_metadata()) for field in reader.schema])
    with filesystem.open_output_stream(path) as stream, pq.ParquetWriter(stream, plain) as writer:
        for batch in reader:
            columns = [column.cast(field.type) for column, field in zip(batch.columns, plain, strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=plain))
            count += batch.num_rows
    return _report(name, count, part)


def _columns(entity: Entity) -> list[str]:
    return ["id", *(["src", "dst"] if isinstance(entity, EdgeType) else []), *entity.properties]


def _report(name: str, rows: int, part: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"name": [name], "rows": pa.array([rows], pa.int64()), "part": pa.array([part], pa.int64())}
    )


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
