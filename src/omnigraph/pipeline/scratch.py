"""The folder a local Spark works in, and what killed processes have left of theirs.

Shuffles of a large load take as much disk as its rows. A process that ends takes its folder away; one that is killed
cannot, so the next to start a local Spark does. A folder in use is told by an advisory lock on a file in it, which the
system gives up when its process dies, however that happens and whatever its number means in another container.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # a system without advisory locks: nobody can tell what is in use, so all of it stays
    fcntl = None  # type: ignore[assignment]

_PREFIX = "omnigraph-spark-"
_LOCK = "in-use"


def make_scratch() -> str:
    """A new folder that lives as long as this process; those of killed ones are removed first."""
    remove_abandoned(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    atexit.register(_leave, folder, _hold(folder))
    return str(folder)


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


def _leave(folder: Path, held: BinaryIO) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    held.close()
