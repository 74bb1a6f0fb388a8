"""Deletion files, read directly: which rows of a fragment are gone.

Asking Lance for the deleted rows reads the row ids of the whole fragment; its deletion file is a few bytes. Small sets
are stored as one Arrow column of offsets, larger ones as a Roaring bitmap in its portable form.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.catalog import arrays
from omnigraph.errors import FormatError

Offsets = npt.NDArray[np.uint32]

_WITH_RUNS, _WITHOUT_RUNS = 12347, 12346
_ARRAY_MAX = 4096
_OFFSETS_FROM = 4
_BITMAP_BYTES = 8192


def read_deletion_file(path: str) -> Offsets | None:
    """The deleted offsets of one local deletion file, ascending; None when the file is not at this place."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return None
    if path.endswith(".arrow"):
        column = pa.ipc.open_file(pa.BufferReader(content)).read_all().column(0)
        return np.sort(arrays.to_numpy(column).astype(np.uint32))
    return decode_roaring(content)


def decode_roaring(content: bytes) -> Offsets:
    """The members of a portable Roaring bitmap, ascending.

    Raises:
        FormatError: the bytes are not one.
    """
    words = np.frombuffer(content[:8], dtype="<u4")
    cookie = int(words[0])
    if cookie & 0xFFFF == _WITH_RUNS:
        count, at = (cookie >> 16) + 1, 4
        marks = np.frombuffer(content, dtype=np.uint8, count=(count + 7) // 8, offset=at)
        is_run = np.unpackbits(marks, bitorder="little")[:count].astype(np.bool_)
        at += len(marks)
    elif cookie == _WITHOUT_RUNS:
        count, at = int(words[1]), 8
        is_run = np.zeros(count, dtype=np.bool_)
    else:
        raise FormatError(f"a deletion file starts with {cookie}, which no Roaring bitmap does")
    header = np.frombuffer(content, dtype="<u2", count=2 * count, offset=at).astype(np.uint32).reshape(count, 2)
    at += 4 * count
    if cookie == _WITHOUT_RUNS or count >= _OFFSETS_FROM:
        at += 4 * count
    parts = [np.empty(0, dtype=np.uint32)]
    for (key, fewer), run in zip(header.tolist(), is_run.tolist(), strict=True):
        members, at = _container(content, at, fewer + 1, run=run)
        parts.append(members + np.uint32(key << 16))
    return np.concatenate(parts)


def _container(content: bytes, at: int, cardinality: int, *, run: bool) -> tuple[Offsets, int]:
    if run:
        runs = int(np.frombuffer(content, dtype="<u2", count=1, offset=at)[0])
        pairs = np.frombuffer(content, dtype="<u2", count=2 * runs, offset=at + 2).astype(np.uint32).reshape(runs, 2)
        members = [np.arange(start, start + length + 1, dtype=np.uint32) for start, length in pairs.tolist()]
        return np.concatenate(members), at + 2 + 4 * runs
    if cardinality <= _ARRAY_MAX:
        plain = np.frombuffer(content, dtype="<u2", count=cardinality, offset=at).astype(np.uint32)
        return plain, at + 2 * cardinality
    bits = np.frombuffer(content, dtype=np.uint8, count=_BITMAP_BYTES, offset=at)
    return np.flatnonzero(np.unpackbits(bits, bitorder="little")).astype(np.uint32), at + _BITMAP_BYTES
