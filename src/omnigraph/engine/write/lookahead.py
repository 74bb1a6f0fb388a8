"""What the statements of one write select among committed rows, found for many statements at a time.

Finding one row takes a look at every fragment, and reading one takes a request; a program of a thousand statements
that each mean one row would pay that a thousand times. The committed state does not change while a write prepares, so
what later statements will look for can be found along with the first: all values of a column at once, and the rows to
be updated in blocks. `find_committed` and `whole_rows` do the same for one statement by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.catalog.arrow import blob_columns
from omnigraph.engine.storage.columns import Offsets
from omnigraph.engine.storage.handle import Addresses
from omnigraph.engine.storage.sorted_unique import sorted_unique
from omnigraph.engine.values.entities import Entity
from omnigraph.engine.write.asked import Asked
from omnigraph.engine.write.selection import Found, find_committed, rows_equal_to
from omnigraph.engine.write.transaction import Transaction
from omnigraph.errors import InternalError

STATEMENTS_MAX = 1_024
"""Statements that are looked ahead."""
BLOCK_ROWS = 1_024
"""Rows that are read for statements to come."""
FEW_ROWS = 64
"""A statement that means more rows than this reads them by itself."""


class Selection(Struct, frozen=True):
    """The entities one statement means."""

    entity: Entity
    asked: Asked

    @property
    def sought(self) -> tuple[str, pa.Scalar] | None:
        """The column and the one value that decide, where nothing else does."""
        probe = self.asked.probe
        if probe is None or not self.asked.is_exact or len(probe.values) != 1:
            return None
        return probe.column, probe.values[0]


class _Block(Struct, frozen=True):
    """Rows of one table read ahead, by ascending address."""

    addresses: Addresses
    rows: pa.Table

    def places(self, addresses: Addresses) -> Offsets:
        """Where rows are, or would be."""
        return np.searchsorted(self.addresses, addresses).astype(np.int64)

    def has(self, addresses: Addresses) -> bool:
        """Whether all of these rows are here."""
        places = np.minimum(self.places(addresses), len(self.addresses) - 1)
        return bool((self.addresses[places] == addresses).all())


class Selections:
    """The selections of all statements of a write, in their order; None for a statement that selects nothing."""

    def __init__(self, transaction: Transaction, wanted: Sequence[Selection | None]) -> None:
        self._transaction, self._wanted = transaction, wanted
        self._found: dict[int, Found] = {}
        self._blocks: dict[str, _Block] = {}

    def found(self, number: int) -> Found:
        """The committed entities a statement means, whatever the write has done to them meanwhile."""
        if number not in self._found:
            self._look_ahead(number)
        return self._found[number]

    def asked(self, number: int) -> Asked:
        """What a statement asks."""
        return self._selection(number).asked

    def rows(self, number: int, addresses: Addresses) -> pa.Table:
        """Whole rows that a statement has found, in the order asked for."""
        selection = self._selection(number)
        view = self._transaction.view
        if len(addresses) > FEW_ROWS or blob_columns(selection.entity):
            return view.whole_rows(selection.entity, addresses)
        block = self._blocks.get(selection.entity.table_key)
        if block is None or not block.has(addresses):
            ahead = self._addresses_ahead(number, addresses)
            block = _Block(ahead, view.whole_rows(selection.entity, ahead))
            self._blocks[selection.entity.table_key] = block
        return wide.take_rows(block.rows, block.places(addresses))

    def _selection(self, number: int) -> Selection:
        found = self._wanted[number]
        if found is None:
            raise InternalError(f"statement {number} of this write selects nothing")
        return found

    def _look_ahead(self, number: int) -> None:
        first = self._selection(number)
        sought = first.sought
        group: dict[int, pa.Scalar] = {}
        if sought is not None:
            group[number] = sought[1]
            for later, selection in self._after(number, first.entity):
                other = selection.sought
                if other is not None and other[0] == sought[0] and later not in self._found:
                    group[later] = other[1]
        if sought is None or len(group) == 1:
            self._found[number] = find_committed(self._transaction, first.entity, first.asked)
            return
        values = list(dict.fromkeys(group.values()))
        parts = self._apart(first.entity, sought[0], values)
        for each, value in group.items():
            self._found[each] = parts[value]

    def _after(self, number: int, entity: Entity) -> Iterator[tuple[int, Selection]]:
        """The next statements that select from the same table."""
        for later in range(number + 1, min(number + STATEMENTS_MAX, len(self._wanted))):
            selection = self._wanted[later]
            if selection is not None and selection.entity.table_key == entity.table_key:
                yield later, selection

    def _apart(self, entity: Entity, column: str, values: list[pa.Scalar]) -> dict[pa.Scalar, Found]:
        """The rows of each value, found together."""
        # The type is that of the values: of Python's integers Arrow would guess one that the largest do not fit.
        sought = pa.array(values, values[0].type)
        found, held = rows_equal_to(self._transaction, entity, column, sought)
        if not len(held):
            return dict.fromkeys(values, found)
        codes = np.asarray(pc.index_in(held, value_set=sought.cast(held.type)), dtype=np.int64)
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(values) + 1)).tolist()
        sorted_found = found.at(order)
        return {value: sorted_found.slice(ends[at], ends[at + 1]) for at, value in enumerate(values)}

    def _addresses_ahead(self, number: int, addresses: Addresses) -> Addresses:
        """These addresses and those that the next statements will ask for, ascending."""
        parts, count = [addresses], len(addresses)
        for later, _ in self._after(number, self._selection(number).entity):
            found = self._found.get(later)
            if found is None or len(found.addresses) > FEW_ROWS:
                continue
            count += len(found.addresses)
            if count > BLOCK_ROWS:
                break
            parts.append(found.addresses)
        return sorted_unique(np.concatenate(parts))
