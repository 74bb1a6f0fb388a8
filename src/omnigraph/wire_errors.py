"""Errors on their way over HTTP: what a body says beside the promised fields, and the exception it becomes again.

The promised `code` is a small closed set, so a body also names the class of the error and its own code. A client that
finds them raises exactly what the engine raised; one that does not goes by the status and by the fields that describe a
failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnigraph import errors
from omnigraph.errors import (
    ChangeCursorError,
    ChangeFeedGapError,
    ChangesUnavailableError,
    ConflictError,
    ConstraintError,
    ExpectedVersionMismatchError,
    ExternalBlobError,
    GraphError,
    InputError,
    InternalError,
    KeyConflictError,
    LimitError,
    MergeBaseError,
    MergeConflictError,
    NotFoundError,
    ParseError,
    PolicyError,
    PreconditionFailedError,
    ReadSetChangedError,
    RecoveryRequiredError,
    SourceSpan,
    TypeCheckError,
    UnavailableError,
    VersionReclaimedError,
)
from omnigraph.wire import error_output

CLASSES: dict[str, type[GraphError]] = {
    name: found for name, found in vars(errors).items() if isinstance(found, type) and issubclass(found, GraphError)
}
"""Every class that a body may name."""

_FIELDS: tuple[tuple[type[GraphError], str, tuple[str, ...]], ...] = (
    (ExpectedVersionMismatchError, "manifest_conflict", ("table_key", "expected", "actual")),
    (ReadSetChangedError, "read_set_conflict", ("member", "expected", "actual")),
    (PreconditionFailedError, "precondition_failure", ("expected", "actual")),
    (LimitError, "resource_limit", ("resource", "limit", "actual")),
    (RecoveryRequiredError, "recovery_required", ("operation_id",)),
    (VersionReclaimedError, "historical_version_reclaimed", ("table_key", "version")),
    (ChangeFeedGapError, "change_feed_gap", ("first_unreadable_commit_id", "cursor")),
    (ChangesUnavailableError, "change_diff_refusal", ("reason", "graph_commit_id")),
    (ExternalBlobError, "external_blob_source", ("uri", "reason")),
)
"""Classes with facts of their own: the field of the body that has them, and the attributes it fills."""

_BY_STATUS: dict[int, type[GraphError]] = {
    400: InputError,
    401: PolicyError,
    403: PolicyError,
    404: NotFoundError,
    409: ConflictError,
    410: NotFoundError,
    429: UnavailableError,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
}


def served_error(error: GraphError) -> dict[str, Any]:
    """The body of an error for a client that raises it again."""
    body = {**error_output(error), "error_type": type(error).__name__, "error_code": error.code}
    if isinstance(error, ConstraintError):
        body["violations"] = list(error.violations)
    if isinstance(error, ParseError | TypeCheckError) and error.span is not None and "diagnostic" not in body:
        span = error.span
        position = {"line": span.line, "column": span.column, "offset": span.start, "length": span.end - span.start}
        body["diagnostic"] = {"code": error.code, "message": error.message, "position": position, "expected": []}
    return body


def engine_words(error: GraphError) -> dict[str, Any]:
    """What a body says of an error of the engine beside a sentence that is promised to those who speak HTTP."""
    return {"error_type": type(error).__name__, "error_code": error.code, "error_message": error.message}


def error_from(status: int, body: Mapping[str, Any]) -> GraphError:
    """The exception that a failed answer stands for."""
    told = body.get("error_message") or body.get("error")
    message = str(told or f"the server answered with status {status} and no reason")
    kind = CLASSES.get(str(body.get("error_type"))) or _told_by_fields(body) or _by_status(status)
    code = body.get("error_code")
    error = kind.__new__(kind)
    GraphError.__init__(error, message, code=code if isinstance(code, str) else _code(status, kind))
    _fill(error, body)
    return error


def _told_by_fields(body: Mapping[str, Any]) -> type[GraphError] | None:
    if body.get("merge_base") is not None:
        return MergeBaseError
    found = next((kind for kind, name, _ in _FIELDS if isinstance(body.get(name), Mapping)), None)
    if found is None and isinstance(body.get("merge_conflicts"), list):
        return MergeConflictError
    if found is None and isinstance(body.get("key_conflict"), Mapping):
        return KeyConflictError
    return found


def _by_status(status: int) -> type[GraphError]:
    return _BY_STATUS.get(status, InputError if 400 <= status < 500 else InternalError)


def _code(status: int, kind: type[GraphError]) -> str:
    return "unauthorized" if status == 401 else kind.default_code


def _fill(error: GraphError, body: Mapping[str, Any]) -> None:
    """Give the exception its facts; one that the body does not tell is None."""
    for kind, name, attributes in _FIELDS:
        if isinstance(error, kind):
            facts = body.get(name)
            for attribute in attributes:
                setattr(error, attribute, facts.get(attribute) if isinstance(facts, Mapping) else None)
    if isinstance(error, MergeConflictError):
        error.conflicts = tuple(body.get("merge_conflicts") or ())
        error.total = body.get("conflicts_total", len(error.conflicts))
        error.by_kind = dict(body.get("conflicts_by_kind") or {})
    elif isinstance(error, ChangeCursorError):
        error.reason = error.message.removeprefix("change cursor rejected: ")
    elif isinstance(error, MergeBaseError):
        error.commit_id = str(body.get("merge_base"))
    elif isinstance(error, KeyConflictError):
        facts = body.get("key_conflict") or {}
        error.table_key = f"{facts.get('entity_kind')}:{facts.get('type_name')}"
        error.entity_id = str(facts.get("entity_id"))
    elif isinstance(error, ConstraintError):
        error.violations = tuple(body.get("violations") or (error.message,))
    elif isinstance(error, ParseError | TypeCheckError):
        error.span = _span(body.get("diagnostic"))
    elif isinstance(error, errors.StorageError):
        error.kind = "unknown"
    elif isinstance(error, errors.OutcomeUnknownError):
        error.key = None


def _span(diagnostic: Any) -> SourceSpan | None:
    position = diagnostic.get("position") if isinstance(diagnostic, Mapping) else None
    if not isinstance(position, Mapping):
        return None
    start = int(position["offset"])
    return SourceSpan(start, start + int(position["length"]), int(position["line"]), int(position["column"]))
