"""Whole files of one line of a table taken over by another, so that no row is read or written.

A data file never changes, and its name is unique for ever. A line that gets a fragment of another one refers to the
file where it already refers to that place, as a branch does to the line it was forked from; otherwise the store copies
the file, which on a disk is one more name for it. Never is a base added: the other line may be deleted at any time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import numpy as np
import pyarrow as pa
from lance import LanceOperation
from lance.fragment import FragmentMetadata
from msgspec import Struct, field
from msgspec.structs import replace

from omnigraph.engine.storage.folding import covered_by_index, fold_small
from omnigraph.engine.storage.handle import Addresses, TableHandle
from omnigraph.engine.storage.lance_internals.files import branch_location
from omnigraph.engine.storage.orphans import places_below
from omnigraph.engine.storage.sorted_unique import sorted_unique
from omnigraph.engine.storage.staged import (
    Fold,
    StagedWrite,
    _delete_rows,
    _row_count,
    _write,
    new_files,
    stage_update,
)
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.storage.translate import translated
from omnigraph.errors import StorageError

COPIES_AT_ONCE = 8
APPENDED_ROWS_MIN = 100_000
"""From so many new rows on they are appended by a commit of their own."""


class Adopted(Struct):
    """Fragments that a line takes over, under their new numbers, and those whose rows have to be written instead."""

    fragments: list[FragmentMetadata] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """Files besides the data files, below the line: deletions and blobs."""
    taken: list[str] = field(default_factory=list)
    """Data files that stay where they are, below the root."""
    left: list[int] = field(default_factory=list)
    reason: str | None = None
    """Why some are left."""

    @property
    def live_rows(self) -> int:
        """How many rows readers see of them."""
        return sum(int(fragment.physical_rows) - int(fragment.num_deletions) for fragment in self.fragments)


def adopt(store: TableStore, source: TableHandle, fragment_ids: Iterable[int], target: TableHandle) -> Adopted:
    """Take over fragments of another version of the same table, each with its deletions and blobs.

    What cannot be taken over is left: a file that the target has already, or that the store does not copy.
    """
    found = Adopted()
    adopter = _Adopter(store, source, target)
    copies: list[tuple[FragmentMetadata, list[tuple[str, str]], list[str]]] = []
    for fragment_id in fragment_ids:
        with translated(f"reading the fragments of {source.path}"):
            metadata = source.dataset.get_fragment(fragment_id).metadata
        planned = adopter.plan(metadata)
        if planned is None:
            found.left.append(fragment_id)
            found.reason = found.reason or adopter.reason
        else:
            copies.append(planned)
    done = _side_by_side(store, [moves for _, moves, _ in copies])
    for (fragment, _, files), failure in zip(copies, done, strict=True):
        if failure is not None:
            found.left.append(adopter.sources[fragment.id])
            found.reason = found.reason or f"the store could not copy a file ({failure})"
            continue
        found.fragments.append(fragment)
        found.files.extend(files)
        found.taken.extend(adopter.taken.get(fragment.id, ()))
    return found


class _Adopter:
    """How the fragments of one version become fragments of another."""

    def __init__(self, store: TableStore, source: TableHandle, target: TableHandle) -> None:
        self._store, self._source = store, source
        self._own = branch_location(target.path, target.branch)
        self._places = {None: branch_location(source.path, source.branch), **places_below(store, source.dataset)}
        self._known = {place: base for base, place in places_below(store, target.dataset).items()}
        existing = target.fragments()
        self._there = {name for fragment in existing for name in fragment.files}
        numbers = [fragment.id for fragment in existing] + sorted(covered_by_index(target) if existing else ())
        self._next = max(numbers, default=0) + 1
        self.sources: dict[int, int] = {}
        self.taken: dict[int, list[str]] = {}
        self.reason: str | None = None

    def plan(self, metadata: FragmentMetadata) -> tuple[FragmentMetadata, list[tuple[str, str]], list[str]] | None:
        """The fragment under its new number, what must be copied for it, and its files besides the data."""
        document = metadata.to_json()
        moves: list[tuple[str, str]] = []
        files: list[str] = []
        for file in document["files"]:
            place = self._places.get(file["base_id"])
            name = str(file["path"])
            if place is None or name in self._there:
                self.reason = "the target has its file already" if place else "a file lies outside the graph"
                return None
            folder = f"data/{name.removesuffix('.lance')}"
            if place == self._own or place in self._known:
                file["base_id"] = None if place == self._own else self._known[place]
                self.taken.setdefault(self._next, []).append(f"{place}/data/{name}")
            else:
                file["base_id"] = None
                moves.append((f"{place}/data/{name}", f"{self._own}/data/{name}"))
                for blob in self._store.objects.list_dir(f"{place}/{folder}"):
                    moves.append((f"{place}/{folder}/{blob}", f"{self._own}/{folder}/{blob}"))
                    files.append(f"{folder}/{blob}")
        deletions = metadata.deletion_file
        if deletions is not None:
            place = self._places.get(deletions.base_id)
            if place is None:
                self.reason = "a file lies outside the graph"
                return None
            path = deletions.path(self._next)
            moves.append((f"{place}/{deletions.path(metadata.id)}", f"{self._own}/{path}"))
            files.append(path)
            document["deletion_file"]["base_id"] = None
        self.sources[self._next] = int(metadata.id)
        # Row ids are given by the commit, and with them versions.
        document.update(
            id=self._next, row_id_meta=None, created_at_version_meta=None, last_updated_at_version_meta=None
        )
        self._next += 1
        return FragmentMetadata.from_json(json.dumps(document)), moves, files


def _side_by_side(store: TableStore, moves: Sequence[Sequence[tuple[str, str]]]) -> list[StorageError | None]:
    """Copy the files of each fragment; where that fails, why."""

    def copy(pairs: Sequence[tuple[str, str]]) -> StorageError | None:
        try:
            for source, target in pairs:
                store.objects.copy(source, target)
        except StorageError as exc:
            return exc
        return None

    if len(moves) < 2 or not store.waits:
        return [copy(pairs) for pairs in moves]
    with ThreadPoolExecutor(min(COPIES_AT_ONCE, len(moves))) as pool:
        running = [pool.submit(copy_context().run, copy, pairs) for pairs in moves]
    return [done.result() for done in running]


class StagedAdoption(Struct, frozen=True):
    """The first commit of a table that takes fragments over, and what is appended behind it."""

    first: StagedWrite | None
    appended: tuple[FragmentMetadata, ...] = ()
    rows_appended: int = 0

    def then(self, head: TableHandle) -> StagedWrite | None:
        """The second commit, on the version the first has made: nobody else can be there.

        Lance asks of every new row of an update where it came from, and of appended ones not.
        """
        if not self.appended:
            return None
        operation = LanceOperation.Append(list(self.appended))
        return StagedWrite(head.version, operation, self.rows_appended, 0, strict=False)


class Prepared(Struct, frozen=True):
    """What others have written for a table: new fragments, and fragments of it with other deletions, as texts."""

    written: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    emptied: tuple[int, ...] = ()
    rows_removed: int = 0


def stage_adopted(
    base: TableHandle,
    adopted: Adopted,
    dead: Addresses,
    rows: Callable[[], pa.RecordBatchReader | None],
    *,
    fold: Fold = fold_small,
    prepared: Prepared = Prepared(),  # noqa: B008
) -> StagedAdoption:
    """Stage fragments that were taken over, rows that are written besides, and the rows that go, by one or two commits.

    Many new rows are appended behind a commit that only deletes; so is everything an empty table gets with deletions.
    `prepared` is what others have written besides.
    """
    reader = rows()
    written = [] if reader is None else _write(base, reader, read_soon=False)
    written += [FragmentMetadata.from_json(text) for text in prepared.written]
    # Some fragments have a number because their deletions are filed under it, so all of them have to have one.
    number = max([*adopted_numbers(adopted), _highest(base)], default=0)
    for fragment in written:
        number += 1
        fragment.id = number
    changed, emptied = _remove(base, dead)
    changed += [FragmentMetadata.from_json(text) for text in prepared.changed]
    emptied += prepared.emptied
    added = [*adopted.fragments, *written]
    if not added and not changed and not emptied:
        return StagedAdoption(None)
    rows_added = adopted.live_rows + _row_count(written)
    deletes = not base.fragments() and any(fragment.deletion_file is not None for fragment in added)
    later = rows_added > APPENDED_ROWS_MIN or deletes
    staged = stage_update(
        base,
        added=[] if later else added,
        changed=changed,
        emptied=emptied,
        rows_added=0 if later else rows_added,
        rows_removed=len(dead) + prepared.rows_removed,
        fold=fold,
    )
    # Whatever either commit names is looked for and synced before the first.
    files = (*staged.files, *(new_files(added) if later else ()), *adopted.files)
    staged = replace(staged, files=files, taken=tuple(adopted.taken))
    return StagedAdoption(staged, tuple(added) if later else (), rows_added if later else 0)


def adopted_numbers(adopted: Adopted) -> list[int]:
    """The numbers that fragments were taken over under."""
    return [int(fragment.id) for fragment in adopted.fragments]


def _highest(base: TableHandle) -> int:
    numbers = [fragment.id for fragment in base.fragments()]
    return max([*numbers, *(covered_by_index(base) if numbers else ())], default=0)


def _remove(base: TableHandle, dead: Addresses) -> tuple[list[FragmentMetadata], list[int]]:
    """Deletion files for the rows that go; a fragment that loses all its rows needs none."""
    whole, partly = emptied_by(base, dead)
    changed, emptied = _delete_rows(base, sorted_unique(partly))
    return changed, [*whole, *emptied]


def emptied_by(base: TableHandle, dead: Addresses) -> tuple[list[int], Addresses]:
    """The fragments that lose all their rows, and the rows that go from others."""
    owners = dead >> np.uint64(32)
    numbers, counts = np.unique(owners, return_counts=True)
    live = {fragment.id: fragment.live_rows for fragment in base.fragments()}
    whole = [int(number) for number, count in zip(numbers, counts, strict=True) if live[int(number)] == count]
    return whole, dead[~np.isin(owners, np.array(whole, dtype=np.uint64))]
