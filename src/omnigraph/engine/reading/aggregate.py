"""Groups and what is counted, summed and compared in them.

Sums do not depend on the order of rows: integers add exactly, and floats are cut into pieces that add exactly, so a
sum is the same whichever way the planner went.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog import arrays
from omnigraph.catalog.types import Scalar
from omnigraph.dataclass import dataclass
from omnigraph.engine.reading.context import Context
from omnigraph.engine.reading.frame import Frame
from omnigraph.engine.reading.kernels import Ints, distinct
from omnigraph.engine.reading.ordering import sort_key
from omnigraph.engine.reading.predicates import FrameRows
from omnigraph.engine.reading.values import as_numpy
from omnigraph.errors import InternalError
from omnigraph.plan.operators import Aggregate, AggregateFunction, EntityId, Expression, PropertyRef

Floats = npt.NDArray[np.float64]
CODES_MIN = 4096
"""From this many rows on, texts are grouped by codes that the cache keeps."""


@dataclass(frozen=True)
class Groups:
    """Rows put into groups: a row of each group, and the group of each row."""

    frame: Frame
    first: Ints
    group: Ints

    def __len__(self) -> int:
        return len(self.first)

    def counts(self, mask: npt.NDArray[np.bool_] | None = None) -> Ints:
        """How many rows each group has, or those a mask selects."""
        weights = self.frame.weights
        group = self.group
        if mask is not None:
            group = group[mask]
            weights = None if weights is None else weights[mask]
        if weights is None:
            return np.bincount(group, minlength=len(self))
        # Weights are whole numbers; adding them as integers keeps large counts exact.
        sums = np.zeros(len(self), dtype=np.int64)
        np.add.at(sums, group, weights)
        return sums


def group_rows(context: Context, frame: Frame, keys: Sequence[Expression]) -> Groups:
    """Group rows by the values of the keys; null is a group of its own."""
    if not keys:
        return Groups(frame, np.zeros(1, dtype=np.int64), np.zeros(len(frame), dtype=np.int64))
    columns = [_key_numbers(context, frame, key) for key in keys]
    if len(columns) == 1 and isinstance(keys[0], EntityId) and _is_ascending(columns[0]):
        everyone = np.arange(len(frame), dtype=np.int64)
        return Groups(frame, everyone, everyone)
    bounds = [int(column.max(initial=0)) + 1 for column in columns] if len(columns) > 1 else [0]
    return Groups(frame, *distinct(columns, bounds))


def _is_ascending(column: Ints) -> bool:
    return len(column) < 2 or bool((column[1:] > column[:-1]).all())


def _key_numbers(context: Context, frame: Frame, key: Expression) -> Ints:
    """Small integers that are equal where the key's values are."""
    if isinstance(key, EntityId):
        return frame.columns[key.variable]
    if not isinstance(key, PropertyRef):
        raise InternalError(f"{type(key).__name__} cannot be a group key")
    rows = FrameRows(context, frame)
    if key.type.scalar is Scalar.STRING:
        view = context.view(key.variable)
        if len(frame) >= CODES_MIN or view.has_value_codes(key.property):
            return np.asarray(view.value_codes(key.property)[rows.positions(key.variable)], dtype=np.int64)
    values = rows.fetch(key)
    if pa.types.is_floating(values.type):
        values = canonical_floats(values)
    encoded = pc.dictionary_encode(values, null_encoding="mask")
    indices = encoded.indices
    if indices.null_count:
        indices = arrays.fill_null(indices, len(encoded.dictionary))
    return np.asarray(arrays.to_numpy(indices), dtype=np.int64)


def canonical_floats(values: pa.Array) -> pa.Array:
    """Floats with one zero and one NaN, so that equal numbers are one group."""
    numbers, valid = as_numpy(values)
    numbers = np.where(np.isnan(numbers), np.asarray(np.nan, dtype=numbers.dtype), numbers + 0)
    mask = None if valid is None else ~valid
    return arrays.array(numbers, type=values.type, mask=mask)


def aggregate_column(context: Context, groups: Groups, aggregate: Aggregate) -> pa.Array:
    """One aggregate over every group."""
    argument = aggregate.argument
    if not isinstance(argument, PropertyRef):
        if aggregate.function is not AggregateFunction.COUNT:
            raise InternalError(f"{aggregate.function.value} of something that is not a property")
        return arrays.array(groups.counts(), pa.int64())
    values = FrameRows(context, groups.frame).fetch(argument)
    valid = arrays.to_numpy(values.is_valid())
    counts = groups.counts(None if values.null_count == 0 else valid)
    match aggregate.function:
        case AggregateFunction.COUNT:
            return arrays.array(counts, pa.int64())
        case AggregateFunction.SUM | AggregateFunction.AVG:
            sums = group_sums(groups, values, valid)
            if aggregate.function is AggregateFunction.AVG:
                with np.errstate(invalid="ignore", divide="ignore"):
                    sums = sums / counts
            return arrays.array(sums, pa.float64(), mask=counts == 0)
        case AggregateFunction.MIN | AggregateFunction.MAX:
            return _extreme(groups, values, valid, aggregate.function is AggregateFunction.MAX)


