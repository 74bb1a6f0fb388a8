"""The name that was probably meant: errors about an unknown name end with it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LIKENESS_MIN = 0.6
"""Below this share of common letters a guess would puzzle more than it helps."""


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to a misspelt one, or None when none comes near.

    >>> nearest_name("kye", ["index", "key"])
    'key'
    """
    by_lower = {other.lower(): other for other in sorted(known, reverse=True)}
    found = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=LIKENESS_MIN)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str], *, prefix: str = "") -> str:
    """The end of a sentence about an unknown name: `; did you mean '@key'?`, or nothing."""
    nearest = nearest_name(name, known)
    return "" if nearest is None else f"; did you mean '{prefix}{nearest}'?"
