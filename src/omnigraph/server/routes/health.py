"""Whether the server lives, whether it is ready, and what it counts."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.server.describe import answers
from omnigraph.server.errors import HttpRefusal, json_response
from omnigraph.server.metrics import CONTENT_TYPE
from omnigraph.server.responses import HealthOutput, ReadinessOutput
from omnigraph.server.served import ServerState
from omnigraph.version import STORAGE_FORMAT, __version__

router = APIRouter(tags=["health"])


@router.get("/healthz", operation_id="health", responses=answers(HealthOutput), summary="The server answers")
async def health(request: Request) -> Response:
    """Always 200 once the server listens; `auth` tells how it decides who may do what."""
    state: ServerState = request.app.state.omnigraph
    return json_response(
        {
            "status": "ok",
            "version": __version__,
            "source_version": None,
            "internal_schema_version": STORAGE_FORMAT,
            "auth": str(state.access.state),
        }
    )


@router.get(
    "/readyz",
    operation_id="ready",
    responses={**answers(ReadinessOutput, 401), 503: {"model": ReadinessOutput, "description": "Not ready"}},
    summary="Every expected graph is open",
)
async def ready(request: Request) -> Response:
    """200 when every graph can be read; 503 with those that cannot, and while the server is stopping."""
    state: ServerState = request.app.state.omnigraph
    missing = []
    for graph_id, served in sorted(state.graphs.items()):
        if not await state.work.read(served.is_readable):
            missing.append(graph_id)
    stopping = state.work.stopping.is_set()
    is_ready = not missing and not stopping
    named = missing if request.scope["omnigraph"]["actor"] is not None or not state.access.tokens else []
    body = {
        "status": "ready" if is_ready else "unavailable",
        "expected": len(state.graphs),
        "ready": len(state.graphs) - len(missing),
        "unavailable": named,
    }
    return json_response(body, status=200 if is_ready else 503)


@router.get(
    "/metrics",
    operation_id="metrics",
    responses=answers(None, 401, 404, text__plain={"type": "string"}),
    summary="What the server counts",
)
async def metrics(request: Request) -> Response:
    """The text format of Prometheus, where the operator has turned it on."""
    state: ServerState = request.app.state.omnigraph
    if not state.settings.metrics:
        raise HttpRefusal(404, "metrics are off: start the server with --metrics")
    state.metrics.writes_in_flight.set(state.work.writes_in_flight)
    return Response(state.metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})
