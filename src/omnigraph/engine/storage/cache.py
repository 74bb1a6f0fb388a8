"""Memory shared by all snapshots of a process, bounded by bytes.

Keys name immutable things (a data file, a deletion file, a table version), so an entry is right for ever and the only
reason to drop one is room. The least recently used go first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from omnigraph.dataclass import dataclass

T = TypeVar("T")

DEFAULT_BYTES_MAX = 4 << 30


@dataclass(frozen=True)
class CacheUse:
    """What a cache holds now and how it has served so far."""

    entries: int
    bytes: int
    hits: int
    misses: int


class ByteCache:
    """A thread-safe least-recently-used cache whose bound is the sum of its entries' sizes.

    An entry larger than the whole bound is handed to its caller and not kept.
    """

    def __init__(self, bytes_max: int = DEFAULT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._hits = 0
        self._misses = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Any | None:
        """The entry, now the most recently used, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep an entry, dropping others until everything fits."""
        with self._lock:
            self._drop(key)
            if size > self._bytes_max:
                return
            self._entries[key] = (value, size)
            self._bytes += size
            while self._bytes > self._bytes_max:
                _, (_, freed) = self._entries.popitem(last=False)
                self._bytes -= freed

    def get_or_make(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """The entry, made on a miss. Two threads may both make it: the work repeats, the answer is the same."""
        found = self.get(key)
        if found is not None:
            return found  # type: ignore[no-any-return]
        made = make()
        self.put(key, made, size(made))
        return made

    def has_room_for(self, size: int) -> bool:
        """Whether an entry of this size would leave most of the room to others."""
        return size <= self._bytes_max // 4

    def resize(self, bytes_max: int) -> None:
        """Change the bound, dropping what no longer fits."""
        with self._lock:
            self._bytes_max = bytes_max
            while self._bytes > self._bytes_max:
                _, (_, freed) = self._entries.popitem(last=False)
                self._bytes -= freed

    def clear(self) -> None:
        """Forget everything; the next reads start from storage."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0

    def use(self) -> CacheUse:
        """What is held now, and the hits and misses since the process began."""
        with self._lock:
            return CacheUse(len(self._entries), self._bytes, self._hits, self._misses)

    def _drop(self, key: Hashable) -> None:
        old = self._entries.pop(key, None)
        if old is not None:
            self._bytes -= old[1]


SHARED = ByteCache()
"""The one cache of the process; every graph, snapshot, reader and writer in it shares the bound."""


def column_key(files: tuple[str, ...], field: Hashable) -> tuple[Hashable, ...]:
    """The key of a whole column of some data files, so that whoever reads it, reads it for all."""
    return ("column", files, field)
