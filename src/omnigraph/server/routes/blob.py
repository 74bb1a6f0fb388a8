"""Blobs: bytes with ranges and tags, and references to where others lie."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from urllib.parse import quote

from fastapi import APIRouter
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from omnigraph.catalog.model import Catalog
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.blobs import BlobInfo, BlobSelector, read_blob, tagged_blob
from omnigraph.server.access import READ
from omnigraph.server.call import Call
from omnigraph.server.describe import BRANCH, PER_GRAPH, SNAPSHOT, answers, in_header, in_query, takes
from omnigraph.server.errors import HttpRefusal
from omnigraph.server.reading import readable
from omnigraph.server.streaming import pulled

router = APIRouter(tags=["blobs"])
PIECE_BYTES = 4 << 20
_RANGE = re.compile(r"bytes=([0-9]{0,40})-([0-9]{0,40})\Z", re.IGNORECASE)
_PARAMETERS = [
    in_query("entity", "A node or an edge.", required=True, choices=("node", "edge")),
    in_query("type", "The type of the entity.", required=True),
    in_query("id", "The id of the entity.", required=True),
    in_query("property", "Its Blob property.", required=True),
    BRANCH,
    SNAPSHOT,
    in_header("If-Match", "Answer only this state of the blob."),
    in_header("If-None-Match", "Answer only another state of the blob."),
]
_BINARY = {"type": "string", "format": "binary"}
_ANSWERS = {
    **answers(None, *PER_GRAPH, 410, 412, application__octet_stream=_BINARY),
    302: {"description": "The blob lies outside the graph"},
    304: {"description": "The client has this state"},
}


class _Found(Struct, frozen=True):
    """One blob in one state of the graph."""

    catalog: Catalog
    snapshot: Snapshot
    selector: BlobSelector
    info: BlobInfo

    @property
    def etag(self) -> str:
        """The tag of managed bytes; a reference has none."""
        return self.info.etag or ""

    def headers(self) -> dict[str, str]:
        """What is said of the blob beside its bytes."""
        return {
            "ETag": self.etag,
            "Accept-Ranges": "bytes",
            "Omnigraph-Snapshot-Id": self.snapshot.head or "",
            "Cache-Control": "no-cache",
        }

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` up to `end`."""
        while start < end:
            length = min(PIECE_BYTES, end - start)
            yield read_blob(self.catalog, self.snapshot, self.selector, offset=start, length=length)
            start += length


@router.get(
    "/blob",
    operation_id="cluster_getBlob",
    responses={
        **_ANSWERS,
        206: {"description": "A range", "content": {"application/octet-stream": {"schema": _BINARY}}},
        416: answers(None, 416)[416],
    },
    openapi_extra=takes(parameters=[*_PARAMETERS, in_header("Range", "One range of bytes.")]),
    summary="The bytes of a blob",
)
async def get_blob(request: Request) -> Response:
    """All bytes, or one range of them; a blob that lies elsewhere is redirected to and never fetched."""
    call = Call(request)
    found = await _find(call)
    early = _early(request, found)
    if early is not None:
        return early
    size = found.info.size or 0
    chosen = _range(request, found, size)
    start, end = chosen or (0, size)
    headers = {**found.headers(), "Content-Length": str(end - start)}
    if chosen is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    made = found.pieces(start, end)
    first = await call.read(next, made, b"")
    return StreamingResponse(
        pulled(call, made, first),
        status_code=206 if chosen is not None else 200,
        media_type="application/octet-stream",
        headers=headers,
    )


@router.head(
    "/blob",
    operation_id="cluster_headBlob",
    responses=_ANSWERS,
    openapi_extra=takes(parameters=_PARAMETERS),
    summary="What is known of a blob",
)
async def head_blob(request: Request) -> Response:
    """The headers of the whole blob."""
    call = Call(request)
    found = await _find(call)
    early = _early(request, found)
    if early is not None:
        return early
    headers = {**found.headers(), "Content-Length": str(found.info.size or 0)}
    return Response(None, media_type="application/octet-stream", headers=headers)


async def _find(call: Call) -> _Found:
    parameters = call.query_parameters("entity", "type", "id", "property", "branch", "snapshot")
    given = {name: call.one_parameter(parameters, name) for name in ("entity", "type", "id", "property")}
    missing = [name for name, value in given.items() if not value]
    if missing:
        raise HttpRefusal(400, f"the parameter '{missing[0]}' is needed")
    selector = BlobSelector(given["type"] or "", given["id"] or "", given["property"] or "", given["entity"])
    branch, at = await readable(
        call, call.one_parameter(parameters, "branch"), call.one_parameter(parameters, "snapshot"), READ
    )

    def look() -> _Found:
        snapshot = call.graph.snapshot(branch, at)
        catalog = call.graph.context.catalog_of(snapshot, past=at is not None)
        return _Found(catalog, snapshot, selector, tagged_blob(catalog, snapshot, selector))

    return await call.read(look)


def _early(request: Request, found: _Found) -> Response | None:
    """The answers that need no bytes: elsewhere, another state than demanded, the state the client has."""
    if found.info.uri is not None:
        # The place as it is stored; only what a header cannot hold is encoded.
        place = quote(found.info.uri, safe=string.punctuation + " ")
        told = {"Location": place, "Cache-Control": "no-store", "Omnigraph-Snapshot-Id": found.snapshot.head or ""}
        return Response(None, 302, headers=told)
    demanded = request.headers.get("if-match")
    if demanded is not None and not _matches(demanded, found.etag, weak=False):
        raise HttpRefusal(
            412,
            "the blob has another ETag than If-Match demands",
            headers={"ETag": found.etag},
            facts={"precondition_failure": {"expected": demanded[:200], "actual": found.etag}},
        )
    known = request.headers.get("if-none-match")
    if known is not None and _matches(known, found.etag, weak=True):
        return Response(None, 304, headers=found.headers())
    return None


def _matches(header: str, etag: str, *, weak: bool) -> bool:
    tags = [part.strip() for part in header.split(",")]
    if weak:
        tags = [tag.removeprefix("W/") for tag in tags]
    return "*" in tags or etag in tags


def _range(request: Request, found: _Found, size: int) -> tuple[int, int] | None:
    """The one range a client asks for, None for the whole.

    Raises:
        HttpRefusal: 416, it lies outside.
    """
    wanted = _RANGE.match(request.headers.get("range", "").strip())
    condition = request.headers.get("if-range")
    if wanted is None or (condition is not None and condition.strip() != found.etag):
        return None
    first, last = wanted[1], wanted[2]
    if not first and not last:
        return None
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= size:
        raise HttpRefusal(
            416,
            f"the blob has {size} bytes, and the range lies outside",
            headers={"Content-Range": f"bytes */{size}"},
            facts={"blob_range": {"start": start, "end": end, "length": size}},
        )
    return start, end
