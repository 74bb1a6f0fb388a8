"""Rows on their way through a pattern: per variable one integer, nothing else.

A node variable holds codes, an edge variable positions. A row may stand for several (its weight) when variables that
nobody needs were counted instead of listed.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.engine.read.kernels import Bools, Ints
from omnigraph.errors import LimitError

EXACT_MAX = 1 << 53
"""Sums of weights below it are exact in double precision."""
COUNT_MAX = (1 << 63) - 1
"""How many rows can be counted: what an integer of a result holds."""
_CERTAIN = float(1 << 62)
"""What is below it in double precision is certain to be no more than `COUNT_MAX`."""


class Frame:
    """`length` rows; `columns` maps each bound variable to its integers. Frames are never changed once made."""

    __slots__ = ("columns", "length", "weights")

    def __init__(self, length: int, columns: dict[str, Ints] | None = None, weights: Ints | None = None) -> None:
        self.length = length
        self.columns: dict[str, Ints] = {} if columns is None else columns
        self.weights = weights
        """How many equal rows each row stands for; None means one."""

    def __len__(self) -> int:
        return self.length

    def take(self, index: npt.NDArray[Any]) -> Frame:
        """The rows at the given indices, in that order."""
        columns = {name: column[index] for name, column in self.columns.items()}
        return Frame(len(index), columns, None if self.weights is None else self.weights[index])

    def where(self, mask: Bools) -> Frame:
        """The rows a mask selects."""
        if mask.all():
            return self
        return self.take(np.flatnonzero(mask))

    def bind(self, variable: str, values: Ints) -> Frame:
        """The same rows with one more variable."""
        return Frame(self.length, {**self.columns, variable: values}, self.weights)

    def weighted(self, factors: Ints) -> Frame:
        """Each row multiplied; rows multiplied by zero are gone."""
        weights = factors if self.weights is None else _multiplied(self.weights, factors)
        frame = Frame(self.length, self.columns, weights)
        return frame if bool(weights.all()) else frame.take(np.flatnonzero(weights))

    def keep(self, variables: Set[str]) -> Frame:
        """Only the given variables; the number of rows stays."""
        return Frame(self.length, {v: c for v, c in self.columns.items() if v in variables}, self.weights)

    def total(self) -> int:
        """How many rows this stands for."""
        if self.weights is None:
            return self.length
        return int(self.weights[0]) if self.length == 1 else added(self.weights)

    def multiplied_total(self, factors: Ints) -> int:
        """How many rows this stands for with each row multiplied."""
        return added(factors if self.weights is None else _multiplied(self.weights, factors))

    def unweighted(self) -> Frame:
        """Every row listed as often as it counts."""
        if self.weights is None:
            return self
        index = np.repeat(np.arange(self.length), self.weights)
        return Frame(len(index), {name: column[index] for name, column in self.columns.items()})


def added(weights: Ints) -> int:
    """The sum of weights.

    Raises:
        LimitError: more rows than can be counted.
    """
    if _fits(weights) or float(weights.sum(dtype=np.float64)) < _CERTAIN:
        return int(np.add.reduce(weights))
    return _counted(sum(weights.tolist()))


def added_by_group(weights: Ints, group: Ints, count: int) -> Ints:
    """The sum of the weights of each of so many groups.

    Raises:
        LimitError: a group has more rows than can be counted.
    """
    if not _fits(weights):
        nearly = np.bincount(group, weights=weights, minlength=count)
        for place in np.flatnonzero(nearly >= _CERTAIN).tolist():
            _counted(sum(weights[group == place].tolist()))
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, group, weights)
    return sums


def _fits(weights: Ints) -> bool:
    """True when any of these weights can be added, whatever the rest of them is."""
    return int(np.maximum.reduce(weights, initial=0)) * len(weights) <= COUNT_MAX


def _multiplied(weights: Ints, factors: Ints) -> Ints:
    if int(np.maximum.reduce(weights, initial=0)) * int(np.maximum.reduce(factors, initial=0)) >= _CERTAIN:
        large = np.flatnonzero(weights.astype(np.float64) * factors >= _CERTAIN)
        pairs = zip(weights[large].tolist(), factors[large].tolist(), strict=True)
        _counted(max((one * other for one, other in pairs), default=0))
    return weights * factors


def _counted(rows: int) -> int:
    if rows > COUNT_MAX:
        raise LimitError(
            f"the pattern is matched by {rows:,} rows or more, and 64 bits count up to {COUNT_MAX:,}: add a condition",
            resource="rows",
            limit=COUNT_MAX,
            actual=rows,
        )
    return rows


UNIT = Frame(1)
"""The one empty row every pattern starts from."""
