"""Input becomes rows of the schema's tables: the part of a job that runs on executors before anything is stored.

Lines go through the same reader the local engine uses, columns through the same conversions, and every row is judged
by the same row checks; only the cutting of the input differs. Each row keeps its number in the input beside it, so
that an error found much later can still name its record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from msgspec import Struct, field
from msgspec.structs import replace

from omnigraph.catalog import wide
from omnigraph.catalog.model import Catalog, EdgeType, NodeType
from omnigraph.catalog.types import FLOATS, INTEGERS, PropertyType, Scalar
from omnigraph.engine.ingest.csvs import Numbers, csv_blocks, first_record, records_before
from omnigraph.engine.ingest.files import FileFormat, Piece, open_parquet, read_lines
from omnigraph.engine.ingest.records import ReadLines, RecordProblem
from omnigraph.engine.ingest.records import read_lines as read_records
from omnigraph.engine.ingest.sources import ColumnMap, Feed, column_choice
from omnigraph.engine.ingest.strict import RecordFault, read_list
from omnigraph.engine.rules.checks import check_rows
from omnigraph.engine.values.columns import PROBLEMS_MAX, Problem, finish_arrow, json_type
from omnigraph.engine.values.entities import LINE, RECORD, assemble, with_given
from omnigraph.engine.values.texts import id_texts, text_faults
from omnigraph.errors import InputError
from omnigraph.ids import TableKey

BATCH_ROWS = 65_536
BATCH_BYTES = 4 << 20
"""Of a Parquet file, decoded at once: memory that is small enough to be used again, where more is fetched anew."""
HEAD_BYTES = 64 << 10
"""Of a CSV file, read for its header line and the blank lines before it."""
_TRUE, _FALSE = ("true", "True", "TRUE", "1"), ("false", "False", "FALSE", "0")


class Shaped(Struct):
    """Rows of some tables with `RECORD` and `LINE` columns, and what is wrong with them, numbered likewise.

    The numbers count from the start of the piece (lines) or of the file (Parquet rows). `with_ids` are the tables
    whose ids the input decides; all others are fresh and need no comparing. `lines` and `records` are how much of a
    text was read for it.
    """

    tables: dict[TableKey, list[pa.Table]] = field(default_factory=dict)
    problems: list[RecordProblem] = field(default_factory=list)
    with_ids: set[TableKey] = field(default_factory=set)
    lines: int = 0
    records: int = 0


def shape_feed(feed: Feed, catalog: Catalog, *, thorough: bool = False) -> Iterator[Shaped]:
    """The rows of one piece, a bounded batch at a time.

    A batch reports a bounded number of problems; `thorough` cuts batches with problems so small that all are reported.

    Raises:
        InputError: the piece cannot be read at all, or its columns do not fit the type.
    """
    if feed.table_key is None:
        yield from _shape_lines(feed.piece, catalog, thorough=thorough)
        return
    entity = catalog.tables[feed.table_key]
    if feed.piece.file.format is FileFormat.PARQUET:
        yield from _shape_parquet(feed, entity, thorough=thorough)
    elif feed.piece.file.format is FileFormat.CSV:
        yield from _shape_csv(feed, entity, thorough=thorough)
    else:
        shaped = _shape_lines(feed.piece, catalog, thorough=thorough, of=entity)
        yield from _only(feed.table_key, shaped, feed.name)


def shape_lines(
    data: bytes,
    catalog: Catalog,
    *,
    lines_before: int = 0,
    records_before: int = 0,
    of: NodeType | EdgeType | None = None,
) -> Shaped:
    """Read and check a run of whole JSON lines, of which `of` is the type of those that are plain rows."""
    read: ReadLines = read_records(data, catalog, first_line=lines_before + 1, first_record=records_before + 1, of=of)
    shaped = Shaped(read.tables, list(read.problems), read.with_ids, read.lines, read.records)
    for key, tables in read.tables.items():
        for table in tables:
            shaped.problems += _checked(catalog.tables[key], table)
    return shaped


def shape_columns(
    entity: NodeType | EdgeType, batch: pa.Table, columns: ColumnMap, *, first_row: int = 0, from_text: bool = False
) -> Shaped:
    """Convert and check columns of one type; `from_text` reads every value from its text, as CSV needs."""
    choice = column_choice(entity, batch.column_names, columns)
    rows = batch.num_rows
    numbers = pa.array(np.arange(first_row + 1, first_row + rows + 1, dtype=np.int64))
    finished: dict[str, pa.Array] = {}
    misread: dict[str, pa.Array] = {}
    found: list[Problem] = []
    for prop in entity.properties.values():
        if prop.name in choice:
            raw = _whole(batch[choice[prop.name]])
            column, problems = _from_text(raw, prop.type) if from_text else (raw, [])
            if not problems:
                column, problems = finish_arrow(column, prop.type)
            if problems:
                misread[f"{entity.name}.{prop.name} is required"] = raw
            finished[prop.name] = column
            found += [Problem(p.row, f"{entity.name}.{prop.name}: {p.message}") for p in problems]
    ids, problems = _texts(batch, choice.get("id"), f"{entity.name}.id", required=False)
    found += problems
    ends: tuple[pa.Array, pa.Array] | None = None
    if isinstance(entity, EdgeType) and "src" in choice:
        source, missing_source = _texts(batch, choice["src"], f"edge {entity.name} misses 'from'", required=True)
        target, missing_target = _texts(batch, choice["dst"], f"edge {entity.name} misses 'to'", required=True)
        found += missing_source + missing_target
        ends = (source, target)
    table, problems = assemble(entity, finished, rows, ids=ids, ends=ends)
    faulty = {(p.row, p.message.partition(":")[0]) for p in found}
    found += [
        p
        for p in problems
        if (p.row, p.message.removesuffix(" is required")) not in faulty
        # A column with one value that does not fit is null as a whole, which nobody has left out.
        and not (p.message in misread and misread[p.message][p.row].is_valid)
    ]
    table = table.append_column(RECORD, numbers).append_column(LINE, numbers)
    if entity.partial:
        table = with_given(entity, table, dict.fromkeys(finished, True))
    decided = bool(entity.key) or (ids is not None and ids.null_count < rows)
    shaped = Shaped({entity.table_key: [table]}, with_ids={entity.table_key} if decided else set())
    shaped.problems = [RecordProblem(first_row + p.row + 1, first_row + p.row + 1, p.message) for p in found]
    if not found:
        shaped.problems = _checked(entity, table)
    return shaped


def _all_problems(
    entity: NodeType | EdgeType, batch: pa.Table, columns: ColumnMap, first_row: int, *, from_text: bool
) -> list[RecordProblem]:
    """What is wrong with every row, from runs so short that no problem is left out.

    Rules are asked only where every value could be read, so the rows without a fault are looked at once more by
    themselves. What they then share with the others is about the column.
    """
    found: list[RecordProblem] = []
    for start in range(0, batch.num_rows, PROBLEMS_MAX):
        part = batch.slice(start, PROBLEMS_MAX)
        problems = shape_columns(entity, part, columns, first_row=first_row + start, from_text=from_text).problems
        faulty, told = {p.record for p in problems}, {p.message for p in problems}
        numbers = range(first_row + start + 1, first_row + start + part.num_rows + 1)
        sound = [number for number in numbers if number not in faulty]
        if problems and sound:
            rest = part.take(pa.array([number - numbers[0] for number in sound]))
            others = shape_columns(entity, rest, columns, from_text=from_text).problems
            at = [sound[p.record - 1] for p in others]
            problems += [
                RecordProblem(number, number, p.message)
                for number, p in zip(at, others, strict=True)
                if p.message not in told
            ]
        found += sorted(problems)
    return found


def _shape_lines(
    piece: Piece, catalog: Catalog, *, thorough: bool, of: NodeType | EdgeType | None = None
) -> Iterator[Shaped]:
    records = 0
    for block in read_lines(piece):
        shaped = shape_lines(block.data, catalog, lines_before=block.lines_before, records_before=records, of=of)
        if thorough and shaped.problems:
            yield from _line_by_line(block.data, catalog, block.lines_before, records, of)
        else:
            yield shaped
        records += shaped.records


def _line_by_line(
    data: bytes, catalog: Catalog, lines: int, records: int, of: NodeType | EdgeType | None
) -> Iterator[Shaped]:
    """The same lines in runs so short that no problem is left out of the report."""
    whole = data.splitlines(keepends=True) if b"\r" not in data else [line + b"\n" for line in data.split(b"\n")]
    for start in range(0, len(whole), PROBLEMS_MAX):
        part = b"".join(whole[start : start + PROBLEMS_MAX])
        shaped = shape_lines(part, catalog, lines_before=lines + start, records_before=records, of=of)
        yield shaped
        records += shaped.records


def _only(key: TableKey, shaped: Iterator[Shaped], name: str) -> Iterator[Shaped]:
    """JSON lines given for one type must be of that type."""
    for each in shaped:
        others = set(each.tables) - {key}
        if others:
            raise InputError(f"{name} was given for '{key}' and has records of '{min(others)}'")
        yield each


def _shape_parquet(feed: Feed, entity: NodeType | EdgeType, *, thorough: bool) -> Iterator[Shaped]:
    file = open_parquet(feed.piece.file)
    names = file.schema_arrow.names
    wanted = sorted(set(_columns_of(feed, entity, names).values()), key=names.index)
    row = feed.piece.first_row
    groups = list(range(feed.piece.start, feed.piece.end))
    batch_rows = min(BATCH_ROWS, _rows_at_once(file, groups))
    batches = file.iter_batches(batch_size=batch_rows, row_groups=groups, columns=wanted)
    for batch in _one_ahead(_decoded(feed, batches)):
        table = pa.Table.from_batches([batch])
        shaped = shape_columns(entity, table, feed.columns, first_row=row)
        if thorough and shaped.problems:
            shaped.problems = _all_problems(entity, table, feed.columns, row, from_text=False)
        yield shaped
        row += batch.num_rows


def _columns_of(feed: Feed, entity: NodeType | EdgeType, names: Sequence[str]) -> dict[str, str]:
    """The choice of columns in a file, whose refusal names the file."""
    try:
        return column_choice(entity, names, feed.columns)
    except InputError as exc:
        raise InputError(f"{feed.name}: {exc}") from exc


def _decoded(feed: Feed, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches; that one is damaged shows only when it is decoded."""
    try:
        yield from batches
    except (pa.ArrowException, OSError) as exc:
        raise InputError(f"{feed.name} is not a readable Parquet file: {exc}") from exc


