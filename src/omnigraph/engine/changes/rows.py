"""The candidates of a delta, paired by id and told apart by value: what really changed.

A row is its `id`, wherever it lies. Ids are read of the candidates alone; values only of those that both sides have,
some thousand at a time, narrow columns first and wide ones (vectors, blobs) only while all others agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog.wide import concat, one_array, take
from omnigraph.engine.changes.delta import Candidates, Delta, Part
from omnigraph.engine.changes.equality import Bools, equal_values
from omnigraph.engine.storage.fragments import is_blob
from omnigraph.engine.storage.handle import Addresses, TableHandle
from omnigraph.engine.values.blobs import read_blobs

COMPARED_ROWS = 16_384
"""Rows compared at once: so many of both sides are in memory."""
WIDE_ROWS = 1_024
"""The same for vectors and blobs, where they are not so wide that it has to be less."""
WIDE_BYTES = 6 << 20
"""How much of one side's vectors is in memory at once."""
WHOLE_COLUMN_SHARE = 8
"""A column is read whole where at least one row in so many is wanted."""

Ints = npt.NDArray[np.int64]
Names = list[tuple[str, str]]
"""Columns by what the older and the newer version call them."""


class Kind:
    """What happened to a row, in the order in which changes of one id are listed.

    Plain numbers: numpy looks for a dozen attributes on the class of an enum's member, in Python, and drops whatever
    that look raises, an interrupt too.
    """

    INSERT: Final = 0
    UPDATE: Final = 1
    DELETE: Final = 2


class RowChanges(Struct, frozen=True):
    """The changed rows of one table by ascending id: what happened to each, and where it lies on either side."""

    ids: pa.Array
    kinds: npt.NDArray[np.int8]
    before: Addresses
    """Where the row is in the older version; means nothing for an insert."""
    after: Addresses
    """Where the row is in the newer version; means nothing for a delete."""

    def __len__(self) -> int:
        return len(self.ids)

    def count(self, kind: int) -> int:
        """How many rows this happened to."""
        return int(np.count_nonzero(self.kinds == kind))

    def where(self, mask: Bools) -> RowChanges:
        """Those of the rows that a mask selects."""
        return RowChanges(self.ids.filter(pa.array(mask)), self.kinds[mask], self.before[mask], self.after[mask])

    def take(self, places: Ints) -> RowChanges:
        """Some of the rows, in the order asked for."""
        return RowChanges(self.ids.take(pa.array(places)), self.kinds[places], self.before[places], self.after[places])

    def slice(self, start: int, count: int) -> RowChanges:
        """Some consecutive rows."""
        end = start + count
        return RowChanges(
            self.ids.slice(start, count), self.kinds[start:end], self.before[start:end], self.after[start:end]
        )


_NOWHERE: Addresses = np.empty(0, dtype=np.uint64)
NO_CHANGES = RowChanges(pa.array([], pa.large_string()), np.empty(0, dtype=np.int8), _NOWHERE, _NOWHERE)


def without_equal(older: TableHandle, newer: TableHandle, rows: RowChanges) -> RowChanges:
    """Leave out the updates that have changed no value."""
    updates = np.flatnonzero(rows.kinds == Kind.UPDATE)
    if not len(updates):
        return rows
    keep = np.ones(len(rows), dtype=np.bool_)
    keep[updates] = ~same_rows(older, newer, rows.before[updates], rows.after[updates])
    return rows if keep.all() else rows.where(keep)


def paired_rows(older: TableHandle | None, newer: TableHandle | None, delta: Delta) -> RowChanges:
    """The candidates paired by id, without a look at their values: an update may turn out to have changed nothing."""
    return paired_ids(
        candidate_ids(older, delta.removed),
        delta.removed.addresses,
        candidate_ids(newer, delta.added),
        delta.added.addresses,
    )


def paired_ids(removed_ids: pa.Array, removed_at: Addresses, added_ids: pa.Array, added_at: Addresses) -> RowChanges:
    """The same for candidates whose ids are known, each with its address."""
    partner = pc.index_in(removed_ids, value_set=added_ids)
    paired = np.asarray(partner.is_valid(), dtype=np.bool_)
    pairs = partner.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    fresh = np.ones(len(added_ids), dtype=np.bool_)
    fresh[pairs] = False
    gone, came, updated = np.flatnonzero(~paired), np.flatnonzero(fresh), np.flatnonzero(paired)
    ids = concat([take(added_ids, came), take(removed_ids, np.r_[updated, gone])])
    kinds = np.repeat([Kind.INSERT, Kind.UPDATE, Kind.DELETE], [len(came), len(updated), len(gone)]).astype(np.int8)
    before = np.concatenate((np.zeros(len(came), dtype=np.uint64), removed_at[np.r_[updated, gone]]))
    after = np.concatenate((added_at[came], added_at[pairs], np.zeros(len(gone), dtype=np.uint64)))
    order = pc.sort_indices(ids).to_numpy()
    return RowChanges(take(ids, order), kinds[order], before[order], after[order])


