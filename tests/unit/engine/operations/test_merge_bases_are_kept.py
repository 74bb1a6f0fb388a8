"""The state in which branches parted stays readable, or its loss is said; copies that nobody committed go."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from omnigraph import failpoints
from omnigraph.engine.coordination.branch_lock import BranchLock, cleaning
from omnigraph.errors import ConflictError, MergeBaseError, VersionReclaimedError
from omnigraph.graph import Graph, connect, create

SCHEMA = "node P { k: String @key  n: I32? }"


def put(graph: Graph, key: str, n: int, branch: str = "main") -> None:
    graph.load([{"type": "P", "data": {"k": key, "n": n}}], "merge", branch=branch)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = create(tmp_path / "graph", SCHEMA)
    put(made, "a", 0)
    made.branches.create("review")
    return made


def content(graph: Graph, branch: str = "main") -> dict[str, int]:
    rows = graph.query("query q() { match { $p: P } return { $p.k as k, $p.n as n } }", branch=branch).to_pylist()
    return {row["k"]: row["n"] for row in rows}


def test_cleanup_keeps_the_state_in_which_branches_parted_by_a_merge(graph: Graph) -> None:
    put(graph, "b", 1)
    graph.branches.merge("main", "review")  # From here on they have parted at this commit of main.
    put(graph, "r", 1, "review")
    for n in range(5):
        put(graph, "b", n)
        put(graph, "a", n)
    graph.maintenance.optimize()
    assert not graph.maintenance.cleanup(keep=1).failed
    plan = graph.branches.plan_merge("review")
    assert (plan.types[0].inserted, plan.types[0].updated, plan.conflicts_total) == (1, 0, 0)
    graph.branches.merge("review")
    assert content(graph) == {"a": 4, "b": 4, "r": 1}
    assert graph.maintenance.verify().clean


def test_branches_meet_although_cleanup_took_what_lies_between_their_base_and_now(graph: Graph) -> None:
    put(graph, "r", 1, "review")
    for n in (1, 2):
        graph.load([{"type": "P", "data": {"k": "a", "n": n}}], "overwrite")
    base = graph.branches.plan_merge("review").base_commits[0]
    between = graph.history.list()[1].graph_commit_id
    assert not graph.maintenance.cleanup(keep=1).failed
    with pytest.raises(VersionReclaimedError):
        list(graph.export(at=between))
    assert [change.op for change in graph.diff(base, "main")] == ["update"]
    assert [(change.id, change.op) for change in graph.branches.diff("review")] == [("r", "insert")]
    graph.branches.merge("review")
    assert content(graph) == {"a": 2, "r": 1}


def test_the_only_base_of_two_branches_is_deleted_by_force_alone(graph: Graph) -> None:
    put(graph, "r", 1, "review")
    graph.branches.create("other")
    for branch in ("main", "other"):
        graph.branches.merge("review", branch)
        put(graph, branch, 1, branch)
    with pytest.raises(ConflictError, match="parted at its commit"):
        graph.branches.delete("review")
    kept = graph.branches.merge("review", "main", delete_branch=True)
    assert (kept.branch_deleted, "parted at" in str(kept.branch_delete_error)) == (False, True)
    graph.branches.delete("review", force=True)
    with pytest.raises(MergeBaseError, match="can no longer be read") as gone:
        graph.branches.merge("other")
    assert gone.value.commit_id
    head = graph.snapshot().head
    assert gone.value.commit_id != head
    first = graph.history.list()[-1].graph_commit_id
    graph.branches.merge("other", base=first, strategy="ours")
    assert graph.history.list()[0].properties["merge.base_given"] == "true"
    assert content(graph) == {"a": 0, "r": 1, "main": 1, "other": 1}


def test_a_branch_is_not_kept_for_a_commit_of_an_earlier_one_of_its_name(graph: Graph) -> None:
    put(graph, "r", 1, "review")
    graph.branches.create("other")
    for branch in ("main", "other"):
        graph.branches.merge("review", branch)
    with pytest.raises(ConflictError, match="parted at its commit"):
        graph.branches.delete("review")
    graph.branches.delete("review", force=True)
    graph.branches.create("review")
    put(graph, "s", 1, "review")
    graph.branches.delete("review")
    assert graph.branches.list() == ["main", "other"]


def test_a_base_that_cleanup_took_is_named_and_nothing_changes(graph: Graph) -> None:
    """A base that is asked for is kept by nobody."""
    for n in range(5):
        put(graph, "b", n)
    lost = graph.history.list()[2].graph_commit_id
    graph.branches.merge("main", "review")
    put(graph, "r", 1, "review")
    put(graph, "b", 9)
    assert not graph.maintenance.cleanup(keep=1).failed
    before = graph.snapshot().head
    for verb in (graph.branches.merge, graph.branches.plan_merge):
        with pytest.raises(MergeBaseError, match="can no longer be read") as gone:
            verb("review", base=lost)
        assert gone.value.commit_id == lost
    assert graph.snapshot().head == before
    graph.branches.merge("review")
    assert content(graph) == {"a": 0, "b": 9, "r": 1}


def test_a_copy_that_no_merge_has_committed_is_reclaimed(graph: Graph) -> None:
    put(graph, "r", 1, "review")
    entry = graph.snapshot("review").entry("node:P")  # type: ignore[arg-type]
    table = Path(graph.uri) / entry.path
    (name,) = os.listdir(table / "tree" / "review" / "data")
    shutil.copy(table / "tree" / "review" / "data" / name, table / "data" / name)
    (cleaned,) = graph.maintenance.cleanup(keep=100).tables
    assert cleaned.orphan_files_removed == 1
    assert not (table / "data" / name).exists()
    assert content(graph, "review") == {"a": 0, "r": 1}


def test_cleanup_keeps_files_of_main_that_a_branch_was_given_by_reference(graph: Graph, tmp_path: Path) -> None:
    """What undoing a commit brings back is no file of the version the branch was made from, which stays."""
    graph.branches.delete("review")
    graph.load([{"type": "P", "data": {"k": "b", "n": 1}}], "overwrite")
    gone = graph.history.list(limit=1)[0].graph_commit_id
    put(graph, "c", 1)
    graph.branches.create("side")
    graph.revert(gone, "side")
    for n in range(3):
        put(graph, "d", n)
    plan = graph.maintenance.plan_cleanup(keep=1)
    report = graph.maintenance.cleanup(keep=1)
    assert not report.failed
    assert report.tables[0].old_versions_removed == len(plan.tables[0].versions) > 0
    graph.close()
    with connect(tmp_path / "graph") as again:
        assert content(again, "side") == {"a": 0, "c": 1}
        assert again.maintenance.verify().clean
        # With the branch goes what was kept for it.
        again.branches.delete("side")
        assert again.maintenance.cleanup(keep=1).tables[0].old_versions_removed > 0


def test_cleanup_keeps_files_of_main_for_the_past_of_a_branch(graph: Graph, tmp_path: Path) -> None:
    put(graph, "s", 0, "review")
    put(graph, "b", 1)
    graph.branches.merge("main", "review")
    given, seen = graph.history.list("review", limit=1)[0].graph_commit_id, content(graph, "review")
    graph.tags.create("point", at=graph.history.list()[1].graph_commit_id)  # where it was created
    graph.load([{"type": "P", "data": {"k": "b", "n": 2}}], "overwrite")
    graph.branches.merge("main", "review", strategy="theirs")
    put(graph, "b", 3)
    assert not graph.maintenance.cleanup(keep=1).failed
    graph.close()
    with connect(tmp_path / "graph") as again:
        rows = again.query("query q() { match { $p: P } return { $p.k as k, $p.n as n } }", at=given).to_pylist()
        assert {row["k"]: row["n"] for row in rows} == seen == {"a": 0, "b": 1, "s": 0}


@pytest.mark.parametrize("has_own_line", [False, True])
@pytest.mark.parametrize("how", ["revert", "merge"])
def test_what_a_cleanup_takes_meanwhile_is_not_taken_over(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, has_own_line: bool
) -> None:
    graph.branches.delete("review")
    graph.load([{"type": "P", "data": {"k": "b", "n": 1}}], "overwrite")
    gone = graph.history.list(limit=1)[0].graph_commit_id
    graph.branches.create("side")
    if has_own_line:
        put(graph, "s", 0, "side")
    put(graph, "c", 1)
    before = content(graph, "side")
    called = []

    def meanwhile(name: str) -> None:
        if name == failpoints.MERGE_POST_VALIDATION and not called:
            called.append(name)
            graph.load([{"type": "P", "data": {"k": "z", "n": 1}}], "overwrite")
            assert not graph.maintenance.cleanup(keep=1).failed

    monkeypatch.setattr(failpoints, "maybe_fail", meanwhile)
    try:
        result = graph.revert(gone, "side") if how == "revert" else graph.branches.merge("main", "side")
        assert result.commit_id
        assert (how, has_own_line) == ("merge", False), "only what the branch inherits was not in danger"
    except (ConflictError, VersionReclaimedError):
        assert content(graph, "side") == before
    assert called
    graph.close()
    with connect(tmp_path / "graph") as again:
        assert content(again, "side")
        assert again.maintenance.verify().clean
        put(again, "s", 1, "side")


def test_files_of_an_earlier_state_are_not_taken_over_beside_a_cleanup(graph: Graph) -> None:
    graph.load([{"type": "P", "data": {"k": "b", "n": 1}}], "overwrite")
    gone = graph.history.list(limit=1)[0].graph_commit_id
    put(graph, "c", 1)

    def undo(lock: BranchLock) -> None:
        with pytest.raises(ConflictError, match="a cleanup is removing old versions"):
            graph.revert(gone)

    cleaning(graph.context.recovery.intents, undo)
    assert content(graph) == {"b": 1, "c": 1}
    graph.revert(gone)
    assert content(graph) == {"a": 0, "c": 1}
