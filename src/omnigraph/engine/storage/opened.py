"""Which roots this process has open, by how many handles: what is kept for a root goes with the last one."""

from __future__ import annotations

import threading
from collections import Counter

_open: Counter[str] = Counter()
_lock = threading.Lock()


class OpenRoot:
    """One handle of a root, open until it is closed, once."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._is_open = True
        with _lock:
            _open[root] += 1

    def close(self) -> bool:
        """One handle less; False when this one was closed before."""
        with _lock:
            was_open, self._is_open = self._is_open, False
            if was_open:
                _open[self.root] -= 1
                if not _open[self.root]:
                    del _open[self.root]
            return was_open


def open_handles(root: str | None = None) -> int:
    """How many handles of a root, or of all, are open."""
    with _lock:
        return _open.total() if root is None else _open.get(root, 0)
