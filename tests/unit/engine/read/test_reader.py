"""A reader keeps what queries derive within its bounds, and never gives one version what belongs to another."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from omnigraph.engine.manifest.listener import nobody_waits
from omnigraph.engine.read import reader as reader_module
from omnigraph.engine.read.columns import views as views_module
from omnigraph.engine.read.columns.nodes import NodeView
from omnigraph.engine.read.columns.tables import TableView
from omnigraph.engine.read.columns.views import Views
from omnigraph.engine.read.plan import plan_cache
from omnigraph.engine.read.state import Tables
from omnigraph.engine.storage.cache import ByteCache
from omnigraph.graph import Graph, create
from omnigraph.ids import edge_key, node_key

SCHEMA = "node Person { key: String @key }\nedge Knows: Person -> Person"
COUNT = "query q() { match { $a: Person } return { count($a) as n } }"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return create(tmp_path / "graph", SCHEMA)


def insert(graph: Graph, key: str) -> None:
    graph.mutate(f'query m() {{ insert Person {{ key: "{key}" }} }}')


def test_a_view_belongs_to_one_handle(graph: Graph) -> None:
    views, snapshot = Views(), graph.snapshot()
    handle = snapshot.open(node_key("Person"))
    view = views.nodes(handle)
    assert views.nodes(handle) is view
    again = graph._context.store.open(handle.path, version=handle.version)
    assert views.nodes(again) is not view
    assert views.nodes(again).handle is again


def test_a_state_is_kept_for_the_next_query_until_it_is_let_go(graph: Graph) -> None:
    reader, before = graph._reader, graph.snapshot()
    asked = reader.state(before)
    assert reader.state(before) is asked
    reader.forget()
    again = reader.state(before)
    assert again is not asked
    insert(graph, "x")
    assert reader.state(graph.snapshot()) is not again
    assert reader.state(before) is not again, "a newer state of the branch took its place"


def test_threads_that_open_a_table_at_once_get_one_view(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=30)
    make = NodeView.__init__

    def made_together(self: NodeView, *given: Any) -> None:
        both.wait()
        make(self, *given)

    snapshot = graph.snapshot()
    monkeypatch.setattr(NodeView, "__init__", made_together)
    handle, views, tables = snapshot.open(node_key("Person")), Views(), Tables(snapshot, Views())
    for open_it in (lambda _: views.nodes(handle), lambda _: tables.node_view("Person")):
        with ThreadPoolExecutor(2) as pool:
            one, other = pool.map(open_it, range(2))
        assert one is other


def test_threads_that_code_texts_at_once_get_the_codes_of_one_dictionary(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("a", "b", "c"):
        insert(graph, key)
    view = NodeView(graph.snapshot().open(node_key("Person")), ByteCache())
    both = threading.Barrier(2, timeout=30)
    read = TableView._chunk_value_codes

    def read_together(self: TableView, *given: Any) -> Any:
        both.wait()
        return read(self, *given)

    monkeypatch.setattr(TableView, "_chunk_value_codes", read_together)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(view.value_codes, ["key", "key"])
    assert one is other is view.text_codes["key"].codes


def test_the_least_recently_used_views_go(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views_module, "VIEWS_MAX", 2)
    views, first = Views(), graph.snapshot()
    nodes, edges = first.open(node_key("Person")), first.open(edge_key("Knows"))
    kept, dropped = views.nodes(nodes), views.edges(edges)
    insert(graph, "a")
    assert views.nodes(nodes) is kept
    views.nodes(graph.snapshot().open(node_key("Person")))
    assert views.nodes(nodes) is kept
    assert views.edges(edges) is not dropped


def test_states_and_plans_are_bounded_and_made_again(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "STATES_MAX", 2)
    monkeypatch.setattr(plan_cache, "PREPARED_MAX", 1)
    moments = [graph.snapshot().head]
    for key in "abcd":
        insert(graph, key)
        moments.append(graph.snapshot().head)
    for _ in range(2):
        for count, moment in enumerate(moments):
            assert graph.query(COUNT, at=moment).to_pylist() == [{"n": count}]
            assert graph.query(COUNT.replace("as n", "as m"), at=moment).to_pylist() == [{"m": count}]
    assert len(graph._reader._states) == 2
    assert len(graph._reader.plans._ordered) == 1


def test_without_a_thread_the_next_state_is_derived_by_whoever_asks(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    graph.query(COUNT).to_pylist()
    with monkeypatch.context() as crowded:
        crowded.setattr(reader_module._Following, "start", refused)
        assert graph._reader.publishing(graph.snapshot(), {}) is nobody_waits
        insert(graph, "a")
    assert graph.query(COUNT).to_pylist() == [{"n": 1}]


def test_a_closed_graph_keeps_nothing(graph: Graph) -> None:
    graph.query(COUNT).to_pylist()
    reader = graph._reader
    graph.refresh()
    assert not reader._states
    assert reader.views._views
    graph.close()
    assert not reader.views._views
