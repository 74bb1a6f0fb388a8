"""Where a reader of the feed stands, as a text that it keeps and hands back.

A cursor says: everything up to this commit of this branch has been delivered, of what these filters let through. A page
token says how much of the next commit has been delivered as well. Nothing is kept on our side, so a reader may come
back after years, to any process. The text is not meant to be understood: it names the graph, the very branch (not
another one that was given its name) and the filters, and is refused anywhere else.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple

from omnigraph.engine.changes.diff import Wanted
from omnigraph.errors import ChangeCursorError
from omnigraph.ids import CommitId

TEXT_BYTES_MAX = 4_096
_FORMAT = 1
_CHECK_BYTES = 6


class Place(Struct, frozen=True):
    """How far somebody has read: all of `commit`, and of the one after it `offset` changes."""

    graph: str
    branch: str
    mark: str
    filters: str
    commit: CommitId
    offset: int = 0
    within: CommitId | None = None
    """The commit that the offset counts in."""


_PARTS = tuple[str, str, str, str, CommitId, Annotated[int, Meta(ge=0, le=2**63 - 1)], CommitId | None]
"""What a text says of a place. Whoever makes one up can make up its digest too, so it is looked at all the same."""


def filter_digest(wanted: Wanted) -> str:
    """A short text that tells filters apart."""
    parts = [sorted(wanted.kinds), sorted(wanted.types), sorted(str(op) for op in wanted.ops)]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


def encode(place: Place) -> str:
    """The text of a place."""
    body = json.dumps([_FORMAT, *astuple(place)], separators=(",", ":"), ensure_ascii=False).encode()
    return base64.urlsafe_b64encode(_check(body) + body).decode("ascii").rstrip("=")


def decode(text: str) -> Place:
    """The place a text stands for.

    Raises:
        ChangeCursorError: it is not one of ours, or was cut short.
    """
    if len(text) > TEXT_BYTES_MAX or not text.isascii():
        raise ChangeCursorError("it is none of ours")
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        check, body = raw[:_CHECK_BYTES], raw[_CHECK_BYTES:]
        if check != _check(body):
            raise ChangeCursorError("it is damaged, or none of ours")
        number, *parts = msgspec.json.decode(body)
        if number != _FORMAT:
            raise ChangeCursorError("it was made by another release")
        return Place(*msgspec.convert(parts, _PARTS))
    except (binascii.Error, ValueError, TypeError, msgspec.DecodeError) as exc:
        raise ChangeCursorError("it is none of ours") from exc


def _check(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_CHECK_BYTES).digest()
