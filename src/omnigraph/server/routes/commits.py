"""Commits, and what differs between states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.choices import MergeStrategy
from omnigraph.engine.operations.merge import MergeResult
from omnigraph.server.access import CHANGE, READ
from omnigraph.server.call import BRANCH_WORK_BYTES, Call, Write, digest_of, named_branch, run_write
from omnigraph.server.describe import (
    BRANCH,
    IDEMPOTENCY_KEY,
    PER_GRAPH,
    WITH_BODY,
    answers,
    in_path,
    in_query,
    takes,
)
from omnigraph.server.diffs import FILTERS, PAGING, Filters
from omnigraph.server.errors import HttpRefusal
from omnigraph.server.pages import (
    BYTES_DEFAULT,
    BYTES_MAX,
    CHANGES_DEFAULT,
    CHANGES_MAX,
    bound_of,
    limited,
    make_token,
    page,
    read_token,
)
from omnigraph.server.receipts import Receipt
from omnigraph.server.requests import RevertRequest
from omnigraph.server.responses import BranchMergeOutput, CommitListOutput, CommitOutput, DiffOutput
from omnigraph.server.responses_changes import CommitChangesOutput
from omnigraph.wire import cause_output, diff_output, served_commit

router = APIRouter(tags=["commits"])


@router.get(
    "/commits",
    operation_id="cluster_listCommits",
    responses=answers(CommitListOutput, *PER_GRAPH),
    openapi_extra=takes(
        parameters=[
            BRANCH,
            {**in_query("limit", "At most so many."), "schema": {"type": "integer", "minimum": 0}},
            in_query("actor", "Only those of this actor."),
        ]
    ),
    summary="List commits",
)
async def list_commits(request: Request) -> Response:
    """The commits of a branch, newest first."""
    call = Call(request)
    parameters = call.query_parameters("branch", "limit", "actor")
    branch = named_branch(call.one_parameter(parameters, "branch"))
    call.demand(READ, branch=branch)
    limit = count_of(call.one_parameter(parameters, "limit"), "limit")
    actor = call.one_parameter(parameters, "actor")
    listed = call.graph.history.list
    return await call.told(lambda: {"commits": [served_commit(commit) for commit in listed(branch, limit, actor)]})


@router.get(
    "/commits/{commit_id}",
    operation_id="cluster_getCommit",
    responses=answers(CommitOutput, *PER_GRAPH),
    openapi_extra=takes(parameters=[in_path("commit_id", "The commit.")]),
    summary="One commit",
)
async def get_commit(request: Request) -> Response:
    """Who made it, when, and what it builds on."""
    call = Call(request)
    call.demand(READ)
    commit_id = request.path_params["commit_id"]
    return await call.told(lambda: served_commit(call.graph.history.show(commit_id)))


@router.get(
    "/commits/{commit_id}/changes",
    operation_id="cluster_getCommitChanges",
    responses=answers(CommitChangesOutput, *PER_GRAPH, 409, 410, 413),
    openapi_extra=takes(parameters=[in_path("commit_id", "The commit."), *FILTERS, *PAGING]),
    summary="What one commit changed",
)
async def commit_changes(request: Request) -> Response:
    """The changes of a commit against its first parent, a page at a time."""
    call = Call(request)
    parameters = call.query_parameters(*Filters.NAMES, "limit", "max_bytes", "page_token")
    call.demand(READ)
    filters = Filters.of(call, parameters, values="full")
    commit_id = request.path_params["commit_id"]
    count = limited(count_of(call.one_parameter(parameters, "limit"), "limit"), CHANGES_DEFAULT, CHANGES_MAX, "limit")
    size = limited(
        count_of(call.one_parameter(parameters, "max_bytes"), "max_bytes"), BYTES_DEFAULT, BYTES_MAX, "max_bytes"
    )
    bound = bound_of(commit_id, filters)
    start = read_token(call.one_parameter(parameters, "page_token"), bound)

    def run() -> dict[str, Any]:
        commit = call.graph.history.show(commit_id)
        found = call.graph.history.changes(commit.graph_commit_id, **filters.arguments())
        changes, more = page((change.to_json() for change in found), start, count=count, size=size)
        token = {"next_page_token": make_token(bound, start + len(changes))} if more else {}
        return {"cause": cause_output(commit), "changes": changes, **token}

    return await call.told(run)


@router.get(
    "/diff",
    operation_id="cluster_diff",
    responses=answers(DiffOutput, *PER_GRAPH, 410),
    openapi_extra=takes(
        parameters=[
            in_query("from", "The older state: a branch, commit id, snapshot id or version.", required=True),
            in_query("to", "The newer state.", required=True),
            *FILTERS,
        ]
    ),
    summary="What differs between two states",
)
async def diff(request: Request) -> Response:
    """Entities inserted, updated and deleted."""
    call = Call(request)
    parameters = call.query_parameters("from", "to", *Filters.NAMES)
    older, newer = call.one_parameter(parameters, "from"), call.one_parameter(parameters, "to")
    if older is None or newer is None:
        raise HttpRefusal(400, "the parameters 'from' and 'to' are needed")
    call.demand(READ)
    filters = Filters.of(call, parameters)
    return await call.told(lambda: diff_output(call.graph.diff(older, newer, **filters.arguments())))


@router.post(
    "/revert",
    operation_id="cluster_revertCommit",
    responses=answers(BranchMergeOutput, *PER_GRAPH, *WITH_BODY, 409, 410, 412, 429, 503),
    openapi_extra=takes(RevertRequest, parameters=[IDEMPOTENCY_KEY]),
    summary="Undo a commit by a new one",
)
async def revert(request: Request) -> Response:
    """What only the commit changed goes back; what was changed again since is in conflict, as in a merge.

    The answer is that of a merge whose source is the state before the commit.
    """
    call = Call(request)
    call.refuse_condition()
    body, raw = await call.body(RevertRequest)
    branch = named_branch(body.branch)
    call.demand(CHANGE, branch=branch)
    # What is in conflict is told with its values.
    call.demand(READ, branch=branch)

    def work(_: object) -> Mapping[str, Any]:
        result = call.graph.revert(
            body.commit,
            branch,
            strategy=cast(MergeStrategy | None, body.strategy),
            strategies=body.strategies,
            resolve=body.resolve,
            expect_head=body.expect_head,
            actor=call.actor,
            message=body.message,
        )
        return result.to_json()

    write = Write(branch, BRANCH_WORK_BYTES, digest_of(call, raw), work, Receipt(MergeResult.to_json))
    return await run_write(call, write)


def count_of(text: str | None, name: str) -> int | None:
    """A parameter that is a number.

    Raises:
        HttpRefusal: 400.
    """
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise HttpRefusal(400, f"the parameter '{name}' is a whole number, not '{text[:40]}'")
    return int(text)
