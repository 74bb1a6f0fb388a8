"""A snapshot as a stream."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.catalog import wide
from omnigraph.catalog.arrow import outside_table
from omnigraph.engine.operations.export import chosen_tables, table_rows
from omnigraph.server.access import EXPORT
from omnigraph.server.call import Call
from omnigraph.server.describe import PER_GRAPH, WITH_BODY, answers, takes
from omnigraph.server.errors import HttpRefusal
from omnigraph.server.formats import BATCH_ROWS, Format, accepted, arrow_pieces, csv_pieces
from omnigraph.server.reading import readable
from omnigraph.server.requests import ExportRequest
from omnigraph.server.streaming import pieces, slotted

router = APIRouter(tags=["queries"])


@router.post(
    "/export",
    operation_id="cluster_export",
    responses=answers(None, *PER_GRAPH, *WITH_BODY, 410, 503, rows=True),
    openapi_extra=takes(ExportRequest),
    summary="Stream a snapshot",
)
async def export(request: Request) -> Response:
    """Data lines by table and id, all of one snapshot; with one type, `Accept` may also ask for Arrow or CSV.

    Refusals come before the status. A failure after that breaks the body off: what arrived is void.
    """
    call = Call(request)
    body, _ = await call.body(ExportRequest)
    branch, at = await readable(call, body.branch, body.snapshot, EXPORT)
    form = accepted(request.headers.get("accept"), Format.NDJSON)

    def make() -> Iterator[bytes]:
        if form in (Format.NDJSON, Format.JSON):
            return pieces(call.graph.export(None, branch, at, types=body.type_names, tables=body.table_keys))
        return _rows(call, branch, at, body, form)

    sent = "application/x-ndjson; charset=utf-8" if form in (Format.NDJSON, Format.JSON) else form.value
    return await slotted(call, make, sent)


def _rows(call: Call, branch: str, at: str | None, body: ExportRequest, form: Format) -> Iterator[bytes]:
    """The rows of one table as Arrow or CSV."""
    snapshot = call.graph.snapshot(branch, at)
    catalog = call.graph.context.catalog_of(snapshot, past=at is not None)
    chosen = chosen_tables(catalog, body.type_names, body.table_keys)
    if len(chosen) != 1:
        raise HttpRefusal(400, f"'{form.value}' holds the rows of one table: name it in type_names or table_keys")
    [key] = chosen
    entity = catalog.tables[key]
    runs = map(_outside, table_rows(snapshot.open(key), entity))
    first = next(runs)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from _batches(first)
        for rows in runs:
            yield from _batches(rows.cast(first.schema))

    made = arrow_pieces if form is Format.ARROW else csv_pieces
    return made(first.schema, batches())


def _outside(rows: pa.Table) -> pa.Table:
    """Rows as everybody reads them: moments are moments, and nothing is said of how they are stored."""
    rows = outside_table(rows)
    return rows.cast(pa.schema([field.remove_metadata() for field in rows.schema]))


def _batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    for piece in wide.pieces(rows, BATCH_ROWS):
        yield from piece.combine_chunks().to_batches()
