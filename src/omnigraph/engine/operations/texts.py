"""Schemas and queries as callers give them: as text, or as the file that holds it."""

from __future__ import annotations

import os
from pathlib import Path

from omnigraph.errors import InputError


def read_schema(schema: str | os.PathLike[str]) -> str:
    """The text of a schema given as text or as the path of a file.

    A `Path` is always a file. A string is a file when it ends in `.pg` on one line, else it is the schema itself.
    """
    return _text_of(schema, ".pg", "schema")


def read_query(source: str | os.PathLike[str]) -> str:
    """The text of a query given as text or as the path of a `.gq` file, by the rule of `read_schema`."""
    return _text_of(source, ".gq", "query")


def _text_of(source: str | os.PathLike[str], suffix: str, what: str) -> str:
    if isinstance(source, str) and ("\n" in source or not source.strip().endswith(suffix)):
        return source
    path = Path(source)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as exc:
        raise InputError(f"'{path}' is not UTF-8 text: {exc}") from exc
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise InputError(f"the {what} file {str(path)!a} cannot be read: {reason}") from exc
