"""Read queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from omnigraph.engine.read import ReadOptions
from omnigraph.errors import ExecutionError
from omnigraph.plan import known_plan
from omnigraph.plan.statements import WritePlan
from omnigraph.server.access import READ
from omnigraph.server.call import Call
from omnigraph.server.describe import PER_GRAPH, WITH_BODY, answers, takes
from omnigraph.server.errors import HttpRefusal
from omnigraph.server.formats import Format, accepted, read_body
from omnigraph.server.reading import readable
from omnigraph.server.requests import QueryRequest, ReadRequest
from omnigraph.server.responses import ExplainOutput, ReadOutput
from omnigraph.server.streaming import pulled
from omnigraph.wire_errors import engine_words

router = APIRouter(tags=["queries"])
_STATUSES = (*PER_GRAPH, *WITH_BODY, 410)


@router.post(
    "/query",
    operation_id="cluster_query",
    responses=answers(ReadOutput, *_STATUSES, rows=True),
    openapi_extra=takes(QueryRequest),
    summary="Run a read query",
)
async def query(request: Request) -> Response:
    """Rows of one snapshot; `Accept` chooses JSON, Arrow IPC, JSON lines or CSV."""
    call = Call(request)
    call.refuse_condition()
    body, _ = await call.body(QueryRequest)
    return await answer_query(
        call, body.query, name=body.name, params=body.params, branch=body.branch, snapshot=body.snapshot
    )


@router.post(
    "/read",
    operation_id="cluster_read",
    responses=answers(ReadOutput, *_STATUSES, rows=True),
    openapi_extra=takes(ReadRequest),
    deprecated=True,
    summary="Run a read query (use /query)",
)
async def read(request: Request) -> Response:
    """The older spelling of `/query`."""
    call = Call(request)
    call.refuse_condition()
    body, _ = await call.body(ReadRequest)
    return await answer_query(
        call,
        body.query_source,
        name=body.query_name,
        params=body.params,
        branch=body.branch,
        snapshot=body.snapshot,
        headers=superseded("query"),
    )


@router.post(
    "/explain",
    operation_id="cluster_explain",
    responses=answers(ExplainOutput, *_STATUSES),
    openapi_extra=takes(QueryRequest),
    summary="How a query is run",
)
async def explain(request: Request) -> Response:
    """The plan of a query on one state; nothing is run."""
    call = Call(request)
    body, _ = await call.body(QueryRequest)
    branch, at = await readable(call, body.branch, body.snapshot, READ)

    def explained() -> dict[str, Any]:
        found = call.graph.explain(body.query, body.params, body.name, branch, at)
        return {"plan": found.to_json(), "text": str(found)}

    return await call.told(explained)


def superseded(by: str) -> dict[str, str]:
    """The headers of a deprecated route."""
    return {"Deprecation": "true", "Link": f'<{by}>; rel="successor-version"'}


async def answer_query(
    call: Call,
    source: str,
    *,
    name: str | None,
    params: Mapping[str, Any] | None,
    branch: str | None,
    snapshot: str | None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Run a read query for a caller who may, and answer in the format it asked for."""
    resolved, at = await readable(call, branch, snapshot, READ)
    target = {"branch": None if at is not None else resolved, "snapshot": at}
    form = accepted(call.request.headers.get("accept"), Format.JSON)
    seconds = call.state.settings.query_seconds_max
    options = ReadOptions(timeout_seconds=seconds) if seconds else None

    def run() -> tuple[bytes | None, bytes | None, Iterator[bytes], dict[str, str]]:
        # The first pieces are made by the thread that ran the query: a small result needs no second turn.
        try:
            result = call.graph.query(source, params, name, resolved, at, options=options)
        except ExecutionError as error:
            refuse_mutation(call, source, name, error)
            raise
        made = read_body(result, form, target)
        facts = {"Omnigraph-Query-Name": result.query_name, "Omnigraph-Row-Count": str(len(result))}
        if result.commit_id is not None:
            facts["Omnigraph-Graph-Commit"] = result.commit_id
        return next(made, b""), next(made, None), made, facts

    first, second, made, facts = await call.read(run)
    sent = {**facts, **(headers or {})}
    if second is None:
        return Response(first, media_type=form.value, headers=sent)
    return StreamingResponse(pulled(call, made, (first or b"") + second), media_type=form.value, headers=sent)


def refuse_mutation(call: Call, source: str, name: str | None, error: ExecutionError) -> None:
    """Say where a write query belongs; a client that raises the engine's error again finds it beside.

    Raises:
        HttpRefusal: 400.
    """
    plan = known_plan(call.graph.context.catalog, source, name)
    if isinstance(plan, WritePlan):
        raise HttpRefusal(
            400,
            f"query '{plan.name}' contains mutations (insert/update/delete); use POST /mutate for write queries",
            facts=engine_words(error),
        )
