"""Memory shared by all snapshots of a process, bounded by bytes.

Keys name immutable things (a data file, a deletion file, a table version), so an entry is right for ever and the only
reason to drop one is room. The least recently used go first. Most keys hold a tuple of data files. A table that is
written in small steps makes one such key after the other, each for what the last one named and a file more: these are
generations of one thing, and only the latest few are kept. When files are replaced, what begins with them goes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from msgspec import Struct

T = TypeVar("T")

DEFAULT_BYTES_MAX = 4 << 30
ENTRY_BYTES = 768
"""What an entry takes beside its content: its key, its objects and its places here."""
GENERATIONS = 8
"""How many generations of one thing are kept, so that readers of a few states do not take turns making theirs."""


class CacheUse(Struct, frozen=True):
    """What a cache holds now."""

    entries: int
    bytes: int


class ByteCache:
    """A thread-safe least-recently-used cache whose bound is the sum of its entries' sizes.

    An entry larger than the whole bound is handed to its caller and not kept.
    """

    def __init__(self, bytes_max: int = DEFAULT_BYTES_MAX, *, entry_bytes: int = ENTRY_BYTES) -> None:
        self._bytes_max, self._entry_bytes = bytes_max, entry_bytes
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._families: dict[Hashable, dict[Hashable, None]] = {}
        self._begun: dict[str, set[Hashable]] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Any | None:
        """The entry, now the most recently used, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep an entry, dropping others until everything fits."""
        with self._lock:
            self._drop(key)
            size += self._entry_bytes
            if size > self._bytes_max:
                return
            self._entries[key] = (value, size)
            self._bytes += size
            self._file(key)
            self._shrink()

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
            self._shrink()

    def forget(self, files: Iterable[str]) -> None:
        """Drop what begins with one of these files: nobody who reads the newest state asks for it again."""
        with self._lock:
            for file in files:
                for family in tuple(self._begun.get(file, ())):
                    for key in tuple(self._families[family]):
                        self._drop(key)

    def clear(self) -> None:
        """Forget everything; the next reads start from storage."""
        with self._lock:
            self._entries.clear()
            self._families.clear()
            self._begun.clear()
            self._bytes = 0

    def use(self) -> CacheUse:
        """What is held now."""
        with self._lock:
            return CacheUse(len(self._entries), self._bytes)

    def _shrink(self) -> None:
        while self._bytes > self._bytes_max:
            self._drop(next(iter(self._entries)))

    def _file(self, key: Hashable) -> None:
        """Put a new key to its family, whose oldest member goes when there are too many."""
        family, file = _family(key)
        if file is None:
            return
        members = self._families.get(family)
        if members is None:
            members = self._families[family] = {}
            self._begun.setdefault(file, set()).add(family)
        members[key] = None
        if len(members) > GENERATIONS:
            self._drop(next(iter(members)))

    def _drop(self, key: Hashable) -> None:
        old = self._entries.pop(key, None)
        if old is None:
            return
        self._bytes -= old[1]
        family, file = _family(key)
        if file is None:
            return
        members = self._families[family]
        del members[key]
        if not members:
            del self._families[family]
            self._begun[file].discard(family)
            if not self._begun[file]:
                del self._begun[file]


def _family(key: Hashable) -> tuple[Hashable, str | None]:
    """The thing that a key names a generation of, and the data file it begins with; None for a key without files."""
    if not isinstance(key, tuple):
        return key, None
    for place, part in enumerate(key):
        if isinstance(part, tuple) and part:
            first = part[0]
            while isinstance(first, tuple) and first:
                first = first[0]
            if isinstance(first, str):
                # Deletions of a file come one after the other, too; the files are all they have in common.
                after = () if key[0] == DELETED else key[place + 1 :]
                return (*key[:place], first, *after), first
    return key, None


DELETED = "deleted"
"""The first part of keys for the deleted rows of a fragment."""

SHARED = ByteCache()
"""The one cache of the process; every graph, snapshot, reader and writer in it shares the bound."""


def column_key(files: tuple[str, ...], field: Hashable) -> tuple[Hashable, ...]:
    """The key of a whole column of some data files, so that whoever reads it, reads it for all."""
    return ("column", files, field)


def sorted_key(files: tuple[str, ...], field: Hashable) -> tuple[Hashable, ...]:
    """The key of the sorted values of that column, which readers and writers search alike."""
    return ("sorted", files, field)
