"""What becomes of every entity that one side has changed since the two branches parted.

An entity that only theirs changed is taken from theirs; one that only ours changed stays. One that both changed in the
same way stays too. What is left are conflicts, which a strategy or a resolution may settle. Values are compared only of
entities that both sides have touched, and where exact numbers are wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.engine.changes.equality import Bools
from omnigraph.engine.changes.located import Located, same
from omnigraph.engine.changes.rows import Ints, Kind, RowChanges, without_equal
from omnigraph.engine.operations.merge.compose import Mixed, changed_apart, with_properties
from omnigraph.engine.operations.merge.decided import OpenRows, Rows, TableMerge, Written
from omnigraph.engine.operations.merge.resolutions import Resolution, Resolving, Take
from omnigraph.engine.storage.handle import Addresses, TableHandle
from omnigraph.engine.values.entities import Entity, row_schema
from omnigraph.engine.write.committed import read_rows
from omnigraph.errors import InputError, InternalError


class Strategy(StrEnum):
    """What counts where both sides have changed one entity differently."""

    OURS = "ours"
    THEIRS = "theirs"
    FIELDS = "fields"
    """Both, where they changed different properties; else it stays a conflict."""


Find = Callable[[pa.Array], tuple[Addresses, Bools]]
"""Where the target has some entities, by id."""
Touched = Callable[[TableHandle, TableHandle], RowChanges]
"""What may differ between two versions, paired by id."""


class TableSides(Struct, frozen=True):
    """One table as the states of a merge have it, and how its entities are found.

    After merges that crossed each other there is no one state the branches parted from; then `crossed` says where the
    merged ancestors have some entities, given where ours has them. `at_base` tells that ours has not changed the table,
    `compared` that whatever theirs has touched is compared with the base, so that what was not changed is not counted.
    """

    entity: Entity
    theirs: TableHandle
    ours: TableHandle
    base: TableHandle | None
    touched: Touched
    find: Find
    at_base: bool = False
    compared: bool = True
    crossed: Callable[[pa.Array, Located], Located] | None = None


def decide(sides: TableSides, strategy: Strategy | None) -> TableMerge:
    """What the target gets of one table; what both sides have changed differently, and no strategy settles, is open."""
    found = TableMerge(sides.entity.table_key, sides.entity, sides.theirs, sides.ours, at_base=sides.at_base)
    meeting = _all_that_differs(sides) if sides.base is None else _touched_by_both(sides, sides.base, found)
    if len(meeting):
        _Meeting(found, strategy).settle(meeting)
    return found


# --- who touched what ------------------------------------------------------------------------------------------------


def _touched_by_both(sides: TableSides, then: TableHandle, found: TableMerge) -> Rows:
    """Take what only theirs has touched, note what only ours has, and return what both have."""
    brought = sides.touched(then, sides.theirs)
    own = brought.where(np.zeros(len(brought), dtype=np.bool_))
    if not sides.at_base:
        own = sides.touched(then, sides.ours)
    mine, others = _in_both(brought.ids, own.ids)
    alone = brought.where(_all_but(mine, len(brought)))
    if sides.compared:
        alone = without_equal(then, sides.theirs, alone)
    else:
        found.counts_exact = not (alone.kinds == Kind.UPDATE).any()
    over = _still_there(sides, then, alone)
    found.take(alone.ids, _after(sides.theirs, alone), over)
    kept = own.where(_all_but(others, len(own)))
    found.kept = Rows(kept.ids, _before(then, kept), _before(then, kept), _after(sides.ours, kept))
    met, pairs = brought.take(mine), own.take(others)
    return Rows(met.ids, _before(then, met), _after(sides.theirs, met), _after(sides.ours, pairs))


def _in_both(some: pa.Array, others: pa.Array) -> tuple[Ints, Ints]:
    """Where the ids are that two ascending lists share; the longer one is looked up in the shorter, never hashed."""
    if len(others) < len(some):
        theirs, mine = _in_both(others, some)
        return mine, theirs
    found = pc.index_in(others, value_set=some)
    places = found.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    return places, np.flatnonzero(np.asarray(found.is_valid()))


def _all_but(places: Ints, count: int) -> Bools:
    left = np.ones(count, dtype=np.bool_)
    left[places] = False
    return left


def _before(handle: TableHandle, rows: RowChanges) -> Located:
    return Located.of(handle, rows.before, rows.kinds != Kind.INSERT)


def _after(handle: TableHandle, rows: RowChanges) -> Located:
    return Located.of(handle, rows.after, rows.kinds != Kind.DELETE)


def _still_there(sides: TableSides, then: TableHandle, rows: RowChanges) -> Located:
    """Where ours has entities that it has not changed since the base: mostly in the same place of the same file."""
    present = rows.kinds != Kind.INSERT
    if sides.at_base:
        return Located.of(sides.ours, rows.before, present)
    addresses, known = _carried(then, sides.ours, rows.before, present)
    unknown = np.flatnonzero(present & ~known)
    if len(unknown):
        addresses[unknown], known[unknown] = sides.find(wide.take(rows.ids, unknown).cast(pa.string()))
        if not known[unknown].all():
            raise InternalError(
                f"a merge looks for entities of '{sides.entity.table_key}' that nobody has deleted and finds them not"
            )
    return Located.of(sides.ours, addresses, known)


def _carried(then: TableHandle, now: TableHandle, at: Addresses, wanted: Bools) -> tuple[Addresses, Bools]:
    """Addresses in another version that has the same files, and for which rows it has."""
    by_files = {fragment.files: fragment.id for fragment in now.fragments()}
    numbers = {fragment.id: by_files.get(fragment.files, -1) for fragment in then.fragments()}
    owners = (at >> np.uint64(32)).astype(np.int64)
    moved = np.full(len(at), -1, dtype=np.int64)
    for owner in np.unique(owners[wanted]).tolist():
        moved[owners == owner] = numbers.get(owner, -1)
    known = wanted & (moved >= 0)
    offsets = at & np.uint64(0xFFFFFFFF)
    return np.where(known, (moved.astype(np.uint64) << np.uint64(32)) | offsets, at).astype(np.uint64), known


def _all_that_differs(sides: TableSides) -> Rows:
    """Everything the two sides do not have alike, with what their merged ancestors have."""
    if sides.crossed is None:
        raise InternalError("a merge without one base needs merged ancestors")
    apart = without_equal(sides.ours, sides.theirs, sides.touched(sides.ours, sides.theirs))
    ours, theirs = _before(sides.ours, apart), _after(sides.theirs, apart)
    return Rows(apart.ids, sides.crossed(apart.ids, ours), theirs, ours)


# --- what both touched -----------------------------------------------------------------------------------------------


class _Meeting(Struct, frozen=True):
    """Entities that both sides have touched."""

    found: TableMerge
    strategy: Strategy | None

    def settle(self, rows: Rows) -> None:
        """Decide what each becomes, or leave it open."""
        rows = rows.where(~same(rows.theirs, rows.ours))
        of_ours = same(rows.base, rows.theirs)
        self._keep(rows.where(of_ours))
        rows = rows.where(~of_ours)
        of_theirs = same(rows.base, rows.ours)
        taken = rows.where(of_theirs)
        self.found.take(taken.ids, taken.theirs, taken.ours)
        self._differ(rows.where(~of_theirs))

    def _keep(self, rows: Rows) -> None:
        """Note what turned out to be changed by ours alone, unless one base has told that already."""
        if self.found.kept is None:
            self.found.kept = rows

    def _differ(self, rows: Rows) -> None:
        if not len(rows):
            return
        if self.strategy is Strategy.OURS:
            self.found.count("ours", len(rows))
        elif self.strategy is Strategy.THEIRS:
            self.found.count("theirs", len(rows))
            self.found.take(rows.ids, rows.theirs, rows.ours)
        else:
            if self.strategy is Strategy.FIELDS:
                rows = rows.where(~self._compose(rows))
            if len(rows):
                self.found.open_rows = OpenRows(self.found.key, self.found.entity, rows)

    def _compose(self, rows: Rows) -> Bools:
        """Put together what both sides have updated in different properties; which entities that settled."""
        settled = np.zeros(len(rows), dtype=np.bool_)
        updated = np.flatnonzero(rows.base.present & rows.theirs.present & rows.ours.present)
        if not len(updated):
            return settled
        chosen = rows.where(updated)
        fits, from_theirs = changed_apart(self.found.entity, chosen.base, chosen.theirs, chosen.ours)
        self.found.mixed.append(Mixed(chosen.ids, chosen.ours, chosen.theirs, from_theirs).where(fits))
        self.found.count("fields", int(np.count_nonzero(fits)))
        settled[updated[fits]] = True
        return settled


# --- what somebody decides -------------------------------------------------------------------------------------------


def resolve(found: TableMerge, resolving: Resolving) -> None:
    """Let resolutions settle what is open."""
    open_rows = found.open_rows
    if open_rows is None or not resolving.given:
        return
    takes: dict[Take, list[int]] = {}
    left = []
    for place, conflict in enumerate(open_rows.conflicts()):
        resolution = resolving.resolve(conflict)
        if resolution is None:
            left.append(place)
        elif resolution.take is Take.BASE and open_rows.rows.base.unknown[place]:
            raise InputError(
                f"{conflict.table_key} '{conflict.row_id}' cannot be resolved by 'base': merges have crossed, and"
                " the states in which the branches parted disagree about it"
            )
        elif resolution.take is Take.SET:
            _set(found, open_rows.rows.where(np.array([place])), resolution)
        else:
            takes.setdefault(resolution.take, []).append(place)
            found.count(str(resolution.take), 1)
    theirs = open_rows.rows.where(np.array(takes.get(Take.THEIRS, []), dtype=np.int64))
    found.take(theirs.ids, theirs.theirs, theirs.ours)
    base = open_rows.rows.where(np.array(takes.get(Take.BASE, []), dtype=np.int64))
    found.take(base.ids, base.base, base.ours)
    still_open = open_rows.rows.where(np.array(left, dtype=np.int64))
    found.open_rows = OpenRows(open_rows.key, open_rows.entity, still_open) if left else None


def _set(found: TableMerge, row: Rows, resolution: Resolution) -> None:
    """One entity as ours has it, or theirs where ours has it not, with some properties."""
    side = row.ours if row.ours.present[0] else row.theirs
    entity = found.entity
    rows = side.read(lambda handle, at: read_rows(handle, entity, at), row_schema(entity))
    found.written.append(Written(with_properties(entity, rows, resolution.properties or {}), row.ours))
    found.count("set", 1)
