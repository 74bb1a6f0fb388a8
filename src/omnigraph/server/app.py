"""The application: its routes, its front door, and what happens when it starts and stops. Start at `create_app`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from omnigraph.errors import GraphError
from omnigraph.server.access import Access
from omnigraph.server.errors import HttpRefusal, answer_of, json_response, refusal
from omnigraph.server.front import Front
from omnigraph.server.metrics import Metrics
from omnigraph.server.openapi import TITLE, document
from omnigraph.server.routes import (
    blob,
    branches,
    changes,
    commits,
    export,
    graphs,
    health,
    load,
    mutate,
    query,
    schema,
    snapshot,
    stored,
    tags,
)
from omnigraph.server.served import Served, ServerState
from omnigraph.server.settings import Settings
from omnigraph.server.work import Work

_log = logging.getLogger("omnigraph.server")
SWEEP_SECONDS = 3_600.0
PAY_SECONDS = 5.0
"""How often a server tries again to write what notes of requests could not take."""

PER_GRAPH = (query, mutate, load, snapshot, export, stored, schema, branches, tags, commits, changes, blob)
"""The routes of a graph, those that are asked most first: the framework looks for a route in this order."""

CORS_ASKED = (
    "Authorization",
    "Content-Type",
    "Accept",
    "Idempotency-Key",
    "Last-Event-ID",
    "Omnigraph-If-Graph-Commit",
    "Omnigraph-Http-Api",
    "X-Request-Id",
    "Range",
    "If-Match",
    "If-None-Match",
    "If-Range",
)
"""The headers a web page of a named origin may send: all that a route listens to."""
CORS_TOLD = (
    "X-Request-Id",
    "ETag",
    "Retry-After",
    "Idempotency-Replayed",
    "Omnigraph-Graph-Commit",
    "Omnigraph-Query-Name",
    "Omnigraph-Row-Count",
    "Omnigraph-Snapshot-Id",
    "Omnigraph-Http-Api",
    "Accept-Ranges",
    "Content-Range",
    "Deprecation",
    "Link",
    "WWW-Authenticate",
)
"""The headers such a page may read: all that a route answers with and that a browser does not show by itself."""


class Server:
    """An application and its state; `asgi` is what a web server runs."""

    def __init__(self, framework: FastAPI, state: ServerState, asgi: ASGIApp) -> None:
        self.framework, self.state, self.asgi = framework, state, asgi

    def openapi(self) -> dict[str, Any]:
        """The document this server serves."""
        return self.framework.openapi()


def create_app(
    graphs_by_id: Mapping[str, Served], access: Access | None = None, settings: Settings | None = None
) -> Server:
    """An application that serves these graphs."""
    chosen = settings or Settings()
    state = ServerState(dict(graphs_by_id), access or Access(), chosen, Work(chosen), Metrics())
    framework = FastAPI(
        title=TITLE, docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, lifespan=_lifespan
    )
    framework.state.omnigraph = state
    framework.include_router(health.router)
    framework.include_router(graphs.router)
    for resource in PER_GRAPH:
        framework.include_router(resource.router, prefix="/graphs/{graph_id}")
    framework.openapi = _documented(framework, state)  # type: ignore[method-assign]
    framework.add_route("/openapi.json", _openapi, include_in_schema=False)
    framework.add_exception_handler(HTTPException, _framework_refusal)
    for kind in (HttpRefusal, GraphError, Exception):
        framework.add_exception_handler(kind, _failed)
    asgi: ASGIApp = Front(framework, state)
    if chosen.cors_origins:
        asgi = _Cors(
            asgi,
            allow_origins=list(chosen.cors_origins),
            allow_methods=["GET", "HEAD", "POST", "DELETE"],
            allow_headers=list(CORS_ASKED),
            expose_headers=list(CORS_TOLD),
        )
    return Server(framework, state, asgi)


class _Cors(CORSMiddleware):
    """Origins as the operator names them; a preflight request that is refused is refused in our shape."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """The answer to a browser that asks whether it may ask."""
        found = super().preflight_response(request_headers)
        if found.status_code < 400:
            return found
        kept = {name: value for name, value in found.headers.items() if not name.startswith("content-")}
        return refusal(HttpRefusal(found.status_code, bytes(found.body).decode(), headers=kept)).response()


def _documented(framework: FastAPI, state: ServerState) -> Callable[[], dict[str, Any]]:
    def openapi() -> dict[str, Any]:
        if framework.openapi_schema is None:
            framework.openapi_schema = document(framework, protected=bool(state.access.tokens))
        return framework.openapi_schema

    return openapi


async def _openapi(request: Request) -> Response:
    return json_response(request.app.openapi())


async def _failed(request: Request, error: Exception) -> Response:
    facts = request.scope["omnigraph"]
    served: Served | None = facts["served"]
    hidden = served.uri if served is not None else ""
    return answer_of(error, request_id=facts["request_id"], hidden=hidden).response()


async def _framework_refusal(request: Request, error: Exception) -> Response:
    """What the framework refuses by itself, an unknown path or method, in our shape."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        said = "there is no such route"
    elif error.status_code == 405:
        said = f"the route does not take the method {request.method}"
    else:
        said = str(error.detail)
    return refusal(HttpRefusal(error.status_code, said, headers=error.headers or {})).response()


@asynccontextmanager
async def _lifespan(framework: FastAPI) -> AsyncIterator[None]:
    state: ServerState = framework.state.omnigraph
    caring = [asyncio.create_task(_sweeping(state)), asyncio.create_task(_paying(state))]
    try:
        yield
    finally:
        for task in caring:
            task.cancel()
        await state.work.end_writes()
        await _pay(state)
        state.work.end()
        for served in state.graphs.values():
            served.graph.close()


async def _paying(state: ServerState) -> None:
    while True:
        await asyncio.sleep(PAY_SECONDS)
        await _pay(state)


async def _pay(state: ServerState) -> None:
    """Write into notes what they could not take when their requests were answered."""
    for graph_id, seen in state.requests.items():
        if not seen.owes:
            continue
        try:
            await state.work.note(seen.pay)
        except GraphError as exc:
            _log.warning("notes of requests of graph '%s' are still incomplete: %s", graph_id, exc)


async def _sweeping(state: ServerState) -> None:
    """Forget answered requests when their time is over."""
    while True:
        for graph_id, seen in state.requests.items():
            try:
                removed = await state.work.note(seen.sweep)
                if removed:
                    _log.info("removed %d notes of answered requests of graph '%s'", removed, graph_id)
            except GraphError as exc:
                _log.warning("the notes of graph '%s' cannot be swept: %s", graph_id, exc)
        await asyncio.sleep(SWEEP_SECONDS)
