"""Branches: listing, creating, deleting, comparing and merging."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, cast

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.choices import MergeStrategy
from omnigraph.engine.operations.branch import delete_branch as remove_branch
from omnigraph.engine.operations.branch import was_made_for
from omnigraph.engine.operations.merge import MergeResult
from omnigraph.errors import BranchNotFoundError, GraphError
from omnigraph.server.access import BRANCH_CREATE, BRANCH_DELETE, BRANCH_MERGE, READ
from omnigraph.server.call import BRANCH_WORK_BYTES, Call, Write, digest_of, named_branch, run_write
from omnigraph.server.describe import IDEMPOTENCY_KEY, PER_GRAPH, WITH_BODY, answers, in_path, in_query, takes
from omnigraph.server.diffs import FILTERS, Filters
from omnigraph.server.errors import HttpRefusal
from omnigraph.server.receipts import Receipt, identity_of
from omnigraph.server.requests import BranchConflictsRequest, BranchCreateRequest, BranchMergeRequest
from omnigraph.server.requests_seen import Note
from omnigraph.server.responses import (
    BranchConflictsOutput,
    BranchCreateOutput,
    BranchDeleteOutput,
    BranchListOutput,
    BranchMergeOutput,
    DiffOutput,
)
from omnigraph.server.responses_named import BranchOutput
from omnigraph.wire import diff_output, served_branch

router = APIRouter(tags=["branches"])
_WRITES = (*PER_GRAPH, 409, 429, 503)


@router.get(
    "/branches",
    operation_id="cluster_listBranches",
    responses=answers(BranchListOutput, *PER_GRAPH),
    summary="List the branches",
)
async def list_branches(request: Request) -> Response:
    """Every branch by name."""
    call = Call(request)
    call.demand(READ)
    return await call.told(lambda: {"branches": sorted(call.graph.branches.list())})


@router.post(
    "/branches",
    operation_id="cluster_createBranch",
    responses=answers(BranchCreateOutput, *_WRITES, *WITH_BODY, 410),
    openapi_extra=takes(BranchCreateRequest, parameters=[IDEMPOTENCY_KEY]),
    summary="Create a branch",
)
async def create_branch(request: Request) -> Response:
    """A branch at the newest state of another, or at a moment of the past; nothing is copied."""
    call = Call(request)
    call.refuse_condition()
    body, raw = await call.body(BranchCreateRequest)
    name, base = named_branch(body.name), named_branch(body.base)
    call.demand(BRANCH_CREATE, branch=base, target=name)
    gone = None if body.at is None else await _demand_start(call, base, body.at, name)
    done = {"uri": call.served.uri, "from": base, "name": name, "actor_id": call.actor}

    def work(_: object) -> Mapping[str, Any]:
        if gone is not None:
            raise gone
        call.graph.branches.create(name, base, at=body.at, actor=call.actor)
        return done

    def found(note: Note) -> Mapping[str, Any] | None:
        return done if was_made_for(call.graph.context, name, note.request) else None

    return await run_write(call, Write(name, BRANCH_WORK_BYTES, digest_of(call, raw), work, found=found))


async def _demand_start(call: Call, base: str, at: str, name: str) -> GraphError | None:
    """Demand what a branch may start at; returns why it cannot start there.

    That is not told at once: the request may have a key, and have been carried out while the moment was there.
    """
    try:
        begun = await call.read(lambda: call.graph.snapshot(base, at))
    except GraphError as gone:
        return gone
    # Whatever a moment is called, it belongs to a branch, and that is what the new one shows.
    call.demand(BRANCH_CREATE, branch=begun.branch, target=name)
    return None


@router.get(
    "/branches/diff",
    operation_id="cluster_diffBranches",
    responses=answers(DiffOutput, *PER_GRAPH, 410),
    openapi_extra=takes(
        parameters=[
            in_query("source", "The branch with the changes.", required=True),
            in_query("target", "The branch they would go to; `main` when absent."),
            *FILTERS,
        ]
    ),
    summary="What a branch would bring into another",
)
async def diff_branches(request: Request) -> Response:
    """The changes of a branch since it parted from another."""
    call = Call(request)
    parameters = call.query_parameters("source", "target", *Filters.NAMES)
    source = named_branch(call.one_parameter(parameters, "source") or "")
    target = named_branch(call.one_parameter(parameters, "target"))
    call.demand(READ, branch=source)
    call.demand(READ, branch=target)
    filters = Filters.of(call, parameters)
    return await call.told(lambda: diff_output(call.graph.branches.diff(source, target, **filters.arguments())))


@router.get(
    "/branches/{branch:path}",
    operation_id="cluster_getBranch",
    responses=answers(BranchOutput, *PER_GRAPH),
    openapi_extra=takes(
        parameters=[
            in_path("branch", "The branch, percent-encoded as one segment."),
            in_query("into", "The branch it is compared with; `main` when absent."),
        ]
    ),
    summary="Where a branch stands",
)
async def get_branch(request: Request) -> Response:
    """Its newest commit, where it was created, and how many commits it is ahead of another one and behind it."""
    call = Call(request)
    parameters = call.query_parameters("into")
    name = named_branch(request.path_params["branch"])
    into = named_branch(call.one_parameter(parameters, "into"))
    call.demand(READ, branch=name)
    call.demand(READ, branch=into)
    return await call.told(lambda: served_branch(call.graph.branches.show(name, into)))


@router.post(
    "/branches/merge",
    operation_id="cluster_mergeBranches",
    responses=answers(BranchMergeOutput, *_WRITES, *WITH_BODY, 410, 412),
    openapi_extra=takes(BranchMergeRequest, parameters=[IDEMPOTENCY_KEY]),
    summary="Merge a branch into another",
)
async def merge_branches(request: Request) -> Response:
    """One commit with two parents, or the conflicts and nothing; `dry_run` tells what would happen."""
    call = Call(request)
    call.refuse_condition()
    body, raw = await call.body(BranchMergeRequest)
    source, target = named_branch(body.source), named_branch(body.target)
    if body.dry_run:
        call.demand(READ, branch=source)
        call.demand(READ, branch=target)
    else:
        call.demand(BRANCH_MERGE, branch=source, target=target)
        if body.delete_branch:
            call.demand(BRANCH_DELETE, target=source)
    how: dict[str, Any] = {"strategy": body.strategy, "strategies": body.strategies, "resolve": body.resolve}
    if body.dry_run:
        told = {"actor_id": call.actor, "commit": None, "dry_run": True}
        plan_merge = call.graph.branches.plan_merge
        return await call.told(lambda: {**plan_merge(source, target, base=body.base, **how).to_json(), **told})

    def work(_: object) -> Mapping[str, Any]:
        result = call.graph.branches.merge(
            source,
            target,
            **how,
            expect_source=body.expect_source,
            expect_target=body.expect_target,
            base=body.base,
            delete_branch=body.delete_branch,
            actor=call.actor,
            message=body.message,
        )
        return result.to_json()

    def finished(done: dict[str, Any], note: Note) -> Mapping[str, Any]:
        return {**done, **_deleted(call, source, done["source_commit"], note)} if body.delete_branch else done

    write = Write(
        target,
        BRANCH_WORK_BYTES,
        digest_of(call, raw),
        work,
        Receipt(MergeResult.to_json),
        finished=finished,
        about=lambda: identity_of(call.graph, source),
    )
    return await run_write(call, write)


def _deleted(call: Call, source: str, merged: str, note: Note) -> Mapping[str, Any]:
    """Delete a branch that an earlier attempt has merged, unless it did that as well."""
    try:
        remove_branch(call.graph.context, source, actor=call.actor, identity=note.about, at=merged)
    except BranchNotFoundError:
        return {"branch_deleted": True}
    except GraphError as exc:
        return {"branch_delete_error": str(exc)}
    return {"branch_deleted": True}


@router.post(
    "/branches/conflicts",
    operation_id="cluster_listConflicts",
    responses=answers(BranchConflictsOutput, *PER_GRAPH, *WITH_BODY, 409, 410),
    openapi_extra=takes(BranchConflictsRequest),
    summary="List what keeps a branch from being merged",
)
async def list_conflicts(request: Request) -> Response:
    """The conflicts of two branches, with what the three states have, a page at a time."""
    call = Call(request)
    body, _ = await call.body(BranchConflictsRequest)
    source, target = named_branch(body.source), named_branch(body.target)
    call.demand(READ, branch=source)
    call.demand(READ, branch=target)

    def listed() -> dict[str, Any]:
        found = call.graph.branches.conflicts(
            source,
            target,
            strategy=cast(MergeStrategy | None, body.strategy),
            strategies=body.strategies,
            base=body.base,
            after=body.after,
        )
        page = [conflict.to_json() for conflict in islice(found, body.limit)]
        told = {"source": source, "target": target, "merge_conflicts": page}
        return {**told, "next_page_token": page[-1]["token"]} if next(found, None) is not None else told

    return await call.told(listed)


@router.delete(
    "/branches/{branch:path}",
    operation_id="cluster_deleteBranch",
    responses=answers(BranchDeleteOutput, *_WRITES),
    openapi_extra=takes(
        parameters=[
            in_path("branch", "The branch, percent-encoded as one segment."),
            in_query("force", "Also one at which others have parted.", choices=("true", "false")),
            IDEMPOTENCY_KEY,
        ]
    ),
    summary="Delete a branch",
)
async def delete_branch(request: Request) -> Response:
    """The branch goes, with what only it has."""
    call = Call(request)
    call.refuse_condition()
    force = call.one_parameter(call.query_parameters("force"), "force") or "false"
    if force not in ("true", "false"):
        raise HttpRefusal(400, "the parameter 'force' is 'true' or 'false'")
    name = named_branch(request.path_params["branch"])
    call.demand(BRANCH_DELETE, target=name)
    done = {"uri": call.served.uri, "name": name, "actor_id": call.actor}

    def work(note: Note | None) -> Mapping[str, Any]:
        identity = None if note is None else note.about
        remove_branch(call.graph.context, name, force=force == "true", actor=call.actor, identity=identity)
        return done

    def found(note: Note) -> Mapping[str, Any] | None:
        # What was there when the request was first made is gone; another branch that has its name by now stays.
        return done if note.is_gone(identity_of(call.graph, name)) else None

    write = Write(name, BRANCH_WORK_BYTES, digest_of(call, b""), work, found=found)
    return await run_write(call, write)
