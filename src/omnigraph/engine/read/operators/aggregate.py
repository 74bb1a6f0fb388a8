"""Groups and what is counted, summed and compared in them.

Sums do not depend on the order of rows: integers add exactly, and floats are cut into pieces that add exactly, so a
sum is the same whichever way the planner went.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.catalog.types import Scalar
from omnigraph.engine.read.columns.values import as_numpy
from omnigraph.engine.read.context import Context
from omnigraph.engine.read.frame import Frame, added_by_group
from omnigraph.engine.read.kernels import Ints, distinct, is_ascending
from omnigraph.engine.read.operators.computed import column_of
from omnigraph.engine.read.operators.ordering import sort_key
from omnigraph.engine.read.operators.predicates import FrameRows
from omnigraph.errors import ExecutionError, InternalError
from omnigraph.plan.explain import show
from omnigraph.plan.operators import (
    Aggregate,
    AggregateFunction,
    EdgeCount,
    EntityId,
    Expression,
    Literal,
    PropertyRef,
)

Floats = npt.NDArray[np.float64]
CODES_MIN = 4096
"""From this many rows on, texts are grouped by codes that the cache keeps."""


class Groups(Struct, frozen=True):
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
        return added_by_group(weights, group, len(self))


def group_rows(context: Context, frame: Frame, keys: Sequence[Expression], *, is_one: bool) -> Groups:
    """Group rows by the values of the keys; null is a group of its own.

    Without keys all rows are one group; with `is_one` that group is there even if no row is.
    """
    if not keys:
        return Groups(frame, np.zeros(int(is_one or len(frame) > 0), np.int64), np.zeros(len(frame), np.int64))
    columns = [_key_numbers(context, frame, key) for key in keys]
    if len(columns) == 1 and isinstance(keys[0], EntityId) and is_ascending(columns[0]):
        everyone = np.arange(len(frame), dtype=np.int64)
        return Groups(frame, everyone, everyone)
    bounds = [int(column.max(initial=0)) + 1 for column in columns] if len(columns) > 1 else [0]
    return Groups(frame, *distinct(columns, bounds))


def _key_numbers(context: Context, frame: Frame, key: Expression) -> Ints:
    """Small integers that are equal where the key's values are."""
    if isinstance(key, EntityId):
        column = frame.columns[key.variable]
        return column + 1 if key.nullable else column
    rows = FrameRows(context, frame)
    if isinstance(key, PropertyRef) and key.type.scalar is Scalar.STRING and not key.type.is_list:
        view = context.view(key.variable)
        has_codes = key.property != "id" and key.variable not in context.nullable
        if has_codes and (len(frame) >= CODES_MIN or view.has_value_codes(key.property)):
            return np.asarray(view.value_codes(key.property)[rows.positions(key.variable)], dtype=np.int64)
    return value_numbers(column_of(context, key, rows))


