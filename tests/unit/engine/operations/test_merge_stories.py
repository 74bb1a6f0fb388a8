"""Histories that merges of other systems got wrong, each as one story."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from omnigraph import failpoints
from omnigraph.errors import MergeConflictError, StorageError
from omnigraph.graph import Graph, connect, create
from omnigraph.ids import TableKey
from omnigraph.testing.failpoints import configured

SCHEMA = """
node P { k: String @key  n: I32? }
node Q { k: String @key }
edge Knows: P -> P { w: I32? }
"""
P, Q = TableKey("node:P"), TableKey("node:Q")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = create(tmp_path / "graph", SCHEMA)
    put(made, "main", a=0, b=0, c=0)
    knows(made, "main", "ab", "bc")
    return made


def put(graph: Graph, branch: str, mode: str = "merge", **numbers: int) -> None:
    graph.load([{"type": "P", "data": {"k": key, "n": n}} for key, n in numbers.items()], mode, branch=branch)


def knows(graph: Graph, branch: str, *pairs: str, name: str = "") -> None:
    rows = [{"edge": "Knows", "from": a, "to": b, "data": {"id": f"{name}{a}{b}"}} for a, b in pairs]
    graph.load(rows, "append", branch=branch)


def content(graph: Graph, branch: str = "main") -> dict[str, Any]:
    return {
        row["k"]: row["n"]
        for row in graph.query("query q() { match { $p: P } return { $p.k as k, $p.n as n } }", branch=branch)
    }


def edges(graph: Graph, branch: str = "main") -> set[str]:
    return set(graph.snapshot(branch).open(TableKey("edge:Knows")).scan(["id"])["id"].to_pylist())


def check(graph: Graph) -> None:
    assert graph.maintenance.verify().clean
    assert graph.maintenance.unfinished() == []


def test_a_table_that_was_loaded_anew_brings_only_what_differs(graph: Graph) -> None:
    """Every row was written again, one has another value; the target has changed two of the others."""
    graph.branches.create("review")
    put(graph, "review", "overwrite", a=0, b=0, c=7)
    put(graph, "main", a=1, b=2)
    plan = graph.branches.plan_merge("review")
    people = next(found for found in plan.types if found.name == "P")
    assert (people.inserted, people.updated, people.deleted, plan.conflicts_total) == (0, 1, 0, 0)
    result = graph.branches.merge("review")
    assert next(found for found in result.plan.types if found.name == "P").updated == 1
    assert content(graph) == {"a": 1, "b": 2, "c": 7}
    check(graph)


def test_a_merge_asked_for_twice_is_done_once(graph: Graph) -> None:
    graph.branches.create("review")
    put(graph, "review", d=1)
    put(graph, "main", e=1)
    assert str(graph.branches.merge("review").outcome) == "merged"
    commits = len(graph.history.list())
    assert str(graph.branches.merge("review").outcome) == "already_up_to_date"
    assert str(connect(graph.uri).branches.merge("review").outcome) == "already_up_to_date"
    assert len(graph.history.list()) == commits
    # The other way round it goes forward, and then the two are the same for ever.
    assert str(graph.branches.merge("main", "review").outcome) == "fast_forward"
    assert content(graph, "review") == content(graph) == {"a": 0, "b": 0, "c": 0, "d": 1, "e": 1}
    check(graph)


def test_a_merge_asked_for_twice_at_once_is_done_once(graph: Graph) -> None:
    graph.branches.create("review")
    put(graph, "review", d=1)
    put(graph, "main", e=1)
    outcomes: list[str] = []

    def merge() -> None:
        outcomes.append(str(connect(graph.uri).branches.merge("review").outcome))

    with configured(f"{failpoints.MERGE_POST_VALIDATION}=1*pause") as plan:
        first = threading.Thread(target=merge)
        first.start()
        assert plan.wait_until_reached(failpoints.MERGE_POST_VALIDATION)
        merge()
        plan.release(failpoints.MERGE_POST_VALIDATION)
        first.join(60)
    assert outcomes == ["merged", "already_up_to_date"]
    assert [c.merged_parent_commit_id is not None for c in graph.history.list()].count(True) == 1
    check(graph)


def test_edges_go_with_their_nodes_and_meet_their_like(graph: Graph) -> None:
    graph.branches.create("review")
    put(graph, "review", d=1)
    knows(graph, "review", "ad", "ca")
    graph.mutate('query q() { delete P where k = "b" }', branch="review")
    knows(graph, "main", "ca", name="m")
    plan = graph.branches.plan_merge("review")
    assert (plan.conflicts_total, plan.parallel_edges) == (0, 1)
    graph.branches.merge("review")
    # The edges of the node that is gone are gone, and both of those between the same nodes stay.
    assert edges(graph) == {"ad", "ca", "mca"}
    check(graph)


def test_an_edge_to_a_node_the_other_side_deleted_is_found_in_both_directions(graph: Graph) -> None:
    graph.branches.create("review")
    graph.branches.create("other")
    graph.mutate('query q() { delete P where k = "c" }', branch="review")
    knows(graph, "other", "ac")
    for source, into in (("review", "other"), ("other", "review")):
        with pytest.raises(MergeConflictError) as refused:
            graph.branches.merge(source, into)
        assert refused.value.by_kind == {"orphan_edge": 1}
    graph.branches.merge("review", "other", resolve=lambda conflict: "drop_edge")
    assert edges(graph, "other") == {"ab"}
    check(graph)


def test_a_source_whose_tables_lag_behind_takes_nothing_back(graph: Graph) -> None:
    """Its inherited versions are older than those of the target, and that is no change of its own."""
    graph.branches.create("old")
    put(graph, "main", a=1, d=1)
    graph.load([{"type": "Q", "data": {"k": "q"}}], "append")
    graph.branches.create("new")
    graph.load([{"type": "Q", "data": {"k": "own"}}], "append", branch="old")
    result = graph.branches.merge("old", "new")
    assert [found.name for found in result.plan.types] == ["Q"]
    assert content(graph, "new") == {"a": 1, "b": 0, "c": 0, "d": 1}
    assert graph.snapshot("new").open(Q).count_rows() == 2
    assert str(graph.branches.merge("new").outcome) == "fast_forward"
    assert content(graph) == content(graph, "new")
    check(graph)


def test_a_base_that_only_a_third_branch_knows_is_found(graph: Graph) -> None:
    """What came by way of another branch is not merged a second time, and what was undone since does not come back."""
    graph.branches.create("one")
    graph.branches.create("two")
    graph.branches.create("three")
    put(graph, "one", a=1)
    shared = graph.snapshot("one").head
    graph.branches.merge("one", "two")
    put(graph, "two", b=2)
    graph.branches.merge("two", "three")
    put(graph, "three", a=0)  # back to what it was
    put(graph, "one", c=3)
    plan = graph.branches.plan_merge("one", "three")
    assert plan.base_commits == (shared,)
    graph.branches.merge("one", "three")
    assert content(graph, "three") == {"a": 0, "b": 2, "c": 3}
    check(graph)


def test_a_child_of_the_target_keeps_what_it_has(graph: Graph) -> None:
    graph.branches.create("review")
    put(graph, "review", d=1)
    graph.branches.create("leaf", "review")
    put(graph, "main", a=5, e=1)
    before = content(graph, "leaf")
    graph.branches.merge("main", "review")
    assert content(graph, "leaf") == before == {"a": 0, "b": 0, "c": 0, "d": 1}
    graph.maintenance.cleanup(keep=1)
    assert content(graph, "leaf") == before
    put(graph, "leaf", f=1)
    graph.branches.merge("leaf", "review")
    assert content(graph, "review") == {"a": 5, "b": 0, "c": 0, "d": 1, "e": 1, "f": 1}
    check(graph)


@pytest.mark.parametrize("window", [failpoints.MUTATION_POST_TABLE_COMMIT, failpoints.MERGE_PRE_CONFIRM])
def test_a_merge_that_failed_blocks_nobody(graph: Graph, window: str) -> None:
    """Neither one that was refused nor one that broke off in the middle stands in anybody's way."""
    graph.branches.create("review")
    put(graph, "review", a=1, d=1)
    knows(graph, "review", "ad")
    put(graph, "main", a=2)
    with pytest.raises(MergeConflictError):
        graph.branches.merge("review")
    with configured(f"{window}=1*return"), pytest.raises(StorageError):
        graph.branches.merge("review", strategy="theirs")
    assert graph.maintenance.unfinished() == []
    put(graph, "main", e=1)
    put(graph, "review", g=1)
    assert content(graph) == {"a": 2, "b": 0, "c": 0, "e": 1}
    graph.branches.merge("review", strategy="theirs")
    assert content(graph) == {"a": 1, "b": 0, "c": 0, "d": 1, "e": 1, "g": 1}
    assert edges(graph) == {"ab", "bc", "ad"}
    check(graph)
