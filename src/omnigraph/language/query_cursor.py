"""A place in the tokens of a query, and what could have stood there.

Every question about the next token that is answered with no is remembered, so that an error can name all that would
have fitted.
"""

from __future__ import annotations

from omnigraph.errors import ParseError
from omnigraph.language.hints import any_of, hint_at, word_at
from omnigraph.language.query_tokens import Kind, Token, tokens_of
from omnigraph.language.source import Source, Span

_WORDS = {
    Kind.NAME: "a name (lower-case first letter)",
    Kind.TYPE_NAME: "a type name (capital first letter)",
    Kind.VARIABLE: "a variable ($name)",
    Kind.STRING: "a string in double quotes",
    Kind.INTEGER: "an integer",
    Kind.NOTE: "'@description' or '@instruction'",
    Kind.END: "the end of the text",
}


class Cursor:
    """The tokens of one source and the place that is reached."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens = tokens_of(source.text)
        self.place = 0
        self._wanted: list[str] = []
        """What was asked for at this place."""
        self._asked_at = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.place]

    def ahead(self, count: int) -> Token:
        """A token further on; behind the end is the end."""
        place = self.place + count
        return self.tokens[place] if place < len(self.tokens) else self.tokens[-1]

    def advance(self) -> Token:
        """Take the next token."""
        token = self.tokens[self.place]
        self.place += 1
        return token

    def want(self, what: str) -> None:
        """Note that something else would have fitted here."""
        if self.place > self._asked_at:
            self._asked_at = self.place
            self._wanted.clear()
        if self.place == self._asked_at:
            self._wanted.append(what)

    def is_word(self, word: str) -> bool:
        """Whether the next token is this keyword."""
        if self.tokens[self.place] == word:
            return True
        self.want(f"'{word}'")
        return False

    def accept(self, text: str) -> bool:
        """Take the next token if it is this keyword or symbol."""
        if self.tokens[self.place] == text:
            self.place += 1
            return True
        self.want(f"'{text}'")
        return False

    def expect(self, text: str) -> Token:
        """Take this keyword or symbol."""
        token = self.tokens[self.place]
        if token != text:
            self.want(f"'{text}'")
            raise self.refusal()
        self.place += 1
        return token

    def expect_kind(self, kind: Kind) -> Token:
        """Take a token of a kind."""
        token = self.tokens[self.place]
        if token.kind is not kind:
            self.want(_WORDS[kind])
            raise self.refusal()
        self.place += 1
        return token

    def refusal(self) -> ParseError:
        """The next token fits nowhere: the error says what would, at the furthest place that was reached."""
        token = self.tokens[max(self.place, self._asked_at)]
        expected = _listed(self._wanted)
        if token.kind is Kind.END:
            end = Span(len(self.source.text.rstrip()), len(self.source.text))
            return self.source.parse_error(f"expected {expected}, found the end of the text", end)
        start = token.start_pos
        hint = hint_at(self.source.text, start) if token.kind is not Kind.STRING else None
        message = f"expected {expected}, found {word_at(self.source.text, start)}"
        return self.source.parse_error(f"{message}; {hint}" if hint else message, token.span)

    def fault(self, message: str, span: Span) -> ParseError:
        """A rule beyond the grammar is broken; `raise` it."""
        return self.source.parse_error(message, span)


def _listed(wanted: list[str]) -> str:
    words = sorted(set(wanted), key=lambda word: (not word.startswith("a"), word))
    return any_of(words)
