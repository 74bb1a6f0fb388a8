"""Where entities are: for each id the place of its row in one state, which may be put together of several versions.

Three-way decisions compare such places instead of rows. The same place is the same row without reading it; only where
places differ are values compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.engine.changes.equality import Bools
from omnigraph.engine.changes.rows import Ints, same_rows
from omnigraph.engine.storage.handle import Addresses, TableHandle

ABSENT = -1
UNKNOWN = -2
"""The states that make up this one disagree about the entity."""


class Located(Struct, frozen=True):
    """For each of some entities the version that has its row and the address there, or that there is none."""

    handles: tuple[TableHandle, ...]
    which: npt.NDArray[np.int16]
    at: Addresses

    @classmethod
    def of(cls, handle: TableHandle, at: Addresses, present: Bools) -> Located:
        """Entities of one version, some of which it does not have."""
        return cls((handle,), np.where(present, 0, ABSENT).astype(np.int16), at)

    def __len__(self) -> int:
        return len(self.which)

    @property
    def present(self) -> Bools:
        """Which entities there are."""
        return self.which >= 0

    @property
    def absent(self) -> Bools:
        """Which entities there are not, for certain."""
        return np.asarray(self.which == ABSENT)

    @property
    def unknown(self) -> Bools:
        """Which entities nobody can tell of."""
        return np.asarray(self.which == UNKNOWN)

    def where(self, chosen: Bools | Ints) -> Located:
        """Some of the entities, by a mask or by number."""
        return Located(self.handles, self.which[chosen], self.at[chosen])

    def groups(self) -> Iterator[tuple[TableHandle, Ints]]:
        """The versions that have rows, each with the numbers of the entities that it has."""
        for number, handle in enumerate(self.handles):
            places = np.flatnonzero(self.which == number)
            if len(places):
                yield handle, places

    def chosen(self, other: Located, mask: Bools) -> Located:
        """The places of the other one where the mask says so, and of this one elsewhere."""
        handles = list(self.handles)
        which = np.where(mask, renumbered(other, handles), self.which).astype(np.int16)
        return Located(tuple(handles), which, np.where(mask, other.at, self.at))

    def without(self, mask: Bools) -> Located:
        """The same, but nothing is known where the mask says so."""
        return Located(self.handles, np.where(mask, UNKNOWN, self.which).astype(np.int16), self.at)

    def read(self, read: Callable[[TableHandle, Addresses], pa.Table], schema: pa.Schema) -> pa.Table:
        """The rows of entities that are all present, in their order."""
        parts, places = [], []
        for handle, mine in self.groups():
            parts.append(read(handle, self.at[mine]))
            places.append(mine)
        if not parts:
            return schema.empty_table()
        order = np.argsort(np.concatenate(places), kind="stable")
        return wide.take_rows(pa.concat_tables(parts), order) if len(parts) > 1 else parts[0]


def renumbered(part: Located, handles: list[TableHandle]) -> npt.NDArray[np.int16]:
    """The versions of a list by their place among all versions, to which those that are missing are added."""
    numbers = []
    for handle in part.handles:
        known = next((place for place, each in enumerate(handles) if _same_version(each, handle)), len(handles))
        if known == len(handles):
            handles.append(handle)
        numbers.append(known)
    # What there is not stays what it is: the two codes are looked up from the end.
    return np.asarray([*numbers, UNKNOWN, ABSENT], dtype=np.int16)[part.which]


def same(one: Located, other: Located) -> Bools:
    """Which entities two states have alike: absent from both, or of the same values; the unknown is like nothing."""
    alike = one.absent & other.absent
    both = one.present & other.present
    for number, handle in enumerate(one.handles):
        for number_too, handle_too in enumerate(other.handles):
            rows = np.flatnonzero(both & (one.which == number) & (other.which == number_too))
            if not len(rows):
                continue
            if _same_version(handle, handle_too):
                at_once = one.at[rows] == other.at[rows]
                alike[rows[at_once]] = True
                rows = rows[~at_once]
            alike[rows] = same_rows(handle, handle_too, one.at[rows], other.at[rows])
    return np.asarray(alike)


def _same_version(one: TableHandle, other: TableHandle) -> bool:
    return one is other or (one.path, one.branch, one.version) == (other.path, other.branch, other.version)


def three_way(base: Located, one: Located, other: Located) -> Located:
    """What becomes of entities by the changes of both sides; unknown where the two have changed one differently.

    Where the base is unknown, only what both sides have alike is certain.
    """
    agreed = same(one, other)
    open_ones = ~agreed
    takes_other = open_ones & (same(base, one) & ~base.unknown)
    takes_one = open_ones & ~takes_other & same(base, other)
    return one.chosen(other, takes_other).without(open_ones & ~takes_other & ~takes_one)
