"""How far a local write is pushed before it counts.

Lance and the object store write files and rename them, but never sync: after a process crash everything is there,
after a power cut it may not be. `FULL` syncs each new file and the directories that lead to it, in the order the
protocol needs; `FAST` leaves that to the operating system. On object stores a successful put is durable, so both mean
the same.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import StrEnum

from omnigraph.engine.storage.translate import translated
from omnigraph.ids import new_ulid


class Durability(StrEnum):
    """What an acknowledged write survives: `FAST` a killed process, `FULL` a power cut as well."""

    FAST = "fast"
    FULL = "full"


_settled: set[tuple[str, int, int]] = set()
_settled_lock = threading.Lock()


_asked: ContextVar[Durability | None] = ContextVar("omnigraph_durability", default=None)


@contextmanager
def durability_of(durability: Durability) -> Iterator[None]:
    """Give the writes of this block, in this thread, another durability than their store's."""
    token = _asked.set(durability)
    try:
        yield
    finally:
        _asked.reset(token)


def is_full(default: Durability) -> bool:
    """True when writes must be synced here: as the surrounding block asks, else as the store does."""
    return (_asked.get() or default) is Durability.FULL


def sync_files(paths: Iterable[str]) -> None:
    """Sync files, the directories that name them, and once per process the directories that name those."""
    folders: dict[str, None] = {}
    with translated("syncing to disk"):
        for path in paths:
            for file in (path, *_beside(path)):
                _sync(file)
                folders[os.path.dirname(file)] = None
        for folder in folders:
            _sync_folder(folder)


def replace_durably(path: str, content: bytes) -> None:
    """Write a file so that even after a power cut it is the old one or the new one."""
    temporary = _written(path, content)
    os.replace(temporary, path)
    _sync_folder(os.path.dirname(path))


def replace_file(path: str, content: bytes) -> None:
    """Write a file so that everybody sees the old one or the new one; nothing is synced."""
    temporary = f"{path}#{os.urandom(12).hex()}"
    try:
        _fill(temporary, content)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _fill(temporary, content)
    try:
        os.replace(temporary, path)
    except BaseException:
        _drop(temporary)
        raise


def _fill(path: str, content: bytes) -> None:
    """Write a new file whole, or leave none."""
    with open(path, "xb", buffering=0) as file:
        try:
            if file.write(content) != len(content):
                raise OSError(errno.ENOSPC, "only a part of it could be written", path)
        except BaseException:
            _drop(path)
            raise


def _drop(path: str) -> None:
    with suppress(FileNotFoundError):  # an interrupt may have come when it had its other name already
        os.unlink(path)


def create_durably(path: str, content: bytes) -> None:
    """Write a file that must not be there yet; nobody ever sees a part of it.

    Raises:
        FileExistsError: it is there; it was not touched.
    """
    temporary = _written(path, content)
    try:
        os.link(temporary, path)
    finally:
        os.unlink(temporary)
    _sync_folder(os.path.dirname(path))


def _written(path: str, content: bytes) -> str:
    """A synced temporary file beside the one to be; the sign in its name keeps it out of listings."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}#{new_ulid()}"
    with open(temporary, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return temporary


def _sync_folder(folder: str) -> None:
    _sync(folder)
    _settle(folder)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _beside(path: str) -> list[str]:
    """The large values of a data file, which lie in a folder of the same name."""
    folder = path.removesuffix(".lance")
    if folder == path or not os.path.isdir(folder):
        return []
    return [entry.path for entry in os.scandir(folder)]


def _settle(folder: str) -> None:
    """Sync the directories above a new one, as far up as this process could have made them."""
    while True:
        found = os.stat(folder)
        key = (folder, found.st_dev, found.st_ino)
        parent = os.path.dirname(folder)
        if key in _settled or parent == folder:
            return
        if os.access(parent, os.W_OK):
            _sync(parent)
        with _settled_lock:
            _settled.add(key)
        folder = parent
