"""Whose turn it is on a branch.

Writes that the engine publishes together share the turn, so that they meet there; any other write has it by itself.
First come, first served: a write that shares does not overtake one that waits for the branch alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress


class Turn:
    """The turn on one branch, within one event loop."""

    def __init__(self) -> None:
        self._sharing = 0
        self._alone = False
        self._waiting: deque[tuple[asyncio.Future[None], bool]] = deque()

    @property
    def is_idle(self) -> bool:
        """True when nobody has it and nobody waits."""
        return not (self._sharing or self._alone or self._waiting)

    def is_free(self, *, shared: bool) -> bool:
        """True when taking it waits for nobody."""
        return not self._waiting and self._may_go(shared)

    async def take(self, *, shared: bool) -> None:
        """Wait for the turn; whoever is cancelled meanwhile does not have it."""
        if self.is_free(shared=shared):
            self._go(shared)
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((place, shared))
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.give(shared=shared)
            else:
                # Whoever gave the turn back in this very step may have taken the place out already.
                with suppress(ValueError):
                    self._waiting.remove((place, shared))
                self._call()
            raise

    def give(self, *, shared: bool) -> None:
        """Give the turn back."""
        if shared:
            self._sharing -= 1
        else:
            self._alone = False
        self._call()

    def _may_go(self, shared: bool) -> bool:
        return not self._alone and (shared or not self._sharing)

    def _go(self, shared: bool) -> None:
        if shared:
            self._sharing += 1
        else:
            self._alone = True

    def _call(self) -> None:
        while self._waiting and self._may_go(self._waiting[0][1]):
            place, shared = self._waiting.popleft()
            if not place.done():
                self._go(shared)
                place.set_result(None)
