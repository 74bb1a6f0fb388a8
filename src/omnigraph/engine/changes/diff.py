"""What differs between two snapshots, table by table, whichever branches they are of.

Only tables whose published versions differ are looked at, and of those only the rows their versions do not share. Rows
are counted and listed by id; what they hold is read when somebody goes through the changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from msgspec import Struct

from omnigraph.catalog.migration import plan_migration
from omnigraph.catalog.model import Catalog
from omnigraph.catalog.steps import Step
from omnigraph.engine.changes.added import lacks_dropped, without_unchanged
from omnigraph.engine.changes.delta import Candidates, Delta, delta, descends, only_rewritten, whole_table
from omnigraph.engine.changes.images import Change, Op, Side, Values, changes
from omnigraph.engine.changes.rows import NO_CHANGES, Kind, RowChanges, paired_rows
from omnigraph.engine.manifest.listed import counts_table
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import InputError
from omnigraph.ids import TableKey
from omnigraph.shown import Shown, Table

_NOTHING = Candidates(())
_CODES = {Op.INSERT: Kind.INSERT, Op.UPDATE: Kind.UPDATE, Op.DELETE: Kind.DELETE}


class State(Struct, frozen=True):
    """One end of a comparison: a snapshot and the schema of its time."""

    snapshot: Snapshot
    catalog: Catalog


class Wanted(Struct, frozen=True):
    """Which changes somebody wants to hear of; an empty collection means all."""

    types: Collection[str] = ()
    kinds: Collection[str] = ()
    ops: Collection[Op] = ()

    def takes(self, kind: str, *names: str) -> bool:
        """Whether entities of a type are wanted, by any of the names it has had."""
        return (not self.types or any(name in self.types for name in names)) and (not self.kinds or kind in self.kinds)


class TypeChanges(Struct, frozen=True):
    """The changed entities of one type."""

    kind: str
    name: str
    older: Side | None
    newer: Side | None
    rows: RowChanges

    @property
    def inserted(self) -> int:
        """How many entities only the newer state has."""
        return self.rows.count(Kind.INSERT)

    @property
    def updated(self) -> int:
        """How many entities both states have, with other values."""
        return self.rows.count(Kind.UPDATE)

    @property
    def deleted(self) -> int:
        """How many entities only the older state has."""
        return self.rows.count(Kind.DELETE)


@dataclass(frozen=True, repr=False)
class Diff(Shown):
    """What it takes to get from an older state to a newer one; iterating gives the changes, nodes first, by id."""

    older: Snapshot
    newer: Snapshot
    types: tuple[TypeChanges, ...]
    schema_steps: tuple[Step, ...] = ()
    """What changed in the schema. Values are compared in the columns both states have, and a column that was added with
    what entities had in it then; the values of a dropped one are gone with its step."""
    values: Values = Values.CHANGED

    def __iter__(self) -> Iterator[Change]:
        for found in self.types:
            yield from changes(found.kind, found.older, found.newer, found.rows, self.values)

    def window(self, start: int, count: int, values: Values) -> Iterator[Change]:
        """Some consecutive changes; only their rows are read."""
        for found in self.types:
            if start < len(found.rows) and count > 0:
                part = found.rows.slice(start, min(count, len(found.rows) - start))
                yield from changes(found.kind, found.older, found.newer, part, values)
                count -= len(part)
            start = max(0, start - len(found.rows))

    def __len__(self) -> int:
        return sum(len(found.rows) for found in self.types)

    @property
    def inserted(self) -> int:
        """How many entities only the newer state has."""
        return sum(found.inserted for found in self.types)

    @property
    def updated(self) -> int:
        """How many entities both states have, with other values."""
        return sum(found.updated for found in self.types)

    @property
    def deleted(self) -> int:
        """How many entities only the older state has."""
        return sum(found.deleted for found in self.types)

    def _table(self) -> Table:
        older, newer = (state.head or state.id for state in (self.older, self.newer))
        rows = [[each.kind, each.name, each.inserted, each.updated, each.deleted] for each in self.types]
        return counts_table(older, newer, rows, len(self.schema_steps))


def diff(older: State, newer: State, *, wanted: Wanted | None = None, values: Values = Values.CHANGED) -> Diff:
    """Compare two states of one graph; a type that neither has is without changes, see `check_types`.

    Raises:
        VersionReclaimedError: cleanup has removed a version that one of the states needs.
    """
    chosen = wanted or Wanted()
    found = []
    for kind, name, then, now in _pairs(older, newer):
        if chosen.takes(kind, *(key.partition(":")[2] for key in (then, now) if key is not None)):
            compared = _compare(older, newer, then, now, chosen.ops)
            if len(compared.rows):
                found.append(TypeChanges(kind, name, compared.older, compared.newer, compared.rows))
    steps: Sequence[Step] = ()
    if older.catalog.schema_hash != newer.catalog.schema_hash:
        steps = plan_migration(older.catalog, newer.catalog).steps
    return Diff(older.snapshot, newer.snapshot, tuple(found), tuple(steps), values)


def check_types(older: Catalog, newer: Catalog, types: Collection[str]) -> None:
    """Refuse types that neither schema has.

    Raises:
        InputError: which one, and which there are.
    """
    known = {entity.name for catalog in (older, newer) for entity in catalog.tables.values()}
    for name in types:
        if name not in known:
            raise InputError(f"there is no type '{name}': the types are {', '.join(sorted(known))}")


def _pairs(older: State, newer: State) -> Iterator[tuple[str, str, TableKey | None, TableKey | None]]:
    """The tables of both states, nodes first and then by name, each with its key on either side.

    A table is known by its path, which a renamed type keeps, also when it gets back a name that it had before. One that
    was dropped and declared again has another path.
    """
    then = {entry.path: key for key, entry in older.snapshot.entries.items()}
    now = {entry.path: key for key, entry in newer.snapshot.entries.items()}
    found = []
    for place in then.keys() | now.keys():
        key = now.get(place) or then[place]
        kind, _, name = key.partition(":")
        found.append((kind != "node", name, place not in now, kind, then.get(place), now.get(place)))
    for _, name, _, kind, key_then, key_now in sorted(found, key=lambda pair: pair[:3]):
        yield kind, name, key_then, key_now


class _Compared(Struct, frozen=True):
    older: Side | None
    newer: Side | None
    rows: RowChanges


def _compare(older: State, newer: State, then: TableKey | None, now: TableKey | None, ops: Collection[Op]) -> _Compared:
    if then is not None and now is not None and same_version(older.snapshot, newer.snapshot, then, now):
        return _Compared(None, None, NO_CHANGES)
    before, after = _side(older, then), _side(newer, now)
    if before is not None and after is not None:
        if lacks_dropped(before.handle, after.handle):
            # Every row may have a value in it that the older state no longer has, also those that nobody touched.
            touched = paired_rows(
                before.handle, after.handle, Delta(whole_table(before.handle), whole_table(after.handle))
            )
        else:
            touched = _touched(newer.snapshot.store, before.handle, after.handle)
        rows = without_unchanged(before.handle, after.handle, after.entity, touched)
    elif after is not None:
        rows = paired_rows(None, after.handle, Delta(_NOTHING, whole_table(after.handle)))
    elif before is not None:
        rows = paired_rows(before.handle, None, Delta(whole_table(before.handle), _NOTHING))
    else:
        rows = NO_CHANGES
    if ops:
        rows = rows.where(np.isin(rows.kinds, [_CODES[op] for op in ops]))
    return _Compared(before, after, rows)


def _touched(store: TableStore, older: TableHandle, newer: TableHandle) -> RowChanges:
    """What may have changed between two versions of one table, on any lines."""
    found = delta(
        older,
        newer,
        descends=partial(descends, store, older, newer),
        rewritten=partial(only_rewritten, store, older, newer),
    )
    return paired_rows(older, newer, found)


def same_version(older: Snapshot, newer: Snapshot, then: TableKey, now: TableKey) -> bool:
    """Whether two states publish the very same version of a table."""
    one, other = older.entry(then), newer.entry(now)
    return (one.version, one.branch, one.e_tag) == (other.version, other.branch, other.e_tag)


def _side(state: State, key: TableKey | None) -> Side | None:
    return None if key is None else Side(state.snapshot.open(key), state.catalog.tables[key])
