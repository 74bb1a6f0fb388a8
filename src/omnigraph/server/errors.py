"""Every failure as a status and a body: one table, and the refusals that only HTTP knows.

A body is always an `ErrorOutput`. What went wrong inside (storage, a bug of ours) is told to the log and not to the
caller, who gets the request's id to quote; storage locations never leave.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct, field
from starlette.responses import Response

from omnigraph.errors import (
    AlreadyExistsError,
    ChangeFeedGapError,
    ChangesUnavailableError,
    ConflictError,
    ExternalBlobError,
    GraphError,
    InputError,
    LimitError,
    NotFoundError,
    PolicyError,
    PreconditionFailedError,
    QueryNotFoundError,
    RecoveryRequiredError,
    StorageError,
    UnavailableError,
    VersionReclaimedError,
)
from omnigraph.server.large import to_json
from omnigraph.wire_errors import served_error

_log = logging.getLogger("omnigraph.server")

STATUS_BY_ERROR: tuple[tuple[type[GraphError], int], ...] = (
    (PreconditionFailedError, 412),
    (VersionReclaimedError, 410),
    (ChangeFeedGapError, 410),
    (ChangesUnavailableError, 409),
    (ExternalBlobError, 424),
    (QueryNotFoundError, 400),
    (NotFoundError, 404),
    (AlreadyExistsError, 409),
    (ConflictError, 409),
    (PolicyError, 403),
    (LimitError, 413),
    (RecoveryRequiredError, 503),
    (UnavailableError, 503),
    (InputError, 400),
)
"""The first class that fits decides; what is not listed is a failure of ours, 500."""

RETRY_SECONDS = {429: 60, 503: 1}
"""What `Retry-After` says where a refusal does not say it itself."""

_CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "bad_request",
    409: "conflict",
    413: "bad_request",
    415: "bad_request",
    416: "bad_request",
    429: "too_many_requests",
    500: "internal",
}


class HttpRefusal(Exception):
    """A request that is refused before the engine hears of it; `facts` are further fields of the body."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.headers, self.facts = dict(headers or {}), dict(facts or {})


class Answer(Struct, frozen=True, dict=True):
    """A finished answer: what is sent, and what an idempotency key replays."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def content(self) -> bytes:
        """The body as it is sent; whoever made it in a thread also writes it there."""
        return to_json(self.body)

    def response(self, headers: Mapping[str, str] | None = None) -> Response:
        """The answer as the framework sends it, with further headers."""
        return _json(self.content, self.status, {**self.headers, **(headers or {})})


def json_response(body: Any, *, status: int = 200) -> Response:
    """A JSON body, compact."""
    return _json(to_json(body), status, {})


def _json(content: bytes, status: int, headers: Mapping[str, str]) -> Response:
    return Response(content, status_code=status, media_type="application/json", headers=dict(headers))


def answer_of(error: Exception, *, request_id: str, hidden: str = "") -> Answer:
    """The answer to a failed request; `hidden` is a text, the graph's location, that no caller is shown."""
    if isinstance(error, HttpRefusal):
        return refusal(error)
    if isinstance(error, GraphError):
        status = status_of(error)
        if status == 500:
            _log.error("request %s failed: %s", request_id, error, exc_info=error)
            return _internal(request_id, storage=isinstance(error, StorageError))
        body = served_error(error)
        if "code" in body:
            # One word for one status: what a caller looks at first never contradicts the body.
            body["code"] = _CODES.get(status, body["code"])
        if hidden:
            body["error"] = body["error"].replace(hidden, "the graph")
        # An unfinished write may yet be finished: a caller who simply repeats it could make it twice.
        retry = None if isinstance(error, RecoveryRequiredError) else RETRY_SECONDS.get(status)
        return Answer(status, body, {"Retry-After": str(retry)} if retry else {})
    _log.error("request %s failed unexpectedly: %r", request_id, error, exc_info=error)
    return _internal(request_id, storage=False)


def status_of(error: GraphError) -> int:
    """The status of an error.

    >>> status_of(NotFoundError("…")), status_of(StorageError("…"))
    (404, 500)
    """
    return next((status for kind, status in STATUS_BY_ERROR if isinstance(error, kind)), 500)


def refusal(error: HttpRefusal) -> Answer:
    """The answer of a refusal."""
    headers = dict(error.headers)
    retry = RETRY_SECONDS.get(error.status)
    if retry and "Retry-After" not in headers:
        headers["Retry-After"] = str(retry)
    code = _CODES.get(error.status)
    return Answer(error.status, {"error": error.message, **({"code": code} if code else {}), **error.facts}, headers)


def _internal(request_id: str, *, storage: bool) -> Answer:
    what = "the graph's storage failed" if storage else "the server failed"
    return Answer(500, {"error": f"{what}; the server's log has it under request {request_id}", "code": "internal"})
