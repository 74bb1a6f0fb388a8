"""Foreign exceptions become ours here, and only here.

`classify_lance_error` is the one function that may look at the text of a Lance or object-store message; its cases are
pinned by tests, so an upgrade that changes a text fails loudly instead of changing behaviour.
"""

from __future__ import annotations

import re
from types import TracebackType

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
    "response body error",
    "503 Service",
    "SlowDown",
    "InternalError",
)
_OVERFLOW = "Offset overflow"
FOREIGN = (OSError, ValueError, RuntimeError, TypeError, LookupError, ArithmeticError, MemoryError, pa.ArrowException)
"""What Lance, Arrow and the operating system raise when something is wrong outside this program."""
_INTERRUPT = re.compile(
    r"(?:External error: |Python exception: Traceback \(most recent call last\):\n(?:  .*\n)+)"
    r"(KeyboardInterrupt|SystemExit)(?::[ ]?([^\n]*))?\s*(?:, /\S+)?\Z"
)
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


def raise_interrupt(exc: BaseException) -> None:
    """Let an interrupt that arrived inside a foreign call go on as what it is.

    Lance and Arrow look for signals while they work, and hand over what the handler raised: as itself from most calls,
    as the text of an error from a stream of batches, with a Python traceback when it came up in ours.

    Raises:
        KeyboardInterrupt, SystemExit: it was one.
    """
    if isinstance(exc, FOREIGN) and (found := _INTERRUPT.search(str(exc))) is not None:
        kind, value = found[1], found[2] or ""
        if kind == "SystemExit":
            raise SystemExit(int(value) if value.isdigit() else value or None) from exc
        raise KeyboardInterrupt(*filter(None, [value])) from exc


def classify_lance_error(exc: BaseException, what: str) -> GraphError:
    """The error of ours that stands for a foreign one raised while doing `what`.

    Raises:
        KeyboardInterrupt, SystemExit: the error is an interrupt in disguise.
    """
    raise_interrupt(exc)
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


def is_panic(exc: BaseException) -> bool:
    """True for a failed assertion inside a Rust library, as damaged files cause; it is no `Exception` in Python."""
    return type(exc).__name__ == "PanicException" and type(exc).__module__ == "pyo3_runtime"


def is_unsupported(exc: BaseException) -> bool:
    """True when a store says that it has no such thing as was asked for, by the status and the code S3 has for it."""
    if isinstance(exc, NotImplementedError):
        return True
    return any(part in str(exc) for part in ("501 Not Implemented", "<Code>NotImplemented<", "NotSupported"))


def is_missing(exc: BaseException) -> bool:
    """True when the error says that the thing does not exist."""
    if isinstance(exc, FileNotFoundError | NotFoundError):
        return True
    if isinstance(exc, StorageError):
        return exc.kind == "not_found"
    return _kind_of(str(exc)) == "not_found"


def is_overflow(exc: BaseException) -> bool:
    """True when Lance was asked for more text at once than one of its arrays can hold."""
    return _OVERFLOW in str(exc)


class _Translated:
    """A class instead of a generator, because every small write passes a dozen of these."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if exc is None or isinstance(exc, GraphError):
            return
        if isinstance(exc, FOREIGN) or is_panic(exc):
            raise classify_lance_error(exc, self._what) from exc


def translated(what: str) -> _Translated:
    """Run foreign calls; whatever they raise leaves as a `GraphError` with the original as its cause."""
    return _Translated(what)
