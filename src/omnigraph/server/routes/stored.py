"""Stored queries: what there is, and running one."""

from __future__ import annotations

import json
import logging

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.ids import MAIN
from omnigraph.server import bodies
from omnigraph.server.access import CHANGE, INVOKE_QUERY, READ, State
from omnigraph.server.call import Call, named_branch
from omnigraph.server.describe import (
    CONDITION,
    IDEMPOTENCY_KEY,
    PER_GRAPH,
    WITH_BODY,
    answers,
    in_path,
    takes,
)
from omnigraph.server.errors import HttpRefusal
from omnigraph.server.requests import InvokeStoredQueryRequest
from omnigraph.server.responses import InvokeStoredQueryResponse, QueriesCatalogOutput
from omnigraph.server.routes.mutate import answer_mutation
from omnigraph.server.routes.query import answer_query

_log = logging.getLogger("omnigraph.server")
router = APIRouter(tags=["queries"])
_NAME = in_path("name", "The name the query declares.")
_STATUSES = (*PER_GRAPH, *WITH_BODY, 409, 410, 424, 429, 503)


@router.get(
    "/queries",
    operation_id="cluster_list_queries",
    responses=answers(QueriesCatalogOutput, *PER_GRAPH),
    summary="List the stored queries",
)
async def list_queries(request: Request) -> Response:
    """The queries the caller may run, by name."""
    call = Call(request)
    call.demand(READ, branch=MAIN)
    listed = call.served.queries.listed
    return await call.told(
        lambda: {"queries": [query.to_json() for query in listed() if _may_invoke(call, query.name)]}
    )


def _may_invoke(call: Call, name: str) -> bool:
    if call.state.access.state is State.DEFAULT_DENY:
        # Everything that may be read is listed; that none of it can be invoked is what default-deny is about.
        return True
    return call.state.access.allows(call.actor, INVOKE_QUERY, query=name)[0]


@router.post(
    "/queries/{name}",
    operation_id="cluster_invoke_query",
    responses=answers(InvokeStoredQueryResponse, *_STATUSES, rows=True),
    openapi_extra=takes(InvokeStoredQueryRequest, required=False, parameters=[_NAME, IDEMPOTENCY_KEY]),
    summary="Run a stored query",
)
async def invoke(request: Request) -> Response:
    """Answers as `/query` or `/mutate` would. A query that may not be invoked is not there."""
    call = Call(request)
    call.refuse_condition()
    return await _invoke(call, None)


@router.post(
    "/queries/{name}/if-graph-commit",
    operation_id="cluster_invokeQueryIfGraphCommit",
    responses=answers(InvokeStoredQueryResponse, *_STATUSES, 412),
    openapi_extra=takes(InvokeStoredQueryRequest, required=False, parameters=[_NAME, CONDITION, IDEMPOTENCY_KEY]),
    summary="Run a stored mutation if the branch has not moved",
)
async def invoke_if(request: Request) -> Response:
    """As a stored mutation, once the branch is at the commit of the header; otherwise 412 and nothing."""
    call = Call(request)
    return await _invoke(call, call.condition())


async def _invoke(call: Call, if_commit: str | None) -> Response:
    name = call.request.path_params["name"]
    body, raw = await _body(call)
    allowed, _ = call.state.access.allows(call.actor, INVOKE_QUERY, query=name)
    query = call.served.queries.get(name)
    if not allowed or query is None:
        raise HttpRefusal(404, "stored query not found")
    kind = "mutation" if query.is_mutation else "read"
    _log.info("stored query %s (%s) request=%s", query.name, kind, call.request_id)
    if body.expect_mutation is not None and body.expect_mutation != query.is_mutation:
        verb = "mutate" if query.is_mutation else "query"
        raise HttpRefusal(400, f"'{name}' is a {kind} — use omnigraph {verb} {name}")
    if not query.is_mutation:
        if if_commit is not None:
            raise HttpRefusal(400, f"'{name}' is a read, and only a mutation can be made conditional")
        return await answer_query(
            call, query.source, name=name, params=body.params, branch=body.branch, snapshot=body.snapshot
        )
    if body.snapshot is not None:
        raise HttpRefusal(400, f"'{name}' is a mutation, and a snapshot can only be read")
    branch = named_branch(body.branch)
    call.demand(CHANGE, branch=branch)
    return await answer_mutation(
        call,
        query.source,
        name=name,
        params=body.params,
        branch=branch,
        raw=raw,
        if_commit=if_commit,
        message=body.message,
    )


async def _body(call: Call) -> tuple[InvokeStoredQueryRequest, bytes]:
    """The body, which may be absent, empty or null."""
    raw = await call.raw()
    bodies.demand_type(call.request, bodies.JSON, has_body=bool(raw.strip()))
    if not raw.strip() or raw.strip() == json.dumps(None).encode():
        return bodies.shaped(InvokeStoredQueryRequest, {}), raw
    return await call.shape(len(raw), bodies.parse, InvokeStoredQueryRequest, raw), raw
