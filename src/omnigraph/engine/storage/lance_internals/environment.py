"""What Lance reads from the environment by itself, where a value makes it hang instead of fail."""

from __future__ import annotations

import os

from omnigraph.errors import StorageError

IO_THREADS = "LANCE_IO_THREADS"
_FEWEST = 2


def check_commits_end() -> None:
    """Refuse to begin writing where every commit would hang: Lance waits in one for a thread that it does not have.

    Raises:
        StorageError: the environment allows fewer threads than a commit needs, or names no number of them.
    """
    given = os.environ.get(IO_THREADS)
    if given is None or (given.isascii() and given.isdigit() and int(given) >= _FEWEST):
        return
    raise StorageError(
        f"the environment variable {IO_THREADS} is '{given}', and with that Lance hangs in every commit: unset it or"
        f" set {_FEWEST} or more; a graph can still be read with read_only=True",
        kind="configuration",
    )
