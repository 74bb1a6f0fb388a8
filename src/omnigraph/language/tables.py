"""Parsing tables made in advance, because computing them costs a fresh process more than its first query.

The tables of a grammar lie beside it in the package, stamped with the grammar's own text and the parser generator's
version. A stamp that does not fit means that they are of another grammar: then they are computed from the text, so
that tables can be missing or old and never wrong.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import zlib
from typing import Any

import lark
from lark import Lark, Transformer

SUFFIX = ".tables"
_OPTIONS: dict[str, Any] = {"parser": "lalr", "lexer": "contextual", "propagate_positions": False}
_STAMP_BYTES = 32


def parser_of(grammar: str, frozen: bytes | None, builder: Transformer[Any, Any]) -> Lark:
    """The parser of a grammar: from its frozen tables where they are of this very grammar, else computed."""
    if frozen is not None and frozen[:_STAMP_BYTES] == _stamp(grammar):
        # What the generator's own stand-alone parsers call; the stamp names the version this was tried with.
        tables = pickle.loads(zlib.decompress(frozen[_STAMP_BYTES:]))
        found: Lark = Lark._load_from_dict(  # type: ignore[no-untyped-call]
            tables["data"], tables["memo"], transformer=builder
        )
        return found
    return Lark(grammar, transformer=builder, **_OPTIONS)


def freeze(grammar: str) -> bytes:
    """The tables of a grammar as bytes for `parser_of`."""
    tables = io.BytesIO()
    Lark(grammar, **_OPTIONS).save(tables)
    return _stamp(grammar) + zlib.compress(tables.getvalue(), 9)


def _stamp(grammar: str) -> bytes:
    made_by = f"{lark.__version__} {pickle.HIGHEST_PROTOCOL} {sorted(_OPTIONS.items())}"
    return hashlib.sha256(f"{made_by}\n{grammar}".encode()).digest()
