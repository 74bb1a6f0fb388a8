"""Load files, read in batches: bytes in, a table of rows per type out, or numbered problems.

`read_lines` takes any run of whole lines with the numbers of its first line and record, so one process can walk a file
and many can share one, and both find the same rows and the same problems. Arrow parses all lines of a type at once
under a schema that refuses unknown and duplicate members and values of the wrong kind; what it refuses, the exact
reader in `strict` reads again line by line to say why.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from omnigraph.catalog.model import Catalog, EdgeType
from omnigraph.catalog.types import Scalar
from omnigraph.engine.ingest.members import Members, marked, parse_records, parse_rows
from omnigraph.engine.ingest.strict import LINE_BYTES_MAX, Record, RecordFault, read_record
from omnigraph.engine.rules import wording
from omnigraph.engine.values.columns import finish_json, json_type
from omnigraph.engine.values.defaults import default_scalar, this_moment
from omnigraph.engine.values.entities import LINE, RECORD, Entity, assemble, with_given
from omnigraph.errors import ConstraintError, InputError
from omnigraph.ids import TableKey

CHUNK_BYTES = 16 * 1024 * 1024
_HEAD = r'\A[ \t\r]*\{[ \t\r]*"(?P<word>type|edge)"[ \t\r]*:[ \t\r]*"(?P<name>[A-Za-z0-9_]+)"'
_BLANK = r"\A[ \t\n\r\v\f]*\z"
_HALVES = re.compile("[\ud800-\udfff]")
_ROW_GROUP = npt.NDArray[np.int64]


class RecordProblem(Struct, frozen=True, order=True):
    """A record that cannot be loaded, by its number and physical line; line 0 means that its source has no lines."""

    record: int
    line: int
    message: str

    def __str__(self) -> str:
        return f"{wording.place(self.record, self.line)}: {self.message}"


class ReadLines(Struct):
    """What a run of lines holds. The rows are only of use while `problems` is empty."""

    tables: dict[TableKey, list[pa.Table]] = field(default_factory=dict)
    with_ids: set[TableKey] = field(default_factory=set)
    """The tables for which the input supplied ids, in its keys or outright; ids of the others are fresh."""
    problems: list[RecordProblem] = field(default_factory=list)
    lines: int = 0
    records: int = 0


def read_lines(
    data: bytes, catalog: Catalog, *, first_line: int = 1, first_record: int = 1, of: Entity | None = None
) -> ReadLines:
    """Read whole lines; rows carry `RECORD` and `LINE` so that later checks can name them.

    `of` is the type of the lines that are plain rows and no records.
    """
    if not data:
        return ReadLines()
    if not data.endswith(b"\n"):
        data += b"\n"
    lines = _split(data)
    result = ReadLines(lines=len(lines))
    groups, rest, blank = _grouped(lines, catalog, of)
    numbers = np.arange(first_line, first_line + len(lines), dtype=np.int64)
    records = np.cumsum(~blank, dtype=np.int64) + (first_record - 1)
    result.records = int(len(lines) - blank.sum())
    plain = parse_rows(lines, rest, of) if of is not None and len(rest) else None
    if of is not None and plain is not None:
        _finish(result, of, plain, records[rest], numbers[rest])
        rest = rest[:0]
    slow = [rest]
    for entity, rows in groups:
        members = parse_records(lines, rows, entity)
        if members is None:
            slow.append(rows)
        else:
            _finish(result, entity, members, records[rows], numbers[rows])
    remaining = np.sort(np.concatenate(slow))
    if len(remaining):
        _read_exactly(result, lines, remaining, records, numbers, catalog, of)
    result.problems.sort()
    return result


def chunks(stream: BinaryIO, size: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Whole lines of a stream in pieces of about `size`, so that memory stays bounded whatever the file.

    A line longer than a record may be is handed on cut, because reading it whole could not make it loadable.
    """
    kept = b""
    while piece := stream.read(size):
        if isinstance(piece, str):
            raise InputError("the input was opened as text; open it in binary mode")
        piece = kept + piece if kept else piece
        cut = piece.rfind(b"\n") + 1
        if cut:
            yield piece[:cut]
            kept = piece[cut:]
        else:
            kept = piece
        if len(kept) > LINE_BYTES_MAX + size:
            kept = kept[: LINE_BYTES_MAX + 1]
    if kept:
        yield kept


