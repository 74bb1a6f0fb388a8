"""Deletion files, read directly: which rows of a fragment are gone.

Asking Lance for the deleted rows reads the row ids of the whole fragment; its deletion file is a few bytes. Small sets
are stored as one Arrow column of offsets, larger ones as a Roaring bitmap in its portable form.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from omnigraph.errors import FormatError

Offsets = npt.NDArray[np.uint32]


def read_deletion_file(path: str) -> Offsets | None:
    """The deleted offsets of one local deletion file, ascending; None when the file is not at this place."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return None
    if path.endswith(".arrow"):
        column = pa.ipc.open_file(pa.BufferReader(content)).read_all().column(0)
        return np.sort(column.to_numpy(zero_copy_only=False).astype(np.uint32))
    return decode_roaring(content)


def decode_roaring(content: bytes) -> Offsets:
    """The members of a portable Roaring bitmap, ascending.

    Raises:
        FormatError: the bytes are not one.
    """
    try:
        bitmap = BitMap.deserialize(content)
    except (ValueError, IndexError) as exc:
        raise FormatError("a deletion file holds no Roaring bitmap: it is damaged") from exc
    return np.frombuffer(bitmap.to_array(), dtype=np.uint32)
