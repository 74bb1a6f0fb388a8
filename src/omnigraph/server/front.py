"""The front door, before any route: who is asking, for which graph, and one line in the log when it is over.

A plain layer around the application. The order is fixed: the request gets its id, then its caller is known (401), then
its graph is found (400, 404); only then a route reads a body. Whatever escapes a route becomes an `ErrorOutput`.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omnigraph.ids import new_ulid
from omnigraph.server.errors import HttpRefusal, answer_of

if TYPE_CHECKING:
    from omnigraph.server.served import Served, ServerState

_log = logging.getLogger("omnigraph.server.requests")
GRAPH_ID = re.compile(r"[a-zA-Z0-9-]{1,64}\Z")
RESERVED_IDS = frozenset({"policies", "healthz", "openapi", "graphs"})
OPEN_PATHS = frozenset({"/healthz", "/openapi.json", "/readyz"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")
API_HEADER = "omnigraph-http-api"


def is_graph_id(text: str) -> bool:
    """Whether a text can name a graph.

    >>> is_graph_id("spike-1"), is_graph_id("a_b"), is_graph_id("healthz")
    (True, False, False)
    """
    return bool(GRAPH_ID.match(text)) and text not in RESERVED_IDS


class Front:
    """The layer around the routes."""

    def __init__(self, application: ASGIApp, state: ServerState) -> None:
        self._application = application
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        headers = Headers(scope=scope)
        exchange = _Exchange(scope, headers, send)
        facts: dict[str, Any] = {
            "request_id": exchange.request_id,
            "actor": None,
            "served": None,
            "writing": False,
        }
        scope["omnigraph"] = facts
        try:
            self._enter(scope, headers, facts)
            await self._application(scope, receive, exchange.send)
        except Exception as exc:
            if exchange.is_complete:
                return
            if exchange.status:
                # The answer has begun, so that it can only be cut: the client sees a broken body, never a wrong one.
                _log.warning("request %s was cut while it was answered: %s", exchange.request_id, exc)
                raise
            served = facts["served"]
            hidden = served.uri if served is not None else ""
            answer = answer_of(exc, request_id=exchange.request_id, hidden=hidden)
            await answer.response()(scope, receive, exchange.send)
        finally:
            self._leave(exchange, facts)

    def _enter(self, scope: Scope, headers: Mapping[str, str], facts: dict[str, Any]) -> None:
        path = scope["path"]
        preflight = scope["method"] == "OPTIONS" and bool(self._state.settings.cors_origins)
        if (path not in OPEN_PATHS and not preflight) or (headers.get("authorization") and path == "/readyz"):
            facts["actor"] = self._state.access.authenticate(headers.get("authorization"))
        if path.startswith("/graphs/"):
            facts["served"] = self._graph(scope)

    def _graph(self, scope: Scope) -> Served:
        raw = scope.get("raw_path") or scope["path"].encode()
        _, *segments = raw.split(b"/")
        if len(segments) < 2:
            # A slash that is percent-encoded is part of a segment, and no segment begins with 'graphs/'.
            raise HttpRefusal(404, "there is no such route")
        segment = unquote_to_bytes(segments[1]).decode("utf-8", "replace")
        if not is_graph_id(segment):
            raise HttpRefusal(400, "a graph id has 1 to 64 letters, digits and '-', and is not a reserved word")
        served = self._state.graphs.get(segment)
        if served is None:
            raise HttpRefusal(404, f"there is no graph '{segment}' on this server")
        return served

    def _leave(self, exchange: _Exchange, facts: Mapping[str, Any]) -> None:
        scope = exchange.scope
        seconds = time.perf_counter() - exchange.began
        route = scope.get("route")
        template = getattr(route, "path", "(none)")
        served = facts["served"]
        if served is not None and not template.startswith("/graphs/"):
            template = f"/graphs/{{graph_id}}{template}"
        graph = served.graph_id if served is not None else ""
        self._state.metrics.answered(
            method=scope["method"] if len(scope["method"]) < 10 else "(odd)",
            route=template,
            status=exchange.status,
            graph=graph,
            seconds=seconds,
        )
        # The path as it was sent is the caller's; only the template and what it names of ours are written down.
        _log.info(
            "%s %s %d %.1fms graph=%s actor=%s request=%s",
            scope["method"] if scope["method"].isalpha() else "(odd)",
            template,
            exchange.status,
            seconds * 1000,
            graph or "-",
            facts["actor"] or "-",
            exchange.request_id,
        )


class _Exchange:
    """One request on its way out: the headers every answer has, and what was answered."""

    def __init__(self, scope: Scope, headers: Mapping[str, str], send: Send) -> None:
        self.scope = scope
        self.began = time.perf_counter()
        self.status = 0
        self.is_complete = False
        given = headers.get("x-request-id", "")
        self.request_id = given if _REQUEST_ID.match(given) else new_ulid()
        api = headers.get(API_HEADER, "")
        self._api = api if _REQUEST_ID.match(api) else ""
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            sent = MutableHeaders(scope=message)
            sent["X-Request-Id"] = self.request_id
            if self._api:
                sent["Omnigraph-Http-Api"] = self._api
            sent.setdefault("X-Content-Type-Options", "nosniff")
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.is_complete = True
