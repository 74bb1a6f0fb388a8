"""The change feed: polled, followed as a stream of events, and the baseline to begin with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.errors import GraphError
from omnigraph.scratch import Scratch
from omnigraph.server.access import EXPORT, READ
from omnigraph.server.call import Call, named_branch
from omnigraph.server.describe import BRANCH, PER_GRAPH, WITH_BODY, answers, in_header, in_query, takes
from omnigraph.server.diffs import FILTERS, PAGING, Filters
from omnigraph.server.errors import HttpRefusal, answer_of
from omnigraph.server.large import to_json
from omnigraph.server.requests import BaselineRequest
from omnigraph.server.responses_changes import ChangeFeedOutput
from omnigraph.server.routes.commits import count_of
from omnigraph.server.streaming import HeldStream, slotted

router = APIRouter(tags=["commits"])
PIECE_BYTES = 64 << 10
FIRST_WAIT_SECONDS, WAIT_SECONDS = 0.05, 1.0
"""How soon a stream that is up to date looks again, and how rarely at most."""
HEARTBEAT_SECONDS = 15.0
"""How often a silent stream says that it lives, so that no proxy cuts it."""
_STARTS = [
    in_query("cursor", "Go on after this cursor."),
    in_query("start", "`now` (the default), `beginning` or `after:<commit>`."),
]
_STATUSES = (*PER_GRAPH, 409, 410, 413)


@router.get(
    "/changes",
    operation_id="cluster_pollChanges",
    responses=answers(ChangeFeedOutput, *_STATUSES),
    openapi_extra=takes(
        parameters=[
            BRANCH,
            *_STARTS,
            *FILTERS,
            *PAGING,
            {**in_query("max_commits", "At most so many commits."), "schema": {"type": "integer", "minimum": 1}},
        ]
    ),
    summary="What happened since a cursor",
)
async def poll_changes(request: Request) -> Response:
    """A block per commit; the cursor comes with the last page, and delivery is at least once."""
    call = Call(request)
    names = ("branch", "cursor", "start", "page_token", "limit", "max_bytes", "max_commits", *Filters.NAMES)
    parameters = call.query_parameters(*names)
    asked = _asked(call, parameters)
    token = call.one_parameter(parameters, "page_token")
    if sum(each is not None for each in (asked["cursor"], asked["start"], token)) > 1:
        raise HttpRefusal(400, "cursor, start and page_token exclude each other: pass one of them")
    sizes = {
        argument: count_of(call.one_parameter(parameters, name), name)
        for argument, name in (("limit", "limit"), ("limit_bytes", "max_bytes"), ("limit_commits", "max_commits"))
    }
    given: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
    return await call.told(lambda: call.graph.changes.poll(page_token=token, **asked, **given).to_json())


@router.get(
    "/changes/stream",
    operation_id="cluster_streamChanges",
    responses=answers(None, *_STATUSES, 503, text__event_stream={"type": "string"}),
    openapi_extra=takes(
        parameters=[
            BRANCH,
            *_STARTS,
            *FILTERS,
            in_header("Last-Event-ID", "The cursor of the last event that was dealt with."),
        ]
    ),
    summary="What happens, as it happens",
)
async def stream_changes(request: Request) -> Response:
    """Server-sent events: `changes` with a page of the feed, whose id is the cursor to go on with; `error` ends it."""
    call = Call(request)
    asked = _asked(call, call.query_parameters("branch", "cursor", "start", *Filters.NAMES))
    last = request.headers.get("last-event-id", "").strip()
    if last:
        asked = {**asked, "cursor": last, "start": None}
    elif asked["cursor"] is not None and asked["start"] is not None:
        raise HttpRefusal(400, "cursor and start exclude each other: pass one of them")
    # The first page is taken before the status is sent, so that a cursor that is refused is refused.
    first = await call.read(lambda: call.graph.changes.poll(**asked))
    call.state.work.open_stream()
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return HeldStream(_events(call, asked, first), call.state.work.close_stream, "text/event-stream", headers)


async def _events(call: Call, asked: Mapping[str, Any], page: Any) -> AsyncGenerator[bytes, None]:
    work = call.state.work
    wait, silent = FIRST_WAIT_SECONDS, 0.0
    try:
        yield b": following\n\n"
        while not work.stopping.is_set():
            if page.blocks:
                yield await call.read(lambda page=page: _event("changes", page.to_json(), page.cursor))
                wait, silent = FIRST_WAIT_SECONDS, 0.0
            if page.caught_up:
                if await _stops_within(work.stopping, wait):
                    return
                silent += wait
                wait = min(2 * wait, WAIT_SECONDS)
                if silent >= HEARTBEAT_SECONDS:
                    silent = 0.0
                    yield b": still here\n\n"
            follow = {**asked, "start": None, "cursor": page.cursor, "page_token": page.next_page_token}
            page = await call.read(lambda follow=follow: call.graph.changes.poll(**follow))
    except (GraphError, HttpRefusal) as exc:
        answer = answer_of(exc, request_id=call.request_id, hidden=call.served.uri)
        yield _event("error", {"status": answer.status, **answer.body}, None)


async def _stops_within(stopping: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(stopping.wait(), seconds)
    except TimeoutError:
        return False
    return True


def _event(name: str, body: Mapping[str, Any], cursor: str | None) -> bytes:
    told = f"id: {cursor}\n".encode() if cursor is not None else b""
    return told + f"event: {name}\ndata: ".encode() + to_json(body) + b"\n\n"


@router.post(
    "/changes/baseline",
    operation_id="cluster_changesBaseline",
    responses=answers(None, *_STATUSES, *WITH_BODY, 503, application__x_ndjson={"type": "string"}),
    openapi_extra=takes(BaselineRequest),
    summary="A state to begin with, and the cursor to go on from",
)
async def baseline(request: Request) -> Response:
    """Data lines of one snapshot, and last a line with its commit and cursor; without that line it is void."""
    call = Call(request)
    body, _ = await call.body(BaselineRequest)
    branch = named_branch(body.branch)
    call.demand(EXPORT, branch=branch)

    def make() -> Iterator[bytes]:
        scratch = Scratch("baseline")
        try:
            path = str(scratch.path / "baseline.ndjson")
            call.graph.changes.baseline(path, branch, types=body.type, kinds=body.kind, ops=body.op)
        except BaseException:
            scratch.remove()
            raise
        return _file(scratch, path)

    return await slotted(call, make, "application/x-ndjson; charset=utf-8")


def _file(scratch: Scratch, path: str) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece
    finally:
        scratch.remove()


def _asked(call: Call, parameters: Mapping[str, list[str]]) -> dict[str, Any]:
    """What a caller who may wants to hear."""
    branch = named_branch(call.one_parameter(parameters, "branch"))
    call.demand(READ, branch=branch)
    filters = Filters.of(call, parameters, values="full")
    return {
        "branch": branch,
        "cursor": call.one_parameter(parameters, "cursor"),
        "start": call.one_parameter(parameters, "start"),
        **filters.arguments(),
    }
