"""Query text cut into tokens.

No word is reserved: a token is a word, and the parser knows by its place whether it is a keyword, a name or an
operator. `$v.name` is one token, so no space is allowed around its dot.
"""

from __future__ import annotations

import re
from enum import IntEnum

from omnigraph.language.source import Span


class Kind(IntEnum):
    """What a token is."""

    END = 0
    NAME = 1
    TYPE_NAME = 2
    VARIABLE = 3
    PROPERTY = 4
    EVERY = 5
    STRING = 6
    INTEGER = 7
    FLOAT = 8
    NOTE = 9
    SYMBOL = 10
    NOTHING = 11
    """A character that begins no token; nothing after it is read."""


_TOKEN = re.compile(
    r"""[ \t\r\n]+|//[^\n]*|/\*[\s\S]*?\*/
    |(?P<NAME>[a-z_][A-Za-z0-9_]*)
    |(?P<TYPE_NAME>[A-Z][A-Za-z0-9_]*)
    |(?P<PROPERTY>\$[a-z_][A-Za-z0-9_]*\.[a-z_][A-Za-z0-9_]*)
    |(?P<EVERY>\$[a-z_][A-Za-z0-9_]*\.\*)
    |(?P<VARIABLE>\$[a-z_][A-Za-z0-9_]*)
    |(?P<STRING>"(?:[^"\\]|\\[\s\S])*")
    |(?P<FLOAT>[0-9]+\.[0-9]+)
    |(?P<INTEGER>[0-9]+)
    |(?P<NOTE>@[a-z_][A-Za-z0-9_]*)
    |(?P<SYMBOL>/(?!\*)|>=|<=|!=|[-=<>{}()\[\]:,?+*%])
    |(?P<NOTHING>[\s\S])""",
    re.VERBOSE,
)
_KINDS = {kind.name: kind for kind in Kind}


class Token(str):
    """The text of a token, what it is and where it begins."""

    __slots__ = ("kind", "start_pos")
    kind: Kind
    start_pos: int

    @property
    def span(self) -> Span:
        """Where it stands."""
        return Span(self.start_pos, self.start_pos + len(self))


def tokens_of(text: str) -> list[Token]:
    """Every token of a text and one END; a character that fits nowhere ends it."""
    found: list[Token] = []
    for match in _TOKEN.finditer(text):
        group = match.lastgroup
        if group is None:
            continue
        token = Token(match[0])
        token.kind = _KINDS[group]
        token.start_pos = match.start()
        found.append(token)
        if token.kind is Kind.NOTHING:
            break
    end = Token("")
    end.kind = Kind.END
    end.start_pos = len(text)
    found.append(end)
    return found
