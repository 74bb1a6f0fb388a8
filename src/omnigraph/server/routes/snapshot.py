"""The state of a branch, table by table."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.server.access import READ
from omnigraph.server.call import Call, named_branch
from omnigraph.server.describe import BRANCH, PER_GRAPH, SNAPSHOT, answers, takes
from omnigraph.server.reading import readable
from omnigraph.server.responses import SnapshotOutput
from omnigraph.wire import served_snapshot

router = APIRouter(tags=["snapshots"])


@router.get(
    "/snapshot",
    operation_id="cluster_getSnapshot",
    responses=answers(SnapshotOutput, *PER_GRAPH),
    openapi_extra=takes(parameters=[BRANCH, SNAPSHOT]),
    summary="The tables of a state",
)
async def get_snapshot(request: Request) -> Response:
    """Every table with its version and number of entities."""
    call = Call(request)
    parameters = call.query_parameters("branch", "snapshot")
    branch, at = await readable(
        call, call.one_parameter(parameters, "branch"), call.one_parameter(parameters, "snapshot"), READ
    )
    return await call.told(lambda: served_snapshot(call.graph.snapshot(named_branch(branch), at)))
