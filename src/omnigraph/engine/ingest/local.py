"""Inputs for the engine in this process: whatever it does not read by itself, read as executors read it.

That engine takes paths of JSON lines on this machine, records and Arrow tables. Globs become paths; files of other
filesystems and files per type are cut, read and checked by the code that runs on executors, in one thread, and handed
over as rows that still know their record and line.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog import wide
from omnigraph.catalog.model import Catalog
from omnigraph.engine.ingest.blame import Locator, refuse, short_name
from omnigraph.engine.ingest.files import find_files, is_glob, is_uri
from omnigraph.engine.ingest.inputs import LoadFeeds, LoadRows
from omnigraph.engine.ingest.shape import BATCH_ROWS, Shaped, shape_columns, shape_feed
from omnigraph.engine.ingest.sources import ColumnMap, Inputs, SparkFiles, input_paths, resolve
from omnigraph.engine.ingest.stage import InputProblem
from omnigraph.engine.values.entities import LINE, RECORD, SOURCE, row_schema
from omnigraph.errors import InputError
from omnigraph.ids import TableKey

Watch = Callable[[str, int], None]


def local_source(
    source: Any, catalog: Catalog, *, columns: Mapping[str, ColumnMap] | None = None, watch: Watch | None = None
) -> Any:
    """A source as the engine in this process takes it; most come back as they are.

    `watch` hears of a phase `read` and how many rows were read so far.

    Raises:
        InputError: a source cannot be read, or does not fit the schema's types.
        ConstraintError: a record is at fault. What is read while it is stored says so then.
    """
    if columns or (isinstance(source, Mapping) and not all(_is_arrow(part) for part in source.values())):
        return _feeds(resolve(source, catalog, columns=columns), catalog) or read_rows(
            source, catalog, columns=columns, watch=watch
        )
    paths = [os.fspath(path) for path in input_paths(source) or ()]
    if any(is_uri(path) for path in paths):
        return read_rows(source, catalog, watch=watch)
    if any(is_glob(path) for path in paths):
        return [file.uri for path in paths for file in find_files(path)]
    return source


def _is_arrow(part: Any) -> bool:
    return isinstance(part, pa.Table | pa.RecordBatchReader)


def _feeds(inputs: Inputs, catalog: Catalog) -> LoadFeeds | None:
    """The rows of each type on their own, to be read when they are wanted; None where a type comes in several places.

    Rows of a type that follow each other can be stored while they are read, so that memory does not grow with them.
    """
    keys = [*(feed.table_key for feed in inputs.feeds), *(frame.table_key for frame in inputs.frames)]
    runs = [key for key, _ in itertools.groupby(keys)]
    if None in runs or len(set(runs)) < len(runs):
        return None
    locator = Locator(inputs, catalog)
    return LoadFeeds([(catalog.tables[key], _rows(inputs, catalog, locator, key)) for key in runs if key is not None])


def _rows(inputs: Inputs, catalog: Catalog, locator: Locator, key: TableKey) -> Iterator[tuple[pa.Table, bool]]:
    for number, name, shaped in _shaped(inputs, catalog, key):
        _refuse_problems(locator, number, shaped)
        for table in shaped.tables.get(key, ()):
            yield _named(table, name), key in shaped.with_ids


def _refuse_problems(locator: Locator, number: int, shaped: Shaped) -> None:
    if shaped.problems:
        problems = [InputProblem(number, each.record, each.line, each.message) for each in sorted(shaped.problems)]
        refuse([locator.problem(each) for each in problems], len(problems), None)


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
        _refuse_problems(locator, number, shaped)
        found.with_ids |= shaped.with_ids
        for key, tables in shaped.tables.items():
            parts.setdefault(key, []).extend(_named(table, name) for table in tables)
            rows += sum(table.num_rows for table in tables)
        if watch is not None:
            watch("read", rows)
    for key in {each.table_key for each in inputs.feeds if each.table_key is not None} - parts.keys():
        parts[key] = [row_schema(catalog.tables[key]).empty_table()]
    found.tables = {key: pa.concat_tables(tables) for key, tables in parts.items()}
    return found


def _named(rows: pa.Table, name: str) -> pa.Table:
    return rows.append_column(SOURCE, pa.repeat(pa.scalar(name), rows.num_rows))


def _shaped(inputs: Inputs, catalog: Catalog, only: TableKey | None = None) -> Iterator[tuple[int, str, Shaped]]:
    """Every batch with its input's number and name, its rows numbered from the start of the file."""
    file, lines, records = None, 0, 0
    for number, feed in enumerate(inputs.feeds):
        if only is not None and feed.table_key != only:
            continue
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
        if only is not None and frame.table_key != only:
            continue
        if isinstance(frame.data, SparkFiles):
            raise InputError(f"only Spark may know how to read {frame.name}: load it with engine 'spark' or 'auto'")
        if not isinstance(frame.data, pa.Table) or frame.table_key is None:
            raise InputError("a Spark DataFrame is loaded with engine 'spark' or 'auto'")
        rows = 0
        for piece in wide.pieces(frame.data, BATCH_ROWS):
            entity = catalog.tables[frame.table_key]
            yield number, frame.name, shape_columns(entity, piece, frame.columns, first_row=rows)
            rows += piece.num_rows


def _shift(shaped: Shaped, lines: int, records: int) -> None:
    """Numbers that count from the start of a piece count from the start of its file."""
    for tables in shaped.tables.values():
        for name, before in ((LINE, lines), (RECORD, records)):
            tables[:] = [
                table.set_column(table.column_names.index(name), name, pc.add(table[name], before)) for table in tables
            ]
