"""Data lines into a graph, as one commit."""

from __future__ import annotations

import dataclasses
import io
import logging
from collections.abc import Callable, Mapping
from typing import IO, Any, cast

from fastapi import APIRouter
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.choices import LoadMode as Mode
from omnigraph.engine.coordination.makers import forget_gone
from omnigraph.engine.operations.branch import made_for, was_made_for
from omnigraph.engine.operations.outcomes import LoadMode, LoadResult
from omnigraph.errors import BranchNotFoundError, GraphError, RecoveryRequiredError, StorageError
from omnigraph.ids import CommitId, demand_base
from omnigraph.server import bodies
from omnigraph.server.access import BRANCH_CREATE, CHANGE
from omnigraph.server.call import Call, Write, digest_of, named_branch, run_write
from omnigraph.server.describe import (
    BRANCH,
    IDEMPOTENCY_KEY,
    PER_GRAPH,
    WITH_BODY,
    answers,
    in_query,
    takes,
)
from omnigraph.server.errors import HttpRefusal
from omnigraph.server.receipts import Receipt
from omnigraph.server.requests import IngestRequest
from omnigraph.server.requests_seen import Note
from omnigraph.server.responses import GraphBatchLoadOutput, IngestOutput
from omnigraph.server.routes.query import superseded
from omnigraph.wire import batch_load_output, ingest_output

_log = logging.getLogger("omnigraph.server")
router = APIRouter(tags=["mutations"])
_STATUSES = (*PER_GRAPH, *WITH_BODY, 409, 424, 429, 503)
_NAMES = ("branch", "from", "mode", "message")
TOGETHER_BYTES = 64 << 10
"""Up to so many bytes a load shares its turn with other small writes."""
Shape = Callable[[LoadResult], Mapping[str, Any]]


@router.post(
    "/load",
    operation_id="cluster_load",
    responses=answers(IngestOutput, *_STATUSES),
    openapi_extra=takes(IngestRequest, parameters=[IDEMPOTENCY_KEY]),
    summary="Load data lines",
)
async def load(request: Request) -> Response:
    """Data lines inside a JSON body; one request is one commit."""
    return await _load_json(Call(request), None)


@router.post(
    "/ingest",
    operation_id="cluster_ingest",
    responses=answers(IngestOutput, *_STATUSES),
    openapi_extra=takes(IngestRequest, parameters=[IDEMPOTENCY_KEY]),
    deprecated=True,
    summary="Load data lines (use /load)",
)
async def ingest(request: Request) -> Response:
    """The older spelling of `/load`."""
    return await _load_json(Call(request), superseded("load"))


async def _load_json(call: Call, headers: Mapping[str, str] | None) -> Response:
    call.refuse_condition()
    body, raw = await call.body(IngestRequest, bytes_max=call.state.settings.load_bytes_max)
    loading = await _permitted(call, body.branch, body.base, body.mode, body.message)
    data = await call.shape(len(raw), _encoded, body.data)
    write = loading.write(
        len(data), digest_of(call, raw), lambda: io.BytesIO(data), lambda it: ingest_output(it, uri=call.served.uri)
    )
    return await run_write(call, write, headers=headers)


def _encoded(data: str) -> bytes:
    try:
        return data.encode()
    except UnicodeEncodeError:
        raise HttpRefusal(400, "the field 'data' is not valid Unicode") from None


@router.post(
    "/load/ndjson",
    operation_id="cluster_loadNdjson",
    responses=answers(GraphBatchLoadOutput, *_STATUSES),
    openapi_extra=takes(
        content_type=bodies.NDJSON,
        parameters=[
            BRANCH,
            in_query("from", "Create the branch from this one if it is missing."),
            in_query("mode", "What becomes of entities that are there.", choices=tuple(LoadMode)),
            in_query("message", "Kept with the commit."),
            IDEMPOTENCY_KEY,
        ],
    ),
    summary="Load data lines as they are",
)
async def load_ndjson(request: Request) -> Response:
    """The body is the data; it is kept in a file while it arrives, and authorized before one byte of it is read."""
    call = Call(request)
    call.refuse_condition()
    bodies.demand_type(request, bodies.NDJSON)
    parameters = call.query_parameters(*_NAMES)
    branch, base, mode, message = (call.one_parameter(parameters, name) for name in _NAMES)
    if mode is not None and mode not in tuple(LoadMode):
        raise HttpRefusal(400, f"a mode is one of {', '.join(LoadMode)}, not '{mode[:40]}'")
    loading = await _permitted(call, branch, base, mode or LoadMode.MERGE, message)
    settings = call.state.settings
    spool, size, digest = await bodies.spooled(
        request, bytes_max=settings.load_bytes_max, idle_seconds=settings.body_idle_seconds
    )
    write = loading.write(size, digest_of(call, digest), lambda: spool, batch_load_output)
    return await run_write(call, replace(write, release=spool.close))


