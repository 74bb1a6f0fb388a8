"""Every exception of Omnigraph.

Classes follow what the caller does next, so a handler rarely needs more than one `except`. Each instance carries a
stable `code` and its facts as attributes; messages say what happened, to what, and what to do, and no code parses
them. Surfaces translate these classes through tables (`HTTP status`, `exit code`) and never guess from text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


class GraphError(Exception):
    """The root of every error this library raises on purpose.

    `code` names the failure for programs; `facts()` returns what the structured surfaces show beside the message.
    """

    default_code: ClassVar[str] = "internal"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        # A message may quote what it refuses, and whoever prints or sends it must be able to encode it.
        message = message if message.isascii() else message.encode("utf-8", "backslashreplace").decode()
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code

    def __reduce__(self) -> tuple[Any, ...]:
        # Python would call the class with the message alone, which fails where it asks for more than that, and a pool
        # of processes whose worker raises such an error waits for ever.
        return _unpickled, (type(self), self.args, self.__dict__)

    def facts(self) -> dict[str, Any]:
        """The structured fields of the error body, empty when the message says it all."""
        return {}


def _unpickled(kind: type[GraphError], args: tuple[Any, ...], facts: Mapping[str, Any]) -> GraphError:
    """An error that another process raised, with all it says."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


# --- fix the request -------------------------------------------------------------------------------------------------


class InputError(GraphError, ValueError):
    """The request itself is wrong; repeating it unchanged fails again."""

    default_code = "bad_request"


@dataclass(frozen=True)
class SourceSpan:
    """Bytes `start` to `end` (exclusive, always at least one) of a source, with the line and column people count."""

    start: int
    end: int
    line: int
    column: int


