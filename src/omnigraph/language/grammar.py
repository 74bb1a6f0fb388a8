"""Build a parser from a grammar file and run it, turning every failure into a `ParseError`.

The parser is LALR(1) with a contextual lexer and builds the syntax tree while it reads, without recursion: neither
long nor deeply nested text can exhaust the stack.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

from lark import Lark, Transformer
from lark.exceptions import UnexpectedInput

from omnigraph.language.expectation import parse_error
from omnigraph.language.source import LocalError, Source, Span

NESTING_MAX = 64
"""How deep brackets may nest: far above any real program, far below what a recursive reader of trees can bear."""

# A string or comment without an end reaches to the end of the text, so that the search stays linear.
_BRACKET = re.compile(r'"(?:[^"\\]|\\[\s\S])*"?|//[^\n]*|/\*(?:[\s\S]*?\*/|[\s\S]*)|[\[({]|[\])}]')


class Grammar:
    """A grammar, ready to parse with the builder that makes its trees."""

    def __init__(self, file_name: str, builder: Transformer[Any, Any]) -> None:
        text = resources.files("omnigraph.language").joinpath(file_name).read_text(encoding="utf-8")
        self._lark = Lark(text, parser="lalr", lexer="contextual", propagate_positions=False, transformer=builder)
        self._symbols = {
            terminal.name: f"'{terminal.pattern.value}'"
            for terminal in self._lark.terminals
            if terminal.name.startswith("__ANON") and terminal.pattern.type == "str"
        }

    def parse(self, source: Source) -> Any:
        """The tree the builder made of the source.

        Raises:
            ParseError: the text does not fit the grammar, or breaks a rule local to one declaration.
        """
        check_text(source)
        try:
            return self._lark.parse(source.text)
        except UnexpectedInput as failure:
            raise parse_error(failure, source, self._symbols) from None
        except LocalError as failure:
            raise source.parse_error(failure.message, failure.span) from None


def check_text(source: Source) -> None:
    """Refuse text that no parser should see: half characters, and brackets nested beyond reason."""
    _check_unicode(source)
    _check_nesting(source)


def _check_nesting(source: Source) -> None:
    depth = 0
    for match in _BRACKET.finditer(source.text):
        first = match[0][0]
        if first in "([{":
            depth += 1
            if depth > NESTING_MAX:
                raise source.parse_error(f"brackets are nested more than {NESTING_MAX} deep", Span(*match.span()))
        elif first in ")]}":
            depth = max(depth - 1, 0)


def _check_unicode(source: Source) -> None:
    """Refuse half characters, which no UTF-8 file can hold but a Python string can."""
    try:
        source.text.encode()
    except UnicodeEncodeError as failure:
        raise source.parse_error("the text is not valid Unicode", Span(failure.start, failure.end)) from None
