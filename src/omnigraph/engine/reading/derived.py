"""Arrays kept beside the graph so that a new process need not make them again.

A *bundle* is a folder of arrays with a note of their checksums. It appears whole by one rename, is read through memory
maps, and is never needed: one that is missing, torn or of another format is made anew. Only graphs on a local disk
have bundles; nothing here is written for small tables.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.layout import CACHE_DIR
from omnigraph.ids import new_token

FORMAT = 2

KEPT = 3
"""Bundles of one kind kept per table; older ones are removed when a new one is written."""

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Bundle:
    """Arrays read back, numpy or Arrow strings, and the facts stored with them."""

    arrays: dict[str, Any]
    facts: dict[str, Any]


class DerivedStore:
    """The bundles of one table."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self._folder = folder
        self._read_only = read_only

    @classmethod
    def of(cls, handle: TableHandle) -> DerivedStore | None:
        """Where the bundles of a table are, or None when its graph is not on a local disk."""
        uri = handle.uri.removeprefix("file://")
        if "://" in uri or not uri.endswith(handle.path):
            return None
        return cls(Path(uri[: -len(handle.path)]) / CACHE_DIR / handle.path, read_only=handle.read_only)

    def names(self, kind: str) -> list[str]:
        """The bundles of a kind, newest first."""
        try:
            found = [entry for entry in os.scandir(self._folder) if entry.name.startswith(f"{kind}-")]
            return [entry.name for entry in sorted(found, key=lambda e: (e.stat().st_mtime_ns, e.name), reverse=True)]
        except OSError:
            # No folder, or one that vanishes while we look: there is nothing to be had.
            return []

    def facts(self, name: str) -> dict[str, Any] | None:
        """What was stored with a bundle's arrays, or None when it is no bundle of this format."""
        try:
            facts = json.loads((self._folder / name / "facts.json").read_bytes())
        except (OSError, ValueError):
            return None
        return facts if isinstance(facts, dict) and facts.get("format") == FORMAT else None

    def load(self, name: str) -> Bundle | None:
        """A bundle whose checksums are right, memory-mapped, or None."""
        facts = self.facts(name)
        if facts is None:
            return None
        try:
            arrays = {}
            for file, note in facts["files"].items():
                path = self._folder / name / file
                arrays[path.stem] = _read(path)
                if not (_is_untouched(path, facts, note) or _checksum(path) == note["checksum"]):
                    return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowInvalid):
            return None
        return Bundle(arrays, facts)

    def save(self, kind: str, arrays: Arrays, facts: Mapping[str, Any], *, kept: int = KEPT) -> bool:
        """Write a bundle under a new name; False when we may not, which harms nobody."""
        if self._read_only:
            return False
        partial = self._folder / f".{new_token()}"
        try:
            partial.mkdir(parents=True)
            files = {}
            for name, array in arrays.items():
                path = _write(partial, name, array)
                found = path.stat()
                files[path.name] = {"checksum": _checksum(path), "size": found.st_size, "changed": found.st_mtime_ns}
            note = {"format": FORMAT, "boot": _boot_id(), "files": files, **facts}
            (partial / "facts.json").write_text(json.dumps(note))
            os.rename(partial, self._folder / f"{kind}-{new_token()}")
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)
            return False
        for old in self.names(kind)[kept:]:
            shutil.rmtree(self._folder / old, ignore_errors=True)
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
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _is_untouched(path: Path, facts: Mapping[str, Any], note: Mapping[str, Any]) -> bool:
    """Whether a file is as it was written since this machine started, so that reading all of it would tell nothing.

    What a process has written, every later one reads, until the power goes: only then can parts of a file be missing.
    """
    found = path.stat()
    is_same = (found.st_size, found.st_mtime_ns) == (note["size"], note["changed"])
    return is_same and facts["boot"] is not None and facts["boot"] == _boot_id()


@cache
def _boot_id() -> str | None:
    """A name for the time since this machine started; None where the system gives none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def _checksum(path: Path) -> int:
    checksum = 0
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            checksum = zlib.crc32(block, checksum)
    return checksum
