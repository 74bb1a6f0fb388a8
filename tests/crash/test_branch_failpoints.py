"""The named windows of branches and forks, each both ways: an error on a living handle, and a dead process."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.crash.writes import ON_A_BRANCH, CreateBranch, DeleteBranch

from omnigraph import failpoints
from omnigraph.errors import GraphError
from omnigraph.graph import Graph, connect
from omnigraph.testing.crash import baseline, check_recovered, content_of, copy_graph, crash_at_failpoint
from omnigraph.testing.failpoints import InjectedFailure, configured

FIRST = ON_A_BRANCH["first write on a branch"]


def refs(graph: Graph) -> set[str]:
    """The refs that any table has."""
    entries = graph.snapshot().entries.values()
    return {name for entry in entries for name in graph.context.store.table_branches(entry.path)}


def test_a_creation_that_fails_after_the_branch_exists_takes_it_back(seeded: Path, scratch: Path) -> None:
    graph = connect(copy_graph(seeded, scratch / "graph"))
    before = content_of(graph)
    with configured(f"{failpoints.BRANCH_CREATE_AFTER_MANIFEST}=1*return"), pytest.raises(InjectedFailure):
        graph.branches.create("topic")
    assert graph.branches.list() == ["main"]
    check_recovered(graph.uri, (before,))
    graph.branches.create("topic")


@pytest.mark.parametrize("name", [failpoints.BRANCH_CREATE_AFTER_MANIFEST, failpoints.BRANCH_CREATE_POST_NATIVE])
def test_a_creation_that_dies_after_the_branch_exists_is_done(name: str, seeded: Path, scratch: Path) -> None:
    base = baseline(CreateBranch(), seeded, scratch)
    root = copy_graph(seeded, scratch / "graph")
    assert crash_at_failpoint(CreateBranch(), root, f"{name}=1*exit")
    check_recovered(root, (base.once,))
    connect(root).mutate('query q() { insert Person { name: "eve" } }', branch="topic")


def test_a_creation_whose_answer_is_lost_is_done(seeded: Path, scratch: Path) -> None:
    graph = connect(copy_graph(seeded, scratch / "graph"))
    with configured(f"{failpoints.BRANCH_CREATE_POST_NATIVE}=1*return") as plan:
        graph.branches.create("topic")
    assert plan.hits(failpoints.BRANCH_CREATE_POST_NATIVE)
    assert graph.branches.list() == ["main", "topic"]


@pytest.mark.parametrize("name", [failpoints.BRANCH_DELETE_POST_NATIVE, failpoints.BRANCH_DELETE_BEFORE_TABLES])
@pytest.mark.parametrize("dies", [False, True], ids=["return", "exit"])
def test_a_deletion_counts_once_the_branch_is_gone(name: str, dies: bool, diverged: Path, scratch: Path) -> None:
    base = baseline(DeleteBranch(), diverged, scratch)
    root = copy_graph(diverged, scratch / "graph")
    if dies:
        assert crash_at_failpoint(DeleteBranch(), root, f"{name}=1*exit")
    else:
        with configured(f"{name}=return"):
            DeleteBranch().run(root)
    check_recovered(root, (base.once,))
    graph = connect(root)
    lost_refs = dies or name == failpoints.BRANCH_DELETE_BEFORE_TABLES
    assert refs(graph) == ({"review"} if lost_refs else set())
    # The rows of the branch that is gone do not come back under its name.
    graph.branches.create("review")
    before = content_of(graph)
    assert before["review/node:Person"] == before["main/node:Person"]
    graph.mutate('query q() { insert Person { name: "new" } }', branch="review")
    assert len(content_of(graph)["review/node:Person"]) == len(before["main/node:Person"]) + 1
    graph.branches.delete("review")
    graph.maintenance.cleanup(keep=100)
    assert refs(graph) == set()


def test_cleanup_reclaims_what_a_deletion_left(diverged: Path, scratch: Path) -> None:
    graph = connect(copy_graph(diverged, scratch / "graph"))
    with configured(f"{failpoints.BRANCH_DELETE_BEFORE_TABLES}=return"):
        graph.branches.delete("review")
    assert refs(graph) == {"review"}
    removed = graph.maintenance.cleanup(keep=100)
    assert {name for table in removed.tables for name in table.forks_removed} == {"review"}
    assert refs(graph) == set()


FORKS = [failpoints.FORK_BEFORE_CLASSIFY, failpoints.CLASSIFY_FRESH_READ, failpoints.FORK_BEFORE_RECLAIM]


@pytest.mark.parametrize("name", FORKS)
@pytest.mark.parametrize("dies", [False, True], ids=["return", "exit"])
def test_a_ref_is_kept_until_it_is_known_to_be_nobodys(name: str, dies: bool, branched: Path, scratch: Path) -> None:
    base = baseline(FIRST, branched, scratch)
    root = copy_graph(branched, scratch / "graph")
    graph = connect(root)
    entry = graph.snapshot().entry("node:Person")  # type: ignore[arg-type]
    graph.context.store.residual.create_branch(entry.path, "review", source=None, version=entry.version)
    if dies:
        assert crash_at_failpoint(FIRST, root, f"{name}=1*exit")
    else:
        with configured(f"{name}=1*return"), pytest.raises(GraphError):
            FIRST.again(graph)
        if name != failpoints.FORK_BEFORE_RECLAIM:
            assert refs(graph) == {"review"}
    check_recovered(root, (base.before,))
    FIRST.run(root)
    check_recovered(root, (base.once,))


def test_a_reader_on_a_branch_that_is_created_anew_sees_the_new_one(diverged: Path, scratch: Path) -> None:
    root = copy_graph(diverged, scratch / "graph")
    reader, writer = connect(root, read_only=True), connect(root)
    assert content_of(reader)["review/node:Company"] != content_of(reader)["main/node:Company"]
    writer.branches.delete("review")
    writer.branches.create("review")
    assert content_of(reader)["review/node:Company"] == content_of(reader)["main/node:Company"]
    FIRST.again(writer)
    assert content_of(reader) == content_of(writer)
