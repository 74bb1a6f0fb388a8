"""What a load is given, brought to one form: tables of checked rows per type.

An input is the path of a file of load records, a folder of them or several paths, an open binary file, records as
Python objects, or one Arrow table per type. All of it is read, converted and checked row by row here; what must hold
across rows is the validator's.
"""

from __future__ import annotations

import gzip
import io
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from omnigraph.catalog import wide
from omnigraph.catalog.model import Catalog, EdgeType
from omnigraph.catalog.suggestion import did_you_mean
from omnigraph.engine.ingest.entities import counts_rows, entity_named
from omnigraph.engine.ingest.files import FileFormat, format_of
from omnigraph.engine.ingest.records import ReadLines, RecordProblem, chunks, read_lines, record_lines
from omnigraph.engine.ingest.sources import require_lines
from omnigraph.engine.rules import wording
from omnigraph.engine.rules.checks import check_rows
from omnigraph.engine.values.columns import finish_arrow
from omnigraph.engine.values.entities import LINE, RECORD, SOURCE, Entity, assemble, row_schema, with_given
from omnigraph.engine.values.texts import id_texts, text_faults
from omnigraph.errors import ConstraintError, InputError, NotFoundError
from omnigraph.ids import TableKey

_Path: TypeAlias = str | os.PathLike[str]
RowsRead: TypeAlias = Callable[[int], None]
"""Hears how many rows were read, each time some were."""
RECORD_SUFFIXES = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz")
PROBLEMS_MAX = 20
BYTES_AT_ONCE = 16 << 20
"""Longer texts in memory are read in pieces, as files are."""
PIECE_ROWS = 32_768
"""Rows of an Arrow table that are converted and checked at once, or more while they are no more than these bytes.

Each piece is written as a batch of its own, and many small ones take Lance half as long again.
"""


class LoadRows(Struct):
    """The rows of a load by table; `with_ids` names the tables for which the input supplied ids."""

    tables: dict[TableKey, pa.Table] = field(default_factory=dict)
    with_ids: set[TableKey] = field(default_factory=set)


class LoadFeeds(Struct, frozen=True):
    """The rows of a load as they are read: of each type once, in batches, and whether a batch brings its ids."""

    tables: Sequence[tuple[Entity, Iterator[tuple[pa.Table, bool]]]]


LoadSource: TypeAlias = (
    _Path | bytes | IO[bytes] | LoadRows | LoadFeeds | Mapping[str, pa.Table] | Iterable[_Path | Mapping[str, Any]]
)


def read_input(source: LoadSource, catalog: Catalog, *, count: RowsRead | None = None) -> LoadRows:
    """Read a whole input, stopping at the first stretch of it that holds a mistake; `LoadRows` are read already.

    Raises:
        ConstraintError: a record has the wrong shape, a value of the wrong kind, or breaks a rule of its own.
        InputError: the source is not something that can be loaded.
    """
    if isinstance(source, LoadRows):
        return source
    count = count or (lambda _: None)
    if isinstance(source, Mapping):
        source = table_feeds(source, catalog)
    if isinstance(source, LoadFeeds):
        return _read_feeds(source, count)
    reader = _Reader(catalog, count)
    for name, pieces in line_streams(source, catalog):
        reader.read(name, pieces)
    return reader.finish()


def _read_feeds(feeds: LoadFeeds, count: RowsRead) -> LoadRows:
    rows = LoadRows()
    for entity, batches in feeds.tables:
        parts = []
        for batch, decides_ids in batches:
            count(batch.num_rows)
            parts.append(batch)
            rows.with_ids |= {entity.table_key} if decides_ids else set()
        rows.tables[entity.table_key] = pa.concat_tables(parts) if parts else row_schema(entity).empty_table()
    return rows


class _Reader:
    """Gathers the rows of one or more streams; records and lines are counted anew in each."""

    def __init__(self, catalog: Catalog, count: RowsRead) -> None:
        self._catalog, self._count = catalog, count
        self._parts: dict[TableKey, list[pa.Table]] = {}
        self._with_ids: set[TableKey] = set()

    def read(self, name: str, pieces: Iterable[bytes]) -> None:
        line = record = 1
        for piece in pieces:
            found = read_lines(piece, self._catalog, first_line=line, first_record=record)
            _raise_problems(name, found.problems)
            _raise_problems(name, self._broken_rules(found))
            line += found.lines
            record += found.records
            self._count(found.records)
            self._with_ids |= found.with_ids
            for key, parts in found.tables.items():
                self._parts.setdefault(key, []).extend(_named(part, name) for part in parts)

    def _broken_rules(self, found: ReadLines) -> list[RecordProblem]:
        return sorted(
            problem
            for key, parts in found.tables.items()
            for part in parts
            for problem in _rule_problems(self._catalog.tables[key], part)
        )

    def finish(self) -> LoadRows:
        tables = {key: pa.concat_tables(parts) for key, parts in self._parts.items()}
        return LoadRows(tables, self._with_ids)


