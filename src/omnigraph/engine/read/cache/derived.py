"""Arrays kept beside the graph so that a new process need not make them again.

A *bundle* is a folder of arrays with a note of their checksums, of the table and of the kind they are for; the note has
a checksum itself. It appears whole by one rename, is read through memory maps, and is never needed: one that is missing
or of another format is passed over, and one that is not what was written is removed, so that it is made anew. Only
graphs on a local disk have bundles; nothing here is written for small tables.

Every file is read through once by each process that uses it, before anything in it is believed: neither its size nor
its times tell that a disk still returns what was written.
"""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import os
import shutil
import threading
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.layout import CACHE_DIR
from omnigraph.ids import new_token

_log = logging.getLogger(__name__)

FORMAT = 3
NOTE = "facts.json"
"""The file of a bundle that tells of the others."""

KEPT = 3
"""Bundles of one kind kept per table; older ones are removed when a new one is written."""

Arrays = Mapping[str, Any]


class Bundle(Struct, frozen=True):
    """Arrays read back, numpy or Arrow strings, and the facts stored with them."""

    arrays: dict[str, Any]
    facts: dict[str, Any]


class DerivedStore:
    """The bundles of one table."""

    def __init__(self, folder: Path, *, table: str = "", read_only: bool = False) -> None:
        self._folder = folder
        self._table = table
        self.read_only = read_only

    @classmethod
    def of(cls, handle: TableHandle) -> DerivedStore | None:
        """Where the bundles of a table are, or None when its graph is not on a local disk.

        A branch of a table has most files in common with it, so that it uses its bundles; it leaves none, because those
        of many branches would be in each other's way.
        """
        uri = handle.table_uri.removeprefix("file://")
        if "://" in uri or not uri.endswith(handle.path):
            return None
        folder = Path(uri[: -len(handle.path)]) / CACHE_DIR / handle.path
        return cls(folder, table=handle.path, read_only=handle.read_only or handle.branch is not None)

    def names(self, kind: str) -> list[str]:
        """The bundles of a kind, newest first."""
        try:
            found = [entry for entry in os.scandir(self._folder) if entry.name.startswith(f"{kind}-")]
            return [entry.name for entry in sorted(found, key=lambda e: (e.stat().st_mtime_ns, e.name), reverse=True)]
        except OSError:
            # No folder, or one that vanishes while we look: there is nothing to be had.
            return []

    def facts(self, name: str) -> dict[str, Any] | None:
        """What was stored with a bundle's arrays, or None when it is no bundle of this format, table and kind."""
        try:
            text = (self._folder / name / NOTE).read_bytes()
        except OSError:
            return None
        try:
            facts = json.loads(text)
        except (ValueError, RecursionError):
            facts = None
        if not isinstance(facts, dict):
            self._refuse(name, NOTE)
            return None
        if facts.get("format") != FORMAT:
            # Of another release, and left to it: those before this one do not tell whether they are what was written.
            return None
        expected = {"table": self._table, "kind": name.rpartition("-")[0]}
        if facts.pop("checksum", None) != _note_checksum(facts) or not expected.items() <= facts.items():
            self._refuse(name, NOTE)
            return None
        return facts

    def load(self, name: str) -> Bundle | None:
        """A bundle whose checksums are right, memory-mapped, or None."""
        facts = self.facts(name)
        if facts is None:
            return None
        arrays = {}
        for file, note in facts["files"].items():
            path = self._folder / name / file
            try:
                if not _is_verified(path, note):
                    self._refuse(name, file)
                    return None
                arrays[path.stem] = _read(path)
            except FileNotFoundError:
                # Others may have removed the bundle as one of the older ones; then its note is gone, too.
                if (self._folder / name / NOTE).exists():
                    self._refuse(name, file)
                return None
            except OSError:
                # It cannot be read now, which says nothing about what it holds.
                return None
        return Bundle(arrays, facts)

    def _refuse(self, name: str, file: str) -> None:
        """Remove a bundle that is not what was written; what it held is made anew."""
        _log.warning("%s of %s/%s is not what was written; it is made anew", file, self._folder, name)
        if not self.read_only:
            self._remove(name)

    def _remove(self, name: str) -> None:
        """Take a bundle away as a whole, so that nobody finds a part of one."""
        gone = self._folder / f".{new_token()}"
        with suppress(OSError):
            os.rename(self._folder / name, gone)
        shutil.rmtree(gone, ignore_errors=True)

    def save(self, kind: str, arrays: Arrays, facts: Mapping[str, Any], *, kept: int | None = None) -> bool:
        """Write a bundle under a new name; False when we may not, which harms nobody."""
        if self.read_only:
            return False
        partial = self._folder / f".{new_token()}"
        try:
            partial.mkdir(parents=True)
            files = {}
            for name, array in arrays.items():
                path = _write(partial, name, array)
                files[path.name] = {"checksum": _checksum(path), "size": path.stat().st_size}
            note = {**facts, "format": FORMAT, "table": self._table, "kind": kind, "files": files}
            (partial / NOTE).write_text(json.dumps({**note, "checksum": _note_checksum(note)}))
            os.rename(partial, self._folder / f"{kind}-{new_token()}")
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)
            return False
        for old in self.names(kind)[KEPT if kept is None else kept :]:
            self._remove(old)
        return True


def _write(folder: Path, name: str, array: Any) -> Path:
    if isinstance(array, pa.Array):
        path = folder / f"{name}.arrow"
        table = pa.table({"values": array})
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return path
    path = folder / f"{name}.npy"
    np.save(path, array, allow_pickle=False)
    return path


def _read(path: Path) -> Any:
    if path.suffix == ".npy":
        # A plain view of the map: numpy's own memmap class makes every index slower.
        return np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)
    column = pa.ipc.open_file(pa.memory_map(str(path))).read_all().column(0)
    return wide.one_array(column)


def _note_checksum(note: Mapping[str, Any]) -> str:
    """A checksum of what a note says, however it is spelled."""
    text = json.dumps(note, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


_VERIFIED: dict[str, tuple[int, ...]] = {}
"""The files this process has read through, and which state of them."""
_VERIFIED_MAX = 4_096
_VERIFIED_LOCK = threading.Lock()


def _is_verified(path: Path, note: Mapping[str, Any]) -> bool:
    """Whether a file is what was written; read through once by a process, and again when it was touched since."""
    found = path.stat()
    # The time of the last change cannot be set back, as that of the last write can.
    state = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, note["checksum"])
    if _VERIFIED.get(str(path)) == state:
        return True
    if found.st_size != note["size"] or _checksum(path) != note["checksum"]:
        return False
    with _VERIFIED_LOCK:
        if len(_VERIFIED) >= _VERIFIED_MAX:
            _VERIFIED.clear()
        _VERIFIED[str(path)] = state
    return True


def _checksum(path: Path) -> int:
    """CRC-32 of a file: of what the standard library has, the quickest that finds every small damage."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return zlib.crc32(content)
