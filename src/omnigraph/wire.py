"""The JSON shapes that the command line prints and that both ends of HTTP share.

Functions from results to plain dictionaries, in the field order the surfaces promise. They decide nothing.
"""

from __future__ import annotations

from typing import Any

from omnigraph.errors import (
    AlreadyExistsError,
    ConflictError,
    GraphError,
    InputError,
    LimitError,
    NotFoundError,
    PolicyError,
    PreconditionFailedError,
    RecoveryRequiredError,
    VersionReclaimedError,
)

_CODES: tuple[tuple[type[GraphError], str | None], ...] = (
    (PreconditionFailedError, None),
    (VersionReclaimedError, None),
    (RecoveryRequiredError, None),
    (LimitError, None),
    (InputError, "bad_request"),
    (NotFoundError, "not_found"),
    (AlreadyExistsError, "conflict"),
    (ConflictError, "conflict"),
    (PolicyError, "forbidden"),
)
"""The closed set of wire codes; what came later than the set is recognised by its own field, and has no code."""


def error_output(error: GraphError) -> dict[str, Any]:
    """The `ErrorOutput` of an error: its sentence, its wire code and its structured facts."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), "internal")
    return {"error": error.message, **({"code": code} if code else {}), **error.facts()}