def record_lines(
    records: Iterable[Mapping[str, Any]], catalog: Catalog | None, rows_per_chunk: int = 20_000
) -> Iterator[bytes]:
    """Load records held as Python objects, written as the lines a file would have; one line per record.

    Without a catalog nobody here knows which properties take bytes and moments.

    Raises:
        ConstraintError: a record has no JSON form, or another than that of its property.
    """
    batch: list[str] = []
    spelled: list[object] = []

    def plain_json(value: object) -> Any:
        spelled.append(value)
        return _plain_json(value)

    for number, record in enumerate(records, start=1):
        try:
            batch.append(json.dumps(record, ensure_ascii=False, default=plain_json, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as failure:
            raise ConstraintError(f"{wording.place(number, 0)}: {_why_no_json(record, failure)}") from failure
        if spelled:
            # Bytes and moments become texts, which a property of texts would take for what was meant.
            spelled.clear()
            fault = None if catalog is None else _misplaced(record, catalog)
            if fault is not None:
                raise ConstraintError(f"{wording.place(number, 0)}: {fault}")
        if len(batch) == rows_per_chunk:
            yield _encoded(batch)
            batch.clear()
    if batch:
        yield _encoded(batch)


def _misplaced(record: Mapping[str, Any], catalog: Catalog) -> str | None:
    """What is wrong with bytes and moments of a record that are no values of their properties."""
    data, edge = record.get("data"), record.get("edge")
    entity = (
        catalog.nodes.get(str(record.get("type")))
        if edge is None
        else catalog.edges_by_lower_name.get(str(edge).lower())
    )
    if entity is None or not isinstance(data, Mapping):
        return None  # The reader of the line says so.
    for name, value in data.items():
        prop = entity.properties.get(name)
        for item in value if isinstance(value, list | tuple | set | frozenset) else [value]:
            takes = None
            if isinstance(item, bytes | bytearray):
                takes = frozenset({Scalar.BLOB})
            elif hasattr(item, "isoformat") or isinstance(item, np.datetime64):
                takes = frozenset({Scalar.DATE, Scalar.DATETIME})
            if prop is not None and takes is not None and prop.type.scalar not in takes:
                return f"{entity.name}.{name}: expected {prop.type.scalar}, found a value of type {type(item).__name__}"
    return None


def _why_no_json(record: Mapping[str, Any], failure: Exception) -> str:
    try:
        json.dumps(record, default=_plain_json)
    except (TypeError, ValueError, RecursionError):
        return str(failure)
    data = record.get("data")
    for name, value in data.items() if isinstance(data, Mapping) else ():
        try:
            json.dumps(value, default=_plain_json, allow_nan=False)
        except ValueError:
            return f"{name}: a number is not finite, and no property holds such a one: leave it null"
    return "a number is not finite, and no property holds such a one: leave it null"


def _encoded(lines: list[str]) -> bytes:
    text = "\n".join(lines)
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Any half of a pair as JSON escapes a lone one, so that the reader refuses it and names record and property.
        return _HALVES.sub(r"\\ud800", text).encode()


def _plain_json(value: object) -> Any:
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return "base64:" + base64.b64encode(bytes(value)).decode("ascii")
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    raise TypeError(f"a value of type {type(value).__name__} has no JSON form")


# --- lines of a type, all at once ------------------------------------------------------------------------------------


def _split(data: bytes) -> pa.Array:
    """The lines with their line ends, as slices of `data`."""
    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 10) + 1
    offsets = np.zeros(len(ends) + 1, dtype=np.int64)
    offsets[1:] = ends
    return pa.Array.from_buffers(
        pa.large_binary(), len(ends), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)]
    )


