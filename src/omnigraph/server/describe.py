"""How a route is described in the OpenAPI document: its request body, its answers, its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from omnigraph.server.responses import ErrorOutput

_WORDS = {
    400: "The request is wrong",
    401: "No valid bearer token",
    403: "Denied",
    404: "Not found",
    408: "The body stopped arriving",
    409: "In conflict with the state of the graph",
    410: "The history was cleaned up",
    412: "The branch has moved",
    413: "Too large",
    415: "Wrong content type",
    416: "The range is outside the blob",
    424: "A blob's source outside the graph cannot be read",
    429: "Too many writes in flight",
    500: "The server failed",
    503: "Not now; nothing changed",
}

WITH_BODY = (408, 413, 415)
PER_GRAPH = (400, 401, 403, 404, 500)


def answers(model: type[BaseModel] | None, *statuses: int, rows: bool = False, **content: Any) -> dict[int | str, Any]:
    """The answers of an operation: its success and the statuses of its refusals.

    `rows` says that the success also comes as Arrow, JSON lines and CSV; `content` names other content types.
    """
    success: dict[str, Any] = {"description": "Success"}
    if model is not None:
        success["model"] = model
    if rows:
        text = {"schema": {"type": "string"}}
        binary = {"schema": {"type": "string", "format": "binary"}}
        success["content"] = {
            "application/vnd.apache.arrow.stream": binary,
            "application/x-ndjson": text,
            "text/csv": text,
        }
    for name, schema in content.items():
        success.setdefault("content", {})[name.replace("__", "/").replace("_", "-")] = {"schema": schema}
    return {
        200: success,
        **{status: {"model": ErrorOutput, "description": _WORDS[status]} for status in sorted(set(statuses))},
    }


def takes(
    model: type[BaseModel] | None = None,
    *,
    required: bool = True,
    content_type: str = "application/json",
    parameters: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """The request body and parameters of an operation whose handler reads them itself."""
    extra: dict[str, Any] = {}
    if model is not None:
        schema = {"$ref": f"#/components/schemas/{model.__name__}"}
        extra["requestBody"] = {"required": required, "content": {content_type: {"schema": schema}}}
    elif content_type != "application/json":
        schema = {"type": "string"}
        extra["requestBody"] = {"required": required, "content": {content_type: {"schema": schema}}}
    if parameters:
        extra["parameters"] = list(parameters)
    return extra


def in_query(
    name: str, about: str, *, required: bool = False, many: bool = False, choices: Sequence[str] = ()
) -> dict[str, Any]:
    """A parameter of the URL."""
    schema: dict[str, Any] = {"type": "string", **({"enum": list(choices)} if choices else {})}
    if many:
        schema = {"type": "array", "items": schema}
    return {"name": name, "in": "query", "required": required, "description": about, "schema": schema}


def in_path(name: str, about: str) -> dict[str, Any]:
    """A part of the path."""
    return {"name": name, "in": "path", "required": True, "description": about, "schema": {"type": "string"}}


def in_header(name: str, about: str, *, required: bool = False) -> dict[str, Any]:
    """A header."""
    return {"name": name, "in": "header", "required": required, "description": about, "schema": {"type": "string"}}


IDEMPOTENCY_KEY = {
    **in_header("Idempotency-Key", "Makes a repetition of the request answer what the first one did, for 24 hours."),
    "schema": {"type": "string", "minLength": 1, "maxLength": 128},
}
CONDITION = in_header("Omnigraph-If-Graph-Commit", "The commit the branch must be at.", required=True)
BRANCH = in_query("branch", "The branch; `main` when absent.")
SNAPSHOT = in_query("snapshot", "A commit, tag, time, snapshot id or manifest version; excludes `branch`.")
