"""Who wants to hear of a commit while it is being published.

Whoever publishes is handed a listener by the graph and knows nothing of what it is for: a reader gets ready for the
next state while the publish waits for storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.ids import TableKey

Published: TypeAlias = Callable[[Snapshot], None]
"""Told the state that has been published; a publish that fails tells nobody."""


class PublishListener(Protocol):
    """Hears of every commit of one graph, before it is visible and when it is. What it does never fails a commit."""

    def publishing(self, base: Snapshot, handles: Mapping[TableKey, TableHandle]) -> Published:
        """A commit on `base` is about to put these tables in the place of others."""
        ...


class Nobody:
    """Listens to nothing."""

    def publishing(self, base: Snapshot, handles: Mapping[TableKey, TableHandle]) -> Published:
        """There is nobody to get ready."""
        return nobody_waits


def nobody_waits(published: Snapshot) -> None:
    """For those whom nobody has listened to."""
