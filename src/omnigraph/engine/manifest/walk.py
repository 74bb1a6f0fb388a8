"""Going back through the history, reading no more of it than is asked for.

Commits are looked up as they are reached. Those the manifest does not hold come from the commit table in pages, each
twice as large as the one before: the newest few cost one small read, and all of them a handful of large ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from omnigraph.engine.manifest.records import CommitRecord
from omnigraph.errors import FormatError
from omnigraph.ids import CommitId

PAGE = 64
"""Commits that the first page has room for."""
PAGE_MAX = 65_536

Commits = Mapping[CommitId, CommitRecord]


class Archive(Protocol):
    """Where commits are kept that the manifest no longer holds."""

    def page(self, version: int, count: int) -> Commits:
        """The commits of so many manifest versions up to this one, on whatever branch."""
        ...

    def named(self, commit_id: CommitId) -> Commits:
        """One commit, or nothing."""
        ...

    def everything(self) -> Commits:
        """All commits of the archive."""
        ...

    def recovered(self, missing: CommitId, child: CommitRecord, known: Commits) -> Commits:
        """A commit the archive has lost, and its ancestors up to known ones."""
        ...


class Walk:
    """One way back from a head; `known` are the commits that are at hand, `all_of_it` says that it will go far."""

    def __init__(self, archive: Archive, known: Commits, *, all_of_it: bool = False) -> None:
        self._archive = archive
        self._known = dict(known)
        self._size = PAGE
        self._all_of_it, self._whole = all_of_it, False

    def by_age(self, head: CommitId | None) -> Iterator[CommitRecord]:
        """A commit and everything it comes from, the newest of what has been reached first."""
        if head is None:
            return
        seen = {head}
        reached = [_aged(self.find(head, None))]
        while reached:
            commit = heapq.heappop(reached)[-1]
            yield commit
            for parent in commit.parents:
                if parent not in seen:
                    seen.add(parent)
                    heapq.heappush(reached, _aged(self.find(parent, commit)))

    def line(self, head: CommitId | None) -> Iterator[CommitRecord]:
        """A commit, its first parent, and so on: the states that the branch of the head has had."""
        child: CommitRecord | None = None
        while head is not None:
            child = self.find(head, child)
            yield child
            head = child.parent_commit_id

    def find(self, commit_id: CommitId, child: CommitRecord | None) -> CommitRecord:
        """One commit on the way; `child` is the one that names it as a parent.

        Raises:
            FormatError: it is recorded nowhere.
        """
        found = self._known.get(commit_id)
        if found is not None:
            return found
        looks: tuple[Callable[[], Commits], ...] = (
            lambda: self._near(child),
            lambda: self._archive.named(commit_id),
            self._rest,
            lambda: {} if child is None else self._archive.recovered(commit_id, child, self._known),
        )
        for look in looks:
            self._known.update(look())
            found = self._known.get(commit_id)
            if found is not None:
                return found
        raise FormatError(f"commit {commit_id} is the head of a branch but recorded nowhere")

    def _near(self, child: CommitRecord | None) -> Commits:
        """What lies around a commit, which is likely to be asked for next."""
        if self._all_of_it:
            return self._rest()
        if child is None or self._whole:
            return {}
        size, self._size = self._size, min(2 * self._size, PAGE_MAX)
        return self._archive.page(child.manifest_version, size)

    def _rest(self) -> Commits:
        """Everything: before a commit is taken for lost, and where most of it is wanted anyway."""
        if self._whole:
            return {}
        self._whole = True
        return self._archive.everything()


def _aged(commit: CommitRecord) -> tuple[int, int, str, CommitRecord]:
    """What the newest commit is the least by; ids are unique, so records are never compared."""
    return (-commit.created_at, -commit.manifest_version, commit.graph_commit_id, commit)
