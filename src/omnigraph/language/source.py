"""A piece of program text, and how to point at a place in it.

Syntax trees carry `Span`s, which are cheap pairs of character offsets. Only when an error is raised does a `Source`
turn one into the `SourceSpan` people and programs use: bytes, line, column, and the line itself with a caret below.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import Struct

from omnigraph.errors import ParseError, SourceSpan, TypeCheckError

_LINE_SHOWN_MAX = 120


class Span(NamedTuple):
    """Characters `start` to `end` (exclusive) of a source."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """The stretch from the beginning of this span to the end of `other`."""
        return Span(self.start, other.end)


NOWHERE = Span(0, 0)


class LocalError(Exception):
    """A rule local to one declaration is broken; `Source.parse_error` gives it a place before it leaves the package."""

    def __init__(self, message: str, span: Span) -> None:
        super().__init__(message)
        self.message, self.span = message, span


class Source(Struct, frozen=True):
    """Program text, exactly as the user wrote it."""

    text: str

    def locate(self, span: Span) -> SourceSpan:
        """Bytes, line and column of a span; always at least one byte wide, also at the end of the text."""
        text = self.text
        start = min(span.start, len(text))
        end = max(min(span.end, len(text)), start)
        line = text.count("\n", 0, start) + 1
        column = start - text.rfind("\n", 0, start)
        byte_start = _byte_length(text[:start])
        byte_end = max(byte_start + _byte_length(text[start:end]), byte_start + 1)
        return SourceSpan(start=byte_start, end=byte_end, line=line, column=column)

    def snippet(self, span: Span) -> str:
        """The line a span begins on, indented, with carets under the span."""
        text = self.text
        start = min(span.start, len(text))
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", line_start)
        line_end = len(text) if line_end < 0 else line_end
        column = start - line_start
        width = max(min(span.end, line_end) - start, 1)
        window = max(column - _LINE_SHOWN_MAX // 2, 0)
        shown = text[line_start + window : min(line_start + window + _LINE_SHOWN_MAX, line_end)].replace("\r", "")
        visible = shown.replace("\t", " ")
        return f"    {visible}\n    {' ' * (column - window)}{'^' * min(width, _LINE_SHOWN_MAX)}"

    def parse_error(self, message: str, span: Span) -> ParseError:
        """A `ParseError` that shows the place as well as naming it."""
        place = self.locate(span)
        text = f"line {place.line}, column {place.column}: {message}\n{self.snippet(span)}"
        return ParseError(text, span=place)

    def type_error(self, code: str | None, message: str, span: Span) -> TypeCheckError:
        """A `TypeCheckError` that shows its place; its message begins with its code, where the rule has one."""
        place = self.locate(span)
        prefix = f"{code}: " if code else ""
        text = f"{prefix}{message} (line {place.line}, column {place.column})\n{self.snippet(span)}"
        return TypeCheckError(text, span=place, code=code or "type")


class Syntax(Struct, frozen=True):
    """A node of a syntax tree. Nodes compare by content: where something was written takes no part."""

    def _content(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__ if name not in _PLACES}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Syntax) and type(self) is type(other) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(tuple(self._content().values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._content().items())
        return f"{type(self).__name__}({shown})"


_PLACES = frozenset({"span", "source"})


def _byte_length(text: str) -> int:
    # A lone surrogate cannot be encoded strictly; it still takes three bytes in the generalised form.
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
