"""Writers of one machine take turns, so that they seldom prepare what another is about to outdate.

A turn is an advisory lock on a small file in the system's temporary folder, one per table and branch. It is a courtesy
and nothing else: correctness rests on strict commits and the publish, so a turn that cannot be had in time, or at all,
is simply done without. The system gives up the locks of a process that dies.
"""

from __future__ import annotations

import contextlib
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
        self._files: dict[tuple[str, str | None], int] = {}
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
                return False
            time.sleep(_POLL_SECONDS[min(attempt, len(_POLL_SECONDS) - 1)])
            attempt += 1
        return True

    def give(self, key: tuple[str, str | None]) -> None:
        """Let the next one have the turn."""
        descriptor = self._files.get(key)
        if descriptor is not None and fcntl is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def busy(self, keys: Iterable[tuple[str, str | None]]) -> bool:
        """True when another process has one of the turns now; only a hint, for keys this process does not hold."""
        for key in keys:
            descriptor = self._open(key)
            if descriptor is not None:
                if not _locked(descriptor):
                    return True
                self.give(key)
        return False

    def _open(self, key: tuple[str, str | None]) -> int | None:
        if fcntl is None:
            return None
        with self._lock:
            if self._pid != os.getpid():
                # Locks belong to the opened file, which a forked child shares with its parent.
                self._files, self._pid = {}, os.getpid()
            if key not in self._files:
                name = hashlib.sha256(f"{key[0]}@{key[1] or ''}".encode()).hexdigest()[:24]
                try:
                    os.makedirs(self._folder, mode=0o777, exist_ok=True)
                    path = os.path.join(self._folder, name)
                    self._files[key] = os.open(path, _FLAGS, 0o666)
                except OSError:
                    return None
            return self._files[key]


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