class ParseError(InputError):
    """Text does not fit its grammar or a rule local to one declaration."""

    default_code = "parse"

    def __init__(self, message: str, *, span: SourceSpan | None = None, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.span = span


class SchemaError(InputError):
    """A schema contradicts itself across types, or a desired schema cannot follow the accepted one."""

    default_code = "catalog"


class TypeCheckError(InputError):
    """A query does not fit its schema; `code` is `T1`…`T24`, `D2`, or `type` where the rule has no code."""

    default_code = "type"

    def __init__(self, message: str, *, span: SourceSpan | None = None, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.span = span


class ParameterError(InputError):
    """A parameter is missing, of the wrong kind or out of range."""

    default_code = "param"


class ExecutionError(InputError):
    """A valid program cannot be run this way, e.g. a read through the mutation entry point."""

    default_code = "exec"


class ForkedProcessError(ExecutionError):
    """The process was forked after its parent had used a graph; start it with spawn or forkserver instead."""

    default_code = "forked"


class ConstraintError(InputError):
    """A write would break a rule of the schema; nothing was written."""

    default_code = "constraint"

    def __init__(self, message: str, *, violations: Sequence[str] = (), code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.violations = tuple(violations) or (message,)


class ExternalBlobError(ConstraintError):
    """A blob was given by an allowed place outside the graph whose bytes cannot be read; `reason` is a storage kind."""

    default_code = "external_blob_source"

    def __init__(self, message: str, *, uri: str, reason: str) -> None:
        super().__init__(message)
        self.uri, self.reason = uri, reason

    def facts(self) -> dict[str, Any]:
        """The place, without credentials, and the reason."""
        return {"external_blob_source": {"uri": self.uri, "reason": self.reason}}


class ChangesUnavailableError(InputError):
    """What a commit changed cannot be told entity by entity; `reason` is `parentless_commit` or `schema_boundary`."""

    default_code = "change_diff_refusal"

    def __init__(self, message: str, *, reason: str, graph_commit_id: str) -> None:
        super().__init__(message)
        self.reason, self.graph_commit_id = reason, graph_commit_id

    def facts(self) -> dict[str, Any]:
        """The reason and the commit."""
        return {"change_diff_refusal": {"reason": self.reason, "graph_commit_id": self.graph_commit_id}}


class ChangeCursorError(InputError):
    """A cursor or page token of the feed is none, or belongs to another graph, branch or filter."""

    default_code = "change_cursor_rejected"

    def __init__(self, reason: str) -> None:
        super().__init__(f"change cursor rejected: {reason}")
        self.reason = reason


# --- it is not there, or it is there already -------------------------------------------------------------------------


class NotFoundError(GraphError, LookupError):
    """What the request names does not exist."""

    default_code = "not_found"


class GraphNotFoundError(NotFoundError):
    """No graph at this root."""


class BranchNotFoundError(NotFoundError):
    """No branch of this name."""


class CommitNotFoundError(NotFoundError):
    """No commit, snapshot or version of this name."""


class QueryNotFoundError(NotFoundError):
    """The source declares no query of this name, or several and none was named."""


class VersionReclaimedError(NotFoundError):
    """The version existed and was removed by cleanup."""

    default_code = "version_reclaimed"

    def __init__(self, message: str, *, table_key: str, version: int) -> None:
        super().__init__(message)
        self.table_key, self.version = table_key, version

    def facts(self) -> dict[str, Any]:
        return {"historical_version_reclaimed": {"table_key": self.table_key, "version": self.version}}


class ChangeFeedGapError(NotFoundError):
    """Cleanup has removed what the feed would have to read next; take a baseline and go on from there."""

    default_code = "change_feed_gap"

    def __init__(self, message: str, *, first_unreadable_commit_id: str, cursor: str | None = None) -> None:
        super().__init__(message)
        self.first_unreadable_commit_id, self.cursor = first_unreadable_commit_id, cursor

    def facts(self) -> dict[str, Any]:
        gap = {"first_unreadable_commit_id": self.first_unreadable_commit_id}
        return {"change_feed_gap": gap if self.cursor is None else {**gap, "cursor": self.cursor}}


class MergeBaseError(VersionReclaimedError):
    """The state in which two branches parted can no longer be read, so that nobody can say who changed what."""

    def __init__(self, message: str, *, commit_id: str, table_key: str, version: int) -> None:
        super().__init__(message, table_key=table_key, version=version)
        self.commit_id = commit_id

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "merge_base": self.commit_id}


class AlreadyExistsError(GraphError):
    """The name or root is taken."""

    default_code = "already_exists"


# --- read again and retry --------------------------------------------------------------------------------------------


class ConflictError(GraphError):
    """Another write or the state of the graph is in the way; nothing changed, so reading again and retrying is safe."""

    default_code = "conflict"


class ExpectedVersionMismatchError(ConflictError):
    """A table moved between the caller's snapshot and the publish."""

    def __init__(self, *, table_key: str, expected: int, actual: int) -> None:
        super().__init__(
            f"stale view of '{table_key}': expected manifest table version {expected} but current is {actual}"
            " — refresh and retry"
        )
        self.table_key, self.expected, self.actual = table_key, expected, actual

    def facts(self) -> dict[str, Any]:
        return {
            "manifest_conflict": {"table_key": self.table_key, "expected": self.expected, "actual": self.actual},
        }


class LateCommitError(ConflictError):
    """A commit landed behind those of others, because cleanup had removed what it rested on while its process stood
    still; nothing shows it, and it is undone."""


class PublishContentionError(ConflictError):
    """The publish lost every race of its retry budget (the `RowLevelCasContention` of the format)."""


class ReadSetChangedError(ConflictError):
    """Something the write was validated against, or the branch head it demanded, changed meanwhile."""

    def __init__(self, *, member: str, expected: Any, actual: Any) -> None:
        super().__init__(
            f"'{member}' changed while the write was prepared (expected {expected}, found {actual})"
            " — read again and retry"
        )
        self.member, self.expected, self.actual = member, expected, actual

    def facts(self) -> dict[str, Any]:
        return {"read_set_conflict": {"member": self.member, "expected": self.expected, "actual": self.actual}}


class PreconditionFailedError(ConflictError):
    """The branch head is not the commit the caller made a condition of the write."""

    default_code = "precondition_failed"

    def __init__(self, *, expected: str, actual: str | None) -> None:
        super().__init__(f"the branch head is {actual}, not {expected} — read again and decide anew")
        self.expected, self.actual = expected, actual

    def facts(self) -> dict[str, Any]:
        return {"precondition_failure": {"expected": self.expected, "actual": self.actual}}


class KeyConflictError(ConflictError):
    """A strict insert met an entity that already has this id."""

    def __init__(self, *, table_key: str, entity_id: str, detail: str = "") -> None:
        kind, _, type_name = table_key.partition(":")
        super().__init__(
            f"key conflict: {kind} '{type_name}' already has id '{entity_id}'"
            f"{' (' + detail + ')' if detail else ''} — use merge to replace it, or choose another key"
        )
        self.table_key, self.entity_id = table_key, entity_id

    def facts(self) -> dict[str, Any]:
        kind, _, type_name = self.table_key.partition(":")
        return {"key_conflict": {"entity_kind": kind, "type_name": type_name, "entity_id": self.entity_id}}


class DriftError(ConflictError):
    """A table's head is ahead of what the manifest publishes, and this write must not build on it."""


class CancelledWriteError(ConflictError):
    """The caller cancelled the write before it took effect."""

    default_code = "cancelled"


class MergeConflictError(ConflictError):
    """Two branches changed the same thing differently; `conflicts` lists the first, `total` counts all of them."""

    def __init__(
        self,
        message: str,
        *,
        conflicts: Sequence[Mapping[str, Any]],
        total: int | None = None,
        by_kind: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.conflicts = tuple(conflicts)
        self.total = len(self.conflicts) if total is None else total
        self.by_kind = dict(by_kind or {})

    def facts(self) -> dict[str, Any]:
        return {
            "merge_conflicts": [dict(conflict) for conflict in self.conflicts],
            "conflicts_total": self.total,
            "conflicts_by_kind": self.by_kind,
        }


# --- everything else -------------------------------------------------------------------------------------------------


class PolicyError(GraphError):
    """Denied, or no actor where one is needed."""

    default_code = "forbidden"


class LimitError(GraphError):
    """A stated bound was reached."""

    default_code = "resource_limit"

    def __init__(self, message: str, *, resource: str, limit: int, actual: int) -> None:
        super().__init__(message)
        self.resource, self.limit, self.actual = resource, limit, actual

    def facts(self) -> dict[str, Any]:
        return {"resource_limit": {"resource": self.resource, "limit": self.limit, "actual": self.actual}}


class RecoveryRequiredError(GraphError):
    """A write is unfinished, this one or an earlier; never retry it blindly, the next write or open resolves it."""

    default_code = "recovery_required"

    def __init__(self, message: str, *, operation_id: str) -> None:
        super().__init__(message)
        self.operation_id = operation_id

    def facts(self) -> dict[str, Any]:
        return {"recovery_required": {"operation_id": self.operation_id, "reason": self.message}}


class UnavailableError(GraphError):
    """A server cannot be reached or has no room at this moment; nothing happened, so trying again later is safe."""

    default_code = "unavailable"


class OutcomeUnknownError(GraphError):
    """The connection broke while a server may have been writing: look whether it did before you repeat it.

    `key` is the idempotency key of the request; repeating it under the same key applies it once.
    """

    default_code = "outcome_unknown"

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key

    def facts(self) -> dict[str, Any]:
        return {"command_outcome": {"state": "unknown", "idempotency_key": self.key}}


class StorageError(GraphError):
    """The store failed; `kind` is transient, configuration, not_found, precondition, permanent or unknown."""

    default_code = "storage"

    def __init__(self, message: str, *, kind: str = "unknown") -> None:
        super().__init__(message)
        self.kind = kind


class FormatError(GraphError):
    """What is on disk is corrupt, or written by a newer release."""

    default_code = "format"


class InternalError(GraphError):
    """A state our own rules forbid: a bug of ours."""

    default_code = "internal"
