"""The two zeros of floating point: equal as numbers, and told apart by Arrow wherever it hashes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def one_zero(values: Any) -> Any:
    """Floats with every zero positive, because the two zeros are equal and Arrow hashes them apart; others as is."""
    return pc.add(values, pa.scalar(0, values.type)) if _has_zero(values) else values


def both_zeros(values: pa.Array) -> pa.Array:
    """Values to look for: where zero is among them, so is the other zero."""
    if not _has_zero(values):
        return values
    return pc.unique(pa.concat_arrays([values, pa.array([0.0, -0.0], values.type)]))


def _has_zero(values: Any) -> bool:
    if values.type not in (pa.float32(), pa.float64()):
        return False
    return bool(pc.any(pc.equal(values, pa.scalar(0, values.type)), min_count=0).as_py())
