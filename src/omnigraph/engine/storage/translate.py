"""Foreign exceptions become ours here, and only here.

`classify_lance_error` is the one function that may look at the text of a Lance or object-store message; its cases are
pinned by tests, so an upgrade that changes a text fails loudly instead of changing behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from lance.commit import CommitConflictError

from omnigraph.errors import ConflictError, GraphError, NotFoundError, StorageError

# What the wording of a message means. Each text was observed on the pinned release; see the tests of this module.
_CONTENTION = (
    "Too many concurrent writers",
    "Retryable commit conflict",
    "Incompatible transaction",
    "Commit conflict",
    "concurrent commit",
)
_EXISTS = ("Dataset already exists", "already exists")
_MISSING = ("was not found", "Not found", "does not exist", "No such file", "Ref not found")
_FULL = ("No space left", "StorageFull", "os error 28", "Disk quota", "File too large", "os error 27")
_DENIED = ("Permission denied", "PermissionDenied", "os error 13", "Read-only file system", "os error 30", "Forbidden")
_TRANSIENT = (
    "timed out",
    "Connection",
    "connection",
    "error sending request",
    "503 Service",
    "SlowDown",
    "InternalError",
)
FOREIGN = (OSError, ValueError, RuntimeError, TypeError, NotImplementedError, pa.ArrowException)
"""What Lance, Arrow and the operating system raise when something is wrong outside this program."""
_CONFIGURATION = ("Configuration key", "Missing region", "credential", "Credential", "Unable to find", "Unknown scheme")


def _kind_of(text: str) -> str:
    if any(part in text for part in _FULL + _DENIED):
        return "permanent"
    if any(part in text for part in _MISSING):
        return "not_found"
    if any(part in text for part in _EXISTS):
        return "precondition"
    if any(part in text for part in _CONFIGURATION):
        return "configuration"
    if any(part in text for part in _TRANSIENT):
        return "transient"
    return "unknown"


def _brief(exc: BaseException) -> str:
    """The first line of a foreign message, without the source location and debug dump that Rust appends."""
    text = str(exc).strip().splitlines()[0] if str(exc).strip() else type(exc).__name__
    text = text.removeprefix("Generic LocalFileSystem error: ")
    return text.split(", /")[0].split(", rust/")[0][:300]


def classify_lance_error(exc: BaseException, what: str) -> GraphError:
    """The error of ours that stands for a foreign one raised while doing `what`."""
    if isinstance(exc, GraphError):
        return exc
    if isinstance(exc, CommitConflictError):
        return ConflictError(f"{what}: another writer changed the table first — read again and retry")
    text = str(exc)
    if any(part in text for part in _CONTENTION):
        return ConflictError(f"{what}: another writer changed the table first — read again and retry")
    kind = "not_found" if isinstance(exc, FileNotFoundError) else _kind_of(text)
    if isinstance(exc, PermissionError):
        kind = "permanent"
    return StorageError(f"{what}: {_brief(exc)}", kind=kind)


def is_missing(exc: BaseException) -> bool:
    """True when the error says that the thing does not exist."""
    if isinstance(exc, FileNotFoundError | NotFoundError):
        return True
    if isinstance(exc, StorageError):
        return exc.kind == "not_found"
    return _kind_of(str(exc)) == "not_found"


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Run foreign calls; whatever they raise leaves as a `GraphError` with the original as its cause."""
    try:
        yield
    except GraphError:
        raise
    except FOREIGN as exc:
        raise classify_lance_error(exc, what) from exc
