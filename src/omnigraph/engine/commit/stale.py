"""A write that is outdated, told apart from one that is refused."""

from __future__ import annotations

from omnigraph.errors import GraphError


class StaleWrite(Exception):  # never leaves the engine: the writer prepares again, or raises `conflict`
    """Nothing of this attempt is left, and its base is outdated; `conflict` is what a caller would be told.

    `counts` is False when it was merely another writer's turn, so that waiting for it is no attempt of one's own.
    """

    def __init__(self, conflict: GraphError, *, counts: bool = True) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict
        self.counts = counts
