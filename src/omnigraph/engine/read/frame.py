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

EXACT_MAX = 1 << 53
"""Sums of weights below it are exact in double precision, the faster way to add them."""


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
        weights = factors if self.weights is None else self.weights * factors
        frame = Frame(self.length, self.columns, weights)
        return frame if bool(weights.all()) else frame.take(np.flatnonzero(weights))

    def keep(self, variables: Set[str]) -> Frame:
        """Only the given variables; the number of rows stays."""
        return Frame(self.length, {v: c for v, c in self.columns.items() if v in variables}, self.weights)

    def total(self) -> int:
        """How many rows this stands for."""
        if self.weights is None:
            return self.length
        return int(self.weights[0] if self.length == 1 else self.weights.sum())

    def unweighted(self) -> Frame:
        """Every row listed as often as it counts."""
        if self.weights is None:
            return self
        index = np.repeat(np.arange(self.length), self.weights)
        return Frame(len(index), {name: column[index] for name, column in self.columns.items()})


UNIT = Frame(1)
"""The one empty row every pattern starts from."""