def value_numbers(values: pa.Array) -> Ints:
    """Small integers that are equal where values are; nulls are equal too."""
    if pa.types.is_nested(values.type):
        return np.asarray(sort_key(values), dtype=np.int64)
    if pa.types.is_floating(values.type):
        values = canonical_floats(values)
    encoded = pc.dictionary_encode(values, null_encoding="mask")
    indices = encoded.indices
    if indices.null_count:
        indices = pc.fill_null(indices, len(encoded.dictionary))
    return np.asarray(indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def canonical_floats(values: pa.Array) -> pa.Array:
    """Floats with one zero and one NaN, so that equal numbers are one group."""
    numbers, valid = as_numpy(values)
    numbers = np.where(np.isnan(numbers), np.asarray(np.nan, dtype=numbers.dtype), numbers + 0)
    mask = None if valid is None else ~valid
    return pa.array(numbers, type=values.type, mask=mask)


def aggregate_column(context: Context, groups: Groups, aggregate: Aggregate) -> pa.Array:
    """One aggregate over every group."""
    argument = aggregate.argument
    if aggregate.function is AggregateFunction.COUNT and isinstance(argument, EntityId | EdgeCount | Literal):
        return _count_entities(groups, argument, aggregate.distinct)
    if isinstance(argument, EdgeCount):
        raise InternalError(f"{aggregate.function.value} of an edge")
    values = column_of(context, argument, FrameRows(context, groups.frame))
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    match aggregate.function:
        case AggregateFunction.COUNT if aggregate.distinct:
            return _count_distinct(groups, value_numbers(values), valid)
        case AggregateFunction.COUNT:
            return pa.array(groups.counts(None if values.null_count == 0 else valid), pa.int64())
        case AggregateFunction.SUM | AggregateFunction.AVG:
            return _sum_or_mean(aggregate, groups, values, valid)
        case AggregateFunction.MIN | AggregateFunction.MAX:
            return _extreme(groups, values, valid, aggregate.function is AggregateFunction.MAX)
        case AggregateFunction.COLLECT:
            if not aggregate.distinct:
                context.check_rows(groups.frame.total(), 1, show(aggregate))
            return _collected(groups, values, valid, aggregate.distinct)


def _count_entities(groups: Groups, argument: EntityId | EdgeCount | Literal, is_distinct: bool) -> pa.Array:
    """How many rows, or how many of the entities that a variable stands for."""
    if isinstance(argument, Literal):
        counts = groups.counts()
        return pa.array(np.minimum(counts, 1) if is_distinct else counts, pa.int64())
    codes = groups.frame.columns.get(argument.variable) if is_distinct or argument.nullable else None
    if codes is None:
        return pa.array(groups.counts(), pa.int64())
    valid = codes >= 0
    return _count_distinct(groups, codes, valid) if is_distinct else pa.array(groups.counts(valid), pa.int64())


def _count_distinct(groups: Groups, numbers: Ints, valid: npt.NDArray[np.bool_]) -> pa.Array:
    """How many different numbers the rows of each group have."""
    if len(groups) == 1 and len(numbers):
        marks = np.zeros(int(numbers.max()) + 2, dtype=np.bool_)
        marks[np.where(valid, numbers, -1)] = True
        return pa.array([int(np.count_nonzero(marks[:-1]))], pa.int64())
    member, held = groups.group[valid], numbers[valid]
    if not len(held):
        return pa.array(np.zeros(len(groups), dtype=np.int64), pa.int64())
    first, _ = distinct([member, held], [len(groups), int(held.max()) + 1])
    return pa.array(np.bincount(member[first], minlength=len(groups)), pa.int64())


def _sum_or_mean(aggregate: Aggregate, groups: Groups, values: pa.Array, valid: npt.NDArray[np.bool_]) -> pa.Array:
    counts = groups.counts(None if values.null_count == 0 else valid)
    is_mean = aggregate.function is AggregateFunction.AVG
    if not is_mean and pa.types.is_integer(values.type):
        exact = _exact_sums(groups, values, valid)
        if exact is None:
            raise ExecutionError(f"{show(aggregate)}: the result does not fit 64 bits")
        return pa.array(exact, pa.int64(), mask=counts == 0)
    sums = group_sums(groups, values, valid)
    if is_mean:
        with np.errstate(invalid="ignore", divide="ignore"):
            sums = sums / counts
    return pa.array(sums, pa.float64(), mask=counts == 0)


def _collected(groups: Groups, values: pa.Array, valid: npt.NDArray[np.bool_], is_distinct: bool) -> pa.Array:
    """The values of each group as a list in ascending order, without nulls."""
    rows = np.flatnonzero(valid)
    if groups.frame.weights is not None and not is_distinct:
        rows = np.repeat(rows, groups.frame.weights[rows])
    member = groups.group[rows]
    held = wide.take(values, rows)
    key = sort_key(held)
    order = np.lexsort((key, member))
    if is_distinct and len(order):
        ordered, owner = key[order], member[order]
        fresh = np.concatenate(([True], (ordered[1:] != ordered[:-1]) | (owner[1:] != owner[:-1])))
        order = order[fresh]
    sizes = np.bincount(member[order], minlength=len(groups))
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    items = wide.take(held, order)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)


def _extreme(groups: Groups, values: pa.Array, valid: npt.NDArray[np.bool_], largest: bool) -> pa.Array:
    rows = np.flatnonzero(valid)
    if not len(rows):
        return pa.nulls(len(groups), values.type)
    key = sort_key(values if len(rows) == len(values) else wide.take(values, rows), descending=largest)
    order = np.lexsort((key, groups.group[rows]))
    member = groups.group[rows][order]
    head = np.concatenate(([True], member[1:] != member[:-1]))
    best = np.full(len(groups), -1, dtype=np.int64)
    best[member[head]] = rows[order[head]]
    return wide.take(values, pa.array(best, mask=best < 0))


def group_sums(groups: Groups, values: pa.Array, valid: npt.NDArray[np.bool_]) -> Floats:
    """The sum of the valid values of each group, rounded once at the end."""
    numbers, _ = as_numpy(values)
    rows = np.flatnonzero(valid)
    weights = None if groups.frame.weights is None else groups.frame.weights[rows]
    member = groups.group[rows]
    if numbers.dtype.kind == "f":
        return float_sums(numbers[rows].astype(np.float64), member, weights, len(groups))
    return integer_sums(numbers[rows], member, weights, len(groups))


def _exact_sums(groups: Groups, values: pa.Array, valid: npt.NDArray[np.bool_]) -> Ints | None:
    """The sum of the valid integers of each group; None when one does not fit 64 bits."""
    numbers, _ = as_numpy(values)
    rows = np.flatnonzero(valid)
    weights = None if groups.frame.weights is None else groups.frame.weights[rows]
    found = whole_sums(numbers[rows], groups.group[rows], weights, len(groups))
    if found.dtype == np.int64:
        return found
    if len(found) and not (int(found.min()) >= -(2**63) and int(found.max()) < 2**63):
        return None
    return found.astype(np.int64)


