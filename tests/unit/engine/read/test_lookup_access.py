"""A large column that is not in memory is asked through the table's index, for the rows of the answer alone."""

from __future__ import annotations

import lance
import pytest

from omnigraph.engine.read import explain_analyze, explain_order
from omnigraph.engine.read.columns import nodes, tables
from omnigraph.engine.read.operators import lookup
from omnigraph.engine.storage.cache import SHARED
from omnigraph.plan import compile_query

BODY = 'match { $p: Person { key: "p3" } } return { $p.age, $p.bio }'


@pytest.fixture
def large(graph, monkeypatch):
    """The ten people as if they were millions, indexed by key, in a process that has read nothing."""
    for module, name, value in (
        (lookup, "INDEXED_ROWS_MIN", 0),
        (lookup, "INDEX_LOOKUP_ROWS", 2),
        (tables, "COLD_ROWS_MIN", 1),
        (tables, "FETCH_BYTES", 16),
        (tables, "FETCHED_ROW_BYTES", 4),
    ):
        monkeypatch.setattr(module, name, value)
    lance.dataset(graph.uri("node:Person")).create_scalar_index("key", "BTREE")
    SHARED.clear()
    nodes._DICTIONARIES.clear()
    return graph.now()


def plan_of(graph):
    return compile_query(graph.catalog, f"query q() {{ {BODY} }}", None)


def test_a_point_lookup_reads_no_whole_column(large, monkeypatch):
    def refuse(*_):
        raise AssertionError("a whole column was read")

    monkeypatch.setattr(tables.TableView, "read", refuse)
    assert large.ask(BODY) == [(30, "queen number 3")]
    steps = explain_analyze(plan_of(large), large.state, {}).to_text()
    assert "from the index of the table, as the column is not in memory" in steps


def test_a_column_that_is_asked_again_and_again_is_sorted(large):
    for _ in range(8):
        assert large.ask(BODY) == [(30, "queen number 3")]
    assert "from sorted values" in explain_analyze(plan_of(large), large.state, {}).to_text()


def test_the_index_is_asked_less_often_where_rows_were_deleted(large, monkeypatch):
    monkeypatch.setattr(lookup, "DELETED_BESIDE_SHARE", 1)

    def asked_before_sorting(graph):
        for asked in range(10):
            told = explain_analyze(plan_of(graph), graph.state, {}).to_text()
            assert graph.ask(BODY) == [(30, "queen number 3")]
            if "from sorted values" in told:
                return asked
        raise AssertionError("the column is never sorted")

    before = asked_before_sorting(large)
    lance.dataset(large.uri("node:Person")).delete("id = 'p4'")
    SHARED.clear()
    assert asked_before_sorting(large.now()) < before


def test_rows_written_after_the_index_and_rows_deleted_since_are_right(large):
    more = large.rows("node:Person", [{"id": "p3b", "key": "p3", "age": 31, "bio": "late", "taste": None}])
    lance.write_dataset(more, large.uri("node:Person"), mode="append")
    assert sorted(large.now().ask(BODY)) == [(30, "queen number 3"), (31, "late")]
    lance.dataset(large.uri("node:Person")).delete("id = 'p3'")
    assert large.now().ask(BODY) == [(31, "late")]


def test_a_key_with_quotes_is_looked_up_as_it_is(large):
    more = large.rows("node:Person", [{"id": "o'h", "key": "o'h", "age": 1, "bio": None, "taste": None}])
    lance.write_dataset(more, large.uri("node:Person"), mode="append")
    assert large.now().ask('match { $p: Person { key: "o\'h" } } return { $p.age }') == [1]


def test_the_order_and_its_reasons_are_told_without_running_anything(large):
    body = (
        'match { $p: Person { key: "p3" } $p knows $q $q knows $r not { $q knows $p } $q.age > 3 }'
        " return { $q.key, count($r) as n }"
    )
    plan = compile_query(large.catalog, f"query q() {{ {body} }}", None)
    text = explain_order(plan, large.state).to_text()
    assert "scan $p: Person  [why=the only variable asked for one value; from the index of the table" in text
    assert "expand $p -[Knows]-> $q  [why=the only one left]" in text
    assert "count $q -[Knows]-> $r  [why=nothing asks for $r, so it is not listed]" in text
    assert "anti-join on $p, $q" in text
    assert "filter $q.age > 3" in text
    assert large.handles.keys() == {"node:Person", "edge:Knows"}
