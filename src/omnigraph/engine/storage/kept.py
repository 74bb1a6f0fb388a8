"""Handles kept open for the next reader, and what the process may forget when newer ones come.

Small commits are folded again and again, so a process that writes for long would keep a little of every data file there
ever was. A newer version of a table shows which files it has replaced; what is kept of them in memory goes. The files
stay on disk: whoever reads an earlier version reads them anew.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection

import lance

from omnigraph.engine.storage import folding
from omnigraph.engine.storage.cache import SHARED
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.written import WRITTEN

HANDLES_MAX = 64
SESSION_INDEX_BYTES = 256 << 20
SESSION_METADATA_BYTES = 32 << 20
"""Lance keeps what it knows of every version it has seen until this is full; it takes half as much again."""

HandleKey = tuple[str, str | None, int, str | None]


class KeptHandles:
    """The most recently used handles of one root, and the newest of each branch of a table."""

    def __init__(self) -> None:
        self._handles: OrderedDict[HandleKey, TableHandle] = OrderedDict()
        self._newest: OrderedDict[tuple[str, str | None], TableHandle] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: HandleKey) -> TableHandle | None:
        """A kept handle by path, branch, version and tag."""
        with self._lock:
            handle = self._handles.get(key)
            if handle is not None:
                self._handles.move_to_end(key)
            return handle

    def put(self, handle: TableHandle, tag: str | None) -> None:
        """Keep a handle, dropping the least recently used one beyond the bound, and what its version replaces."""
        place = (handle.path, handle.branch)
        with self._lock:
            self._handles[(*place, handle.version, tag)] = handle
            while len(self._handles) > HANDLES_MAX:
                self._handles.popitem(last=False)
            older = self._newest.get(place)
            is_newer = older is None or older.version < handle.version
            if is_newer:
                self._newest[place] = handle
                self._newest.move_to_end(place)
            while len(self._newest) > HANDLES_MAX:
                self._newest.popitem(last=False)
        if older is not None and is_newer:
            forget_files(replaced_files(older, handle))

    def clear(self) -> None:
        """Keep none."""
        with self._lock:
            self._handles.clear()
            self._newest.clear()

    def files(self) -> set[str]:
        """The data files of all kept handles."""
        with self._lock:
            handles = {*self._handles.values(), *self._newest.values()}
        return {file for handle in handles for fragment in handle.fragments() for file in fragment.files}


def new_session() -> lance.Session:
    """What Lance keeps of the tables of one root, with nothing in it."""
    return lance.Session(index_cache_size_bytes=SESSION_INDEX_BYTES, metadata_cache_size_bytes=SESSION_METADATA_BYTES)


def replaced_files(older: TableHandle, newer: TableHandle) -> set[str]:
    """The files of an older version that a newer one of the same branch has replaced.

    What a branch replaces, another may still have: there only files that are read again in no time count.
    """
    before, after = older.fragments(), newer.fragments()
    if before == after[: len(before)]:
        return set()
    kept = {file for fragment in after for file in fragment.files}
    return {
        file
        for fragment in before
        if newer.branch is None or fragment.physical_rows < folding.FOLD_ROWS
        for file in fragment.files
        if file not in kept
    }


def forget_files(files: Collection[str]) -> None:
    """Drop what this process keeps of some data files."""
    if files:
        SHARED.forget(files)
        WRITTEN.forget(files)
