"""Say what a parser expected, in the words of the person who wrote the text.

The grammar names terminals for the parser; this module names them for people.
"""

from __future__ import annotations

from collections.abc import Iterable

from lark import Token
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from omnigraph.errors import ParseError
from omnigraph.language.hints import any_of, hint_at, word_at
from omnigraph.language.source import Source, Span

_WORDS = {
    "TYPE_NAME": "a type name (capital first letter)",
    "IDENT": "a name (lower-case first letter)",
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
    "NEGATIVE": "a number",
    "QUESTION": "'?'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "COLON": "':'",
    "COMMA": "','",
    "AT": "'@'",
    "EQUAL": "'='",
    "$END": "the end of the text",
}


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
    found, hint = word_at(source.text, span.start), hint_at(source.text, span.start)
    message = f"expected {_listed(expected, symbols)}, found {found}"
    return source.parse_error(f"{message}; {hint}" if hint else message, span)


def _listed(expected: Iterable[str], symbols: dict[str, str]) -> str:
    names = set(expected)
    words = sorted({_word(name, symbols) for name in names} - {""})
    return any_of(words)


def _word(name: str, symbols: dict[str, str]) -> str:
    if name in ("SPACE", "COMMENT"):
        return ""
    if name in symbols:
        return symbols[name]
    return _WORDS.get(name, f"'{name.lstrip('_').lower()}'")
