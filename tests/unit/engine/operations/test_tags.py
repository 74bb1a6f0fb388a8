"""A tag names a commit, is accepted wherever a moment is, and keeps what it names from cleanup."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import omnigraph
from omnigraph import failpoints
from omnigraph.engine.coordination import branch_lock
from omnigraph.engine.coordination.branch_lock import cleaning
from omnigraph.engine.operations import forget
from omnigraph.errors import (
    AlreadyExistsError,
    CommitNotFoundError,
    ConflictError,
    FormatError,
    GraphError,
    InputError,
    NotFoundError,
    VersionReclaimedError,
)
from omnigraph.testing.failpoints import configured

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"
ADD = "query q($n: String) { insert Person { name: $n } }"
NAMES = "query q() { match { $p: Person } return { $p.name as name } order { $p.name } }"
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    return omnigraph.create(tmp_path / "g.omni", SCHEMA)


def add(graph: omnigraph.Graph, *names: str, branch: str = "main") -> None:
    for name in names:
        graph.mutate(ADD, {"n": name}, branch=branch)


def people(graph: omnigraph.Graph, at: object = None, branch: str = "main") -> list[str]:
    return [row["name"] for row in graph.query(NAMES, branch=branch, at=at)]  # type: ignore[arg-type]


def test_a_tag_is_a_moment_wherever_one_is_taken(graph: omnigraph.Graph) -> None:
    add(graph, "ann")
    tag = graph.tags.create("v1.0", actor="ana", message="the first")
    add(graph, "bob")
    head = graph.history.list(limit=1)[0].graph_commit_id
    assert people(graph, at="v1.0") == ["ann"]
    assert graph.snapshot(at="v1.0").head == tag.graph_commit_id
    assert [change.id for change in graph.diff("v1.0", "main")] == ["bob"]
    assert list(graph.export(at="v1.0")) == list(graph.export(at=tag.graph_commit_id))
    assert graph.history.show("v1.0").graph_commit_id == tag.graph_commit_id
    again = graph.tags.create("again", at="v1.0")
    assert again.graph_commit_id == tag.graph_commit_id
    assert graph.tags.create("now/newest").graph_commit_id == head
    assert [each.name for each in graph.tags.list()] == ["again", "now/newest", "v1.0"]
    assert graph.tags.list()[2] == tag
    assert (tag.actor_id, tag.message) == ("ana", "the first")
    graph.tags.delete("v1.0")
    with pytest.raises(CommitNotFoundError, match=r"no tag 'v1\.0'"):
        people(graph, at="v1.0")
    with pytest.raises(NotFoundError):
        graph.tags.delete("v1.0")


def test_a_name_that_could_mean_something_else_is_refused(graph: omnigraph.Graph) -> None:
    add(graph, "ann")
    graph.branches.create("review")
    for wrong in ("", " ", "a b", "..", "x.lock", "01M7", "0000", "7", "2026-02-14", "manifest:main:v1", "é"):
        with pytest.raises(InputError):
            graph.tags.create(wrong)
    for taken in ("main", "review"):
        with pytest.raises(AlreadyExistsError):
            graph.tags.create(taken)
    graph.tags.create("v1")
    with pytest.raises(AlreadyExistsError):
        graph.tags.create("v1")
    with pytest.raises(AlreadyExistsError):
        graph.branches.create("v1")
    with pytest.raises(CommitNotFoundError):
        graph.tags.create("v2", at="nowhere")
    assert [tag.name for tag in graph.tags.list()] == ["v1"]


def test_a_tagged_state_is_read_after_optimize_and_cleanup(
    graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forget, "YOUNG", timedelta(0))
    add(graph, "ann", "bob")
    graph.mutate('query q() { insert Knows { from: "ann", to: "bob" } }')
    wanted = graph.tags.create("kept").graph_commit_id
    content = list(graph.export(at="kept"))
    for number in range(6):
        add(graph, f"p{number}")
    gone = graph.history.list(limit=3)[-1].graph_commit_id
    graph.mutate('query q() { delete Person where name = "ann" }')
    graph.maintenance.optimize()
    assert not graph.maintenance.cleanup(keep=1).failed
    fresh = omnigraph.connect(graph.uri)
    assert list(fresh.export(at="kept")) == content
    assert fresh.snapshot(at="kept").head == wanted
    with pytest.raises(VersionReclaimedError):
        list(fresh.export(at=gone))
    assert fresh.maintenance.verify().clean

    # The manifests of the other states went as well, although a readable one lies among them.
    with pytest.raises(VersionReclaimedError):
        fresh.snapshot(at=gone)

    fresh.tags.delete("kept")
    assert not fresh.maintenance.cleanup(keep=1).failed
    with pytest.raises(VersionReclaimedError):
        list(omnigraph.connect(graph.uri).export(at=wanted))


def test_what_is_gone_cannot_be_tagged(graph: omnigraph.Graph) -> None:
    add(graph, "ann", "bob", "cleo")
    old = graph.history.list()[1].graph_commit_id
    graph.maintenance.optimize()
    graph.maintenance.cleanup(keep=1)
    with pytest.raises(VersionReclaimedError):
        graph.tags.create("late", at=old)
    assert graph.tags.list() == []


def test_a_branch_with_a_tagged_commit_stays(graph: omnigraph.Graph) -> None:
    add(graph, "ann")
    graph.branches.create("review")
    add(graph, "bob", branch="review")
    graph.tags.create("reviewed", branch="review")
    add(graph, "cleo", branch="review")
    assert people(graph, at="reviewed") == ["ann", "bob"]
    with pytest.raises(ConflictError, match="the tag 'reviewed'"):
        graph.branches.delete("review")
    graph.tags.delete("reviewed")
    graph.branches.delete("review")
    assert graph.branches.list() == ["main"]


def test_a_time_names_a_commit_to_tag(graph: omnigraph.Graph) -> None:
    add(graph, "ann")
    head = graph.history.list(limit=1)[0].graph_commit_id
    assert graph.tags.create("by-now", at=datetime.now(UTC)).graph_commit_id == head
    with pytest.raises(CommitNotFoundError):
        graph.tags.create("before", at="2001-01-01")


def _tag(uri: str, name: str) -> str:
    try:
        omnigraph.connect(uri).tags.create(name)
    except GraphError as exc:
        return type(exc).__name__
    return "made"


@pytest.mark.long
def test_of_two_processes_one_makes_the_tag(graph: omnigraph.Graph) -> None:
    add(graph, "ann")
    with SPAWN.Pool(2) as pool:
        outcomes = pool.starmap(_tag, [(graph.uri, "v1")] * 2)
    assert sorted(outcomes)[1] == "made"
    assert sorted(outcomes)[0] in ("AlreadyExistsError", "ConflictError")
    assert [tag.name for tag in graph.tags.list()] == ["v1"]


def test_a_tag_cut_short_is_absent_and_can_be_made_again(graph: omnigraph.Graph) -> None:
    add(graph, "ann")
    with configured(f"{failpoints.TAG_BEFORE_PUT}=return"), pytest.raises(GraphError):
        graph.tags.create("v1")
    assert graph.tags.list() == []
    graph.tags.create("v1")
    assert not graph.maintenance.cleanup(keep=1).failed


def test_a_tag_and_a_cleanup_wait_for_each_other(graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    add(graph, "ann")
    intents = graph.context.recovery.intents
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        tagging = cleaning(intents, lambda _: (pool.submit(graph.tags.create, "v1"), ended.wait(0.2))[0])
        assert tagging.result(10).name == "v1"
    monkeypatch.setattr(branch_lock, "KEEPING_WAIT_SECONDS", 0.05)
    with pytest.raises(ConflictError, match="cleanup"):
        cleaning(intents, lambda _: graph.tags.create("v2"))
    assert [tag.name for tag in graph.tags.list()] == ["v1"]
    # And the other way round: a cleanup that begins meanwhile sees the tag.
    with configured(f"{failpoints.TAG_BEFORE_PUT}=pause") as plan, ThreadPoolExecutor(2) as pool:
        making = pool.submit(graph.tags.create, "v3")
        plan.wait_until_reached(failpoints.TAG_BEFORE_PUT)
        cleanup = pool.submit(graph.maintenance.cleanup, keep=1)
        plan.release(failpoints.TAG_BEFORE_PUT)
        assert making.result(20).name == "v3"
        assert not cleanup.result(20).failed


def test_hard_drops_wait_for_tags(graph: omnigraph.Graph) -> None:
    add(graph, "ann")
    graph.tags.create("v1")
    with pytest.raises(ConflictError, match="the tag 'v1'"):
        graph.schema.apply("node Person { name: String @key }", allow_data_loss=True)
    graph.schema.apply("node Person { name: String @key }", confirm_drops=True)
    assert people(graph, at="v1") == ["ann"]


def test_a_damaged_tag_is_named(graph: omnigraph.Graph) -> None:
    add(graph, "ann")
    graph.tags.create("v1")
    Path(graph.uri, "__tags", "v1.json").write_text("{")
    with pytest.raises(FormatError, match=r"__tags/v1\.json"):
        people(graph, at="v1")
