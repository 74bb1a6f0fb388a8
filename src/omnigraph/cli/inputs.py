"""Text that a command reads: programs, schemas, parameters, from a file, the line itself or standard input.

`-` as a path means standard input everywhere. A failure to read is a sentence about the file, never a traceback.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from omnigraph.errors import InputError

STDIN = "-"
_BODY = re.compile(r"\s*(?:match|insert|update|delete)\b")


def read_text(path: str, *, what: str) -> str:
    """The whole text of a file, or of standard input; `what` names its role in messages.

    Raises:
        InputError: the file is missing, unreadable or not UTF-8.
    """
    try:
        if path == STDIN:
            return sys.stdin.buffer.read().decode("utf-8")
        return Path(path).read_bytes().decode("utf-8")
    except FileNotFoundError as exc:
        raise InputError(f"cannot read the {what} '{path}': no such file") from exc
    except UnicodeDecodeError as exc:
        name = "standard input" if path == STDIN else f"'{path}'"
        raise InputError(f"cannot read the {what} {name}: byte {exc.start} is not UTF-8") from exc
    except OSError as exc:
        raise InputError(f"cannot read the {what} '{path}': {(exc.strerror or str(exc)).lower()}") from exc


def query_text(path: str | None, inline: str | None) -> str:
    """The program of `query` and `mutate`: from `--query` or from `-e`, and from exactly one of them.

    The text of `-e` may be the body of a query alone.

    >>> query_text(None, "match { $p: Person } return { $p.name }")
    'query inline() { match { $p: Person } return { $p.name }\\n}'

    Raises:
        InputError: neither or both are given, or the inline text is blank.
    """
    if path is not None and inline is not None:
        raise InputError("--query and -e are mutually exclusive: pass one of them")
    if inline is not None:
        if not inline.strip():
            raise InputError("the text of -e is empty")
        # The brace is on a line of its own, because the body may end with a comment.
        return f"query inline() {{ {inline}\n}}" if _BODY.match(inline) else inline
    if path is None:
        raise InputError("no query given: pass --query <file> or -e <text>; stored queries belong to a server")
    return read_text(path, what="query file")


def name_and_uri(name: str | None, uri: str | None) -> tuple[str | None, str | None]:
    """The two words that may follow `query`, `mutate` and `explain`, whichever of them are given, in any order.

    A name has no dot, slash or colon, and the address of a graph has one of them: `./graph` is an address.

    >>> name_and_uri("graph.omni", None), name_and_uri("adults", "graph.omni")
    ((None, 'graph.omni'), ('adults', 'graph.omni'))

    Raises:
        InputError: both are addresses, or both are names.
    """
    given = [word for word in (name, uri) if word is not None]
    addresses = [word for word in given if any(mark in word for mark in "./\\:")]
    names = [word for word in given if word not in addresses]
    if len(addresses) > 1:
        raise InputError(f"'{addresses[0]}' and '{addresses[1]}' both look like the address of a graph: pass one")
    if len(names) > 1:
        raise InputError(
            f"'{names[0]}' and '{names[1]}' both look like names of queries: write a graph as ./{names[1]}"
        )
    return (names[0] if names else None), (addresses[0] if addresses else None)


def parameters(text: str | None, path: str | None) -> dict[str, Any]:
    """The parameters of a program, as a JSON object on the line or in a file.

    Raises:
        InputError: both are given, or the text is not one JSON object.
    """
    if text is not None and path is not None:
        raise InputError("--params and --params-file are mutually exclusive: pass one of them")
    if path is not None:
        text = read_text(path, what="parameter file")
    if text is None:
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_members)
    except json.JSONDecodeError as exc:
        raise InputError(f"params must be a JSON object: {exc.msg} at line {exc.lineno}, column {exc.colno}") from exc
    except RecursionError as exc:
        raise InputError("params must be a JSON object: it is nested too deeply") from exc
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError("params must be a JSON object")
    return value


def query_files(paths: Iterable[str]) -> Iterator[str]:
    """Each path itself, and for a folder every `.gq` file below it, in order.

    Raises:
        InputError: a path does not exist, or a folder holds no query file.
    """
    for path in paths:
        if path == STDIN or not os.path.isdir(path):
            yield path
            continue
        found = sorted(str(file) for file in Path(path).rglob("*.gq"))
        if not found:
            raise InputError(f"the folder '{path}' holds no .gq file")
        yield from found


def _refuse_constant(name: str) -> Any:
    raise InputError(f"params must be a JSON object: {name} is not JSON")


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InputError(f"params must be a JSON object: '{twice}' occurs twice")
    return members
