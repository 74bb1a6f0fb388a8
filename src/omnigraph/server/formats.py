"""Rows in the format a client asks for: JSON, Arrow IPC, JSON lines or CSV.

`Accept` chooses; a client that asks for none of them gets the default. Pieces are made one after the other, so that a
large result is never held as one text.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from omnigraph.plan.results import rows_to_json
from omnigraph.results import QueryResult
from omnigraph.server.large import to_json

BATCH_ROWS = 8_192


class Format(StrEnum):
    """The content types rows are sent as."""

    JSON = "application/json"
    ARROW = "application/vnd.apache.arrow.stream"
    NDJSON = "application/x-ndjson"
    CSV = "text/csv"


@lru_cache(maxsize=64)
def accepted(header: str | None, default: Format) -> Format:
    """The format a client likes best among those there are.

    >>> accepted("text/csv;q=0.5, application/x-ndjson", Format.JSON)
    <Format.NDJSON: 'application/x-ndjson'>
    >>> accepted("*/*", Format.JSON)
    <Format.JSON: 'application/json'>
    """
    best, weight = default, 0.0
    for part in (header or "").split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        given = next((_weight(text) for text in parameters if text.startswith("q=")), 1.0)
        if name in tuple(Format) and given > weight:
            best, weight = Format(name), given
        elif name in ("*/*", "application/*") and given > weight:
            best, weight = default, given
    return best


def _weight(text: str) -> float:
    try:
        value = float(text.removeprefix("q="))
    except ValueError:
        return 0.0
    return value if 0 <= value <= 1 else 0.0


def read_body(result: QueryResult, form: Format, target: Mapping[str, str | None]) -> Iterator[bytes]:
    """The pieces of a query's answer."""
    if form is Format.JSON:
        return _json(result, target)
    if form is Format.NDJSON:
        return _lines(result)
    if form is Format.CSV:
        return csv_pieces(result.schema, result.to_batches(BATCH_ROWS))
    return arrow_pieces(result.schema, result.to_batches(BATCH_ROWS))


def _json(result: QueryResult, target: Mapping[str, str | None]) -> Iterator[bytes]:
    head: dict[str, Any] = {"query_name": result.query_name, "target": dict(target), "row_count": len(result)}
    if result.columns:
        head["columns"] = result.columns
    head["graph_commit_id"] = result.commit_id
    if len(result) <= BATCH_ROWS:
        yield to_json({**head, "rows": list(result)})
        return
    separator = to_json(head)[:-1] + b',"rows":['
    for batch in result.to_batches(BATCH_ROWS):
        yield separator + b",".join(to_json(row) for row in rows_to_json(batch))
        separator = b","
    yield b"]}"


def _lines(result: QueryResult) -> Iterator[bytes]:
    for batch in result.to_batches(BATCH_ROWS):
        yield b"".join(to_json(row) + b"\n" for row in rows_to_json(batch))


def arrow_pieces(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """An Arrow IPC stream, a piece for each batch."""
    sink = io.BytesIO()
    writer = pa.ipc.new_stream(sink, schema)
    for batch in batches:
        writer.write_batch(batch)
        yield _taken(sink)
    writer.close()
    yield _taken(sink)


def _taken(sink: io.BytesIO) -> bytes:
    found = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return found


def csv_pieces(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """CSV with a header; lists and vectors are JSON texts, null is empty."""
    header = True
    for batch in batches:
        table = pa.Table.from_batches([batch])
        yield _csv(table, header=header)
        header = False
    if header:
        yield _csv(schema.empty_table(), header=True)


def _csv(table: pa.Table, *, header: bool) -> bytes:
    for at, found in enumerate(table.schema):
        if pa.types.is_nested(found.type) or pa.types.is_floating(found.type) or pa.types.is_temporal(found.type):
            texts = [None if value is None else _cell(value) for value in _values(table, found.name)]
            table = table.set_column(at, found.name, pa.array(texts, pa.string()))
    sink = io.BytesIO()
    pa_csv.write_csv(table, sink, pa_csv.WriteOptions(include_header=header, quoting_style="needed"))
    return sink.getvalue()


def _values(table: pa.Table, name: str) -> list[Any]:
    return [row[name] for row in rows_to_json(table.select([name]))]


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value).decode()
