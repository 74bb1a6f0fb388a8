"""What a statement asks of the rows of one table, whoever judges them.

A statement means the rows that hold one of some values, if it asks for values, and for which every test holds. How a
condition of the language becomes tests is not known here: committed columns and the images of a write are searched
alike, and both ask the same tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.engine.storage.columns import Offsets
from omnigraph.engine.storage.handle import Addresses
from omnigraph.engine.values.temporal import Mask

Columns: TypeAlias = Callable[[str], pa.Array]
"""The columns of some rows by name."""
Test: TypeAlias = Callable[[Columns, int], Mask]
"""Which of some rows, given by their columns and their number, satisfy a condition."""

Hidden: TypeAlias = Callable[[pa.Array, Addresses], Mask]
"""Which of some committed rows, given by their ids and addresses, are not seen any more."""


def nothing_hidden(ids: pa.Array, addresses: Addresses) -> Mask:
    """Every committed row is seen."""
    return np.zeros(len(ids), dtype=np.bool_)


class Probe(Struct, frozen=True):
    """Rows whose column holds one of these values, exactly as they are stored."""

    column: str
    values: pa.Array

    def array(self, kind: pa.DataType) -> pa.Array:
        """The values as a column of this type."""
        return self.values if self.values.type == kind else self.values.cast(kind)


class Asked(Struct, frozen=True):
    """Which rows are meant: those the probe finds, or all, as far as every test holds for them.

    `risky` tests are those that some values make fail: they are asked after the others, and only of rows that exist.
    """

    probe: Probe | None = None
    tests: tuple[Test, ...] = ()
    risky: tuple[Test, ...] = ()

    @property
    def is_exact(self) -> bool:
        """True when what the probe finds is what is meant."""
        return self.probe is not None and not self.tests and not self.risky


def narrowed(offsets: Offsets, columns: Columns, tests: Sequence[Test]) -> Offsets:
    """Those of some rows for which every test holds; each is asked only of what the ones before it left."""
    for test in tests:
        if not len(offsets):
            break
        rows = offsets

        def taken(name: str, rows: Offsets = rows) -> pa.Array:
            return wide.take(columns(name), rows)

        offsets = rows[test(taken, len(rows))]
    return offsets


def narrowed_whole(columns: Columns, offsets: Offsets, tests: Sequence[Test]) -> Offsets:
    """The same for all rows there are, without copies of whole columns for the first test."""
    if not tests:
        return offsets
    return narrowed(offsets[tests[0](columns, len(offsets))], columns, tests[1:])
