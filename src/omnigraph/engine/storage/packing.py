"""Neighbours packed together until a pack is full: small ones share a task, large ones have one of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def packs(items: Iterable[T], size: Callable[[T], int], size_max: int) -> list[list[T]]:
    """The items in their order, in packs that hold at most `size_max` or a single item that is larger.

    An item that is appended changes the last pack only.

    >>> packs([0, 3, 4, 5, 90, 1, 2], lambda item: item, 10)
    [[0, 3, 4], [5], [90], [1, 2]]
    """
    found: list[list[T]] = []
    filled = 0
    for item in items:
        more = size(item)
        if not found or filled + more > size_max:
            found.append([])
            filled = 0
        found[-1].append(item)
        filled += more
    return found
