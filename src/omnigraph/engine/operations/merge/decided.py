"""What the target of a merge gets of one table, as places: nothing is read before it is checked or written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from omnigraph.catalog import wide
from omnigraph.catalog.model import EdgeType
from omnigraph.engine.changes.brief import brief_images
from omnigraph.engine.changes.equality import Bools
from omnigraph.engine.changes.located import Located
from omnigraph.engine.changes.rows import Ints
from omnigraph.engine.operations.merge.compose import Mixed, changed_apart, differing_columns
from omnigraph.engine.operations.merge.conflicts import ConflictKind, MergeConflict
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.values.entities import Entity
from omnigraph.ids import TableKey

DESCRIBED_AT_ONCE = 256
"""Conflicts whose images are in memory at once."""


class Rows(Struct, frozen=True):
    """Some entities, and where base, theirs and ours have them."""

    ids: pa.Array
    base: Located
    theirs: Located
    ours: Located

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, chosen: Bools | Ints) -> Rows:
        """Some of the entities, by a mask or by number."""
        places = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        return Rows(
            wide.take(self.ids, places), self.base.where(places), self.theirs.where(places), self.ours.where(places)
        )


class Taken(Struct, frozen=True):
    """Rows of some version that the target gets as they are, and where it has these entities now."""

    ids: pa.Array
    rows: Located
    over: Located

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, chosen: Bools) -> Taken:
        """Some of them."""
        places = np.flatnonzero(chosen)
        return Taken(wide.take(self.ids, places), self.rows.where(places), self.over.where(places))


class Written(Struct, frozen=True):
    """Rows that are on no branch, and where the target has these entities now."""

    rows: pa.Table
    over: Located

    @property
    def ids(self) -> pa.Array:
        """The entities."""
        return wide.one_array(self.rows.column("id")).cast(pa.large_string())


class Removed(Struct, frozen=True):
    """Entities that the target loses."""

    ids: pa.Array
    over: Located

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, chosen: Bools) -> Removed:
        """Some of them."""
        places = np.flatnonzero(chosen)
        return Removed(wide.take(self.ids, places), self.over.where(places))


class TableMerge(Struct):
    """What the target gets of one table."""

    key: TableKey
    entity: Entity
    theirs: TableHandle
    ours: TableHandle
    taken: list[Taken] = field(default_factory=list)
    mixed: list[Mixed] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    removed: list[Removed] = field(default_factory=list)
    kept: Rows | None = None
    """Entities that only ours has changed; edges that it has added are among them in any case."""
    open_rows: OpenRows | None = None
    resolved: dict[str, int] = field(default_factory=dict)
    counts_exact: bool = True
    at_base: bool = False
    """True when the target has not changed the table, so that it becomes what the source has."""
    convergent_edges: int = 0
    parallel: list[tuple[str, str]] = field(default_factory=list)
    parallel_edges: int = 0

    def take(self, ids: pa.Array, rows: Located, over: Located) -> None:
        """Let entities become what one version has, or its absence."""
        there = rows.present
        if there.any():
            self.taken.append(Taken(ids, rows, over).where(there))
        gone = ~there & over.present
        if gone.any():
            self.removed.append(Removed(ids, over).where(gone))

    def count(self, how: str, number: int) -> None:
        """Note that so many conflicts were settled in some way."""
        if number:
            self.resolved[how] = self.resolved.get(how, 0) + number

    @property
    def changes(self) -> bool:
        """Whether the target gets anything."""
        sizes = [*map(len, self.taken), *map(len, self.mixed), *map(len, self.removed), len(self.written)]
        return any(sizes)

    def _overs(self) -> list[Located]:
        return [*(p.over for p in self.taken), *(p.ours for p in self.mixed), *(p.over for p in self.written)]

    @property
    def inserted(self) -> int:
        """How many entities the target did not have."""
        return sum(int(np.count_nonzero(~over.present)) for over in self._overs())

    @property
    def updated(self) -> int:
        """How many entities of the target change."""
        return sum(int(np.count_nonzero(over.present)) for over in self._overs())

    @property
    def deleted(self) -> int:
        """How many entities the target loses."""
        return sum(len(part) for part in self.removed)

    def without(self, ids: pa.Array) -> None:
        """Forget what was decided for some entities: they stay as the target has them."""

        def others(found: pa.Array) -> Bools:
            return ~np.asarray(pc.is_in(found.cast(pa.large_string()), value_set=ids), dtype=np.bool_)

        self.taken = [part.where(others(part.ids)) for part in self.taken]
        self.mixed = [part.where(others(part.ids)) for part in self.mixed]
        self.removed = [part.where(others(part.ids)) for part in self.removed]
        left = []
        for part in self.written:
            places = np.flatnonzero(others(part.ids))
            left.append(Written(wide.take_rows(part.rows, places), part.over.where(places)))
        self.written = [part for part in left if part.rows.num_rows]


class OpenRows(Struct, frozen=True):
    """Entities of one table that both sides have changed differently, by ascending id."""

    key: TableKey
    entity: Entity
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def kinds(self) -> Mapping[str, int]:
        """How many there are of each kind."""
        found = {kind: int(np.count_nonzero(mask)) for kind, mask in _kinds(self.rows).items()}
        return {str(kind): number for kind, number in found.items() if number}

    def conflicts(self, after: str | None = None) -> Iterator[MergeConflict]:
        """The conflicts with what the three states have, some at a time; `after` leaves out ids up to that one."""
        start = 0
        if after is not None:
            start = int(pc.sum(pc.less_equal(self.rows.ids, pa.scalar(after, self.rows.ids.type)), min_count=0).as_py())
        for at in range(start, len(self.rows), DESCRIBED_AT_ONCE):
            yield from self._describe(self.rows.where(np.arange(at, min(at + DESCRIBED_AT_ONCE, len(self.rows)))))

    def _describe(self, rows: Rows) -> Iterator[MergeConflict]:
        base, theirs, ours = (brief_images(self.entity, side) for side in (rows.base, rows.theirs, rows.ours))
        columns = self._columns(rows)
        disjoint = self._disjoint(rows)
        kinds = _kinds(rows)
        for place, row_id in enumerate(rows.ids.to_pylist()):
            kind = next(kind for kind, mask in kinds.items() if mask[place])
            differing = tuple(name for name, mask in columns.items() if mask[place])
            yield MergeConflict(
                self.key,
                row_id,
                kind,
                _message(kind, self.entity.name, row_id, differing, theirs_deleted=theirs[place] is None),
                differing,
                base[place],
                ours[place],
                theirs[place],
                fields_disjoint=disjoint.get(place),
            )

    def _columns(self, rows: Rows) -> dict[str, Bools]:
        """For each column in which of the entities the two sides differ, where both have the entity."""
        there = np.flatnonzero(rows.theirs.present & rows.ours.present)
        ends = {"src": "from", "dst": "to"} if isinstance(self.entity, EdgeType) else {}
        found = {}
        differing = differing_columns(self.entity, rows.theirs.where(there), rows.ours.where(there))
        for name, mask in differing.items():
            found[ends.get(name, name)] = np.zeros(len(rows), dtype=np.bool_)
            found[ends.get(name, name)][there] = mask
        return found

    def _disjoint(self, rows: Rows) -> dict[int, bool]:
        """Whether the sides changed different columns, for the entities that all three states have."""
        there = np.flatnonzero(rows.base.present & rows.theirs.present & rows.ours.present)
        chosen = rows.where(there)
        fits, _ = changed_apart(self.entity, chosen.base, chosen.theirs, chosen.ours)
        return dict(zip(there.tolist(), fits.tolist(), strict=True))


def _kinds(rows: Rows) -> dict[ConflictKind, Bools]:
    lost = ~rows.theirs.present | ~rows.ours.present
    return {
        ConflictKind.DELETE_VS_UPDATE: lost,
        ConflictKind.DIVERGENT_INSERT: ~lost & rows.base.absent,
        ConflictKind.DIVERGENT_UPDATE: ~lost & ~rows.base.absent,
    }


def _message(kind: ConflictKind, name: str, row_id: str, columns: tuple[str, ...], *, theirs_deleted: bool) -> str:
    what = f"{name} '{row_id}'"
    if kind is ConflictKind.DELETE_VS_UPDATE:
        gone, changed = ("the source", "the target") if theirs_deleted else ("the target", "the source")
        return f"{gone} deleted {what} and {changed} changed it"
    did = "inserted" if kind is ConflictKind.DIVERGENT_INSERT else "changed"
    return f"both branches {did} {what}, with other values for {', '.join(columns)}"
