"""How far a local write is pushed before it counts.

Lance and the object store write files and rename them, but never sync: after a process crash everything is there,
after a power cut it may not be. `FULL` syncs each new file and its directory in the order the protocol needs; `FAST`
leaves that to the operating system. On object stores a successful put is durable, so both mean the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import StrEnum

from omnigraph.engine.storage.translate import translated


class Durability(StrEnum):
    """What an acknowledged write survives: `FAST` a killed process, `FULL` a power cut as well."""

    FAST = "fast"
    FULL = "full"


def sync_files(paths: Iterable[str]) -> None:
    """Sync files and then, once each, the directories that name them."""
    folders: dict[str, None] = {}
    with translated("syncing to disk"):
        for path in paths:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            folders[os.path.dirname(path)] = None
        for folder in folders:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
