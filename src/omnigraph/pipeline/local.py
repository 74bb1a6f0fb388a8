"""Inputs for the engine in this process: whatever it does not read by itself, read as executors read it.

That engine takes paths of JSON lines on this machine, records and Arrow tables. Globs become paths; files of other
filesystems and files per type are cut, read and checked by the code that runs on executors, in one thread, and handed
over as rows that still know their record and line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import Catalog
from omnigraph.engine.staging.entities import LINE, RECORD, SOURCE, row_schema
from omnigraph.engine.staging.inputs import LoadRows
from omnigraph.errors import InputError
from omnigraph.ids import TableKey
from omnigraph.pipeline.blame import Locator, refuse, short_name
from omnigraph.pipeline.files import find_files, is_glob, is_uri
from omnigraph.pipeline.shape import Shaped, shape_columns, shape_feed
from omnigraph.pipeline.sources import ColumnMap, Inputs, SparkFiles, input_paths, resolve
from omnigraph.pipeline.stage import InputProblem

Watch = Callable[[str, int], None]


def local_source(
    source: Any, catalog: Catalog, *, columns: Mapping[str, ColumnMap] | None = None, watch: Watch | None = None
) -> Any:
    """A source as the engine in this process takes it; most come back as they are.

    `watch` hears of a phase `read` and how many rows were read so far.

    Raises:
        InputError: a source cannot be read, or does not fit the schema's types.
        ConstraintError: a record is at fault.
    """
    if columns or (isinstance(source, Mapping) and not all(_is_arrow(part) for part in source.values())):
        return read_rows(source, catalog, columns=columns, watch=watch)
    paths = [os.fspath(path) for path in input_paths(source) or ()]
    if any(is_uri(path) for path in paths):
        return read_rows(source, catalog, watch=watch)
    if any(is_glob(path) for path in paths):
        return [file.uri for path in paths for file in find_files(path)]
    return source


def _is_arrow(part: Any) -> bool:
    return isinstance(part, pa.Table | pa.RecordBatchReader)


def read_rows(
    source: Any, catalog: Catalog, *, columns: Mapping[str, ColumnMap] | None = None, watch: Watch | None = None
) -> LoadRows:
    """The rows of a source by table, in the columns of the schema, each with its record and line."""
    inputs = resolve(source, catalog, columns=columns)
    locator = Locator(inputs, catalog)
    found = LoadRows()
    parts: dict[TableKey, list[pa.Table]] = {}
    rows = 0
    for number, name, shaped in _shaped(inputs, catalog):
        if shaped.problems:
            problems = [InputProblem(number, each.record, each.line, each.message) for each in sorted(shaped.problems)]
            refuse([locator.problem(each) for each in problems], len(problems), None)
        found.with_ids |= shaped.with_ids
        for key, tables in shaped.tables.items():
            parts.setdefault(key, []).extend(_named(table, name) for table in tables)
            rows += sum(table.num_rows for table in tables)
        if watch is not None:
            watch("read", rows)
    for key in {each.table_key for each in inputs.feeds if each.table_key is not None} - parts.keys():
        parts[key] = [row_schema(catalog.tables[key]).empty_table()]
    found.tables = {key: pa.concat_tables(tables).combine_chunks() for key, tables in parts.items()}
    return found


def _named(rows: pa.Table, name: str) -> pa.Table:
    return rows.append_column(SOURCE, pa.repeat(pa.scalar(name), rows.num_rows))


def _shaped(inputs: Inputs, catalog: Catalog) -> Iterator[tuple[int, str, Shaped]]:
    """Every batch with its input's number and name, its rows numbered from the start of the file."""
    file, lines, records = None, 0, 0
    for number, feed in enumerate(inputs.feeds):
        if feed.piece.file is not file:
            file, lines, records = feed.piece.file, 0, 0
        piece_lines, piece_records = lines, records
        for shaped in shape_feed(feed, catalog):
            lines += shaped.lines
            records += shaped.records
            if piece_lines and not shaped.problems:
                _shift(shaped, piece_lines, piece_records)
            yield number, short_name(feed.name), shaped
    for number, frame in enumerate(inputs.frames, len(inputs.feeds)):
        if isinstance(frame.data, SparkFiles):
            raise InputError(f"only Spark may know how to read {frame.name}: load it with engine 'spark' or 'auto'")
        if not isinstance(frame.data, pa.Table) or frame.table_key is None:
            raise InputError("a Spark DataFrame is loaded with engine 'spark' or 'auto'")
        yield number, frame.name, shape_columns(catalog.tables[frame.table_key], frame.data, frame.columns)


def _shift(shaped: Shaped, lines: int, records: int) -> None:
    """Numbers that count from the start of a piece count from the start of its file."""
    for tables in shaped.tables.values():
        for name, before in ((LINE, lines), (RECORD, records)):
            tables[:] = [
                table.set_column(table.column_names.index(name), name, pc.add(table[name], before)) for table in tables
            ]
