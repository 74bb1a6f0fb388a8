"""How far a local write is pushed before it counts.

Lance and the object store write files and rename them, but never sync: after a process crash everything is there,
after a power cut it may not be. `FULL` syncs each new file and the directories that lead to it, in the order the
protocol needs; `FAST` leaves that to the operating system. On object stores a successful put is durable, so both mean
the same.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
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
    temporary = _temporary(path, content)
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


_RENAMEAT2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
"""What a system answers that cannot exchange files, as some network folders."""


def replace_if_same(path: str, content: bytes, mark: object, *, durably: bool) -> bool:
    """Replace a file if it is the one that `file_mark` has marked; False when it is gone, or another one by now.

    A rename makes a file where there is none. So the new one is exchanged with the old one, which has to be there, and
    is given back if it is another. Where the system cannot exchange files, one that goes between the last look and the
    rename comes back.
    """
    temporary = f"{path}#{new_ulid()}"
    try:
        _written(temporary, content) if durably else _fill(temporary, content)
        if not _exchange(temporary, path, mark):
            return False
    except FileNotFoundError:
        return False
    finally:
        _drop(temporary)
    if durably:
        _sync_folder(os.path.dirname(path))
    return True


def _exchange(new: str, path: str, mark: object) -> bool:
    if file_mark(os.stat(path)) != mark:
        return False
    if not _exchanged(new, path):
        os.replace(new, path)
        return True
    if file_mark(os.stat(new)) == mark:
        return True
    _exchanged(new, path)
    return False


def _exchanged(one: str, other: str) -> bool:
    """Let two files have each other's names, in one step; False where the system cannot do that."""
    if _RENAMEAT2 is None:
        return False
    if _RENAMEAT2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code), other)


def remove_if_same(path: str, mark: object) -> bool:
    """Remove a file if it is the one that `file_mark` has marked; False when it is gone, or another one by now.

    It is taken away under another name first, so that nobody can put one in its place between the look and the removal.
    """
    taken = f"{path}#{new_ulid()}"
    try:
        if file_mark(os.stat(path)) != mark:
            return False
        os.rename(path, taken)
    except FileNotFoundError:
        return False
    try:
        if file_mark(os.stat(taken)) == mark:
            return True
        with suppress(FileExistsError):  # a third one has come already, and stays
            os.link(taken, path)
        return False
    finally:
        _drop(taken)


def file_mark(found: os.stat_result) -> object:
    """What tells a file from every other one that had, or will have, its name."""
    return (found.st_ino, found.st_mtime_ns, found.st_size)


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
    temporary = _temporary(path, content)
    try:
        os.link(temporary, path)
    finally:
        os.unlink(temporary)
    _sync_folder(os.path.dirname(path))


def _temporary(path: str, content: bytes) -> str:
    """A synced temporary file beside the one to be; the sign in its name keeps it out of listings."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}#{new_ulid()}"
    _written(temporary, content)
    return temporary


def _written(path: str, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


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
