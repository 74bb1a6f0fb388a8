"""What the author of a commit says about it stays with the commit, whichever verb made it."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph
from omnigraph import failpoints
from omnigraph.errors import GraphError, InputError
from omnigraph.ids import MESSAGE_BYTES_MAX
from omnigraph.testing.failpoints import FailpointPlan
from omnigraph.wire import commit_output

SCHEMA = "node Person { name: String @key  age: I32? }"
ADD = "query q($n: String) { insert Person { name: $n } }"


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    return omnigraph.create(tmp_path / "g.omni", SCHEMA)


def said(graph: omnigraph.Graph) -> str | None:
    return graph.history.list(limit=1)[0].message


def test_every_verb_that_commits_takes_a_message(graph: omnigraph.Graph) -> None:
    assert said(graph) is None
    graph.mutate(ADD, {"n": "ann"}, message="ann joins")
    assert said(graph) == "ann joins"
    graph.load([{"type": "Person", "data": {"name": "bob"}}], engine="local", message="Bob zieht ein, für länger 🏠")
    assert said(graph) == "Bob zieht ein, für länger 🏠"
    graph.branches.create("review")
    graph.mutate(ADD, {"n": "cleo"}, branch="review", message="on a branch")
    graph.branches.merge("review", message="cleo is welcome\n\nAsked twice.")
    newest = graph.history.list(limit=1)[0]
    assert newest.message == "cleo is welcome\n\nAsked twice."
    assert newest.facts["merge.source"] == "review"
    graph.branches.delete("review")
    graph.maintenance.optimize(message="tidy")
    assert said(graph) == "tidy"
    graph.schema.apply(SCHEMA.replace("}", "mail: String? }"), message="mail for all")
    assert said(graph) == "mail for all"
    # Without one, nothing is said; nobody inherits a message.
    graph.mutate(ADD, {"n": "dan"})
    assert said(graph) is None


def test_a_message_has_its_own_field_on_the_wire(graph: omnigraph.Graph) -> None:
    graph.mutate(ADD, {"n": "ann"}, message="ann joins")
    newest, first = (commit_output(commit) for commit in graph.history.list())
    assert (newest["message"], "properties" in newest) == ("ann joins", False)
    assert first["message"] is None


def test_a_message_outlives_the_window_of_the_manifest(graph: omnigraph.Graph, tmp_path: Path) -> None:
    graph.mutate(ADD, {"n": "first"}, message="the first of many")
    told = graph.history.list(limit=1)[0].graph_commit_id
    for number in range(70):
        graph.mutate(ADD, {"n": f"p{number}"})
    assert told not in graph.snapshot().state.commits
    assert omnigraph.connect(tmp_path / "g.omni").history.show(told).message == "the first of many"


@pytest.mark.parametrize("wrong", ["", " \n", "x" * (MESSAGE_BYTES_MAX + 1), "é" * MESSAGE_BYTES_MAX, "\ud800"])
def test_a_message_that_cannot_stand_is_refused_and_nothing_changes(graph: omnigraph.Graph, wrong: str) -> None:
    before = graph.snapshot().version
    with pytest.raises(InputError):
        graph.mutate(ADD, {"n": "ann"}, message=wrong)
    with pytest.raises(InputError):
        graph.load([{"type": "Person", "data": {"name": "bob"}}], engine="local", message=wrong)
    with pytest.raises(InputError):
        graph.schema.apply(SCHEMA.replace("}", "mail: String? }"), message=wrong)
    with pytest.raises(InputError):
        graph.maintenance.optimize(message=wrong)
    with pytest.raises(InputError):
        graph.maintenance.repair(message=wrong)
    assert graph.snapshot().version == before


def test_whoever_finishes_a_write_keeps_its_message(graph: omnigraph.Graph, tmp_path: Path) -> None:
    failpoints.install(FailpointPlan(f"{failpoints.MUTATION_POST_FINALIZE}=return"))
    try:
        with pytest.raises(GraphError):
            graph.mutate(ADD, {"n": "ann"}, message="cut short")
    finally:
        failpoints.install(None)
    graph.close()
    again = omnigraph.connect(tmp_path / "g.omni")
    assert "cut short" in {commit.message for commit in again.history.list()}
