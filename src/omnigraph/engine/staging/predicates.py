"""`where property op value`, evaluated over a column.

One function serves committed and pending rows, so both are judged alike. Numbers compare by mathematical value: a value
the column's type cannot hold is replaced by its nearest neighbour together with the side it lies on. An F32 column
compares after rounding the value to F32. A null on either side is never satisfied.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.types import FLOATS, INTEGER_RANGES, PropertyType, Scalar
from omnigraph.catalog.values import days_of, millis_of
from omnigraph.engine.staging.temporal import Mask
from omnigraph.plan.operators import ComparisonOperator

_KERNELS = {
    ComparisonOperator.EQ: pc.equal,
    ComparisonOperator.NE: pc.not_equal,
    ComparisonOperator.LT: pc.less,
    ComparisonOperator.LE: pc.less_equal,
    ComparisonOperator.GT: pc.greater,
    ComparisonOperator.GE: pc.greater_equal,
}
_BELOW = frozenset({ComparisonOperator.LT, ComparisonOperator.LE})


def satisfied(column: pa.Array, kind: PropertyType, operator: ComparisonOperator, value: Any) -> Mask:
    """Which rows satisfy `column op value`."""
    if value is None:
        return np.zeros(len(column), dtype=np.bool_)
    if kind.scalar in INTEGER_RANGES:
        return _integers(column, kind.scalar, operator, value)
    if kind.scalar in FLOATS:
        return _floats(column, kind.scalar, operator, value)
    if kind.scalar is Scalar.BOOL:
        return _compare(column.cast(pa.uint8()), operator, pa.scalar(int(value), pa.uint8()))
    if kind.scalar is Scalar.DATE and isinstance(value, dt.date):
        return _compare(column.cast(pa.int32()), operator, pa.scalar(days_of(value), pa.int32()))
    if kind.scalar is Scalar.DATETIME and isinstance(value, dt.datetime):
        return _compare(column.view(pa.int64()), operator, pa.scalar(millis_of(value), pa.int64()))
    return _compare(column, operator, pa.scalar(value, pa.string()))


def _compare(column: pa.Array, operator: ComparisonOperator, value: pa.Scalar) -> Mask:
    hits = _KERNELS[operator](column, value)
    return np.asarray(pc.fill_null(hits, False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _all_values(column: pa.Array, chosen: bool) -> Mask:
    if not chosen:
        return np.zeros(len(column), dtype=np.bool_)
    return np.asarray(pc.is_valid(column).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _beside(column: pa.Array, operator: ComparisonOperator, neighbour: pa.Scalar, *, neighbour_is_above: bool) -> Mask:
    """Compare with a value the type cannot hold, given the nearest one it can."""
    if operator in (ComparisonOperator.EQ, ComparisonOperator.NE):
        return _all_values(column, operator is ComparisonOperator.NE)
    if operator in _BELOW:
        return _compare(column, ComparisonOperator.LT if neighbour_is_above else ComparisonOperator.LE, neighbour)
    return _compare(column, ComparisonOperator.GE if neighbour_is_above else ComparisonOperator.GT, neighbour)


def _integers(column: pa.Array, scalar: Scalar, operator: ComparisonOperator, value: int | float) -> Mask:
    low, high = INTEGER_RANGES[scalar]
    if isinstance(value, float) and math.isnan(value):
        return _all_values(column, operator is ComparisonOperator.NE)
    if value > high or value < low:
        above = value > high
        matches_all = operator is ComparisonOperator.NE or (operator in _BELOW) == above
        return _all_values(column, matches_all and operator is not ComparisonOperator.EQ)
    whole = math.ceil(value)
    if whole == value:
        return _compare(column, operator, pa.scalar(whole, column.type))
    if whole > high:
        return _beside(column, operator, pa.scalar(math.floor(value), column.type), neighbour_is_above=False)
    return _beside(column, operator, pa.scalar(whole, column.type), neighbour_is_above=True)


def _floats(column: pa.Array, scalar: Scalar, operator: ComparisonOperator, value: int | float) -> Mask:
    if scalar is Scalar.F32:
        with np.errstate(over="ignore"):
            return _compare(column, operator, pa.scalar(float(np.float32(value)), pa.float32()))
    nearest = float(value)
    if nearest == value:
        return _compare(column, operator, pa.scalar(nearest, pa.float64()))
    return _beside(column, operator, pa.scalar(nearest, pa.float64()), neighbour_is_above=nearest > value)
