"""The views of tables that one reader keeps, each with all that queries have derived from its version.

A view belongs to one handle, and a handle is one version of one table for ever, so nothing in a view can become stale.
Views are found by what names a version; a version that only has the same name, because its branch was deleted and made
anew, has another handle and gets a view of its own. The bound is that of the handles a store keeps open, and the least
recently used go first; whoever still reads one that is dropped holds it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TypeVar

from omnigraph.engine.read.columns.edges import EdgeView
from omnigraph.engine.read.columns.nodes import NodeView
from omnigraph.engine.read.columns.tables import TableView
from omnigraph.engine.storage.handle import TableHandle

VIEWS_MAX = 64
"""Views kept; one for each version of a table that was read lately."""

View = TypeVar("View", bound=TableView)


class Views:
    """The most recently used views. Safe to share between threads."""

    def __init__(self) -> None:
        self._views: OrderedDict[tuple[str, str | None, int], TableView] = OrderedDict()
        self._lock = threading.Lock()

    def nodes(self, handle: TableHandle) -> NodeView:
        """The view of a node table at one version."""
        return self._view(handle, NodeView)

    def edges(self, handle: TableHandle) -> EdgeView:
        """The view of an edge table at one version."""
        return self._view(handle, EdgeView)

    def clear(self) -> None:
        """Keep none."""
        with self._lock:
            self._views.clear()

    def _view(self, handle: TableHandle, kind: type[View]) -> View:
        key = (handle.path, handle.branch, handle.version)
        with self._lock:
            found = self._views.get(key)
            if isinstance(found, kind) and found.handle is handle:
                self._views.move_to_end(key)
                return found
        # Outside the lock, because it may read the list of fragments. Two threads may both make one; the first stays,
        # because codes of its dictionary mean nothing to another one's.
        made = kind(handle)
        with self._lock:
            found = self._views.get(key)
            if isinstance(found, kind) and found.handle is handle:
                return found
            self._views[key] = made
            self._views.move_to_end(key)
            while len(self._views) > VIEWS_MAX:
                self._views.popitem(last=False)
        return made
