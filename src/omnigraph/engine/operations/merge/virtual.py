"""The state two branches have parted from, where merges have crossed and there are several.

Each of the newest common ancestors knows something the others do not, so none of them alone is the base: what one side
has undone would come back. Instead the ancestors are merged among themselves, entity by entity and only for those in
question; where they disagree, nothing is known of the entity, and whatever the two branches do not have alike is a
conflict. What the ancestors parted from may be several commits again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from omnigraph.engine.changes.located import Located, three_way
from omnigraph.engine.changes.rows import Kind, RowChanges
from omnigraph.engine.manifest.lineage import CommitGraph
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.errors import MergeBaseError, VersionReclaimedError
from omnigraph.ids import CommitId, TableKey


def open_base(parted: Snapshot, key: TableKey) -> TableHandle:
    """A table as it was when the branches parted.

    Raises:
        MergeBaseError: cleanup has removed that version, or its branch was deleted.
    """
    try:
        return parted.open(key)
    except VersionReclaimedError as gone:
        raise base_is_gone(str(parted.head), gone) from gone


def base_is_gone(commit: str, gone: Exception) -> MergeBaseError:
    """What is said of a base that cannot be read: an older one would bring back what was undone since."""
    table, version = (gone.table_key, gone.version) if isinstance(gone, VersionReclaimedError) else ("", 0)
    return MergeBaseError(
        f"commit {commit}, with which both branches are compared, can no longer be read ({gone}): nobody can tell who"
        " changed what since — name another commit that both come from with base=",
        commit_id=commit,
        table_key=table,
        version=version,
    )


class Ancestors(Struct, frozen=True):
    """The newest common ancestors of two branches; of several, also what each has in common with those before it."""

    bases: tuple[CommitId, ...]
    parted: Mapping[tuple[CommitId, ...], tuple[CommitId, ...]] = field(default_factory=dict)
    """For some ancestors in a row, what the last of them and the others come from."""

    @classmethod
    def of(cls, commits: Callable[[], CommitGraph], bases: tuple[CommitId, ...]) -> Ancestors:
        """The ancestors of one merge; the history is read only where there are several."""
        found: dict[tuple[CommitId, ...], tuple[CommitId, ...]] = {}
        if len(bases) > 1:
            _find_parted(commits(), bases, found)
        return cls(bases, found)

    @property
    def commits(self) -> list[CommitId]:
        """Every commit that is looked at."""
        return sorted({*self.bases, *(commit for some in self.parted.values() for commit in some)})


def _find_parted(
    commits: CommitGraph, bases: tuple[CommitId, ...], found: dict[tuple[CommitId, ...], tuple[CommitId, ...]]
) -> None:
    for number in range(1, len(bases)):
        some = bases[: number + 1]
        if some not in found:
            found[some] = commits.newest_common(some[:-1], [some[-1]])
            _find_parted(commits, found[some], found)


class VirtualBase:
    """The merged ancestors of one table; `changes` tells what one of them has and how that differs from the target."""

    def __init__(self, ancestors: Ancestors, changes: Callable[[CommitId], tuple[TableHandle, RowChanges]]) -> None:
        self._ancestors, self._changes = ancestors, cache(changes)

    def locate(self, ids: pa.Array, ours: Located) -> Located:
        """Where the merged ancestors have some entities, given where the target has them."""
        return self._merged(self._ancestors.bases, ids, ours)

    def _merged(self, bases: tuple[CommitId, ...], ids: pa.Array, ours: Located) -> Located:
        found = self._at(bases[0], ids, ours)
        for number in range(1, len(bases)):
            older = self._merged(self._ancestors.parted[bases[: number + 1]], ids, ours)
            found = three_way(older, found, self._at(bases[number], ids, ours))
        return found

    def _at(self, commit: CommitId, ids: pa.Array, ours: Located) -> Located:
        """Where one ancestor has the entities: where the target has them, but for those that differ."""
        handle, changes = self._changes(commit)
        partner = pc.index_in(ids, value_set=changes.ids)
        differs = np.asarray(partner.is_valid(), dtype=np.bool_)
        there = np.asarray(pc.fill_null(partner, 0).to_numpy(zero_copy_only=False), dtype=np.int64)
        if not differs.any():
            return ours
        own = Located.of(handle, changes.after[there], changes.kinds[there] != Kind.DELETE)
        return ours.chosen(own, differs)
