"""Writers of one machine take turns, so that they seldom prepare what another is about to outdate.

A turn is an advisory lock on a small file, one per table and branch, in a folder of the user below the system's
temporary one. It is a courtesy and nothing else: correctness rests on strict commits and the publish, so a turn that
cannot be had in time, or at all, is simply done without. The system gives up the locks of a process that dies; the
files of graphs that nobody writes any more are removed by whoever adds one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterable

try:
    import fcntl
except ImportError:  # a system without advisory locks: everyone goes without turns
    fcntl = None  # type: ignore[assignment]

STALE_SECONDS = 3_600.0
"""A file nobody took a turn with for this long goes at the next look."""
FILES_MAX = 512
"""Beyond this many files the least recently used go, however young they are."""
LOOK_EVERY = 32
"""Files a process adds between two looks for stale ones."""

_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_POLL_SECONDS = (0.0005, 0.001, 0.002)

Key = tuple[str, str | None]


class TurnFiles:
    """The files of one user on this machine, made when needed and kept few. All trouble means: no turns."""

    def __init__(self, folder: str | None = None) -> None:
        user = os.getuid() if hasattr(os, "getuid") else 0
        self.folder = folder or os.path.join(tempfile.gettempdir(), f"omnigraph-turns-{user}")
        self._added = 0

    def open(self, name: str, *, create: bool) -> int | None:
        """A descriptor of the file, or None when there is none to be had."""
        if fcntl is None:
            return None
        path = os.path.join(self.folder, name)
        try:
            return os.open(path, _FLAGS) if self._is_ours() else None
        except FileNotFoundError:
            return self._add(path) if create else None
        except OSError:
            return None

    def _add(self, path: str) -> int | None:
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            if not self._is_ours():
                return None
            descriptor = os.open(path, _FLAGS | os.O_CREAT, 0o600)
        except OSError:
            return None
        if self._added % LOOK_EVERY == 0:
            self.remove_stale()
        self._added += 1
        return descriptor

    def _is_ours(self) -> bool:
        """False for a folder that somebody else made, or may change: what lies there is not to be trusted."""
        found = os.lstat(self.folder)
        mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
        return stat.S_ISDIR(found.st_mode) and mine and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    def remove_stale(self) -> None:
        """Remove the files nobody used for long, and of too many the oldest, unless somebody has their turn."""
        now = time.time()
        try:
            with os.scandir(self.folder) as entries:
                used = sorted(((entry.stat().st_mtime, entry.path) for entry in entries), reverse=True)
        except OSError:
            return
        for place, (at, path) in enumerate(used):
            if place >= FILES_MAX or now - at > STALE_SECONDS:
                self._remove(path)

    @staticmethod
    def _remove(path: str) -> None:
        try:
            descriptor = os.open(path, _FLAGS)
        except OSError:
            return
        try:
            if _locked(descriptor):
                os.unlink(path)
        except OSError:
            return
        finally:
            os.close(descriptor)


class Turns:
    """The turns of one graph. Within the process the caller already excludes others of the same key."""

    def __init__(self, root: str, files: TurnFiles | None = None) -> None:
        self._root = root
        self._files = files or _FILES
        # Only what is held is open: a process may write many graphs, and descriptors are few.
        self._held: dict[Key, int] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def take(self, key: Key, deadline: float) -> bool:
        """Wait for the turn of one table; False when it is done without."""
        attempt = 0
        while True:
            descriptor = self._files.open(self._name(key), create=True)
            if descriptor is None:
                return False
            while not _locked(descriptor):
                if time.monotonic() >= deadline:
                    os.close(descriptor)
                    return False
                time.sleep(_POLL_SECONDS[min(attempt, len(_POLL_SECONDS) - 1)])
                attempt += 1
            if os.fstat(descriptor).st_nlink:
                break
            # Somebody removed the file while this writer waited for it; the next one will look for a new file.
            os.close(descriptor)
        with contextlib.suppress(OSError):  # a file that looks older than it is goes a little early
            os.utime(descriptor)
        with self._lock:
            self._forget_parent()
            self._held[key] = descriptor
        return True

    def give(self, key: Key) -> None:
        """Let the next one have the turn."""
        with self._lock:
            self._forget_parent()
            descriptor = self._held.pop(key, None)
        if descriptor is not None:
            # Closing the file gives up its lock.
            os.close(descriptor)

    def busy(self, keys: Iterable[Key]) -> bool:
        """True when somebody has one of the turns now; only a hint."""
        for key in keys:
            descriptor = self._files.open(self._name(key), create=False)
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

    def _name(self, key: Key) -> str:
        return hashlib.sha256(f"{self._root}\0{key[0]}@{key[1] or ''}".encode()).hexdigest()[:32]


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


_FILES = TurnFiles()
