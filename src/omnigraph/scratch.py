"""Folders for what is only needed for a while, and what killed processes have left of theirs.

Shuffles of Spark, standard input kept for a load and a baseline on its way to a client may be as large as a graph. A
process that ends takes its folders away; one that is killed cannot, so the next that needs one does. A folder in use is
told by an advisory lock on a file in it, which the system gives up when its process dies, however that happens and
whatever its number means in another container.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # a system without advisory locks: nobody can tell what is in use, so all of it stays
    fcntl = None  # type: ignore[assignment]

_PREFIX = "omnigraph-"
_LOCK = "in-use"


class Scratch:
    """A folder of this process until it is removed, nobody has it any more, or the process ends."""

    def __init__(self, purpose: str) -> None:
        remove_abandoned(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-"))
        self._finalizer = weakref.finalize(self, _remove, self.path, _hold(self.path))

    def remove(self) -> None:
        """Take the folder away, if it is still there."""
        self._finalizer()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()


def remove_abandoned(parent: Path) -> None:
    """Remove the folders whose processes are gone. Others' and such as are just being made are left alone."""
    if fcntl is None:
        return
    for lock in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            with lock.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
        except OSError:  # in use, of another user, or another process was quicker
            continue


def _hold(folder: Path) -> BinaryIO:
    """The lock on a folder. The file gets its name when it is locked: a name without a lock means abandoned."""
    file = (folder / f"{_LOCK}.new").open("wb")
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)
        (folder / f"{_LOCK}.new").rename(folder / _LOCK)
    return file


def _remove(folder: Path, held: BinaryIO) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    held.close()
