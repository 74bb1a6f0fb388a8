"""Spans of time as people write them: `90`, `30m`, `7d`."""

from __future__ import annotations

import re
from datetime import timedelta

from omnigraph.errors import InputError

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_SPAN = re.compile(r"(\d+)([smhdw]?)\Z")


def parse_duration(text: str) -> timedelta:
    """A span of time; a bare number is seconds.

    >>> parse_duration("7d")
    datetime.timedelta(days=7)

    Raises:
        InputError: the text is not a number with one of the units s, m, h, d, w.
    """
    found = _SPAN.match(text.strip())
    if found is None:
        raise InputError(f"'{text}' is not a span of time: write a number with s, m, h, d or w, such as 7d")
    try:
        return timedelta(seconds=int(found.group(1)) * _UNITS[found.group(2)])
    except OverflowError as exc:
        raise InputError(f"'{text}' is longer than time can be counted here") from exc
