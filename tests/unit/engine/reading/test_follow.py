"""The first query after a commit: what earlier ones derived is there already, made while the commit was published."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.engine.manifest import publish
from omnigraph.engine.manifest.snapshot import READER
from omnigraph.engine.reading import context
from omnigraph.engine.reading.context import Tables
from omnigraph.engine.storage.handle import TableHandle
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


def tables_of(graph: Graph) -> tuple[TableHandle, TableHandle]:
    snapshot = graph.snapshot()
    return snapshot.open(node_key("Person")), snapshot.open(edge_key("Knows"))


@pytest.mark.parametrize("kind", COMMITS)
def test_a_commit_leaves_nothing_to_derive_for_the_next_query(
    graph: Graph, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(graph, COMMITS[kind])
    nodes, edges = tables_of(graph)
    assert "sorted values of key" in nodes.memo
    assert edges.memo["adjacency"]
    made = dict(edges.memo["adjacency"])
    found = graph.query(BY_KEY, {"k": "p1"}).to_pylist()
    assert edges.memo["adjacency"] == made
    monkeypatch.setattr(context, "FOLLOWED_ROWS_MAX", -1)
    assert found == _asked_of_a_fresh_reader(graph)


def _asked_of_a_fresh_reader(graph: Graph) -> list[dict[str, object]]:
    snapshot = graph.snapshot()
    snapshot.memo.clear()
    for handle in tables_of(graph):
        handle.memo.clear()
    return graph.query(BY_KEY, {"k": "p1"}).to_pylist()


def test_many_commits_without_a_query_between_them_derive_once(graph: Graph) -> None:
    commit(graph, COMMITS["an edge"])
    commit(graph, COMMITS["a node"])
    nodes, _ = tables_of(graph)
    assert "sorted values of key" not in nodes.memo


def test_what_was_made_ready_is_left_only_to_a_state_of_exactly_these_tables(graph: Graph) -> None:
    reader: Tables = graph.snapshot().memo[READER]
    commit(graph, COMMITS["an edge"])
    _, edges = tables_of(graph)
    reader.follow({edge_key("Knows"): edges})
    commit(graph, COMMITS["a node"])
    newest = graph.snapshot()
    newest.memo.clear()
    reader.settle(newest)
    assert "tables" not in newest.memo
    nodes, edges = tables_of(graph)
    reader.follow({node_key("Person"): nodes, edge_key("Knows"): edges})
    reader.settle(newest)
    ready: Tables = newest.memo["tables"]
    assert ready.nodes["Person"].handle is nodes
    assert ready.adjacency
    assert READER not in newest.memo
    graph.query(BY_KEY, {"k": "p1"}).to_pylist()
    assert newest.memo[READER] is ready


def test_after_a_large_commit_the_next_query_derives_for_itself(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    _, before = tables_of(graph)
    known = len(before.memo["adjacency"])
    monkeypatch.setattr(context, "FOLLOWED_ROWS_MAX", 0)
    commit(graph, COMMITS["a node"])
    nodes, edges = tables_of(graph)
    assert "sorted values of key" not in nodes.memo
    assert edges is before
    assert len(edges.memo["adjacency"]) == known
    assert graph.query(BY_KEY, {"k": "p1"}).to_pylist()


def test_a_reader_that_cannot_follow_does_not_trouble_the_commit(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: Tables, handles: object) -> None:
        raise StorageError("the disk is gone", kind="unknown")

    monkeypatch.setattr(Tables, "follow", fails)
    with caplog.at_level(logging.INFO):
        commit(graph, COMMITS["an edge"])
    assert "the disk is gone" in caplog.text
    assert graph.query(BY_KEY, {"k": "p1"}).to_pylist()


def test_what_queries_derived_outlives_a_long_pause(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(graph, COMMITS["a node"])
    graph.query(BY_KEY, {"k": "p1"}).to_pylist()
    known = graph.snapshot()
    with monkeypatch.context() as later:
        later.setattr(publish, "PROBE_SECONDS", 0.0)
        assert graph.snapshot().memo is known.memo
    graph.mutate(COMMITS["an edge"])
    assert graph.snapshot().memo is not known.memo
