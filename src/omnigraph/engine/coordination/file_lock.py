"""Writers of one machine take turns, so that they seldom prepare what another is about to outdate.

A turn is an advisory lock on a small file, one per table and branch, in a folder of the user below the system's
temporary one. It is a courtesy and nothing else: correctness rests on strict commits and the publish, so a turn that
cannot be had in time, or at all, is simply done without. The system gives up the locks of a process that dies; the
files of graphs that nobody writes any more are removed by whoever adds one.

A turn is the opened file itself, an object that closes what it opened when it is closed or when nobody has it any
more. A number in its place would be lost to an interrupt between opening and noting it, with the lock held for ever.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import stat
import tempfile
import time
import weakref
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

# Only what is held is open: a process may write many graphs, and descriptors are few.
_opened: weakref.WeakSet[io.FileIO] = weakref.WeakSet()
# Called by the file object itself and written in C, so that no interrupt comes between opening and owning.
_private = functools.partial(os.open, mode=0o600)
_POLL_SECONDS = (0.0005, 0.001, 0.002)

Key = tuple[str, str | None]


class TurnFiles:
    """The files of one user on this machine, made when needed and kept few. All trouble means: no turns."""

    def __init__(self, folder: str | None = None) -> None:
        user = os.getuid() if hasattr(os, "getuid") else 0
        self.folder = folder or os.path.join(tempfile.gettempdir(), f"omnigraph-turns-{user}")
        self._added = 0

    def open(self, name: str, *, create: bool) -> io.FileIO | None:
        """The opened file, or None when there is none to be had."""
        if fcntl is None:
            return None
        path = os.path.join(self.folder, name)
        try:
            return _open(path, "r+") if self._is_ours() else None
        except FileNotFoundError:
            return self._add(path) if create else None
        except OSError:
            return None

    def _add(self, path: str) -> io.FileIO | None:
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            if not self._is_ours():
                return None
            if self._added % LOOK_EVERY == 0:
                self.remove_stale()
            self._added += 1
            return _open(path, "a+")
        except OSError:
            return None

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
            with _open(path, "r+") as file:
                if _locked(file):
                    os.unlink(path)
        except OSError:
            return


class Turns:
    """The turns of one graph. Within the process the caller already excludes others of the same key."""

    def __init__(self, root: str, files: TurnFiles | None = None) -> None:
        self._root = root
        self._files = files or _FILES

    def take(self, key: Key, deadline: float) -> io.FileIO | None:
        """Wait for the turn of one table, which ends when what is returned is closed; None when it is done without."""
        attempt = 0
        while True:
            file = self._files.open(_name(self._root, key), create=True)
            if file is None:
                return None
            try:
                while not _locked(file):
                    if time.monotonic() >= deadline:
                        file.close()
                        return None
                    time.sleep(_POLL_SECONDS[min(attempt, len(_POLL_SECONDS) - 1)])
                    attempt += 1
                if os.fstat(file.fileno()).st_nlink:
                    with contextlib.suppress(OSError):  # a file that looks older than it is goes a little early
                        os.utime(file.fileno())
                    return file
            except BaseException:
                file.close()
                raise
            # Somebody removed the file while this writer waited for it; the next one will look for a new file.
            file.close()

    def busy(self, keys: Iterable[Key]) -> bool:
        """True when somebody has one of the turns now; only a hint."""
        for key in keys:
            file = self._files.open(_name(self._root, key), create=False)
            if file is not None:
                with file:
                    if not _locked(file):
                        return True
        return False


@functools.lru_cache(maxsize=FILES_MAX)
def _name(root: str, key: Key) -> str:
    return hashlib.sha256(f"{root}\0{key[0]}@{key[1] or ''}".encode()).hexdigest()[:32]


def _open(path: str, mode: str) -> io.FileIO:
    # A link would be somebody's trick; nobody else can put one into a folder that is found to be ours.
    if os.path.islink(path):
        raise FileNotFoundError(path)
    file = io.FileIO(path, mode, opener=_private)
    _opened.add(file)
    return file


def _locked(file: io.FileIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _close_inherited() -> None:
    """A lock belongs to the opened file, which a forked child shares: its copies would keep what its parent gives."""
    for file in list(_opened):
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)

_FILES = TurnFiles()
