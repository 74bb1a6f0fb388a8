"""What Lance can only do in one step: write and move a head, or change refs.

These stand apart so that a reader sees the name at every call site (`store.residual`). Nothing else in the engine
writes and moves a head at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.lance_internals.files import TABLE_FOLDERS, VERSIONS, branch_location, branch_ref
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.engine.storage.steps import step
from omnigraph.engine.storage.translate import is_missing, raise_interrupt, translated
from omnigraph.errors import GraphError, StorageError
from omnigraph.interrupts import uncut

REF_LOOKS = 16

T = TypeVar("T")


class Tables(Protocol):
    """What these operations need to know of the tables of a root."""

    objects: ObjectStore

    def open(self, path: str, *, branch: str | None = None, version: int | None = None) -> TableHandle:
        """A table at a version of a branch, or at its head."""
        ...

    def has_version(self, path: str, branch: str | None, version: int) -> bool:
        """Whether a version is still there."""
        ...

    def tags(self, path: str, branch: str | None = None) -> dict[str, int]:
        """The versions that have names."""
        ...

    def branch_parents(self, path: str) -> dict[str, str | None]:
        """What each branch was made from."""
        ...

    def branch_points(self, path: str) -> dict[str, int]:
        """The versions of main that branches were made from."""
        ...

    def sync_head(self, path: str, branch: str | None = None) -> None:
        """Make the head of a branch durable."""
        ...


class CleanupStats(Struct, frozen=True):
    """What a removal of old versions freed."""

    bytes_removed: int
    old_versions_removed: int


class InlineCommitResidual:
    """The inline operations that are left, each under its own name."""

    def __init__(self, store: Tables) -> None:
        self._store = store

    def create_branch(self, path: str, branch: str, *, source: str | None, version: int) -> None:
        """Create a ref `branch` of a table at `(source, version)`; no data is copied."""
        handle = self._store.open(path, branch=source, version=version)
        with translated(f"creating branch {branch} of {path}"), step("create_branch", path):

            def create() -> None:
                # Cut short, Lance could still write the ref when `cleanup` has taken the files of the branch away.
                uncut(lambda: handle.dataset.create_branch(branch, (source, version)))

            try:
                create()
            except OSError as exc:
                raise_interrupt(exc)
                if not self._clear_leftovers(path, branch):
                    raise
                create()
            self._store.sync_head(path, branch)

    def _clear_leftovers(self, path: str, branch: str) -> bool:
        """Remove what a creation or deletion that was cut short left where the branch goes; True if there was any."""
        place = branch_location(path, branch)
        objects = self._store.objects
        if objects.has(branch_ref(path, branch)) or not objects.exists(f"{place}/{VERSIONS}"):
            return False
        self._remove_files(place)
        return True

    def delete_branch(self, path: str, branch: str) -> None:
        """Delete a ref of a table and what lies in its folder; it is fine if there is none.

        Lance's own deletion reads every other ref on the way, so one that somebody else deletes at that moment makes
        it fail as if its own were missing; and it takes away the folders above it that no ref needs, with whatever a
        branch that is just being created has put there. The ref goes first: a folder without one is nobody's.

        Raises:
            StorageError: others were created from it, or a tag names it (`kind` precondition); nothing was deleted.
        """
        needing = [f"{name} was created from it" for name in self._children(path, branch)]
        needing += [f"the tag {name} names it" for name in self._store.tags(path, branch)]
        if needing:
            raise StorageError(f"deleting branch {branch} of {path}: {needing[0]}", kind="precondition")
        self._store.objects.delete(branch_ref(path, branch))
        self._remove_files(branch_location(path, branch))

    def _children(self, path: str, branch: str) -> list[str]:
        return sorted(name for name, parent in self._store.branch_parents(path).items() if parent == branch)

    def _remove_files(self, place: str) -> None:
        # Only the folders of a table: a branch of a longer name may lie beside them.
        for folder in TABLE_FOLDERS:
            self._store.objects.delete_prefix(f"{place}/{folder}")
        self._store.objects.drop_empty_folder(place)

    def cleanup_versions(self, path: str, *, versions: Sequence[int]) -> CleanupStats:
        """Remove exactly these versions of a table's main lineage, and the files only they need.

        Raises:
            StorageError: some of them are still there, although nothing needs them; Lance itself tells only how many
                it removed, also where the disk takes no changes at all.
        """
        dataset = self._store.open(path).dataset
        needed = self._needed(path)
        with step("cleanup_versions", path):
            stats = among_refs(
                f"removing old versions of {path}",
                lambda: dataset.cleanup_old_versions(versions=list(versions), error_if_tagged_old_versions=False),
            )
        needed |= self._needed(path)  # Refs come and go meanwhile, and Lance has seen some of them.
        left = [
            version for version in versions if version not in needed and self._store.has_version(path, None, version)
        ]
        if left:
            raise StorageError(
                f"removing old versions of {path}: {len(left)} of {len(versions)} could not be removed, the first is"
                f" {left[0]} - is the storage read-only, or its folder not ours to change?",
                kind="permanent",
            )
        return CleanupStats(int(stats.bytes_removed), int(stats.old_versions))

    def _needed(self, path: str) -> set[int]:
        return {*self._store.tags(path).values(), *self._store.branch_points(path).values()}


def among_refs(what: str, ask: Callable[[], T]) -> T:
    """Do what reads all refs of a table, again when one of them was deleted after Lance had listed it."""
    for _ in range(REF_LOOKS):
        try:
            with translated(what):
                return ask()
        except GraphError as exc:
            if not is_missing(exc):
                raise
            missing = exc
    raise missing
