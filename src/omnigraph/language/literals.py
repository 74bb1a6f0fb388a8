"""From the text of a literal to its value, and back.

Both languages share these rules: five escapes in strings, integers that fit 64 signed bits, plain decimal floats.
"""

from __future__ import annotations

import math
import re

from omnigraph.language.source import LocalError, Span

INTEGER_MAX = 2**63 - 1
_ESCAPES = {"\\": "\\", '"': '"', "n": "\n", "r": "\r", "t": "\t"}
_UNESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_ESCAPE = re.compile(r"\\([\s\S])")
_INTEGER_DIGITS_MAX = len(str(INTEGER_MAX))


def span_of(token: str) -> Span:
    """Where a token stands; the tokens of both parsers know where they begin."""
    start: int = getattr(token, "start_pos", None) or 0
    return Span(start, start + len(token))


def string_value(token: str) -> str:
    """The text between the quotes, with its escapes resolved."""
    inner = token[1:-1]
    if "\\" not in inner:
        return str(inner)
    start = span_of(token).start + 1

    def resolve(match: re.Match[str]) -> str:
        escaped = _ESCAPES.get(match[1])
        if escaped is None:
            place = Span(start + match.start(), start + match.end())
            raise LocalError(
                f"unsupported escape sequence '\\{match[1]}': a string knows \\\" \\\\ \\n \\r and \\t", place
            )
        return escaped

    return _ESCAPE.sub(resolve, inner)


def integer_value(token: str) -> int:
    """The value of an integer, which must fit a signed 64-bit integer."""
    digits = token.lstrip("-").lstrip("0")
    if len(digits) <= _INTEGER_DIGITS_MAX:
        value = int(digits or "0")
        if token.startswith("-"):
            value = -value
        if -INTEGER_MAX - 1 <= value <= INTEGER_MAX:
            return value
    shown = token if len(token) <= 40 else f"{token[:40]}…"
    raise LocalError(f"the integer {shown} does not fit 64 bits (at most {INTEGER_MAX})", span_of(token))


def float_value(token: str) -> float:
    """The value of a decimal, which must be finite."""
    value = float(token)
    if math.isinf(value):
        raise LocalError("the number is too large for a 64-bit float", span_of(token))
    return value


def number_value(token: str) -> int | float:
    """A signed integer or decimal, as `@range` bounds have them."""
    return float_value(token) if "." in token else integer_value(token)


def string_text(value: str) -> str:
    """The literal that reads back as `value`."""
    return f'"{value.translate(_UNESCAPES)}"'


def float_text(value: float) -> str:
    """The shortest plain decimal, without exponent, that reads back as `value`."""
    text = repr(value)
    if "e" not in text:
        return text
    mantissa, _, exponent = text.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    shift = int(exponent)
    digits = whole + fraction
    point = len(whole) + shift
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    digits = digits.ljust(point, "0")
    return f"{sign}{digits[:point]}.{digits[point:] or '0'}"
