"""Tags: names that stay with one commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.engine.manifest.tags import Tag
from omnigraph.engine.operations.tag import delete_tag as remove_tag
from omnigraph.engine.operations.tag import tag_made_for
from omnigraph.ids import MAIN
from omnigraph.server.access import CHANGE, READ
from omnigraph.server.call import BRANCH_WORK_BYTES, Call, Write, digest_of, has_begun, named_branch, run_write
from omnigraph.server.describe import IDEMPOTENCY_KEY, PER_GRAPH, WITH_BODY, answers, in_path, takes
from omnigraph.server.requests import TagCreateRequest
from omnigraph.server.requests_seen import Note
from omnigraph.server.responses_named import TagDeleteOutput, TagListOutput, TagOutput
from omnigraph.wire import tag_output

router = APIRouter(tags=["branches"])
_WRITES = (*PER_GRAPH, 409, 429, 503)


@router.get(
    "/tags",
    operation_id="cluster_listTags",
    responses=answers(TagListOutput, *PER_GRAPH),
    summary="List the tags",
)
async def list_tags(request: Request) -> Response:
    """Every tag by name, with its commit."""
    call = Call(request)
    call.demand(READ)
    return await call.told(lambda: {"tags": [tag_output(tag) for tag in call.graph.tags.list()]})


@router.post(
    "/tags",
    operation_id="cluster_createTag",
    responses=answers(TagOutput, *_WRITES, *WITH_BODY, 410),
    openapi_extra=takes(TagCreateRequest, parameters=[IDEMPOTENCY_KEY]),
    summary="Name a commit",
)
async def create_tag(request: Request) -> Response:
    """The commit of a moment gets a name, and its state is kept from cleanup for as long as it has it."""
    call = Call(request)
    call.refuse_condition()
    body, raw = await call.body(TagCreateRequest)
    branch = named_branch(body.branch)
    call.demand(CHANGE, branch=branch)

    def work(_: object) -> Mapping[str, Any]:
        return tag_output(call.graph.tags.create(body.name, body.at, branch, actor=call.actor, message=body.message))

    def found(note: Note) -> Mapping[str, Any] | None:
        tag = tag_made_for(call.graph.context, body.name, note.request)
        return None if tag is None else tag_output(tag)

    return await run_write(call, Write(branch, BRANCH_WORK_BYTES, digest_of(call, raw), work, found=found))


@router.delete(
    "/tags/{tag:path}",
    operation_id="cluster_deleteTag",
    responses=answers(TagDeleteOutput, *_WRITES),
    openapi_extra=takes(parameters=[in_path("tag", "The tag, percent-encoded as one segment."), IDEMPOTENCY_KEY]),
    summary="Delete a tag",
)
async def delete_tag(request: Request) -> Response:
    """The name goes; what only it kept is for the next cleanup."""
    call = Call(request)
    call.refuse_condition()
    name = request.path_params["tag"]
    tag = await call.read(_tag, call, name)
    # Who may not change main is told the same of a tag that is not there as of one that is main's.
    branch = MAIN if tag is None else tag.manifest_branch or MAIN
    digest = digest_of(call, b"")
    if tag is not None or not await has_begun(call, digest):
        call.demand(CHANGE, branch=branch)
    done = {"uri": call.served.uri, "name": name, "actor_id": call.actor}

    def about() -> str:
        there = _tag(call, name)
        return "" if there is None else there.identity

    def work(note: Note | None) -> Mapping[str, Any]:
        remove_tag(call.graph.context, name, actor=call.actor, identity=None if note is None else note.about)
        return done

    def found(note: Note) -> Mapping[str, Any] | None:
        # What was there when the request was first made is gone; another tag that has its name by now stays.
        return done if note.is_gone(about()) else None

    write = Write(branch, BRANCH_WORK_BYTES, digest, work, found=found, about=about)
    return await run_write(call, write)


def _tag(call: Call, name: str) -> Tag | None:
    return call.graph.context.manifest.history.tags.find(name.strip())
