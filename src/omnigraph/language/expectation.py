"""Say what a parser expected, in the words of the person who wrote the text.

The grammars name terminals for the parser; this module names them for people, and adds a hint where a mistake is
common enough to be recognised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from omnigraph.errors import ParseError
from omnigraph.language.source import Source, Span

_WORDS = {
    "TYPE_NAME": "a type name (capital first letter)",
    "IDENT": "a name (lower-case first letter)",
    "VARIABLE": "a variable ($name)",
    "PROPERTY": "a property ($name.property)",
    "SCALAR": "a type (String, Bool, I32, I64, U32, U64, F32, F64, Date, DateTime, Blob)",
    "_ENUM": "enum(…)",
    "_VECTOR": "Vector(n)",
    "ENUM_VALUE": "an enum value",
    "STRING": "a string in double quotes",
    "INTEGER": "an integer",
    "FLOAT": "a number",
    "NUMBER": "a number",
    "BOOL": "true or false",
    "CONSTRAINT_NAME": "a constraint (key, unique, index, range, check)",
    "COMPARE": "a comparison (= != < <= > >=)",
    "LESS": "a comparison (= != < <= > >=)",
    "GREATER": "a comparison (= != < <= > >=)",
    "DIRECTION": "'asc' or 'desc'",
    "NOTE": "'@description' or '@instruction'",
    "AGGREGATE": "an aggregate (count, sum, avg, min, max)",
    "QUESTION": "'?'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "BRACKET": "'['",
    "RSQB": "']'",
    "COLON": "':'",
    "COMMA": "','",
    "AT": "'@'",
    "EQUAL": "'='",
    "$END": "the end of the text",
}
_FUNCTIONS = {"NOW", "NEAREST", "SEARCH", "FUZZY", "MATCH_TEXT", "BM25", "RRF", "AGGREGATE", "DATE", "DATETIME"}
_EXPRESSION = {"VARIABLE", "PROPERTY", "STRING", "INTEGER", "NOW"}
_EXPRESSION_PARTS = _EXPRESSION | _FUNCTIONS | {"FLOAT", "BOOL", "IDENT", "BRACKET"}
_SHOWN_MAX = 6


def parse_error(failure: UnexpectedInput, source: Source, symbols: dict[str, str]) -> ParseError:
    """Turn a failure of the parser into a `ParseError` that names the place, what stands there and what should.

    `symbols` names the grammar's anonymous terminals, whose generated names mean nothing outside the parser.
    """
    if isinstance(failure, UnexpectedToken):
        return _unexpected_token(failure, source, symbols)
    if isinstance(failure, UnexpectedCharacters):
        start = failure.pos_in_stream or 0
        span = Span(start, start + 1)
        return _unexpected_text(source, span, failure.allowed, symbols)
    assert isinstance(failure, UnexpectedEOF)
    end = Span(len(source.text), len(source.text))
    return source.parse_error(f"expected {_listed(failure.expected, symbols)}, found the end of the text", end)


def _unexpected_token(failure: UnexpectedToken, source: Source, symbols: dict[str, str]) -> ParseError:
    token: Token = failure.token
    if token.type == "$END":
        end = Span(len(source.text.rstrip()), len(source.text))
        return source.parse_error(f"expected {_listed(failure.expected, symbols)}, found the end of the text", end)
    start = token.start_pos or 0
    return _unexpected_text(source, Span(start, start + max(len(token), 1)), failure.expected, symbols)


def _unexpected_text(source: Source, span: Span, expected: Iterable[str], symbols: dict[str, str]) -> ParseError:
    found = _word_at(source.text, span)
    hint = _hint(source.text, span.start)
    message = f"expected {_listed(expected, symbols)}, found {found}"
    return source.parse_error(f"{message}; {hint}" if hint else message, span)


def _word_at(text: str, span: Span) -> str:
    word = re.compile(r"[A-Za-z0-9_$]+|[\s\S]").match(text, span.start)
    shown = word[0] if word else ""
    if len(shown) > 40:
        shown = f"{shown[:40]}…"
    return f"'{shown}'" if shown.isprintable() else f"the character {shown!r}"


def _hint(text: str, position: int) -> str | None:
    rest = text[position : position + 40]
    before = text[max(position - 40, 0) : position]
    hints = (
        (rest.startswith("#"), "a comment begins with // or /*"),
        (rest.startswith("/*"), "this comment has no end"),
        (rest.startswith('"'), "this string has no end"),
        (rest.startswith("'"), "strings are written in double quotes"),
        (bool(re.match(r"-\s*[0-9]", rest)), "a negative number can only come in through a parameter"),
        (rest.startswith(".") and not rest.startswith(".."), "no space is allowed around the dot of a property"),
        (rest.startswith("*") and before.rstrip().endswith(".."), "an open upper bound is written '0..'"),
        (bool(re.search(r"@\s*card\s*\([^)]*$", before)), "@card(low..high) comes right after an edge's target type"),
        (rest.startswith("null"), "there is no null literal; use a nullable parameter"),
    )
    return next((hint for holds, hint in hints if holds), None)


def _listed(expected: Iterable[str], symbols: dict[str, str]) -> str:
    names = set(expected)
    words: list[str] = []
    if names >= _EXPRESSION:
        words.append("an expression")
        names -= _EXPRESSION_PARTS
    elif "STRING" in names and "INTEGER" in names and "BRACKET" in names:
        words.append("a value")
        names -= _EXPRESSION_PARTS - {"PROPERTY"}
    elif names >= _FUNCTIONS - {"NOW"}:
        names -= _FUNCTIONS
    words += sorted({_word(name, symbols) for name in names} - {""})
    if len(words) > _SHOWN_MAX:
        words = [*words[:_SHOWN_MAX], "…"]
    if not words:
        return "something else"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _word(name: str, symbols: dict[str, str]) -> str:
    if name in ("SPACE", "COMMENT"):
        return ""
    if name in symbols:
        return symbols[name]
    return _WORDS.get(name, f"'{name.lstrip('_').lower()}'")