def _extreme(groups: Groups, values: pa.Array, valid: npt.NDArray[np.bool_], largest: bool) -> pa.Array:
    rows = np.flatnonzero(valid)
    if not len(rows):
        return pa.nulls(len(groups), values.type)
    key = sort_key(values.take(arrays.array(rows)), descending=largest)
    order = np.lexsort((key, groups.group[rows]))
    member = groups.group[rows][order]
    head = np.concatenate(([True], member[1:] != member[:-1]))
    best = np.full(len(groups), -1, dtype=np.int64)
    best[member[head]] = rows[order[head]]
    return values.take(arrays.array(best, mask=best < 0))


def group_sums(groups: Groups, values: pa.Array, valid: npt.NDArray[np.bool_]) -> Floats:
    """The sum of the valid values of each group, rounded once at the end."""
    numbers, _ = as_numpy(values)
    rows = np.flatnonzero(valid)
    weights = None if groups.frame.weights is None else groups.frame.weights[rows]
    member = groups.group[rows]
    if numbers.dtype.kind == "f":
        return float_sums(numbers[rows].astype(np.float64), member, weights, len(groups))
    return integer_sums(numbers[rows], member, weights, len(groups))


def integer_sums(numbers: npt.NDArray[Any], member: Ints, weights: Ints | None, count: int) -> Floats:
    """Exact integer sums, as floats."""
    total = int(len(numbers) if weights is None else weights.sum())
    largest = int(np.abs(numbers.astype(np.float64)).max(initial=0.0)) + 1
    if largest * max(total, 1) < 2**62:
        sums = np.zeros(count, dtype=np.int64)
        np.add.at(sums, member, numbers.astype(np.int64) * (1 if weights is None else weights))
        return sums.astype(np.float64)
    exact = np.zeros(count, dtype=object)
    product = numbers.astype(object) * (1 if weights is None else weights.astype(object))
    np.add.at(exact, member, product)
    return exact.astype(np.float64)


def float_sums(numbers: Floats, member: Ints, weights: Ints | None, count: int) -> Floats:
    """Sums of floats that do not depend on the order of the rows.

    Each value is cut into pieces that are whole multiples of a power of two chosen per group, so few enough bits long
    that adding all pieces of one level is exact; levels repeat until nothing is left.
    """
    unusual = ~np.isfinite(numbers)
    if unusual.any():
        # Infinities and NaN decide their group whatever else is in it.
        with np.errstate(invalid="ignore"):
            special = np.bincount(member[unusual], weights=numbers[unusual], minlength=count)
        touched = np.bincount(member[unusual], minlength=count) > 0
        keep = ~unusual
        kept_weights = None if weights is None else weights[keep]
        rest = float_sums(numbers[keep], member[keep], kept_weights, count)
        return np.where(touched, special, rest)
    factor = np.ones(len(numbers)) if weights is None else weights.astype(np.float64)
    bits = 52 - int(np.ceil(np.log2(max(float(factor.sum()), 2.0))))
    levels: list[Floats] = []
    remaining = numbers.copy()
    while len(remaining) and remaining.any() and len(levels) < 128:
        top = np.zeros(count)
        np.maximum.at(top, member, np.abs(remaining))
        exponent = np.frexp(top)[1] - bits
        # Pieces below the smallest normal power stay whole: there a multiple of 2**-1074 is all there is.
        exponent = np.maximum(exponent, -1074)[member]
        piece = np.rint(np.ldexp(remaining, -exponent))
        sums = np.bincount(member, weights=piece * factor, minlength=count)
        levels.append(np.ldexp(sums, np.maximum(np.frexp(top)[1] - bits, -1074)))
        remaining = remaining - np.ldexp(piece, exponent)
    return _add_levels(levels, count)


def _add_levels(levels: list[Floats], count: int) -> Floats:
    total = np.zeros(count)
    rest = np.zeros(count)
    for level in levels:
        # Two-sum keeps what rounding drops, so the levels join with one rounding at the end.
        joined = total + level
        back = joined - total
        rest += (total - (joined - back)) + (level - back)
        total = joined
    return total + rest
