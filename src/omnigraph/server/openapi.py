"""The OpenAPI document: what the routes say of themselves, made whole.

Bodies are read by the handlers, so their schemas are added here; so is the token every protected operation needs. The
document is committed, and a test fails when the served one differs.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from omnigraph.server import requests
from omnigraph.version import __version__

TITLE = "Omnigraph API"
SCHEME = "bearer_token"
UNPROTECTED = frozenset({"/healthz", "/readyz"})
_GRAPH_ID = {
    "name": "graph_id",
    "in": "path",
    "required": True,
    "description": "The graph.",
    "schema": {"type": "string", "pattern": "^[a-zA-Z0-9-]{1,64}$"},
}
_TAGS = ("health", "management", "snapshots", "queries", "mutations", "schema", "branches", "commits", "blobs")


def document(application: FastAPI, *, protected: bool) -> dict[str, Any]:
    """The document of an application; in an open server nothing needs a token."""
    found = get_openapi(
        title=TITLE,
        version=__version__,
        openapi_version="3.1.0",
        description="Typed property graphs with atomic commits, branches and one query language.",
        routes=application.routes,
        tags=[{"name": name} for name in _TAGS],
    )
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(_request_schemas())
    paths = {}
    for path, operations in found["paths"].items():
        plain = path.replace("{branch:path}", "{branch}")
        paths[plain] = operations
        for operation in operations.values():
            _complete(operation, plain, protected=protected)
    found["paths"] = paths
    if protected:
        found["components"]["securitySchemes"] = {SCHEME: {"type": "http", "scheme": "bearer"}}
    return found


def _complete(operation: dict[str, Any], path: str, *, protected: bool) -> None:
    given = [each for each in operation.get("parameters", []) if each["name"] != "graph_id"]
    if "{graph_id}" in path:
        given = [_GRAPH_ID, *given]
    if given:
        operation["parameters"] = given
    if protected and path not in UNPROTECTED:
        operation["security"] = [{SCHEME: []}]
    # The framework describes a failure of its own validation, which these routes do not have.
    operation["responses"].pop("422", None)


def _request_schemas() -> dict[str, Any]:
    models = [
        value
        for name, value in vars(requests).items()
        if isinstance(value, type) and issubclass(value, BaseModel) and value is not BaseModel and name[0] != "_"
    ]
    _, definitions = models_json_schema(
        [(model, "validation") for model in models], by_alias=True, ref_template="#/components/schemas/{model}"
    )
    return dict(definitions["$defs"])
