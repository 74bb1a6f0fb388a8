"""The whole OpenAPI document, exercised by generated requests: no failure of ours, no answer it does not describe."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.result import Ok
from tests.server.serving import InProcess

EXAMPLES = 12
"""Requests generated for each operation."""
ASIDE = {"cluster_streamChanges"}
"""An answer without end cannot be read to its end."""


@schemathesis.serializer("application/x-ndjson")  # type: ignore[untyped-decorator]
def _lines(_: Any, value: Any) -> Any:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@pytest.mark.long
def test_no_generated_request_gets_an_answer_that_is_not_described(open_server: InProcess) -> None:
    document = open_server.get("/openapi.json").json()
    loaded = schemathesis.openapi.from_dict(document)
    tried = 0
    for result in loaded.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        described = document["paths"][operation.path][operation.method.lower()]
        if described["operationId"] in ASIDE:
            continue
        tried += 1

        _exercise(open_server, operation, described)
    assert tried > 30


def _exercise(server: InProcess, operation: Any, described: dict[str, Any]) -> None:
    @given(case=operation.as_strategy())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case: Any) -> None:
        named = case.as_transport_kwargs(base_url="http://testserver")
        named["headers"] = {name: str(value) for name, value in (named.get("headers") or {}).items()}
        named.pop("cookies", None)
        try:
            path = named.pop("url").removeprefix("http://testserver")
            method = named.pop("method")
            answer = server.ask(method, path, **named)
        except (httpx.InvalidURL, UnicodeEncodeError):
            return
        told = f"{method} {path} {named}: {answer.status_code} {answer.text[:300]}"
        assert answer.status_code != 500, told
        assert str(answer.status_code) in described["responses"] or answer.status_code == 405, told
        if "json" in answer.headers.get("content-type", "") and method != "HEAD":
            json.loads(answer.content)
            if str(answer.status_code) in described["responses"]:
                operation.validate_response(_as_response(answer))

    check()


def _as_response(answer: httpx.Response) -> Any:
    from schemathesis.core.transport import Response

    return Response.from_httpx(answer, verify=False)
