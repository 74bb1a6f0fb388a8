"""Row versions of rewritten fragments, kept small.

Lance stores in each version, per fragment, runs of rows that were created and last changed together. A fragment folded
from thousands of one-row writes would have a run per row, and every later commit would write them all again. So beyond
a bound the versions are rounded to blocks of equal size until few runs are left: the last change up, the creation down.
Rounded that way a row never seems older in content or younger in origin than it is, so whoever selects by these columns
and then compares values misses nothing. Blocks nest, so rounding again loses no more than the larger block.
"""

from __future__ import annotations

import functools
import json

import numpy as np
import numpy.typing as npt
from lance.fragment import FragmentMetadata, RowDatasetVersionMeta

from omnigraph.engine.storage.handle import TableHandle

RUNS_MAX = 128

Versions = npt.NDArray[np.uint64]
_CREATED, _UPDATED = "_row_created_at_version", "_row_last_updated_at_version"


def bound_row_versions(base: TableHandle, originals: list[int], written: list[FragmentMetadata]) -> None:
    """Bound the version runs of fragments that hold the live rows of `originals`, in order."""
    if all(fragment.physical_rows <= RUNS_MAX for fragment in written):
        return
    found = base.scan([_CREATED, _UPDATED], fragment_ids=originals, scan_in_order=True)
    created, updated = (found[name].to_numpy().astype(np.uint64) for name in (_CREATED, _UPDATED))
    start = 0
    for fragment in written:
        rows = slice(start, start + fragment.physical_rows)
        start += fragment.physical_rows
        fragment.created_at_version_meta = _encode(round_down(created[rows]))
        fragment.last_updated_at_version_meta = _encode(round_up(updated[rows], base.version))


def round_down(versions: Versions) -> Versions:
    """Versions rounded down to the smallest blocks that leave few runs, and never below the first version."""
    bits = _bits(versions)
    rounded: Versions = np.maximum(versions >> bits << bits, np.uint64(1))
    return rounded


def round_up(versions: Versions, newest: int) -> Versions:
    """Versions rounded up to the end of the smallest blocks that leave few runs, and never above the newest."""
    bits = _bits(versions)
    ends = ((versions >> bits) + np.uint64(1) << bits) - np.uint64(1)
    rounded: Versions = np.minimum(ends, np.uint64(newest))
    return rounded


def _bits(versions: Versions) -> np.uint64:
    bits = 0
    while len(_starts(versions >> np.uint64(bits))) > RUNS_MAX:
        bits += 1
    return np.uint64(bits)


def _starts(values: Versions) -> npt.NDArray[np.int64]:
    """Where runs of equal values begin."""
    return np.flatnonzero(np.r_[True, values[1:] != values[:-1]])


def _encode(versions: Versions) -> RowDatasetVersionMeta:
    """Runs in the form Lance keeps them: repeated {1: {1: {2: length}}, 2: version}, as protocol buffers."""
    starts = _starts(versions)
    lengths = np.diff(np.r_[starts, len(versions)])
    content = bytearray()
    for length, version in zip(lengths.tolist(), versions[starts].tolist(), strict=True):
        segment = _message(1, _message(1, b"\x10" + _varint(length)))
        content += _message(1, segment + b"\x10" + _varint(version))
    return RowDatasetVersionMeta.from_json(json.dumps({"inline": list(content)}))


def _message(field: int, body: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(body)) + body


@functools.lru_cache(maxsize=4096)
def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
