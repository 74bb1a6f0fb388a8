"""What a failed command tells the shell.

One table turns classes of errors into exit codes; messages are never read. 0 is success and 2 a command line that the
parser refused.
"""

from __future__ import annotations

from omnigraph.errors import (
    AlreadyExistsError,
    ConflictError,
    GraphError,
    OutcomeUnknownError,
    PolicyError,
    PreconditionFailedError,
)

SUCCESS = 0
FAILURE = 1
USAGE = 2
CONFLICT = 3
PRECONDITION = 4
DENIED = 5
UNKNOWN = 75
"""The connection broke while a server may have been writing."""
INTERRUPTED = 130

_BY_CLASS: tuple[tuple[type[GraphError], int], ...] = (
    (PreconditionFailedError, PRECONDITION),
    (ConflictError, CONFLICT),
    (AlreadyExistsError, CONFLICT),
    (PolicyError, DENIED),
    (OutcomeUnknownError, UNKNOWN),
)


def exit_code(error: GraphError) -> int:
    """The exit code of an error; the most specific class that is listed decides.

    >>> exit_code(PreconditionFailedError(expected="a", actual="b")), exit_code(GraphError("…"))
    (4, 1)
    """
    return next((code for kind, code in _BY_CLASS if isinstance(error, kind)), FAILURE)
