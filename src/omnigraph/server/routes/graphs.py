"""The graphs of the server."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.server.access import GRAPH_LIST
from omnigraph.server.describe import answers
from omnigraph.server.errors import json_response
from omnigraph.server.responses import GraphListResponse
from omnigraph.server.served import ServerState

router = APIRouter(tags=["management"])


@router.get(
    "/graphs", operation_id="listGraphs", responses=answers(GraphListResponse, 401, 403), summary="List the graphs"
)
async def list_graphs(request: Request) -> Response:
    """Every graph by id."""
    state: ServerState = request.app.state.omnigraph
    state.access.demand(request.scope["omnigraph"]["actor"], GRAPH_LIST)
    graphs = [{"graph_id": graph_id, "uri": served.uri} for graph_id, served in sorted(state.graphs.items())]
    return json_response({"graphs": graphs, "quarantined": []})