def _one_ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches, the next of which is decoded while its reader is busy with one."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        coming = pool.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, batches, None)
            yield batch


def _rows_at_once(file: pq.ParquetFile, groups: Sequence[int]) -> int:
    """Rows of about `BATCH_BYTES`, as large as they are on average."""
    found = [file.metadata.row_group(group) for group in groups]
    rows, size = sum(group.num_rows for group in found), sum(group.total_byte_size for group in found)
    return max(1, int(BATCH_BYTES * rows // max(size, 1)))


def _shape_csv(feed: Feed, entity: NodeType | EdgeType, *, thorough: bool) -> Iterator[Shaped]:
    """CSV with a header line; quoted values may hold line ends."""
    header = csv_header(feed.piece)
    _columns_of(feed, entity, header)  # also where no row follows that would be asked for its columns
    is_first = feed.piece.start == 0
    unclaimed = 0
    for block in csv_blocks(feed.piece):
        data, lines, before = block.data, block.lines, block.records_before
        unclaimed += data.count(b"\n")
        if is_first and block.records_before == 0 and len(lines):
            data, lines = data[first_record(data) :], lines[1:]
        elif is_first:
            before -= 1
        if len(lines):
            table = _parse_csv(data, header, feed, lines)
            shaped = shape_columns(entity, table, feed.columns, first_row=before, from_text=True)
            if thorough and shaped.problems:
                shaped.problems = _all_problems(entity, table, feed.columns, before, from_text=True)
            shaped.lines, shaped.records, unclaimed = unclaimed, len(lines), 0
            yield _on_lines(shaped, lines, before)


def csv_header(piece: Piece) -> list[str]:
    """The column names in a CSV file's first record.

    Raises:
        InputError: there is none, or a name comes twice.
    """
    end = piece.file.size if piece.file.compressed else min(HEAD_BYTES, piece.file.size)
    block = next(csv_blocks(replace(piece, start=0, end=end, inside=False)), None)
    first = block.data[: first_record(block.data)] if block is not None and len(block.lines) else b""
    if not first:
        raise InputError(f"{piece.file.uri} needs a header line with its column names: it is empty")
    try:
        options = pacsv.ParseOptions(newlines_in_values=True)
        # Arrow takes a line for the header only if it has an end, which the one line of a file may lack.
        found = pacsv.read_csv(pa.BufferReader(first + b"\n"), parse_options=options)
        names: list[str] = found.column_names
    except pa.ArrowInvalid as exc:
        raise InputError(f"{piece.file.uri} needs a header line with its column names: {exc}") from exc
    except UnicodeDecodeError as exc:
        raise InputError(
            f"{piece.file.uri} is not readable CSV: its header line is not UTF-8 text: save it as UTF-8"
        ) from exc
    if found.num_rows:
        raise InputError(f"{piece.file.uri} is not readable CSV: {_why_more_lines(first)}")
    if len(set(names)) < len(names):
        raise InputError(f"{piece.file.uri} names a column twice in its header line")
    return names


def _parse_csv(data: bytes, header: list[str], feed: Feed, lines: Numbers) -> pa.Table:
    """Texts by column; an empty cell that is not quoted is null."""
    faults: list[pacsv.InvalidRow] = []

    def refuse(row: pacsv.InvalidRow) -> str:
        faults.append(row)
        return "error"

    if not data.endswith(b"\n"):
        # Where its input ends, Arrow takes an empty cell for a quoted one if an earlier cell of the record is quoted.
        data += b"\n"
    try:
        table = pacsv.read_csv(
            pa.BufferReader(data),
            read_options=pacsv.ReadOptions(column_names=header, use_threads=False, block_size=max(len(data), 1)),
            parse_options=pacsv.ParseOptions(invalid_row_handler=refuse, newlines_in_values=b'"' in data),
            convert_options=pacsv.ConvertOptions(
                column_types={column: pa.string() for column in header},
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
            ),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError) as exc:
        raise InputError(_unreadable(feed, data, lines, faults, exc)) from exc
    if table.num_rows != len(lines):
        raise InputError(f"{feed.name} is not readable CSV: {_why_more_lines(data)}")
    return table


def _why_more_lines(data: bytes) -> str:
    """What made Arrow see other records than those that line feeds outside quotes end."""
    if re.search(rb"\r(?!\n)", re.sub(rb'"[^"]*"', b"", data)):
        return "a carriage return ends a line by itself: save the file with line feeds"
    return "a quote stands inside a value that is not quoted"


def _unreadable(feed: Feed, data: bytes, lines: Numbers, faults: list[pacsv.InvalidRow], exc: Exception) -> str:
    if (foreign := _first_foreign_line(data, lines)) is not None:
        line = records_before(feed.piece)[0] + foreign
        return f"{feed.name} is not readable CSV: line {line} is not UTF-8 text: save the file as UTF-8"
    if not faults:
        return f"{feed.name} is not readable CSV: {exc}"
    row = faults[0]
    what = f"expected {row.expected_columns} values and found {row.actual_columns}: {row.text[:80]}"
    number = row.number if row.number is not None else 0
    if not 1 <= number <= len(lines):
        return f"{feed.name} is not readable CSV: {what}"
    return f"{feed.name} is not readable CSV: line {records_before(feed.piece)[0] + int(lines[number - 1])}: {what}"


def _first_foreign_line(data: bytes, lines: Numbers) -> int | None:
    """The line of the first byte that is no UTF-8, counted as `lines` counts; None where there is none."""
    try:
        data.decode()
    except UnicodeDecodeError as exc:
        blank = len(data) - len(data.lstrip(b"\r\n"))
        return int(lines[0]) + data.count(b"\n", blank, exc.start)
    return None


def _on_lines(shaped: Shaped, lines: Numbers, before: int) -> Shaped:
    """Rows numbered one by one get the lines they start on."""
    for tables in shaped.tables.values():
        tables[:] = [table.set_column(table.column_names.index(LINE), LINE, pa.array(lines)) for table in tables]
    shaped.problems = [RecordProblem(p.record, int(lines[p.record - before - 1]), p.message) for p in shaped.problems]
    return shaped


def _from_text(raw: pa.Array, kind: PropertyType) -> tuple[pa.Array, list[Problem]]:
    """Values of numbers, booleans and lists from their texts; other types read texts themselves."""
    if kind.is_list or kind.scalar is Scalar.VECTOR:
        return _lists_from_text(raw, kind)
    if kind.scalar is Scalar.BOOL:
        known = pc.is_in(raw, pa.array([*_TRUE, *_FALSE]))
        misfits = _misfits(raw, pc.or_(known, pc.is_null(raw)), kind)  # an empty cell is null and no text at all
        return pc.if_else(known, pc.is_in(raw, pa.array(_TRUE)), None), misfits
    if kind.scalar in INTEGERS:
        # Frames that cannot hold a missing integer write all integers of a column as floats.
        digits = pc.replace_substring_regex(raw, r"\A(?:\+|(-))?([0-9]+)(?:\.0*)?\z", r"\1\2")
        if kind.scalar in (Scalar.U64, Scalar.I64):
            return _wide_integers(raw, digits, kind)
        known = pc.match_substring_regex(digits, r"\A-?[0-9]{1,18}\z")
        return pc.if_else(known, digits, None).cast(pa.int64()), _misfits(raw, known, kind)
    if kind.scalar in FLOATS:
        known = pc.match_substring_regex(raw, r"\A[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\z")
        return pc.if_else(known, raw, None).cast(pa.float64()), _misfits(raw, known, kind)
    return raw, []


def _wide_integers(raw: pa.Array, digits: pa.Array, kind: PropertyType) -> tuple[pa.Array, list[Problem]]:
    """64-bit integers, whose texts may reach the ends of the range; Arrow alone would read hexadecimal ones, too."""
    target = pa.uint64() if kind.scalar is Scalar.U64 else pa.int64()
    known = pc.match_substring_regex(digits, r"\A-?[0-9]+\z")
    misfits = _misfits(raw, known, kind)
    # Nothing below zero is a U64, but zero is, however it is written.
    digits = pc.replace_substring_regex(pc.if_else(known, digits, None), r"\A-(0+)\z", r"\1")
    try:
        return digits.cast(target), misfits
    except pa.ArrowInvalid:
        for row, text in enumerate(digits.to_pylist()):
            try:
                pa.scalar(text, pa.string()).cast(target)
            except pa.ArrowInvalid:
                misfits.append(Problem(row, f"'{text}' is not {kind}"))
        return pa.nulls(len(raw), target), sorted(misfits, key=lambda problem: problem.row)


def _lists_from_text(raw: pa.Array, kind: PropertyType) -> tuple[pa.Array, list[Problem]]:
    """JSON arrays, each cell read on its own as the same value in a load record would be."""
    values: list[list[Any] | None] = []
    problems: list[Problem] = []
    for row, text in enumerate(raw.to_pylist()):
        try:
            values.append(None if text is None else read_list(text, kind))
        except RecordFault as fault:
            problems.append(Problem(row, f"'{text[:40]}' is not a JSON array for {kind}: {fault}"))
            values.append(None)
    return pa.array(values, json_type(kind)), problems


def _misfits(raw: pa.Array, known: pa.Array, kind: PropertyType) -> list[Problem]:
    rows = np.flatnonzero(np.asarray(pc.fill_null(pc.invert(known), False)))
    return [Problem(int(row), f"'{raw[int(row)].as_py()}' is not {kind}") for row in rows[:100]]


def _texts(batch: pa.Table, column: str | None, what: str, *, required: bool) -> tuple[pa.Array | None, list[Problem]]:
    """A column of ids as text; integers are written in digits, as a key of an integer is."""
    if column is None:
        return None, []
    raw = _whole(batch[column])
    if pa.types.is_integer(raw.type) or pa.types.is_floating(raw.type) or raw.null_count == len(raw):
        raw = id_texts(raw)
    if raw is None:
        return pa.nulls(batch.num_rows, pa.string()), [Problem(0, f"column '{column}' holds fractions, not ids")]
    if not (pa.types.is_string(raw.type) or pa.types.is_large_string(raw.type) or pa.types.is_string_view(raw.type)):
        return pa.nulls(len(raw), pa.string()), [Problem(0, f"column '{column}' holds {raw.type}, not text")]
    unreadable = [Problem(row, f"column '{column}': {message}") for row, message in text_faults(raw)]
    if unreadable:
        return pa.nulls(len(raw), pa.string()), unreadable
    texts = raw.cast(pa.string())
    if required and texts.null_count:
        return texts, [Problem(int(row), what) for row in np.flatnonzero(np.asarray(pc.is_null(texts)))[:100]]
    return texts, []


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = wide.one_array(column)
    return whole.dictionary_decode() if pa.types.is_dictionary(whole.type) else whole


def _checked(entity: NodeType | EdgeType, table: pa.Table) -> list[RecordProblem]:
    """The row checks, with positions turned into the numbers beside the rows."""
    found = check_rows(entity, table)
    if not found:
        return []
    records, lines = table[RECORD], table[LINE]
    return [RecordProblem(records[v.row].as_py(), lines[v.row].as_py(), v.message) for v in found]