def _grouped(
    lines: pa.Array, catalog: Catalog, of: Entity | None
) -> tuple[list[tuple[Entity, _ROW_GROUP]], _ROW_GROUP, npt.NDArray[np.bool_]]:
    """Rows by the type their first member names; the rows where it names none, in order; which lines are blank."""
    blank = np.zeros(len(lines), dtype=np.bool_)
    everything = np.arange(len(lines), dtype=np.int64)
    try:
        texts = lines.cast(pa.large_string())
    except pa.ArrowInvalid:
        # Some line is not UTF-8. Which one only the exact reader can say.
        blank[:] = [not line.strip() for line in lines.to_pylist()]
        return [], everything[~blank], blank
    heads = pc.extract_regex(texts, _HEAD)
    colon = pa.scalar(":", pa.large_string())
    named = pc.binary_join_element_wise(pc.struct_field(heads, "word"), pc.struct_field(heads, "name"), colon)
    encoded = pc.if_else(pc.is_valid(heads), named, pa.scalar(None, named.type)).dictionary_encode()
    codes = np.asarray(pc.fill_null(encoded.indices, -1), dtype=np.int64)
    headless = everything[codes < 0]
    blank[headless] = np.asarray(pc.match_substring_regex(texts.take(pa.array(headless)), _BLANK))
    rest = [headless[~blank[headless]]]
    groups: list[tuple[Entity, _ROW_GROUP]] = []
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        word, _, type_name = name.partition(":")
        rows = everything[codes == code]
        entity: Entity | None
        entity = catalog.nodes.get(type_name) if word == "type" else catalog.edges_by_lower_name.get(type_name.lower())
        if entity is None or (of is not None and word in of.properties):
            rest.append(rows)  # In plain rows it may be the value of a property.
        else:
            groups.append((entity, rows))
    return groups, np.sort(np.concatenate(rest)), blank


def _finish(result: ReadLines, entity: Entity, members: Members, records: _ROW_GROUP, numbers: _ROW_GROUP) -> None:
    """Convert columns of JSON kind and add the rows of one type, and their problems, to the result."""

    def report(row: int, message: str) -> None:
        result.problems.append(RecordProblem(int(records[row]), int(numbers[row]), message))

    columns: dict[str, pa.Array] = {}
    faulty: set[tuple[int, str]] = set()
    for name, column in members.columns.items():
        columns[name], found = finish_json(column, entity.properties[name].type)
        for problem in found:
            report(problem.row, f"{entity.name}.{name}: {problem.message}")
            faulty.add((problem.row, f"{entity.name}.{name} is required"))
    for name, mask in members.absent.items():
        value = default_scalar(entity.properties[name], this_moment())
        columns[name] = columns[name] if value is None else pc.if_else(mask, value, columns[name])
    ids, ends = members.ids, members.ends
    if ends is not None and not entity.partial:
        missing_source, missing_target = (np.asarray(pc.is_null(end)) for end in ends)
        for row in np.flatnonzero(missing_source | missing_target).tolist():
            report(row, f"edge {entity.name} misses '{'from' if missing_source[row] else 'to'}'")
    table, found = assemble(entity, columns, len(records), ids=ids, ends=ends)
    for problem in found:
        if (problem.row, problem.message) not in faulty:
            report(problem.row, problem.message)
    table = table.append_column(RECORD, pa.array(records)).append_column(LINE, pa.array(numbers))
    if entity.partial:
        table = with_given(entity, table, {name: pc.invert(mask) for name, mask in members.absent.items()})
    result.tables.setdefault(entity.table_key, []).append(table)
    if entity.key or ids.null_count < len(ids):
        result.with_ids.add(entity.table_key)


# --- line by line ----------------------------------------------------------------------------------------------------


def _read_exactly(
    result: ReadLines,
    lines: pa.Array,
    rows: _ROW_GROUP,
    records: _ROW_GROUP,
    numbers: _ROW_GROUP,
    catalog: Catalog,
    of: Entity | None,
) -> None:
    accepted: dict[TableKey, list[tuple[int, Record]]] = {}
    for row in rows.tolist():
        try:
            record = read_record(lines[row].as_py(), catalog, of)
        except RecordFault as fault:
            result.problems.append(RecordProblem(int(records[row]), int(numbers[row]), str(fault)))
        else:
            accepted.setdefault(record.entity.table_key, []).append((row, record))
    for found in accepted.values():
        entity = found[0][1].entity
        at = np.array([row for row, _ in found], dtype=np.int64)
        columns = {
            name: pa.array([record.data.get(name) for _, record in found], json_type(prop.type))
            for name, prop in entity.properties.items()
        }
        absent = {prop.name: pa.array([prop.name not in record.data for _, record in found]) for prop in marked(entity)}
        ends = None
        if isinstance(entity, EdgeType):
            sources, targets = [record.source for _, record in found], [record.target for _, record in found]
            ends = (pa.array(sources, pa.string()), pa.array(targets, pa.string()))
        ids = pa.array([record.id for _, record in found], pa.string())
        _finish(result, entity, Members(columns, ids, ends, absent), records[at], numbers[at])
