"""What follows from a schema alone is worked out once and kept with what it follows from.

Types and catalogs never change, so nothing can make what was derived wrong; it goes when they go.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def once(derive: Callable[[T], R]) -> Callable[[T], R]:
    """Derive something from a frozen object when it is first asked for; nobody may change what was derived."""
    name = f"{derive.__module__}.{derive.__qualname__}"

    @functools.wraps(derive)
    def kept(owner: T) -> R:
        try:
            found: R = owner.__dict__[name]
        except KeyError:
            # Of two threads that come at once, both are given what the first has put there.
            found = owner.__dict__.setdefault(name, derive(owner))
        return found

    return kept
