"""How people name a moment of the past: by commit, whole or shortened, by tag, by time, by version.

What a text means follows from how it is written, so that no name can mean two things: digits are a version of the
graph, `manifest:…` is a snapshot, a date and perhaps a time is a moment, a text that could be (the beginning of) a
commit's id is one, and anything else is a tag. No tag may be named like any of the others.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache

from omnigraph.errors import InputError

SHORTENED_FROM = 4
"""The fewest characters that stand for a commit."""
ULID_LENGTH = 26
_ULID = re.compile(rf"[0-7][0-9A-HJKMNP-TV-Z]{{{SHORTENED_FROM - 1},{ULID_LENGTH - 1}}}\Z", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Spelling(Enum):
    """What a text that names a moment of the past is."""

    VERSION = "a version"
    SNAPSHOT = "a snapshot id"
    TIME = "a time"
    COMMIT = "a commit id"
    NAME = "a name"


@lru_cache(maxsize=256)
def spelling(text: str) -> Spelling:
    """Tell what a text names from how it is written.

    >>> [spelling(text).name for text in ("7", "2026-02-14", "01k3z9", "manifest:main:v7", "v1.0")]
    ['VERSION', 'TIME', 'COMMIT', 'SNAPSHOT', 'NAME']
    """
    if text.isdecimal():
        return Spelling.VERSION
    if text.startswith("manifest:"):
        return Spelling.SNAPSHOT
    if _DATE.match(text):
        return Spelling.TIME
    return Spelling.COMMIT if _ULID.match(text) else Spelling.NAME


def micros(moment: datetime | str) -> int:
    """A time as Unix microseconds; a date alone is its midnight, and no offset means UTC.

    Raises:
        InputError: a text is no time, or the time lies beyond the calendar.
    """
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError as exc:
            raise InputError(f"'{moment}' is not a time: write 2026-02-14 or 2026-02-14T10:00:00Z") from exc
    try:
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        # Brought to UTC first, where a time at either end of the calendar may be beyond it.
        found = (aware.astimezone(UTC) - _EPOCH) // _MICROSECOND
    except (OverflowError, ValueError, TypeError) as exc:
        raise InputError(f"{moment!r} is not a time that can be compared: {exc}") from exc
    if type(found) is not int:
        raise InputError(f"{moment!r} is no time")  # as the one of pandas that stands for none
    return found


def told(at_micros: int) -> str:
    """A stored time as people read it."""
    return (_EPOCH + timedelta(microseconds=at_micros)).isoformat().replace("+00:00", "Z")
