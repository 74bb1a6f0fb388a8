"""The rows that two versions of one table do not share, found without reading a row.

A data file never changes and its name is unique for ever, on whichever line of the table it was written. So fragments
of two versions that have the same files and the same deletions hold the same rows, and whatever differs between the
versions lies in the others: in rows that were deleted, or in fragments that one side does not have. What is found are
*candidates*: a row that was only moved or rewritten is still to be told from one that changed, by its values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from omnigraph.engine.storage.handle import Addresses, FragmentInfo, TableHandle
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.storage.translate import is_missing
from omnigraph.errors import NotFoundError, StorageError

Offsets = npt.NDArray[np.int64]

REWRITING_STEPS_MAX = 4
"""The commits that one upkeep of a table has at most: a fence, a compaction, an index."""
_REWRITING = frozenset({"Rewrite", "CreateIndex", "ReserveFragments", "BaseOperation", "UpdateConfig"})
"""Operations of Lance that change no row; the Python binding shows a reservation of fragments as the bare base."""
_ROW_ID, _ADDRESS, _UPDATED = "_rowid", "_rowaddr", "_row_last_updated_at_version"


class Part(Struct, frozen=True, dict=True):
    """Some live rows of one fragment, by ascending offset; which they are is found out for whoever asks."""

    fragment: FragmentInfo
    count: int
    _find: Callable[[], Offsets]

    @classmethod
    def of(cls, fragment: FragmentInfo, offsets: Offsets) -> Part:
        """Rows that are known already."""
        return cls(fragment, len(offsets), lambda: offsets)

    @property
    def is_whole(self) -> bool:
        """Whether these are all live rows of the fragment."""
        return self.count == self.fragment.live_rows

    @cached_property
    def offsets(self) -> Offsets:
        """Where the rows are in the fragment."""
        return self._find()


class Candidates(Struct, frozen=True, dict=True):
    """Rows of one version of a table, by fragment."""

    parts: tuple[Part, ...]

    @property
    def count(self) -> int:
        """How many rows there are."""
        return sum(part.count for part in self.parts)

    @cached_property
    def addresses(self) -> Addresses:
        """The rows as addresses, part by part."""
        parts = [(np.uint64(part.fragment.id) << np.uint64(32)) | part.offsets.astype(np.uint64) for part in self.parts]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)


class Delta(Struct, frozen=True):
    """The rows of the older version that the newer one may lack, and those that it may have besides."""

    removed: Candidates
    added: Candidates

    @property
    def empty(self) -> bool:
        """True when the two versions hold the same rows for certain."""
        return not self.removed.count and not self.added.count


def delta(
    older: TableHandle,
    newer: TableHandle,
    *,
    descends: Callable[[], bool] = lambda: False,
    rewritten: Callable[[], bool] = lambda: False,
) -> Delta:
    """Compare two versions of one table, on any of its lines.

    `descends` tells whether the newer version came from the older one by commits, `rewritten` whether these commits
    changed no row; they are asked only where that helps.
    """
    then = {fragment.files: fragment for fragment in older.fragments()}
    now = {fragment.files: fragment for fragment in newer.fragments()}
    removed, added = [], []
    for files in then.keys() & now.keys():
        before, after = then[files], now[files]
        if before.deletion_key == after.deletion_key:
            continue
        dead_then, dead_now = older.deleted_offsets(before), newer.deleted_offsets(after)
        removed.append(Part.of(before, np.setdiff1d(dead_now, dead_then, assume_unique=True).astype(np.int64)))
        added.append(Part.of(after, np.setdiff1d(dead_then, dead_now, assume_unique=True).astype(np.int64)))
    gone = [fragment for fragment in older.fragments() if fragment.files not in now]
    came = [fragment for fragment in newer.fragments() if fragment.files not in then]
    if gone and came and rewritten():
        return Delta(Candidates(()), Candidates(()))
    moved_out, moved_in = _whole(older, gone), _whole(newer, came)
    if gone and came and descends():
        moved_out, moved_in = _without_moved(older, newer, moved_out, moved_in)
    return Delta(_candidates([*removed, *moved_out]), _candidates([*added, *moved_in]))


def descends(store: TableStore, older: TableHandle, newer: TableHandle) -> bool:
    """Whether the newer version came from the older one: on its line, or on one forked from it at or after it."""
    branch, version = newer.branch, newer.version
    points = store.fork_points(newer.path) if branch != older.branch else {}
    while branch != older.branch:
        if branch is None or branch not in points:
            return False
        branch, version = points[branch]
    return older.version <= version


def only_rewritten(store: TableStore, older: TableHandle, newer: TableHandle) -> bool:
    """Whether the few commits between two versions of one line changed no row, as their transactions tell.

    Compaction and building an index never do. Any other commit did not if its fragments are those before it. Nothing is
    known where cleanup has removed a version between the two.
    """
    if older.branch != newer.branch or not 0 < newer.version - older.version <= REWRITING_STEPS_MAX:
        return False
    try:
        made = store.transactions(newer.path, newer.branch, after=older.version, upto=newer.version)
        return all(each.operation in _REWRITING or _same_fragments(store, newer, each.version) for each in made)
    except (NotFoundError, StorageError) as exc:
        if not is_missing(exc):
            raise
        return False


def _same_fragments(store: TableStore, table: TableHandle, version: int) -> bool:
    before, after = (
        {(fragment.files, fragment.deletion_key) for fragment in handle.fragments()}
        for handle in (store.open(table.path, branch=table.branch, version=each) for each in (version - 1, version))
    )
    return before == after


def whole_table(handle: TableHandle) -> Candidates:
    """Every row of a version, for a table that only one of two states has."""
    return _candidates(_whole(handle, handle.fragments()))


def _whole(handle: TableHandle, fragments: Iterable[FragmentInfo]) -> list[Part]:
    return [live_rows(handle, fragment) for fragment in fragments]


def live_rows(handle: TableHandle, fragment: FragmentInfo) -> Part:
    """Every row of a fragment that readers of a version see."""

    def find() -> Offsets:
        live = np.ones(fragment.physical_rows, dtype=np.bool_)
        live[handle.deleted_offsets(fragment)] = False
        return np.flatnonzero(live)

    return Part(fragment, fragment.live_rows, find)


def _candidates(parts: Iterable[Part]) -> Candidates:
    return Candidates(tuple(sorted((p for p in parts if p.count), key=lambda part: part.fragment.id)))


def _without_moved(
    older: TableHandle, newer: TableHandle, gone: list[Part], came: list[Part]
) -> tuple[list[Part], list[Part]]:
    """Leave out rows that a fold or a compaction has only moved: row id and version of the last change tell them.

    Along one line of commits the two identify what a row holds. A version that was rounded when its fragment was
    folded looks newer than it is, so such a row merely stays a candidate.
    """
    row_ids, updated, at = _identities(older, gone)
    row_ids_now, updated_now, at_now = _identities(newer, came)
    mine, theirs = _in_both(row_ids, row_ids_now)
    same = updated[mine] == updated_now[theirs]
    left, left_now = np.ones(len(at), dtype=np.bool_), np.ones(len(at_now), dtype=np.bool_)
    left[mine[same]] = left_now[theirs[same]] = False
    return _keeping(gone, at[left]), _keeping(came, at_now[left_now])


def _in_both(some: Addresses, others: Addresses) -> tuple[Offsets, Offsets]:
    """Where the values are that both have, none of them twice."""
    if np.array_equal(some, others):
        return np.arange(len(some)), np.arange(len(some))
    if _ascends(some) and _ascends(others):
        # A compaction keeps the order in which rows were written, and then nothing needs to be sorted.
        places = np.searchsorted(others, some)
        found = np.flatnonzero(others[np.minimum(places, len(others) - 1)] == some) if len(others) else places[:0]
        return found, places[found]
    _, mine, theirs = np.intersect1d(some, others, assume_unique=True, return_indices=True)
    return mine, theirs


def _ascends(values: Addresses) -> bool:
    return bool((values[1:] > values[:-1]).all())


def _identities(handle: TableHandle, parts: list[Part]) -> tuple[Addresses, Addresses, Addresses]:
    """Row id, version of the last change, and address of every live row; none of it is in a data file."""
    found = handle.scan(
        [_UPDATED], fragment_ids=[part.fragment.id for part in parts], with_row_id=True, with_row_address=True
    )
    row_ids, updated, at = (
        found[name].to_numpy().astype(np.uint64, copy=False) for name in (_ROW_ID, _UPDATED, _ADDRESS)
    )
    return row_ids, updated, at


def _keeping(parts: list[Part], addresses: Addresses) -> list[Part]:
    owners = addresses >> np.uint64(32)
    offsets = (addresses & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return [Part.of(part.fragment, np.sort(offsets[owners == part.fragment.id])) for part in parts]
