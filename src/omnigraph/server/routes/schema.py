"""The accepted schema, what another one would change, and accepting it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph.engine.operations.migrate import SchemaApplyResult
from omnigraph.ids import MAIN
from omnigraph.server.access import READ, SCHEMA_APPLY
from omnigraph.server.call import Call, Write, digest_of, run_write
from omnigraph.server.describe import IDEMPOTENCY_KEY, PER_GRAPH, WITH_BODY, answers, takes
from omnigraph.server.receipts import Receipt
from omnigraph.server.requests import SchemaApplyRequest
from omnigraph.server.responses import SchemaApplyOutput, SchemaOutput, SchemaPlanOutput

router = APIRouter(tags=["schema"])


@router.get(
    "/schema",
    operation_id="cluster_getSchema",
    responses=answers(SchemaOutput, *PER_GRAPH),
    summary="The accepted schema",
)
async def get_schema(request: Request) -> Response:
    """The schema as it was written."""
    call = Call(request)
    call.demand(READ)
    return await call.told(lambda: {"schema_source": call.graph.schema.source})


@router.post(
    "/schema/plan",
    operation_id="cluster_planSchema",
    responses=answers(SchemaPlanOutput, *PER_GRAPH, *WITH_BODY),
    openapi_extra=takes(SchemaApplyRequest),
    summary="What accepting a schema would change",
)
async def plan_schema(request: Request) -> Response:
    """The steps to another schema; nothing is written."""
    call = Call(request)
    body, _ = await call.body(SchemaApplyRequest)
    call.demand(READ)
    plan = call.graph.schema.plan
    return await call.told(
        lambda: {
            "uri": call.served.uri,
            **plan(body.schema_source, allow_data_loss=body.allow_data_loss).to_json(),
        }
    )


@router.post(
    "/schema/apply",
    operation_id="cluster_applySchema",
    responses=answers(SchemaApplyOutput, *PER_GRAPH, *WITH_BODY, 409, 429, 503),
    openapi_extra=takes(SchemaApplyRequest, parameters=[IDEMPOTENCY_KEY]),
    summary="Accept a schema",
)
async def apply_schema(request: Request) -> Response:
    """One commit, or a refusal and nothing."""
    call = Call(request)
    call.refuse_condition()
    body, raw = await call.body(SchemaApplyRequest)
    call.demand(SCHEMA_APPLY, target=MAIN)

    def told(result: SchemaApplyResult) -> Mapping[str, Any]:
        return {"uri": call.served.uri, **result.to_json(), "commit": result.commit_id}

    def work(_: object) -> Mapping[str, Any]:
        result = call.graph.schema.apply(
            body.schema_source, body.allow_data_loss, call.actor, body.message, confirm_drops=body.confirm_drops
        )
        return told(result)

    return await run_write(call, Write(MAIN, len(raw), digest_of(call, raw), work, Receipt(told)))