def integer_sums(numbers: npt.NDArray[Any], member: Ints, weights: Ints | None, count: int) -> Floats:
    """Exact integer sums, as floats."""
    return whole_sums(numbers, member, weights, count).astype(np.float64)


def whole_sums(numbers: npt.NDArray[Any], member: Ints, weights: Ints | None, count: int) -> npt.NDArray[Any]:
    """Exact integer sums: of 64 bits where they are certain to fit, else as long as they are."""
    total = len(numbers) if weights is None else float(weights.sum(dtype=np.float64))
    largest = int(np.abs(numbers.astype(np.float64)).max(initial=0.0)) + 1
    if largest * max(total, 1) < 2**62:
        sums = np.zeros(count, dtype=np.int64)
        np.add.at(sums, member, numbers.astype(np.int64) * (1 if weights is None else weights))
        return sums
    exact = np.zeros(count, dtype=object)
    product = numbers.astype(object) * (1 if weights is None else weights.astype(object))
    np.add.at(exact, member, product)
    return exact


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
    factors = [(np.ones(len(numbers)), 0)] if weights is None else _digits(weights)
    carry, shift = max(_bits_of(digit) for digit, _ in factors), factors[-1][1]
    huge = np.frexp(numbers)[1] > sys.float_info.max_exp - 1 - carry - shift
    if huge.any():
        return _sums_beside_huge(numbers, member, weights, count, huge)
    bits = 52 - carry
    levels: list[Floats] = []
    remaining = numbers.copy()
    rounds = 0
    while len(remaining) and remaining.any() and rounds < ROUNDS_MAX:
        rounds += 1
        top = np.zeros(count)
        np.maximum.at(top, member, np.abs(remaining))
        exponent = np.frexp(top)[1] - bits
        # Pieces below the smallest normal power stay whole: there a multiple of 2**-1074 is all there is.
        exponent = np.maximum(exponent, -1074)[member]
        piece = np.rint(np.ldexp(remaining, -exponent))
        for factor, place in factors:
            sums = np.bincount(member, weights=piece * factor, minlength=count)
            levels.append(np.ldexp(sums, np.maximum(np.frexp(top)[1] - bits, -1074) + place))
        remaining = remaining - np.ldexp(piece, exponent)
    return _add_levels(levels, count)


ROUNDS_MAX = 128
"""So often a value is cut at most: pieces of `PIECE_BITS_MIN` bits reach from the largest power to the smallest."""
PIECE_BITS_MIN = 17


def _digits(weights: Ints) -> list[tuple[Floats, int]]:
    """Weights as digits and the powers of two they stand at, so few bits each that pieces keep enough.

    They are one digit unless they add up to billions.
    """
    width = 52 - PIECE_BITS_MIN
    if _bits_of(weights) > width:
        width = max(width - len(weights).bit_length(), 1)
    most = int(weights.max(initial=1)).bit_length()
    return [((weights >> at & ((1 << width) - 1)).astype(np.float64), at) for at in range(0, most, width)]


def _bits_of(numbers: npt.NDArray[Any]) -> int:
    """By how many bits a sum of pieces is longer than a piece, if each is taken so many times."""
    return math.ceil(math.log2(max(float(numbers.sum(dtype=np.float64)), 2.0)))


def _sums_beside_huge(
    numbers: Floats, member: Ints, weights: Ints | None, count: int, huge: npt.NDArray[np.bool_]
) -> Floats:
    """The same where a group has values so large that its pieces could leave the range, as whole numbers."""
    touched = np.bincount(member[huge], minlength=count) > 0
    slow = touched[member]
    found = float_sums(numbers[~slow], member[~slow], None if weights is None else weights[~slow], count)
    totals = dict.fromkeys(np.flatnonzero(touched).tolist(), 0)
    times = np.ones(int(slow.sum()), dtype=np.int64) if weights is None else weights[slow]
    for group, value, factor in zip(member[slow].tolist(), numbers[slow].tolist(), times.tolist(), strict=True):
        above, below = value.as_integer_ratio()
        totals[group] += factor * above * (_SMALLEST // below)
    for group, total in totals.items():
        found[group] = _rounded(total)
    return found


_SMALLEST = 2**1074
"""Every float is a whole multiple of one part of so many."""


def _rounded(total: int) -> float:
    try:
        return total / _SMALLEST
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _add_levels(levels: list[Floats], count: int) -> Floats:
    total, rest, doubt = np.zeros(count), np.zeros(count), np.zeros(count)
    for level in levels:
        # Two-sum keeps what rounding drops, so the levels join with one rounding at the end.
        joined = total + level
        back = joined - total
        dropped = (total - (joined - back)) + (level - back)
        rest += dropped
        doubt += np.abs(dropped)
        total = joined
    found = total + rest
    # What `rest` has dropped itself decides only where the sum lies half-way between two floats.
    doubt *= 2.0**-45
    unsure = np.isfinite(found) & ((total + (rest + doubt)) != (total + (rest - doubt)))
    for place in np.flatnonzero(unsure):
        found[place] = math.fsum(level[place] for level in levels)
    return found
