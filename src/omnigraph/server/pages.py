"""Long answers a page at a time: tokens that say where the next page begins, and for which request.

A token is opaque and bound to what it was given for, so that one of another request is refused and not misread.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from omnigraph.server.errors import HttpRefusal
from omnigraph.server.large import to_json

TOKEN_BYTES_MAX = 4_096
CHANGES_DEFAULT, CHANGES_MAX = 1_000, 8_192
BYTES_DEFAULT, BYTES_MAX = 4 << 20, 32 << 20


def bound_of(*parts: object) -> str:
    """What a token is bound to."""
    return hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()[:24]


def make_token(bound: str, position: int) -> str:
    """A token for the page that begins at a position."""
    return base64.urlsafe_b64encode(json.dumps([bound, position]).encode()).decode().rstrip("=")


def read_token(token: str | None, bound: str) -> int:
    """Where a page begins; 0 without a token.

    Raises:
        HttpRefusal: 400, it is no token of this request.
    """
    if token is None:
        return 0
    try:
        if len(token) > TOKEN_BYTES_MAX:
            raise ValueError
        found, position = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        if found != bound or not isinstance(position, int) or position < 0:
            raise ValueError
    except (ValueError, TypeError, RecursionError):
        raise HttpRefusal(400, "change cursor rejected: it was not given for this request") from None
    return position


def limited(value: int | None, default: int, most: int, resource: str) -> int:
    """The size of a page that was asked for.

    Raises:
        HttpRefusal: 400 for zero, 413 for more than there may be.
    """
    if value is None:
        return default
    if value < 1:
        raise HttpRefusal(400, f"'{resource}' is at least 1")
    if value > most:
        facts = {"resource_limit": {"resource": resource, "limit": most, "actual": value}}
        raise HttpRefusal(413, f"'{resource}' is at most {most}", facts=facts)
    return value


def page(items: Iterable[dict[str, Any]], start: int, *, count: int, size: int) -> tuple[list[dict[str, Any]], bool]:
    """Some items from `start` on, and whether there are more; at least one, however large it is."""
    rest: Iterator[dict[str, Any]] = islice(items, start, None)
    found: list[dict[str, Any]] = []
    used = 0
    for item in rest:
        used += len(to_json(item))
        if found and (len(found) == count or used > size):
            return found, True
        found.append(item)
    return found, False
