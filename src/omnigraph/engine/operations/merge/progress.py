"""How far a merge is, for whoever watches a large one: tables that are compared, rows that are written anew."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

SECONDS_BETWEEN = 0.1
"""Rows are told of at most so often."""


@dataclass(frozen=True)
class MergeProgress:
    """One observation: the phase (`compare`, `write` or `commit`), and how much of it is done."""

    phase: str
    rows: int = 0
    rows_per_second: float = 0.0
    fraction: float | None = None
    note: str = ""


Listener = Callable[[MergeProgress], None]


class Watch:
    """Tells a listener, if there is one, what a merge does."""

    def __init__(self, listener: Listener | None = None) -> None:
        self._listener = listener
        self._rows = self._expected = 0
        self._began = self._told = time.monotonic()

    def comparing(self, done: int, tables: int) -> None:
        """So many of the tables have been compared."""
        self._tell(MergeProgress("compare", fraction=done / max(tables, 1)))

    def say(self, text: str) -> None:
        """Something that takes a while begins or ends."""
        self._tell(MergeProgress("compare", note=text))

    def writing(self, rows: int) -> None:
        """So many rows are going to be written anew."""
        self._expected += rows
        self._began = time.monotonic()

    def wrote(self, rows: int) -> None:
        """So many more rows have been read for that."""
        self._rows += rows
        now = time.monotonic()
        if now - self._told >= SECONDS_BETWEEN or self._rows >= self._expected:
            self._told = now
            rate = self._rows / max(now - self._began, 1e-6)
            fraction = min(1.0, self._rows / max(self._expected, 1))
            self._tell(MergeProgress("write", self._rows, rate, fraction))

    def committing(self) -> None:
        """Everything is staged."""
        self._tell(MergeProgress("commit", self._rows))

    def _tell(self, seen: MergeProgress) -> None:
        if self._listener is not None:
            self._listener(seen)