def _named(rows: pa.Table, name: str) -> pa.Table:
    return rows.append_column(SOURCE, pa.repeat(pa.scalar(name), rows.num_rows)) if name else rows


def _rule_problems(entity: Entity, rows: pa.Table) -> list[RecordProblem]:
    problems = []
    for hit in check_rows(entity, rows):
        record, line = rows.column(RECORD)[hit.row].as_py(), rows.column(LINE)[hit.row].as_py()
        problems.append(RecordProblem(record, line, hit.message))
    return problems


def _raise_problems(name: str, problems: list[RecordProblem]) -> None:
    if problems:
        prefix = f"{name}: " if name else ""
        texts = [f"{prefix}{problem}" for problem in problems[:PROBLEMS_MAX]]
        raise ConstraintError(texts[0], violations=texts)


# --- streams of load records -----------------------------------------------------------------------------------------


def line_streams(source: LoadSource, catalog: Catalog | None = None) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Every stream of lines with the name its problems are reported under; a single stream needs none."""
    if isinstance(source, bytes):
        yield "", [source] if len(source) <= BYTES_AT_ONCE else chunks(io.BytesIO(source))
    elif isinstance(source, str | os.PathLike):
        yield from _files([source])
    elif hasattr(source, "read"):
        yield "", chunks(cast("Any", source))
    else:
        items = iter(cast("Iterable[Any]", source))
        first = next(items, None)
        if isinstance(first, str | os.PathLike):
            yield from _files([first, *items])
        elif isinstance(first, Mapping):
            yield "", record_lines(itertools.chain([first], items), catalog)
        elif first is not None:
            raise InputError(f"cannot load {type(first).__name__}: give paths, records, or one Arrow table per type")


def _files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[tuple[str, Iterable[bytes]]]:
    files = [file for path in paths for file in _expand(Path(path))]
    for file in files:
        require_lines(str(file), format_of(str(file), FileFormat.JSONL))
    for file in files:
        yield file.name if len(files) > 1 else "", _pieces(file)


def _expand(path: Path) -> list[Path]:
    try:
        is_folder = path.is_dir()
        found = sorted(path.rglob("*")) if is_folder else []
        found = [file for file in found if file.name.endswith(RECORD_SUFFIXES) and file.is_file()]
    except OSError as failure:
        raise InputError(f"'{path}' cannot be read: {failure.strerror}") from failure
    if is_folder:
        if not found:
            suffixes = ", ".join(RECORD_SUFFIXES[:3])
            raise NotFoundError(f"no input file at '{path}': it is a folder without load files ({suffixes}, also .gz)")
        return found
    if not path.exists():
        raise NotFoundError(f"no input file at '{path}'")
    return [path]


def _pieces(file: Path) -> Iterator[bytes]:
    try:
        with gzip.open(file, "rb") if file.name.endswith(".gz") else file.open("rb") as stream:
            yield from chunks(cast("Any", stream))
    except (OSError, EOFError, gzip.BadGzipFile) as failure:
        raise InputError(f"the load file '{file}' cannot be read: {failure}") from failure


# --- Arrow tables by type --------------------------------------------------------------------------------------------


def streamed(source: LoadSource, catalog: Catalog) -> LoadFeeds | None:
    """One Arrow table per type where some of them are streams, to be read when they are wanted; None for the rest."""
    if isinstance(source, Mapping) and any(isinstance(part, pa.RecordBatchReader) for part in source.values()):
        return table_feeds(source, catalog)
    return None


def table_feeds(source: Mapping[str, Any], catalog: Catalog) -> LoadFeeds:
    """One Arrow table or stream per type, as checked rows, batch by batch.

    Raises:
        InputError: a type is not in the schema, or a table does not have its columns.
    """
    found: dict[TableKey, tuple[Entity, Iterator[tuple[pa.Table, bool]]]] = {}
    for name, table in source.items():
        entity = entity_named(name, catalog)
        if not isinstance(table, pa.Table | pa.RecordBatchReader):
            raise InputError(f"'{name}': expected an Arrow table, found {type(table).__name__}")
        if entity.table_key in found:
            raise InputError(f"'{name}' is given twice")
        names = _named_columns(entity, table.schema.names)
        found[entity.table_key] = (entity, _converted(entity, names, table))
    return LoadFeeds(list(found.values()))


def _converted(
    entity: Entity, names: Mapping[str, str], table: pa.Table | pa.RecordBatchReader
) -> Iterator[tuple[pa.Table, bool]]:
    first = 0
    parts = [table] if isinstance(table, pa.Table) else (pa.Table.from_batches([batch]) for batch in table)
    for part in parts:
        for piece in wide.pieces(part, max(PIECE_ROWS, BYTES_AT_ONCE * part.num_rows // max(part.nbytes, 1))):
            yield _read_piece(entity, names, piece, first)
            first += piece.num_rows


def _named_columns(entity: Entity, names: Sequence[str]) -> dict[str, str]:
    """Which column of a table holds what: a property, `id`, or an end of edges.

    Raises:
        InputError: a column is no property, is given twice, or an end is missing.
    """
    found: dict[str, str] = {}
    words = {"from": "src", "to": "dst"} if isinstance(entity, EdgeType) else {}
    ends = {"src", "dst"} if isinstance(entity, EdgeType) else set()
    for name in names:
        plain = words.get(name, name)
        if counts_rows(name) and name not in entity.properties:
            continue
        if plain in found:
            raise InputError(f"{entity.name}: the column '{name}' is given twice")
        if plain != "id" and plain not in ends and plain not in entity.properties:
            raise InputError(f"{entity.name} has no property '{name}'{did_you_mean(name, entity.properties)}")
        found[plain] = name
    if not ends <= found.keys() and not (entity.partial and not ends & found.keys()):
        raise InputError(f"{entity.name} needs the columns 'from' and 'to'")
    return found


def _read_piece(entity: Entity, names: Mapping[str, str], table: pa.Table, first: int) -> tuple[pa.Table, bool]:
    """Some rows of a table, the first of which has the number `first`, and whether the input decides their ids."""
    columns: dict[str, pa.Array] = {}
    given: dict[str, pa.Array] = {}
    problems: list[RecordProblem] = []
    for plain, name in names.items():
        column = wide.one_array(table.column(name))
        if plain == "id" or (plain in ("src", "dst") and isinstance(entity, EdgeType)):
            given[plain] = _texts(entity, name, column, first)
        else:
            columns[plain], found = finish_arrow(column, entity.properties[plain].type)
            problems += [RecordProblem(first + p.row + 1, 0, f"{entity.name}.{plain}: {p.message}") for p in found]
    _raise_problems("", sorted(problems))
    ends = (given["src"], given["dst"]) if "src" in given else None
    built, found = assemble(entity, columns, table.num_rows, ids=given.get("id"), ends=ends)
    numbers = np.arange(first + 1, first + table.num_rows + 1, dtype=np.int64)
    built = built.append_column(RECORD, pa.array(numbers)).append_column(LINE, pa.array(np.zeros_like(numbers)))
    if entity.partial:
        built = with_given(entity, built, dict.fromkeys(columns, True))
    _raise_problems("", sorted(RecordProblem(first + p.row + 1, 0, p.message) for p in found))
    _raise_problems("", sorted(_rule_problems(entity, built)))
    brings_ids = "id" in given and given["id"].null_count < table.num_rows
    return built, brings_ids or bool(entity.key)


def _texts(entity: Entity, name: str, column: pa.Array, first: int) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not wide.is_text(column.type):
        written = id_texts(column)
        if written is None:
            raise ConstraintError(f"{entity.name}: the column '{name}' must hold text or integers, not {column.type}")
        column = written
    if name != "id" and column.null_count:
        place = wording.place(first + int(pc.index(pc.is_null(column), True).as_py()) + 1, 0)
        raise ConstraintError(f"{place}: {entity.name}: the column '{name}' must not hold nulls")
    for row, message in text_faults(column)[:1]:
        raise ConstraintError(f"{wording.place(first + row + 1, 0)}: {entity.name}: the column '{name}': {message}")
    return column.cast(pa.string())
