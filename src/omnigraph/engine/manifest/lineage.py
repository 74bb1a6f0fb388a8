"""The commits as a graph: who comes from whom, and where two lines of work have parted.

A commit knows its parent and, if it is a merge, the commit that was merged. The *merge bases* of two commits are their
common ancestors that no other common ancestor comes from: one where work parted once, several after merges that
crossed each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
from msgspec import Struct

from omnigraph.engine.manifest.bases import bases_of_all
from omnigraph.engine.manifest.publish import Manifest
from omnigraph.engine.manifest.records import CommitRecord
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.storage import layout
from omnigraph.errors import FormatError
from omnigraph.ids import CommitId

_COLUMNS = ("graph_commit_id", "parent_commit_id", "merged_parent_commit_id", "manifest_branch", "created_at")


class Ancestry(Struct, frozen=True):
    """Where a commit comes from, and when and on which branch it was made; the branch of main is None."""

    parents: tuple[CommitId, ...]
    created_at: int
    branch: str | None = None


class CommitGraph:
    """All commits that anybody knows of."""

    def __init__(self, commits: Mapping[CommitId, Ancestry]) -> None:
        self._commits = commits
        self._known: dict[CommitId, set[CommitId]] = {}

    def ancestors(self, commit: CommitId) -> set[CommitId]:
        """The commit and everything it comes from.

        Raises:
            FormatError: a commit on the way is recorded nowhere.
        """
        if commit in self._known:
            return self._known[commit]
        found: set[CommitId] = set()
        todo = [commit]
        while todo:
            wanted = todo.pop()
            if wanted not in found:
                found.add(wanted)
                todo.extend(self._of(wanted).parents)
        self._known[commit] = found
        return found

    def merge_bases(self, one: CommitId, other: CommitId) -> tuple[CommitId, ...]:
        """The newest common ancestors, ordered by time and id; one of the two itself if the other comes from it."""
        return self.newest_common([one], [other])

    def newest_common(self, some: Iterable[CommitId], others: Iterable[CommitId]) -> tuple[CommitId, ...]:
        """The newest commits that both some of the first and some of the second come from, by time and id."""
        common = self._all_ancestors(some) & self._all_ancestors(others)
        # A set of common ancestors has all ancestors of its members, so whoever is not newest is a parent in it.
        older = {parent for commit in common for parent in self._of(commit).parents}
        return tuple(sorted(common - older, key=lambda commit: (self._of(commit).created_at, commit)))

    def bases_between(self, heads: Iterable[CommitId]) -> set[CommitId]:
        """Every commit that a merge between any two of these is compared with, ancestors of ancestors included."""
        found = bases_of_all(lambda commit: self._of(commit).parents, heads)
        for one, other in sorted(found.crossed):
            self._add_bases(self.merge_bases(one, other), found.commits)
        return found.commits

    def branch_of(self, commit: CommitId) -> str | None:
        """The branch a commit was made on; None for main."""
        return self._of(commit).branch

    def _add_bases(self, bases: tuple[CommitId, ...], found: set[CommitId]) -> None:
        found.update(bases)
        for number in range(1, len(bases)):
            self._add_bases(self.newest_common(bases[:number], [bases[number]]), found)

    def _all_ancestors(self, commits: Iterable[CommitId]) -> set[CommitId]:
        found: set[CommitId] = set()
        return found.union(*(self.ancestors(commit) for commit in commits))

    def _of(self, commit: CommitId) -> Ancestry:
        try:
            return self._commits[commit]
        except KeyError:
            raise FormatError(f"commit {commit} is recorded nowhere: {layout.GRAPH_COMMITS} has lost it") from None


def commit_graph(manifest: Manifest, snapshots: Iterable[Snapshot] | None = None) -> CommitGraph:
    """Every commit of the graph, from the commit table and from what each branch has not moved there yet.

    `snapshots` are the newest states of all branches, for those who have them.
    """
    # In this order: a commit leaves a branch, or goes with it, only when the commit table has it.
    newest = _newest(manifest.snapshots() if snapshots is None else snapshots)
    found = {**_archived(manifest), **newest}
    known = found.keys()
    if any(parent not in known for commit in found.values() for parent in commit.parents):
        # The commit table has lost some; listing a branch finds them in earlier states of the manifest.
        for branch in manifest.branches():
            found.update(_records(manifest.history.list(branch)))
    return CommitGraph(found)


def merge_bases(
    manifest: Manifest, one: CommitId, other: CommitId, *, near: Iterable[Snapshot] = ()
) -> tuple[CommitId, ...]:
    """Where the work that led to two commits has parted.

    Most branches part from a line of commits without merges a few commits ago. That is found among the newest commits
    of the states that are `near`, or of all branches; otherwise the whole history is read.
    """
    found = _nearest_in_common(manifest, one, other, near)
    return (found[0],) if found is not None else commit_graph(manifest).merge_bases(one, other)


def live_bases(manifest: Manifest) -> set[CommitId]:
    """The commits that merges between the branches need: if one goes, two cannot be merged."""
    snapshots = manifest.snapshots()
    heads = [each.head for each in snapshots if each.head is not None]
    return commit_graph(manifest, snapshots).bases_between(heads) if len(set(heads)) > 1 else set(heads[:1])


def bases_on(manifest: Manifest, branch: str) -> list[CommitId]:
    """The commits made on a branch that merges between the others need."""
    own = manifest.snapshot(branch)
    newest = None if own.head is None else own.state.commits.get(own.head)
    if newest is not None and newest.manifest_branch != branch:
        return []  # Nothing was committed on it, so what it has is on another one too.
    snapshots = manifest.snapshots()
    heads = {each.head for each in snapshots if each.head is not None and each.branch != branch}
    if len(heads) < 2:
        return []
    graph = commit_graph(manifest, snapshots)
    return sorted(commit for commit in graph.bases_between(heads) if graph.branch_of(commit) == branch)


def apart(manifest: Manifest, one: CommitId, other: CommitId, *, near: Iterable[Snapshot] = ()) -> tuple[int, int]:
    """How many commits led to one and not to the other, and the other way round; `near` as for `merge_bases`."""
    found = _nearest_in_common(manifest, one, other, near)
    if found is not None:
        base, newest = found
        lines = (list(_line(newest, each)) for each in (one, other))
        ahead, behind = (line.index(base) for line in lines)
        return ahead, behind
    graph = commit_graph(manifest)
    mine, theirs = graph.ancestors(one), graph.ancestors(other)
    return len(mine - theirs), len(theirs - mine)


def _nearest_in_common(
    manifest: Manifest, one: CommitId, other: CommitId, near: Iterable[Snapshot]
) -> tuple[CommitId, Mapping[CommitId, Ancestry]] | None:
    """The base of two commits, if lines without merges lead to it among the newest commits, and these."""
    newest = _newest(near)
    found = _first_in_common(newest, one, other)
    if found is None:
        newest = _newest(manifest.snapshots())
        found = _first_in_common(newest, one, other)
    return None if found is None else (found, newest)


def _newest(snapshots: Iterable[Snapshot]) -> dict[CommitId, Ancestry]:
    """The commits that these states hold themselves."""
    found: dict[CommitId, Ancestry] = {}
    for snapshot in snapshots:
        found.update(_records(snapshot.state.commits.values()))
    return found


def _first_in_common(commits: Mapping[CommitId, Ancestry], one: CommitId, other: CommitId) -> CommitId | None:
    """The base of two commits that lines without merges lead to, as far as commits are known; else None."""
    seen = set(_line(commits, one))
    return next((commit for commit in _line(commits, other) if commit in seen), None)


def _line(commits: Mapping[CommitId, Ancestry], start: CommitId) -> Iterable[CommitId]:
    """A commit and its parents one after the other, up to a merge or the end of what is known."""
    at: CommitId | None = start
    while at is not None:
        yield at
        known = commits.get(at)
        at = known.parents[0] if known is not None and len(known.parents) == 1 else None


def _records(commits: Iterable[CommitRecord]) -> dict[CommitId, Ancestry]:
    return {
        commit.graph_commit_id: Ancestry(commit.parents, commit.created_at, commit.manifest_branch)
        for commit in commits
    }


def _archived(manifest: Manifest) -> dict[CommitId, Ancestry]:
    if not manifest.store.exists(layout.GRAPH_COMMITS):
        return {}
    rows = manifest.store.open(layout.GRAPH_COMMITS).scan(list(_COLUMNS))
    times = rows.column("created_at").cast(pa.int64()).to_pylist()
    columns = (rows.column(name).to_pylist() for name in _COLUMNS[:4])
    return {
        id: Ancestry(tuple(each for each in (parent, merged) if each is not None), made, branch)
        for id, parent, merged, branch, made in zip(*columns, times, strict=True)
    }
