"""When what was typed is a whole statement, and what it is.

A statement ends with a `;` at the end of a line or with an empty line; one that begins with `query` ends with the last
of its braces. A body alone, `match { … } return { … }` or `insert …`, is a query without a name.
"""

from __future__ import annotations

from msgspec import Struct

from omnigraph.language import parse_query_file, query_ast
from omnigraph.language.query_tokens import Kind, tokens_of

NAME = "shell"
"""What the query around a bare body is called."""
PLAIN_WORDS = {"help": ".help", "quit": ".quit", "exit": ".quit"}
"""Commands that are understood without their dot, because whoever needs them may not know of it."""
_OPEN, _CLOSE = frozenset("{(["), frozenset("})]")


class Statement(Struct, frozen=True):
    """One statement: its text as a query file, and whether it writes."""

    text: str
    writes: bool


def is_whole(text: str) -> bool:
    """Whether nothing more is waited for.

    >>> is_whole("match { $p: Person }"), is_whole("match { $p: Person } return { $p };")
    (False, True)
    """
    stripped = text.strip()
    if not stripped or stripped.startswith(".") or stripped in PLAIN_WORDS:
        return True
    if stripped.endswith(";"):
        return _open_brackets(stripped[:-1]) <= 0
    if text.endswith("\n"):
        return True
    words = tokens_of(stripped)
    return words[0] == "query" and "{" in words and _open_brackets(stripped) <= 0


def read_statement(text: str) -> Statement:
    """The statement that a whole text is.

    Raises:
        ParseError: it is no query.
    """
    body = text.strip().removesuffix(";").rstrip()
    source = body if body.startswith("query") else f"query {NAME}() {{ {body} }}"
    (first, *_) = parse_query_file(source).queries
    return Statement(source, isinstance(first.body, query_ast.WriteBody))


def _open_brackets(text: str) -> int:
    found = tokens_of(text)
    # A text that is not closed is a character that begins no token, so it is waited for.
    waits = found[-2].kind is Kind.NOTHING and found[-2] == '"' if len(found) > 1 else False
    depth = sum((token in _OPEN) - (token in _CLOSE) for token in found if token.kind is Kind.SYMBOL)
    return depth + waits
