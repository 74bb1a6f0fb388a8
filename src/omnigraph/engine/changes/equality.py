"""When two values are the same, column by column.

Null equals null and nothing else: not an empty text, not an empty list. Numbers are compared by value, so both zeros
are one, and NaN equals NaN. Texts are compared by code points; lists and vectors by length, then item by item.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bools = npt.NDArray[np.bool_]


def equal_values(left: pa.Array, right: pa.Array) -> Bools:
    """Which rows of two columns hold the same value; of two types of numbers one is wider, and both are read as that.

    >>> equal_values(pa.array([1.0, None, float("nan"), -0.0]), pa.array([1.0, 0.0, float("nan"), 0.0])).tolist()
    [True, False, True, True]
    """
    if left.type != right.type and pa.types.is_primitive(left.type):
        wider = max(left.type, right.type, key=lambda kind: kind.bit_width)
        left, right = left.cast(wider), right.cast(wider)
    valid, valid_too = np.asarray(left.is_valid(), dtype=np.bool_), np.asarray(right.is_valid(), dtype=np.bool_)
    same = np.asarray(valid == valid_too)
    both = np.flatnonzero(valid & valid_too)
    if len(both):
        one, other = (
            (left, right) if len(both) == len(left) else (left.take(pa.array(both)), right.take(pa.array(both)))
        )
        same[both] = _equal_present(one, other)
    return same


def _equal_present(left: pa.Array, right: pa.Array) -> Bools:
    """The same for columns without nulls."""
    kind = left.type
    if pa.types.is_fixed_size_list(kind):
        width = kind.list_size
        items = equal_values(left.flatten(), right.flatten())
        return np.asarray(items.reshape(len(left), width).all(axis=1))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _equal_lists(left, right)
    if pa.types.is_floating(kind):
        one, other = left.to_numpy(zero_copy_only=False), right.to_numpy(zero_copy_only=False)
        return np.asarray((one == other) | (np.isnan(one) & np.isnan(other)))
    if pa.types.is_struct(kind):
        same = np.ones(len(left), dtype=np.bool_)
        for one, other in zip(left.flatten(), right.flatten(), strict=True):
            same &= equal_values(one, other)
        return same
    return np.asarray(pc.equal(left, right), dtype=np.bool_)


def _equal_lists(left: pa.Array, right: pa.Array) -> Bools:
    lengths = _lengths(left)
    same = lengths == _lengths(right)
    alike = np.flatnonzero(same & (lengths > 0))
    if len(alike):
        rows = pa.array(alike)
        items = equal_values(left.take(rows).flatten(), right.take(rows).flatten())
        starts = np.concatenate(([0], np.cumsum(lengths[alike])[:-1]))
        same[alike] = np.logical_and.reduceat(items, starts)
    return np.asarray(same)


def _lengths(lists: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.list_value_length(lists).to_numpy(zero_copy_only=False), dtype=np.int64)
