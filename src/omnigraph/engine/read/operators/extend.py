"""Joining rows with the extensions that inner patterns found for them: optional blocks and unions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omnigraph.engine.read.context import Context
from omnigraph.engine.read.frame import Frame
from omnigraph.engine.read.kernels import Ints, distinct, ranges
from omnigraph.engine.read.plan.join_order import ROW
from omnigraph.engine.read.plan.operations import Apply


def extended(
    context: Context, operation: Apply, frame: Frame, group: Ints, seeds: int, found: Sequence[Frame]
) -> Frame:
    """Each row with every extension of its seed; `group` says which seed a row is, `found` has the seeds' extensions.

    An optional block keeps a row that has none, with its variables standing for nothing.
    """
    owner = np.concatenate([part.columns[ROW] for part in found])
    bound = {name: np.concatenate([part.columns[name] for part in found]) for name in operation.binds}
    if not operation.is_optional:
        owner, bound = _once(owner, bound)
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=seeds)
    begins = np.cumsum(counts) - counts
    bound = {name: column[order] for name, column in bound.items()}
    if operation.is_optional:
        # One row behind all others stands for nothing, and is what those without an extension get.
        nothing = np.full(1, -1, dtype=np.int64)
        bound = {name: np.concatenate((column, nothing)) for name, column in bound.items()}
        begins = np.where(counts > 0, begins, len(owner))
        counts = np.maximum(counts, 1)
    sizes = counts[group]
    context.check_rows(int(sizes.sum()), len(frame.columns) + len(bound), "joining the rows of a block")
    places, rows = ranges(begins[group], sizes)
    grown = frame.take(rows)
    for name, column in bound.items():
        grown = grown.bind(name, column[places])
    return grown


def _once(owner: Ints, bound: dict[str, Ints]) -> tuple[Ints, dict[str, Ints]]:
    """Equal extensions of one seed counted once."""
    if not len(owner):
        return owner, bound
    columns = [owner, *(column + 1 for column in bound.values())]
    first, _ = distinct(columns, [int(column.max()) + 1 for column in columns])
    return owner[first], {name: column[first] for name, column in bound.items()}
