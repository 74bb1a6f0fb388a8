"""Differences that are being told page by page, kept until their last page.

A page reads its own rows; which rows changed, and in which order, is found once. A commit never changes, so what is
kept cannot be wrong, and whoever asks for a page that is not kept any more has it found again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from omnigraph.engine.changes.diff import Diff

KEPT = 4
"""Differences kept at once; beyond that the oldest goes."""

Key = tuple[str, str]
"""A commit, and the digest of the filters."""


class KeptDiffs:
    """The differences that readers of one graph are in the middle of."""

    def __init__(self) -> None:
        self._kept: dict[Key, Diff] = {}
        self._lock = threading.Lock()

    def of(self, key: Key, find: Callable[[], Diff]) -> Diff:
        """The difference of a key, found if it is not at hand."""
        with self._lock:
            found = self._kept.get(key)
        if found is None:
            found = find()
            with self._lock:
                while len(self._kept) >= KEPT:
                    self._kept.pop(next(iter(self._kept)))
                self._kept[key] = found
        return found

    def done(self, key: Key) -> None:
        """Its last page has been told."""
        with self._lock:
            self._kept.pop(key, None)
