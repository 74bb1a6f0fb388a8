"""The commits as a graph: who comes from whom, and where two lines of work have parted.

A commit knows its parent and, if it is a merge, the commit that was merged. The *merge bases* of two commits are their
common ancestors that no other common ancestor comes from: one where work parted once, several after merges that
crossed each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import pyarrow as pa

from omnigraph.engine.manifest.publish import Manifest
from omnigraph.engine.manifest.records import CommitRecord
from omnigraph.engine.storage import layout
from omnigraph.errors import FormatError
from omnigraph.ids import CommitId

_COLUMNS = ("graph_commit_id", "parent_commit_id", "merged_parent_commit_id", "created_at")


@dataclass(frozen=True)
class Ancestry:
    """Where a commit comes from, and when it was made."""

    parents: tuple[CommitId, ...]
    created_at: int


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
        found: set[CommitId] = set()
        for one, other in combinations(sorted(set(heads)), 2):
            self._add_bases(self.merge_bases(one, other), found)
        return found

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


def commit_graph(manifest: Manifest) -> CommitGraph:
    """Every commit of the graph, from the commit table and from what each branch has not moved there yet."""
    found = _archived(manifest)
    for snapshot in manifest.snapshots():
        found.update(_records(snapshot.state.commits.values()))
    known = found.keys()
    if any(parent not in known for commit in found.values() for parent in commit.parents):
        # The commit table has lost some; listing a branch finds them in earlier states of the manifest.
        for branch in manifest.branches():
            found.update(_records(manifest.history.list(branch)))
    return CommitGraph(found)


def merge_bases(manifest: Manifest, one: CommitId, other: CommitId) -> tuple[CommitId, ...]:
    """Where the work that led to two commits has parted.

    Most branches part from a line of commits without merges a few commits ago. That is found among the newest commits
    of all branches; otherwise the whole history is read.
    """
    newest: dict[CommitId, Ancestry] = {}
    for snapshot in manifest.snapshots():
        newest.update(_records(snapshot.state.commits.values()))
    near = _first_in_common(newest, one, other)
    return (near,) if near is not None else commit_graph(manifest).merge_bases(one, other)


def live_bases(manifest: Manifest, *, without: str | None = None) -> set[CommitId]:
    """The commits that merges between the branches need, `without` one of them: if one goes, two cannot be merged."""
    heads = [each.head for each in manifest.snapshots() if each.head is not None and each.branch != without]
    return commit_graph(manifest).bases_between(heads) if len(set(heads)) > 1 else set(heads[:1])


def apart(manifest: Manifest, one: CommitId, other: CommitId) -> tuple[int, int]:
    """How many commits led to one and not to the other, and the other way round."""
    newest: dict[CommitId, Ancestry] = {}
    for snapshot in manifest.snapshots():
        newest.update(_records(snapshot.state.commits.values()))
    near = _first_in_common(newest, one, other)
    if near is not None:
        lines = (list(_line(newest, each)) for each in (one, other))
        ahead, behind = (line.index(near) for line in lines)
        return ahead, behind
    graph = commit_graph(manifest)
    mine, theirs = graph.ancestors(one), graph.ancestors(other)
    return len(mine - theirs), len(theirs - mine)


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
    return {commit.graph_commit_id: Ancestry(commit.parents, commit.created_at) for commit in commits}


def _archived(manifest: Manifest) -> dict[CommitId, Ancestry]:
    if not manifest.store.exists(layout.GRAPH_COMMITS):
        return {}
    rows = manifest.store.open(layout.GRAPH_COMMITS).scan(list(_COLUMNS))
    times = rows.column("created_at").cast(pa.int64()).to_pylist()
    columns = (rows.column(name).to_pylist() for name in _COLUMNS[:3])
    return {
        id: Ancestry(tuple(each for each in (parent, merged) if each is not None), made)
        for id, parent, merged, made in zip(*columns, times, strict=True)
    }
