"""Where lines of work have parted: against walking the whole graph, and on a real history."""

from __future__ import annotations

import random
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from omnigraph.engine.manifest import lineage
from omnigraph.engine.manifest.lineage import Ancestry, CommitGraph, commit_graph, merge_bases
from omnigraph.errors import FormatError
from omnigraph.graph import connect, create
from omnigraph.ids import CommitId


def graph_of(**parents: str) -> dict[CommitId, Ancestry]:
    """Commits by name, in order of time, with the names of their parents."""
    return {
        CommitId(name): Ancestry(tuple(CommitId(parent) for parent in text.split()), place)
        for place, (name, text) in enumerate(parents.items())
    }


CROSSED = graph_of(root="", a1="root", b1="root", a2="a1 b1", b2="b1 a1", a3="a2", b3="b2")


@pytest.mark.parametrize(
    ("one", "other", "bases"),
    [
        ("root", "root", ["root"]),
        ("a1", "b1", ["root"]),
        ("a1", "a3", ["a1"]),
        ("a2", "b1", ["b1"]),
        ("a3", "b3", ["a1", "b1"]),
    ],
)
def test_the_newest_common_ancestors_are_the_bases(one: str, other: str, bases: list[str]) -> None:
    found = CommitGraph(CROSSED)
    assert list(found.merge_bases(CommitId(one), CommitId(other))) == bases
    assert list(found.merge_bases(CommitId(other), CommitId(one))) == bases


def test_a_commit_that_is_recorded_nowhere_is_an_error() -> None:
    broken = CommitGraph(graph_of(a="lost", b="a"))
    with pytest.raises(FormatError, match="lost"):
        broken.merge_bases(CommitId("a"), CommitId("b"))


def test_the_quick_way_finds_what_the_whole_graph_says_or_nothing() -> None:
    """Random histories of which only some commits are known."""
    agreed = 0
    for seed in range(300):
        pick = random.Random(seed)
        parents = {"c0": ""}
        for number in range(1, 14):
            earlier = [f"c{pick.randrange(max(0, number - 4), number)}" for _ in range(1 + (pick.random() < 0.3))]
            parents[f"c{number}"] = " ".join(dict.fromkeys(earlier))
        whole = graph_of(**parents)
        known = {name: commit for name, commit in whole.items() if pick.random() < 0.8}
        for _ in range(10):
            one, other = (CommitId(f"c{pick.randrange(14)}") for _ in range(2))
            near = lineage._first_in_common(known, one, other)
            if near is not None:
                agreed += 1
                assert CommitGraph(whole).merge_bases(one, other) == (near,)
    assert agreed > 300


def bases_pair_by_pair(graph: CommitGraph, heads: list[CommitId]) -> set[CommitId]:
    """The plain way: the bases of every two heads, and of several bases again."""
    found: set[CommitId] = set()
    for one, other in combinations(sorted(set(heads)), 2):
        graph._add_bases(graph.merge_bases(one, other), found)
    return found


def test_the_bases_of_many_are_those_of_every_two_of_them() -> None:
    """Random histories with many merges, in which lines cross again and again."""
    crossed = 0
    for seed in range(1_000):
        pick = random.Random(seed)
        merging, reach = pick.choice([0.1, 0.5, 0.9]), pick.choice([2, 4, 12])
        parents = {"c00": ""}
        for number in range(1, pick.choice([4, 10, 30])):
            some = [pick.randrange(max(0, number - reach), number) for _ in range(1 + (pick.random() < merging))]
            parents[f"c{number:02}"] = " ".join(f"c{earlier:02}" for earlier in dict.fromkeys(some))
        graph = CommitGraph(graph_of(**parents))
        heads = [CommitId(name) for name in pick.sample(sorted(parents), pick.randrange(1, min(len(parents), 9)))]
        wanted = bases_pair_by_pair(graph, heads)
        assert graph.bases_between(heads) == wanted, (parents, heads)
        crossed += any(len(graph.merge_bases(one, other)) > 1 for one, other in combinations(heads, 2))
    assert crossed > 30


def test_the_bases_of_a_thousand_branches_take_a_moment() -> None:
    parents = {f"m{number:03}": f"m{number - 1:03}" if number else "" for number in range(500)}
    parents |= {f"b{number:04}": f"m{number % 500:03}" for number in range(1_000)}
    began = time.process_time()
    found = CommitGraph(graph_of(**parents)).bases_between([CommitId(f"b{number:04}") for number in range(1_000)])
    assert found == {CommitId(f"m{number:03}") for number in range(500)}
    assert time.process_time() - began < 5


def test_branches_of_a_graph_part_where_they_were_created(tmp_path: Path) -> None:
    graph = create(tmp_path / "graph", "node P { k: String @key }")
    insert = "query i($k: String) { insert P { k: $k } }"
    for number in range(3):
        graph.mutate(insert, {"k": f"m{number}"})
    parted = graph.snapshot().head
    graph.branches.create("one")
    graph.branches.create("two", "one")
    for number in range(70):  # so many that commits have left the manifest
        graph.mutate(insert, {"k": f"n{number}"}, branch=["main", "one"][number % 2])
    manifest = graph.context.manifest
    heads = [graph.snapshot(branch).head for branch in ("main", "one", "two")]
    for one in heads:
        for other in heads:
            assert one is not None
            assert other is not None
            expected = (one,) if one == other else (parted,)
            assert merge_bases(manifest, one, other) == expected
            assert commit_graph(manifest).merge_bases(one, other) == expected


def test_commits_of_a_branch_are_known_while_it_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = create(tmp_path / "g", "node P { k: String @key }\n")
    graph.branches.create("gone")
    head = graph.mutate('query q() { insert P { k: "a" } }', branch="gone").commit_id
    manifest = graph.context.manifest
    snapshots = manifest.snapshots

    def after_its_deletion() -> Any:
        connect(tmp_path / "g").branches.delete("gone")
        return snapshots()

    monkeypatch.setattr(manifest, "snapshots", after_its_deletion)
    assert head is not None
    assert graph.snapshot().head in commit_graph(manifest).ancestors(head)


def test_a_history_is_listed_while_a_branch_that_was_merged_into_it_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = create(tmp_path / "g", "node P { k: String @key }\n")
    graph.branches.create("gone")
    for branch in ("gone", "main", "gone"):
        graph.mutate("query q($k: String) { insert P { k: $k } }", {"k": branch}, branch=branch)
    graph.branches.merge("gone")
    history = graph.context.manifest.history
    archived = history.archived

    def before_its_deletion(filter: Any = None) -> Any:
        found = archived(filter)
        if filter is not None and "gone" in graph.branches.list():
            connect(tmp_path / "g").branches.delete("gone")
        return found

    monkeypatch.setattr(history, "archived", before_its_deletion)
    assert len(history.list()) == 5
