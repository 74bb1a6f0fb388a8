"""Write queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.engine.operations.outcomes import MutationResult
from omnigraph.plan import compile_query
from omnigraph.plan.statements import Plan, WritePlan
from omnigraph.server.access import CHANGE, READ, State
from omnigraph.server.call import Call, Write, digest_of, named_branch, run_write
from omnigraph.server.describe import CONDITION, IDEMPOTENCY_KEY, PER_GRAPH, WITH_BODY, answers, takes
from omnigraph.server.receipts import Receipt
from omnigraph.server.requests import ChangeRequest
from omnigraph.server.responses import ChangeOutput
from omnigraph.server.routes.query import superseded
from omnigraph.wire import change_output

router = APIRouter(tags=["mutations"])
STATUSES = (*PER_GRAPH, *WITH_BODY, 409, 424, 429, 503)
KEYED = takes(ChangeRequest, parameters=[IDEMPOTENCY_KEY])


@router.post(
    "/mutate",
    operation_id="cluster_mutate",
    responses=answers(ChangeOutput, *STATUSES),
    openapi_extra=KEYED,
    summary="Run a write query",
)
async def mutate(request: Request) -> Response:
    """One commit, or nothing; the answer names the commit."""
    call = Call(request)
    call.refuse_condition()
    return await _mutate(call, None)


@router.post(
    "/mutate/if-graph-commit",
    operation_id="cluster_mutateIfGraphCommit",
    responses=answers(ChangeOutput, *STATUSES, 412),
    openapi_extra=takes(ChangeRequest, parameters=[CONDITION, IDEMPOTENCY_KEY]),
    summary="Run a write query if the branch has not moved",
)
async def mutate_if(request: Request) -> Response:
    """As `/mutate`, once the branch is at the commit of the header; otherwise 412 and nothing."""
    call = Call(request)
    return await _mutate(call, call.condition())


@router.post(
    "/change",
    operation_id="cluster_change",
    responses=answers(ChangeOutput, *STATUSES),
    openapi_extra=KEYED,
    deprecated=True,
    summary="Run a write query (use /mutate)",
)
async def change(request: Request) -> Response:
    """The older spelling of `/mutate`."""
    call = Call(request)
    call.refuse_condition()
    return await _mutate(call, None, headers=superseded("mutate"))


async def _mutate(call: Call, if_commit: str | None, *, headers: Mapping[str, str] | None = None) -> Response:
    body, raw = await call.body(ChangeRequest)
    branch = named_branch(body.branch)
    call.demand(CHANGE, branch=branch)
    return await answer_mutation(
        call,
        body.query,
        name=body.name,
        params=body.params,
        branch=branch,
        raw=raw,
        if_commit=if_commit,
        message=body.message,
        headers=headers,
    )


def tells_what_it_reads(plan: Plan) -> bool:
    """Whether a mutation has a match or a return: who may change a branch and not read it may not run it."""
    return isinstance(plan, WritePlan) and (plan.match is not None or plan.returning is not None)


async def answer_mutation(
    call: Call,
    source: str,
    *,
    name: str | None,
    params: Mapping[str, Any] | None,
    branch: str,
    raw: bytes,
    if_commit: str | None = None,
    message: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Run a write query for a caller who may."""
    by_policy = call.state.access.state is State.POLICY

    def work(_: object) -> Mapping[str, Any]:
        # Only a policy has rules by which somebody may change a branch and not read it.
        if by_policy and tells_what_it_reads(compile_query(call.graph.context.catalog, source, name)):
            call.demand(READ, branch=branch)
        result = call.graph.mutate(source, params, name, branch, call.actor, if_commit=if_commit, message=message)
        return change_output(result)

    write = Write(
        branch,
        len(source) + len(raw),
        digest_of(call, raw),
        work,
        Receipt(change_output, change_output(MutationResult(branch, "", 0, 0, call.actor))),
        together=if_commit is None,
    )
    return await run_write(call, write, headers=headers)