# --- reading ids -----------------------------------------------------------------------------------------------------


def candidate_ids(handle: TableHandle | None, candidates: Candidates) -> pa.Array:
    """The ids of the candidates, in the order of their addresses; wide offsets, because there may be very many."""
    if handle is None or not candidates.parts:
        return pa.array([], pa.large_string())
    return pa.concat_arrays([_part_ids(handle, part).cast(pa.large_string()) for part in candidates.parts])


def _part_ids(handle: TableHandle, part: Part) -> pa.Array:
    if part.count * WHOLE_COLUMN_SHARE >= part.fragment.physical_rows:
        ids = handle.read_fragment_columns(part.fragment, ["id"]).column("id").cast(pa.large_string())
        return ids.combine_chunks().take(pa.array(part.offsets))
    only = Candidates((part,)).addresses
    return handle.take_addresses(only, ["id"]).column("id").cast(pa.large_string()).combine_chunks()


# --- comparing values ------------------------------------------------------------------------------------------------


def same_rows(older: TableHandle, newer: TableHandle, before: Addresses, after: Addresses) -> Bools:
    """Which pairs of rows hold the same values, in every column that both versions have."""
    narrow, wide, blobs = _columns(older, newer)
    same = np.ones(len(before), dtype=np.bool_)
    for rows in _chunks(np.arange(len(before)), COMPARED_ROWS):
        same[rows] = _same_columns(older, newer, before[rows], after[rows], narrow)
    for pair in wide:
        for rows in _chunks(np.flatnonzero(same), _wide_rows(older.schema.field(pair[0]).type)):
            same[rows] = _same_columns(older, newer, before[rows], after[rows], [pair])
    for then, now in blobs:
        for rows in wide_chunks(np.flatnonzero(same)):
            same[rows] = equal_values(read_column(older, then, before[rows]), read_column(newer, now, after[rows]))
    return same


def read_column(handle: TableHandle, name: str, addresses: Addresses) -> pa.Array:
    """The values of one column at some addresses, in their order; blobs as bytes or references."""
    if is_blob(handle.schema.field(name)):
        return read_blobs(handle, name, handle.row_ids(addresses))
    return one_array(handle.take_addresses(addresses, [name]).column(name))


def shared_columns(older: TableHandle, newer: TableHandle) -> Names:
    """The columns both versions have, by the number that outlives a rename; rows are paired by their ids already."""
    now = {number: name for name, number in newer.first_numbers.items()}
    return [(name, now[number]) for name, number in older.first_numbers.items() if number in now and name != "id"]


def _columns(older: TableHandle, newer: TableHandle) -> tuple[Names, Names, Names]:
    """The shared columns that are narrow, wide, and blobs."""
    narrow: Names = []
    wide: Names = []
    blobs: Names = []
    for pair in shared_columns(older, newer):
        field = older.schema.field(pair[0])
        kind = blobs if is_blob(field) else wide if pa.types.is_fixed_size_list(field.type) else narrow
        kind.append(pair)
    return narrow, wide, blobs


def _same_columns(older: TableHandle, newer: TableHandle, before: Addresses, after: Addresses, names: Names) -> Bools:
    same = np.ones(len(before), dtype=np.bool_)
    if not names:
        return same
    then = older.take_addresses(before, [name for name, _ in names])
    now = newer.take_addresses(after, [name for _, name in names])
    for name, name_now in names:
        same &= equal_values(one_array(then.column(name)), one_array(now.column(name_now)))
    return same


def _wide_rows(kind: pa.DataType) -> int:
    """How many vectors of a type are compared at once."""
    width = int(kind.list_size) * int(kind.value_type.bit_width) // 8
    return max(1, min(WIDE_ROWS, WIDE_BYTES // max(width, 1)))


def wide_chunks(rows: Ints) -> Iterator[Ints]:
    """Some rows, so many at a time that any column of them can be read."""
    return _chunks(rows, WIDE_ROWS)


def _chunks(rows: Ints, size: int) -> Iterator[Ints]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
