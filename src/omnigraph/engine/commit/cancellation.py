"""Stopping a write that has not started to take effect.

Python threads cannot be interrupted safely, so cancelling is cooperative: the writer looks at its token between
operations, before it stages and right before it arms. From there on it finishes.
"""

from __future__ import annotations

from omnigraph.errors import CancelledWriteError


class Cancellation:
    """A token that one thread sets and the writing thread checks."""

    def __init__(self) -> None:
        # Set once by one assignment, which every thread sees whole.
        self._requested = False

    def cancel(self) -> None:
        """Ask the write to stop; it either stops without a trace or has already taken effect."""
        self._requested = True

    def check(self) -> None:
        """Stop here if that was asked for.

        Raises:
            CancelledWriteError: it was; nothing changed.
        """
        if self._requested:
            raise CancelledWriteError("the write was cancelled before it took effect; nothing changed")
