"""Writers of one machine take turns, so that they seldom prepare what another is about to outdate.

A turn is an advisory lock on a small file in the system's temporary folder, one per table and branch. It is a courtesy
and nothing else: correctness rests on strict commits and the publish, so a turn that cannot be had in time, or at all,
is simply done without. The system gives up the locks of a process that dies.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Iterable

try:
    import fcntl
except ImportError:  # a system without advisory locks: everyone goes without turns
    fcntl = None  # type: ignore[assignment]

_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_POLL_SECONDS = (0.0005, 0.001, 0.002)


class Turns:
    """The turns of one graph. Within the process the caller already excludes others of the same key."""

    def __init__(self, root: str) -> None:
        digest = hashlib.sha256(root.encode()).hexdigest()[:24]
        self._folder = os.path.join(tempfile.gettempdir(), f"omnigraph-turns-{digest}")
        # Only what is held is open: a process may write many graphs, and descriptors are few.
        self._held: dict[tuple[str, str | None], int] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def take(self, key: tuple[str, str | None], deadline: float) -> bool:
        """Wait for the turn of one table; False when it is done without."""
        descriptor = self._open(key)
        if descriptor is None:
            return False
        attempt = 0
        while not _locked(descriptor):
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return False
            time.sleep(_POLL_SECONDS[min(attempt, len(_POLL_SECONDS) - 1)])
            attempt += 1
        with self._lock:
            self._forget_parent()
            self._held[key] = descriptor
        return True

    def give(self, key: tuple[str, str | None]) -> None:
        """Let the next one have the turn."""
        with self._lock:
            self._forget_parent()
            descriptor = self._held.pop(key, None)
        if descriptor is not None:
            # Closing the file gives up its lock.
            os.close(descriptor)

    def busy(self, keys: Iterable[tuple[str, str | None]]) -> bool:
        """True when somebody has one of the turns now; only a hint."""
        for key in keys:
            descriptor = self._open(key)
            if descriptor is not None:
                free = _locked(descriptor)
                os.close(descriptor)
                if not free:
                    return True
        return False

    def _forget_parent(self) -> None:
        if self._pid != os.getpid():
            # Locks belong to the opened file, which a forked child shares with its parent.
            self._held, self._pid = {}, os.getpid()

    def _open(self, key: tuple[str, str | None]) -> int | None:
        if fcntl is None:
            return None
        name = hashlib.sha256(f"{key[0]}@{key[1] or ''}".encode()).hexdigest()[:24]
        try:
            os.makedirs(self._folder, mode=0o777, exist_ok=True)
            return os.open(os.path.join(self._folder, name), _FLAGS, 0o666)
        except OSError:
            return None


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