class _Loading:
    """A load whose caller may make it."""

    def __init__(self, call: Call, branch: str, base: str | None, mode: str, message: str | None) -> None:
        self.call, self.branch, self.base, self.mode, self.message = call, branch, base, mode, message
        self._creates = False

    def write(self, size: int, digest: Callable[[], str], opened: Callable[[], IO[bytes]], shape: Shape) -> Write:
        """The load as the queue takes it."""

        def told(result: LoadResult) -> Mapping[str, Any]:
            return shape(dataclasses.replace(result, base_branch=self.base, branch_created=self._creates))

        return Write(
            self.branch,
            size,
            digest,
            lambda note: told(self._run(opened(), note)),
            Receipt(told, told(LoadResult(self.branch, self.mode, actor_id=self.call.actor))),
            together=self.base is None and self.mode != LoadMode.OVERWRITE and size <= TOGETHER_BYTES,
        )

    def _run(self, source: IO[bytes], note: Note | None) -> LoadResult:
        graph, actor = self.call.graph, self.call.actor
        there = graph.branches.list()
        missing = self.branch not in there
        if missing and self.base is None:
            raise _missing(self.branch)
        if missing and note is not None and note.taken_over and was_made_for(graph.context, self.branch, note.request):
            raise BranchNotFoundError(f"branch '{self.branch}', which this request had made, was deleted since")
        if missing:
            graph.branches.create(self.branch, named_branch(self.base), actor=actor)
        # Also when an earlier attempt at this request made it and came no further.
        self._creates = missing or (note is not None and made_for(graph.context, self.branch, note.request))
        if self.base is not None and not self._creates:
            demand_base(there, self.base)
        began_at = graph.snapshot(self.branch).head if self._creates else None
        try:
            return graph.load(
                source,
                mode=cast(Mode, self.mode),
                branch=self.branch,
                engine="local",
                actor=actor,
                message=self.message,
            )
        except (RecoveryRequiredError, StorageError):
            raise  # Whether something was loaded is not known.
        except GraphError:
            if self._creates:
                # Nothing was loaded, so nothing is left: the branch was made for this load alone.
                self._undo_branch(began_at, note)
            raise

    def _undo_branch(self, began_at: CommitId | None, note: Note | None) -> None:
        graph = self.call.graph
        try:
            if graph.snapshot(self.branch).head != began_at:
                return  # Somebody else has written to it meanwhile.
            graph.branches.delete(self.branch, actor=self.call.actor)
            if note is not None:
                forget_gone(graph.context.store.objects, note.request)
        except GraphError as exc:
            _log.warning("branch '%s' of a load that failed is left: %s", self.branch, exc)


async def _permitted(call: Call, branch: str | None, base: str | None, mode: str, message: str | None) -> _Loading:
    """The load, once its caller may make it.

    Raises:
        HttpRefusal: 403.
        BranchNotFoundError: the branch is missing and nothing says from which to create it.
    """
    name = named_branch(branch)
    call.demand(CHANGE, branch=name)
    if name not in await call.read(call.graph.branches.list):
        if base is not None:
            call.demand(BRANCH_CREATE, branch=named_branch(base), target=name)
        elif "idempotency-key" not in call.request.headers:
            # One with a key may have been carried out while the branch was there, and is answered as it was then.
            raise _missing(name)
    return _Loading(call, name, base, mode, message)


def _missing(branch: str) -> BranchNotFoundError:
    return BranchNotFoundError(f"branch '{branch}' does not exist: pass 'from' to create it")
