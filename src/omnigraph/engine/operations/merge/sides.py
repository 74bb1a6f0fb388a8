"""The states of a merge: the two that meet, and those they parted from; and which rows of each table they do not share.

What is found here is found without reading a row, so it also tells how large a merge is before it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial

import pyarrow as pa
from msgspec import Struct

from omnigraph.engine.changes.delta import Delta, delta, descends, only_rewritten
from omnigraph.engine.changes.diff import State, same_version
from omnigraph.engine.changes.equality import Bools
from omnigraph.engine.changes.rows import RowChanges, paired_rows, without_equal
from omnigraph.engine.manifest.records import TableEntry
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.merge.plan import TableSides
from omnigraph.engine.operations.merge.virtual import Ancestors, VirtualBase, base_is_gone, open_base
from omnigraph.engine.storage.fragments import is_blob
from omnigraph.engine.storage.handle import Addresses, TableHandle
from omnigraph.errors import ConflictError, MergeBaseError, VersionReclaimedError
from omnigraph.ids import CommitId, TableKey

RELOADED_SHARE = 2
"""A table of which one row in so many came anew was reloaded, and most of it has probably not changed."""


class Sides(Struct):
    """The states of one merge."""

    theirs: State
    ours: State
    ancestors: Ancestors
    parted: Callable[[CommitId], Snapshot]
    """The state of a common ancestor."""
    find: Callable[[TableKey, pa.Array], tuple[Addresses, Bools]]
    """Where the target has some entities, by id."""

    @property
    def base(self) -> Snapshot | None:
        """The state the branches parted from; None where merges have crossed, and there are several."""
        [first, *others] = self.ancestors.bases
        return None if others else self.parted(first)

    def table(self, key: TableKey, *, exact: bool) -> TableMeeting | None:
        """One table; None when theirs has not touched it."""
        theirs, ours, base = self.theirs.snapshot, self.ours.snapshot, self.base
        if same_version(theirs, ours, key, key) or (base is not None and same_version(base, theirs, key, key)):
            return None
        with self.telling_of_bases(key):
            found = TableMeeting(self, key, theirs.open(key), ours.open(key), exact)
            return found if found.pairs else None

    @contextmanager
    def telling_of_bases(self, key: TableKey) -> Iterator[None]:
        """A version of the base that turns out to be gone is told as such."""
        try:
            yield
        except MergeBaseError:
            raise
        except VersionReclaimedError as gone:
            # Its manifest may be remembered for longer than its files are there.
            base, others = self.base, (self.theirs.snapshot, self.ours.snapshot)
            if base is None or any(each.entry(key).version == gone.version for each in others):
                raise
            raise base_is_gone(str(base.head), gone) from gone


class Pair(Struct, frozen=True):
    """Two versions of a table, and the rows they do not share."""

    older: TableHandle
    newer: TableHandle
    delta: Delta


class TableMeeting:
    """One table of a merge: the versions that are compared, and what they do not share."""

    def __init__(self, sides: Sides, key: TableKey, theirs: TableHandle, ours: TableHandle, exact: bool) -> None:
        self.sides, self.key, self.theirs, self.ours = sides, key, theirs, ours
        self.entity = sides.ours.catalog.tables[key]
        self.base = None if sides.base is None else open_base(sides.base, key)
        self.at_base = sides.base is not None and same_version(sides.base, sides.ours.snapshot, key, key)
        self._check_columns()
        self.pairs = tuple(self._pairs())
        self.compared = exact or self._should_compare()

    def _check_columns(self) -> None:
        """Refuse to compare properties that have nothing but their names in common.

        A schema that drops a property and adds one of that name later is the schema it was before, so its hash does not
        tell; rows would be taken for unchanged and bring the dropped values back.

        Raises:
            ConflictError: which type has such a property.
        """
        older = self.ancestors.values() if self.base is None else (self.base,)
        for each in (self.theirs, *older):
            if each.first_numbers != self.ours.first_numbers:
                raise ConflictError(
                    f"a property of '{self.key}' was dropped and another has its name since the states that would be"
                    " compared: name a newer commit, or change the entities by a mutation"
                )

    @property
    def rows(self) -> int:
        """How many rows are looked at, at most."""
        return sum(max(pair.delta.removed.count, pair.delta.added.count) for pair in self.pairs)

    @cached_property
    def ancestors(self) -> dict[CommitId, TableHandle]:
        """The table as each of the merged ancestors has it."""
        if self.base is not None:
            return {}
        return {commit: open_base(self.sides.parted(commit), self.key) for commit in self.sides.ancestors.commits}

    def entry(self, handle: TableHandle) -> TableEntry:
        """What a state publishes of this table at one of the versions."""
        states = [self.sides.theirs.snapshot, self.sides.ours.snapshot]
        states += [self.sides.parted(commit) for commit in self.sides.ancestors.commits]
        return next(
            entry
            for entry in (state.entry(self.key) for state in states)
            if (entry.branch, entry.version) == (handle.branch, handle.version)
        )

    def _pairs(self) -> Iterator[Pair]:
        if self.base is None:
            yield self._pair(self.ours, self.theirs, crossed=True)
            yield from (self._pair(self.ours, each, crossed=True) for each in self.ancestors.values())
            return
        brought = self._pair(self.base, self.theirs)
        if not brought.delta.empty:
            yield brought
            if not self.at_base:
                yield self._pair(self.base, self.ours)

    def _pair(self, older: TableHandle, newer: TableHandle, *, crossed: bool = False) -> Pair:
        store = self.sides.ours.snapshot.store
        from_it = partial(descends, store, older, newer)
        if crossed:
            # Across ancestors whole tables may differ in nothing but their files.
            found = delta(older, newer, descends=from_it, rewritten=partial(only_rewritten, store, older, newer))
        else:
            found = delta(older, newer, descends=from_it)
        return Pair(older, newer, found)

    def _should_compare(self) -> bool:
        """Whether what theirs has touched is compared although nobody has asked: it is cheap, or saves much."""
        if self.base is None or not self.pairs:
            return True
        if not any(pa.types.is_fixed_size_list(field.type) or is_blob(field) for field in self.theirs.schema):
            return True
        touched = self.pairs[0].delta
        replaced = min(touched.removed.count, touched.added.count)
        return replaced * RELOADED_SHARE >= sum(fragment.live_rows for fragment in self.base.fragments())

    def here(self) -> TableSides:
        """The table as it is decided in this process."""
        return TableSides(
            self.entity,
            self.theirs,
            self.ours,
            self.base,
            self._touched,
            partial(self.sides.find, self.key),
            self.at_base,
            self.compared,
            None if self.base is not None else VirtualBase(self.sides.ancestors, self._ancestor).locate,
        )

    def _touched(self, older: TableHandle, newer: TableHandle) -> RowChanges:
        pair = next(each for each in self.pairs if each.older is older and each.newer is newer)
        return paired_rows(older, newer, pair.delta)

    def _ancestor(self, commit: CommitId) -> tuple[TableHandle, RowChanges]:
        handle = self.ancestors[commit]
        return handle, without_equal(self.ours, handle, self._touched(self.ours, handle))
