"""What a load is given, brought to one form: tables of checked rows per type.

An input is the path of a file of load records, a folder of them or several paths, an open binary file, records as
Python objects, or one Arrow table per type. All of it is read, converted and checked row by row here; what must hold
across rows is the validator's.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from omnigraph.catalog.model import Catalog, EdgeType
from omnigraph.dataclass import dataclass
from omnigraph.engine.staging.checks import check_rows
from omnigraph.engine.staging.entities import LINE, RECORD, SOURCE, Entity, assemble
from omnigraph.engine.staging.records import ReadLines, RecordProblem, chunks, read_lines, record_lines
from omnigraph.engine.staging.values import finish_arrow
from omnigraph.errors import ConstraintError, InputError
from omnigraph.ids import TableKey

_Path: TypeAlias = str | os.PathLike[str]
RowsRead: TypeAlias = Callable[[int], None]
"""Hears how many rows were read, each time some were."""
RECORD_SUFFIXES = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz")
PROBLEMS_MAX = 20


@dataclass
class LoadRows:
    """The rows of a load by table; `with_ids` names the tables for which the input supplied ids."""

    tables: dict[TableKey, pa.Table] = field(default_factory=dict)
    with_ids: set[TableKey] = field(default_factory=set)


LoadSource: TypeAlias = (
    _Path | bytes | IO[bytes] | LoadRows | Mapping[str, pa.Table] | Iterable[_Path | Mapping[str, Any]]
)


def read_input(source: LoadSource, catalog: Catalog, *, count: RowsRead | None = None) -> LoadRows:
    """Read a whole input, stopping at the first stretch of it that holds a mistake; `LoadRows` are read already.

    Raises:
        ConstraintError: a record has the wrong shape, a value of the wrong kind, or breaks a rule of its own.
        InputError: the source is not something that can be loaded.
    """
    if isinstance(source, LoadRows):
        return source
    if isinstance(source, Mapping):
        return _read_arrow(source, catalog)
    reader = _Reader(catalog, count or (lambda _: None))
    for name, pieces in _streams(source):
        reader.read(name, pieces)
    return reader.finish()


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
        tables = {key: pa.concat_tables(parts).combine_chunks() for key, parts in self._parts.items()}
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


def _streams(source: LoadSource) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Every stream of lines with the name its problems are reported under; a single stream needs none."""
    if isinstance(source, bytes):
        yield "", [source]
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
            yield "", record_lines(_chain(first, items))
        elif first is not None:
            raise InputError(f"cannot load {type(first).__name__}: give paths, records, or one Arrow table per type")


def _chain(first: Mapping[str, Any], rest: Iterator[Any]) -> Iterator[Mapping[str, Any]]:
    yield first
    yield from rest


def _files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[tuple[str, Iterable[bytes]]]:
    files = [file for path in paths for file in _expand(Path(path))]
    for file in files:
        yield file.name if len(files) > 1 else "", _pieces(file)


def _expand(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.is_file() and file.name.endswith(RECORD_SUFFIXES))
        if not found:
            raise InputError(f"the folder '{path}' holds no load files ({', '.join(RECORD_SUFFIXES[:3])}, also .gz)")
        return found
    if not path.exists():
        raise InputError(f"the load file '{path}' does not exist")
    return [path]


def _pieces(file: Path) -> Iterator[bytes]:
    try:
        with gzip.open(file, "rb") if file.name.endswith(".gz") else file.open("rb") as stream:
            yield from chunks(cast("Any", stream))
    except (OSError, EOFError, gzip.BadGzipFile) as failure:
        raise InputError(f"the load file '{file}' cannot be read: {failure}") from failure


# --- Arrow tables by type --------------------------------------------------------------------------------------------


def _read_arrow(source: Mapping[str, pa.Table], catalog: Catalog) -> LoadRows:
    rows = LoadRows()
    for name, table in source.items():
        entity = _entity(name, catalog)
        if isinstance(table, pa.RecordBatchReader):
            table = table.read_all()
        if not isinstance(table, pa.Table):
            raise InputError(f"'{name}': expected an Arrow table, found {type(table).__name__}")
        if entity.table_key in rows.tables:
            raise InputError(f"'{name}' is given twice")
        _read_table(rows, entity, table)
    return rows


def _entity(name: str, catalog: Catalog) -> Entity:
    kind, _, bare = name.rpartition(":")
    entity: Entity | None = None
    if kind in ("", "node"):
        entity = catalog.nodes.get(bare)
    if entity is None and kind in ("", "edge"):
        entity = catalog.edges_by_lower_name.get(bare.lower())
    if entity is None:
        raise InputError(f"the schema has no type '{name}'")
    return entity


def _read_table(rows: LoadRows, entity: Entity, table: pa.Table) -> None:
    columns: dict[str, pa.Array] = {}
    given: dict[str, pa.Array] = {}
    problems: list[RecordProblem] = []
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        plain = {"from": "src", "to": "dst"}.get(name, name) if isinstance(entity, EdgeType) else name
        if plain in given or plain in columns:
            raise InputError(f"{entity.name}: the column '{name}' is given twice")
        if plain == "id" or (plain in ("src", "dst") and isinstance(entity, EdgeType)):
            given[plain] = _texts(entity, name, column)
        elif plain in entity.properties:
            finished, found = finish_arrow(column, entity.properties[plain].type)
            columns[plain] = finished
            problems += [RecordProblem(p.row + 1, 0, f"{entity.name}.{plain}: {p.message}") for p in found]
        else:
            raise InputError(f"{entity.name} has no property '{name}'")
    if isinstance(entity, EdgeType) and not {"src", "dst"} <= given.keys():
        raise InputError(f"{entity.name} needs the columns 'from' and 'to'")
    _raise_problems("", sorted(problems))
    ends = (given["src"], given["dst"]) if isinstance(entity, EdgeType) else None
    built, found = assemble(entity, columns, table.num_rows, ids=given.get("id"), ends=ends)
    numbers = np.arange(1, table.num_rows + 1, dtype=np.int64)
    built = built.append_column(RECORD, pa.array(numbers)).append_column(LINE, pa.array(np.zeros_like(numbers)))
    _raise_problems("", sorted(RecordProblem(p.row + 1, 0, p.message) for p in found))
    _raise_problems("", sorted(_rule_problems(entity, built)))
    rows.tables[entity.table_key] = built
    if getattr(entity, "key", ()) or ("id" in given and given["id"].null_count < table.num_rows):
        rows.with_ids.add(entity.table_key)


def _texts(entity: Entity, name: str, column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise ConstraintError(f"{entity.name}: the column '{name}' must hold text, not {column.type}")
    if name != "id" and column.null_count:
        raise ConstraintError(f"{entity.name}: the column '{name}' must not hold nulls")
    return column.cast(pa.string())
