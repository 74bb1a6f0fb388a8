"""The first query after a commit: what earlier ones derived is there already, made while the commit was published."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.engine.manifest import publish
from omnigraph.engine.read import state
from omnigraph.engine.read.columns.edges import EdgeView
from omnigraph.engine.read.columns.nodes import NodeView
from omnigraph.engine.read.reader import ReadState
from omnigraph.engine.read.state import Tables
from omnigraph.errors import StorageError
from omnigraph.graph import Graph, create
from omnigraph.ids import edge_key, node_key

SCHEMA = "node Person { key: String @key  city: String }\nedge Knows: Person -> Person"
BY_KEY = (
    "query q($k: String) { match { $a: Person { key: $k } $a knows $b $b knows $c }"
    " return { $c.city as city, count($b) as n } order { n desc, city } }"
)
COMMITS = {
    "an edge": 'query m() { insert Knows { from: "p1", to: "p9" } }',
    "a node": 'query m() { insert Person { key: "new", city: "Fez" } }',
    "an update": 'query m() { update Person set { city: "Oslo" } where key = "p2" }',
    "a deleted node": 'query m() { delete Person where key = "p3" }',
}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = create(tmp_path / "graph", SCHEMA)
    keys = [f"p{number}" for number in range(600)]
    people = pa.table({"key": keys, "city": [f"City {number % 7}" for number in range(600)]})
    ends = {"from": keys * 3, "to": keys[1:] + keys[:1] + keys[5:] + keys[:5] + keys[70:] + keys[:70]}
    graph.load({"Person": people, "Knows": pa.table(ends)}, mode="overwrite", engine="local")
    for _ in range(4):
        graph.query(BY_KEY, {"k": "p1"}).to_pylist()
    return graph


def commit(graph: Graph, text: str) -> None:
    graph.mutate(text)
    for thread in threading.enumerate():
        if thread.name == "omnigraph-follow":
            thread.join()


def views_of(graph: Graph) -> tuple[NodeView, EdgeView]:
    """What the reader of a graph keeps for its tables as they are now."""
    snapshot, views = graph.snapshot(), graph._reader.views
    return views.nodes(snapshot.open(node_key("Person"))), views.edges(snapshot.open(edge_key("Knows")))


def kept(graph: Graph) -> ReadState | None:
    """What the reader of a graph keeps for its newest state."""
    return graph._reader._states.get(graph.snapshot().identity)


@pytest.mark.parametrize("kind", COMMITS)
def test_a_commit_leaves_nothing_to_derive_for_the_next_query(
    graph: Graph, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(graph, COMMITS[kind])
    nodes, edges = views_of(graph)
    assert "key" in nodes.sorted_values
    made = dict(edges.assembled)
    assert made
    found = graph.query(BY_KEY, {"k": "p1"}).to_pylist()
    assert edges.assembled == made
    monkeypatch.setattr(state, "FOLLOWED_ROWS_MAX", -1)
    graph._reader.close()
    assert found == graph.query(BY_KEY, {"k": "p1"}).to_pylist()
    assert views_of(graph)[0] is not nodes


def test_many_commits_without_a_query_between_them_derive_once(graph: Graph) -> None:
    commit(graph, COMMITS["an edge"])
    commit(graph, COMMITS["a node"])
    nodes, _ = views_of(graph)
    assert "key" not in nodes.sorted_values


def test_what_was_made_ready_is_left_only_to_a_state_of_exactly_these_tables(graph: Graph) -> None:
    base, reader = graph.snapshot(), graph._reader
    before = reader.state(base)
    commit(graph, COMMITS["an edge"])
    _, edges = views_of(graph)
    ready = before.tables.followed({edge_key("Knows"): edges.handle})
    commit(graph, COMMITS["a node"])
    reader.forget()
    reader._settle(graph.snapshot(), ready)
    assert kept(graph) is None
    nodes, edges = views_of(graph)
    ready = before.tables.followed({node_key("Person"): nodes.handle, edge_key("Knows"): edges.handle})
    reader._settle(graph.snapshot(), ready)
    settled = kept(graph)
    assert settled is not None
    assert not settled.is_asked
    assert settled.tables.nodes["Person"] is nodes
    assert settled.tables.adjacencies
    graph.query(BY_KEY, {"k": "p1"}).to_pylist()
    assert kept(graph) is settled
    assert settled.is_asked


def test_after_a_large_commit_the_next_query_derives_for_itself(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    _, before = views_of(graph)
    known = len(before.assembled)
    monkeypatch.setattr(state, "FOLLOWED_ROWS_MAX", 0)
    commit(graph, COMMITS["a node"])
    nodes, edges = views_of(graph)
    assert "key" not in nodes.sorted_values
    assert edges is before
    assert len(edges.assembled) == known
    assert graph.query(BY_KEY, {"k": "p1"}).to_pylist()


def test_a_state_goes_with_the_one_that_follows_it_and_the_past_stays(graph: Graph) -> None:
    past = graph.snapshot()
    for kind in ("an edge", "a node"):
        commit(graph, COMMITS[kind])
        graph.query(BY_KEY, {"k": "p1"}).to_pylist()
    assert list(graph._reader._states) == [graph.snapshot().identity]
    assert past.head is not None
    graph.query(BY_KEY, {"k": "p1"}, at=past.head).to_pylist()
    commit(graph, COMMITS["an update"])
    graph.query(BY_KEY, {"k": "p1"}).to_pylist()
    assert list(graph._reader._states) == [past.identity, graph.snapshot().identity]


def test_a_branch_made_anew_under_an_old_name_is_another_state(graph: Graph) -> None:
    found = []
    for city in ("Fez", "Oslo"):
        graph.branches.create("draft")
        graph.mutate(f'query m() {{ update Person set {{ city: "{city}" }} where key = "p3" }}', branch="draft")
        found.append((graph.snapshot("draft"), graph.query(BY_KEY, {"k": "p1"}, branch="draft").to_pylist()))
        graph.branches.delete("draft")
    (first, before), (second, after) = found
    assert first.version == second.version
    assert first.identity != second.identity
    assert before != after


def test_a_reader_that_cannot_follow_does_not_trouble_the_commit(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: Tables, handles: object) -> state.Successor:
        raise StorageError("the disk is gone", kind="unknown")

    monkeypatch.setattr(Tables, "followed", fails)
    with caplog.at_level(logging.INFO):
        commit(graph, COMMITS["an edge"])
    assert "the disk is gone" in caplog.text
    assert graph.query(BY_KEY, {"k": "p1"}).to_pylist()


def test_what_queries_derived_outlives_a_long_pause(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(graph, COMMITS["a node"])
    graph.query(BY_KEY, {"k": "p1"}).to_pylist()
    known = kept(graph)
    with monkeypatch.context() as later:
        later.setattr(publish, "PROBE_SECONDS", 0.0)
        assert kept(graph) is known is not None
    graph.mutate(COMMITS["an edge"])
    assert kept(graph) is not known
