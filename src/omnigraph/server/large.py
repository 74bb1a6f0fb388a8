"""JSON that is large, read and written in steps, so that other threads go on in between.

Python's own reader and writer of JSON hold the interpreter from the first byte to the last, in whichever thread they
run. Here they are given a little at a time: a long text in pieces, and the items of the outer lists and objects one
after the other. What comes out is the same.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

LARGE_BYTES = 64 << 10
"""Bodies up to this size are read where they arrive: that takes less time than handing them to a thread does."""
AT_ONCE_BYTES = 1 << 20
"""Up to this size a body is read at once, in a few hundredths of a second; in steps it takes several times as long."""
PIECE = 256 << 10
"""How many characters of a text are read at once."""
ITEMS = 256
"""How many items of a list are written at once."""
DEPTH = 4
"""How deep lists and objects are read item by item; what lies deeper in one item is read at once."""
_SPACE = re.compile(r"[ \t\n\r]*")
_FIRST_HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")


def loads(raw: bytes, parse_constant: Callable[[str], Any]) -> Any:
    """A body as `json.loads` reads it, in steps where it is large.

    Raises:
        ValueError: it is not UTF-8, or not JSON.
    """
    if len(raw) <= AT_ONCE_BYTES:
        return json.loads(raw.decode("utf-8"), parse_constant=parse_constant)
    return _Reader(_decoded(raw), parse_constant).whole()


def _decoded(raw: bytes) -> str:
    if raw.isascii():
        return raw.decode("ascii")
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        view = memoryview(raw)
        pieces = [decoder.decode(view[at : at + PIECE]) for at in range(0, len(raw), PIECE)]
        pieces.append(decoder.decode(b"", final=True))
    except UnicodeDecodeError:
        return raw.decode("utf-8")  # which raises the same with the place in the whole body
    return "".join(pieces)


class _Reader:
    """One text on its way to a value; the errors are those of `json`."""

    def __init__(self, text: str, parse_constant: Callable[[str], Any]) -> None:
        self._text = text
        decoder = json.JSONDecoder(parse_constant=parse_constant)
        self._scan: Callable[[str, int], tuple[Any, int]] = decoder.scan_once  # type: ignore[attr-defined]

    def whole(self) -> Any:
        value, at = self._value(self._skip(0), DEPTH)
        at = self._skip(at)
        if at != len(self._text):
            raise self._wrong("Extra data", at)
        return value

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        return at if found is None else found.end()

    def _wrong(self, message: str, at: int) -> json.JSONDecodeError:
        return json.JSONDecodeError(message, self._text, at)

    def _value(self, at: int, depth: int) -> tuple[Any, int]:
        first = self._text[at : at + 1]
        if first == '"':
            return self._string(at + 1)
        if first == "{" and depth:
            return self._object(at + 1, depth - 1)
        if first == "[" and depth:
            return self._array(at + 1, depth - 1)
        try:
            return self._scan(self._text, at)
        except StopIteration as exc:
            raise self._wrong("Expecting value", exc.value) from None

    def _object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        at = self._skip(at)
        if self._text[at : at + 1] == "}":
            return found, at + 1
        while True:
            if self._text[at : at + 1] != '"':
                raise self._wrong("Expecting property name enclosed in double quotes", at)
            name, at = self._string(at + 1)
            at = self._skip(at)
            if self._text[at : at + 1] != ":":
                raise self._wrong("Expecting ':' delimiter", at)
            found[name], at = self._value(self._skip(at + 1), depth)
            at = self._skip(at)
            end = self._text[at : at + 1]
            if end == "}":
                return found, at + 1
            if end != ",":
                raise self._wrong("Expecting ',' delimiter", at)
            at = self._skip(at + 1)

    def _array(self, at: int, depth: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        at = self._skip(at)
        if self._text[at : at + 1] == "]":
            return found, at + 1
        while True:
            value, at = self._value(at, depth)
            found.append(value)
            at = self._skip(at)
            end = self._text[at : at + 1]
            if end == "]":
                return found, at + 1
            if end != ",":
                raise self._wrong("Expecting ',' delimiter", at)
            at = self._skip(at + 1)

    def _string(self, begin: int) -> tuple[str, int]:
        """The text whose first character is at `begin`."""
        pieces: list[str] = []
        at, size = begin, PIECE
        while at + size < len(self._text):
            window = self._text[at : at + size]
            cut = _cut(window)
            if cut == 0:
                size *= 2  # Nothing but backslashes: where an escape ends is told by where they do.
                continue
            piece, end = self._scanned(window[:cut] + '"', at, begin)
            pieces.append(piece)
            if end <= cut:
                return "".join(pieces), at + end
            at, size = at + cut, PIECE
        piece, end = self._scanned(self._text[at:], at, begin)
        pieces.append(piece)
        return "".join(pieces), at + end

    def _scanned(self, window: str, at: int, begin: int) -> tuple[str, int]:
        try:
            return scanstring(window, 0, True)  # type: ignore[no-any-return]
        except json.JSONDecodeError as exc:
            unfinished = exc.msg.startswith("Unterminated string")
            raise self._wrong(exc.msg, begin - 1 if unfinished else at + exc.pos) from None


def _cut(window: str) -> int:
    """Where a piece of a text may end: in front of an escape, but not between the two halves of one character."""
    at = window.rfind("\\")
    if at < 0:
        return len(window)
    while at > 0:
        if window[at - 1] != "\\" and not _FIRST_HALF.search(window, max(0, at - 6), at):
            return at
        at = window.rfind("\\", 0, at)
    return 0


def to_json(body: Any) -> bytes:
    """Compact JSON in UTF-8; a text that is no Unicode is spelled as Python escapes it."""
    if isinstance(body, Mapping) and any(isinstance(each, list) and len(each) > ITEMS for each in body.values()):
        return b"{" + b",".join(_written(name) + b":" + _member(value) for name, value in body.items()) + b"}"
    return _written(body)


def _member(value: Any) -> bytes:
    if not isinstance(value, list) or len(value) <= ITEMS:
        return _written(value)
    return b"[" + b",".join(_written(value[at : at + ITEMS])[1:-1] for at in range(0, len(value), ITEMS)) + b"]"


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
"""Made once: `json.dumps` would make one for each text that is not spelled its usual way."""


def _written(value: Any) -> bytes:
    return _ENCODER.encode(value).encode("utf-8", "backslashreplace")
