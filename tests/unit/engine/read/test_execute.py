"""Bounds, isolation, streaming and the notes of an execution, on real tables."""

import datetime as dt

import lance
import numpy as np
import pytest

from omnigraph.engine.read import ReadOptions, explain_analyze
from omnigraph.engine.storage.cache import SHARED
from omnigraph.errors import InputError, LimitError
from omnigraph.plan import compile_query
from omnigraph.plan.results import column_to_json
from omnigraph.results import QueryResult

PAIRS = "match { $a knows $b } return { $a.key, $b.key } order { $a.key, $b.key }"
EVERYBODY = "match { $p: Person } return { $p.key } order { $p.key }"


def test_a_query_sees_only_its_snapshot_whatever_is_written_meanwhile(graph):
    before = graph.ask(PAIRS)
    streaming = graph.run("match { $p: Person } return { $p.key, $p.bio } order { $p.key }").to_batches(2)
    first = next(streaming)
    lance.dataset(graph.uri("node:Person")).delete("key = 'p3'")
    lance.dataset(graph.uri("edge:Knows")).delete("src = 'p3' or dst = 'p3'")
    extra = graph.rows("node:Person", [{"id": "zz", "key": "zz", "age": 1, "bio": None, "taste": None}])
    lance.write_dataset(extra, graph.uri("node:Person"), mode="append")
    assert graph.ask(PAIRS) == before
    assert [first, *streaming][1].column(0).to_pylist() == ["p2", "p3"]
    later = graph.now()
    assert "zz" in later.ask(EVERYBODY)
    assert "p3" not in later.ask(EVERYBODY)
    assert not any("p3" in pair for pair in later.ask(PAIRS))
    assert graph.ask(PAIRS) == before


def test_an_update_moves_a_node_and_keeps_its_edges(graph):
    assert graph.ask('match { $a: Person { key: "p1" } $a knows $b } return { $b.age } order { $b.age }') == [20, 30]
    lance.dataset(graph.uri("node:Person")).update({"age": "77"}, where="key = 'p2'")
    later = graph.now()
    body = 'match { $a: Person { key: "p1" } $a knows $b } return { $b.age } order { $b.age }'
    assert later.ask(body) == [30, 77]
    assert graph.ask(body) == [20, 30]


def test_edges_to_nodes_that_are_not_there_are_not_followed(graph):
    graph.ask(PAIRS)
    lance.dataset(graph.uri("node:Person")).delete("key = 'p5'")
    later = graph.now()
    assert not any("p5" in pair for pair in later.ask(PAIRS))
    assert later.ask('match { $a: Person { key: "p4" } $a knows $b } return { count($b) as n }') == [1]
    assert later.ask('match { $a: Person { key: "p3" } $a knows{2,2} $b } return { $b.key } order { $b.key }') == ["p6"]


def test_deleting_one_of_two_parallel_edges_keeps_the_pair(graph):
    twin = graph.rows("edge:Knows", [{"id": "twin", "src": "p0", "dst": "p1", "since": None}])
    lance.write_dataset(twin, graph.uri("edge:Knows"), mode="append")
    doubled = graph.now()
    assert doubled.ask('match { $a: Person { key: "p0" } $a $e:knows $b } return { count($e) as n }') == [3]
    assert doubled.ask('match { $a: Person { key: "p0" } $a knows $b } return { count($b) as n }') == [2]
    for victim, left in (("e0-1", ["p1", "p2"]), ("twin", ["p2"])):
        lance.dataset(graph.uri("edge:Knows")).delete(f"id = '{victim}'")
        body = 'match { $a: Person { key: "p0" } $a knows $b } return { $b.key } order { $b.key }'
        assert graph.now().ask(body) == left


def test_too_many_rows_are_refused_before_they_exist(graph):
    with pytest.raises(LimitError) as caught:
        graph.run("match { $a: Person $b: Person } return { $a.key, $b.key }", options=ReadOptions(rows_max=99))
    assert (caught.value.resource, caught.value.limit, caught.value.actual) == ("rows", 99, 100)
    with pytest.raises(LimitError):
        graph.run("match { $a knows $b } return { $a.key, $b.key }", options=ReadOptions(rows_max=10))
    with pytest.raises(LimitError) as caught:
        graph.run("match { $a knows $b } return { $a.key, $b.key }", options=ReadOptions(bytes_max=100))
    assert caught.value.resource == "bytes"
    assert graph.ask("match { $a knows $b } return { count($b) as n }", options=ReadOptions(rows_max=10)) == [20]


def test_a_result_too_large_for_one_table_can_still_be_streamed(graph):
    result = graph.run("match { $p: Person } return { $p.bio }", options=ReadOptions(result_bytes_max=10))
    with pytest.raises(LimitError, match="to_batches"):
        result.to_table()
    assert sum(batch.num_rows for batch in result.to_batches(3)) == 10


def test_time_is_a_bound_too(graph):
    with pytest.raises(LimitError) as caught:
        graph.run("match { $a knows $b } return { $a.key }", options=ReadOptions(timeout_seconds=0.0))
    assert caught.value.resource == "milliseconds"


def test_streamed_batches_are_the_table_cut_in_pieces(graph):
    body = 'match { $a knows $b } return { $a.key, $b.age, bm25($a.bio, "queen") as s } order { $b.age desc, $a.key }'
    whole = graph.run(body).to_table().to_pylist()
    pieces = [row for batch in graph.run(body).to_batches(3) for row in batch.to_pylist()]
    assert pieces == whole
    assert len(whole) == 20


def test_now_is_one_moment_of_the_execution(graph):
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=dt.UTC)
    table = graph.run("match { $p: Person } return { $p.key, now() as t }", now=moment).to_table()
    assert set(column_to_json(table.column("t"))) == {"2026-01-02T03:04:05.678Z"}


def test_limit_zero_keeps_the_columns(graph):
    result = graph.run("match { $p: Person } return { $p.key, $p.age } limit 0")
    assert len(result) == 0
    assert result.to_table().column_names == ["p.key", "p.age"]


def test_a_text_given_to_nearest_needs_a_provider_of_the_right_model(graph):
    body = 'match { $p: Person } return { $p.key } order { nearest($p.taste, "sweet") } limit 2'
    with pytest.raises(InputError, match="no embedding provider"):
        graph.run(body)

    class Axis:
        model = "axis"

        def embed_query(self, text, dimension):
            return (1.0,) + (0.0,) * (dimension - 1)

    assert graph.ask(body, embedder=Axis()) == ["p1", "p0"]


def test_the_exact_nearest_are_found_among_near_ties(graph):
    rng = np.random.default_rng(2)
    base = rng.standard_normal(2) * 1e3
    rows = [
        {"id": f"q{n}", "key": f"q{n}", "age": None, "bio": None, "taste": (base + rng.normal(0, 1e-4, 2)).tolist()}
        for n in range(400)
    ]
    lance.write_dataset(graph.rows("node:Person", rows), graph.uri("node:Person"), mode="append")
    later = graph.now()
    stored = {row["key"]: np.array(row["taste"], dtype=np.float32).astype(np.float64) for row in rows}
    query = np.array(base, dtype=np.float32).astype(np.float64)
    expected = sorted(stored, key=lambda key: (((stored[key] - query) ** 2).sum(), key))[:5]
    body = "match { $p: Person } return { $p.key } order { nearest($p.taste, $q) } limit 5"
    assert later.ask(body, {"q": base.tolist()}, "$q: Vector(2)") == expected


def test_the_run_says_what_was_done_and_why(graph):
    source = 'query q() { match { $a: Person { key: "p1" } $a knows $b not { $b knows $a } } return { $b.age } }'
    tree = explain_analyze(compile_query(graph.catalog, source, None), graph.state, {})
    text = tree.to_text()
    assert "run 2 rows" in text
    assert "expand $a -[Knows]-> $b" in text
    assert "distinct outer rows" in text
    run = tree.to_json()["children"][-1]
    assert [step["operator"] for step in run["children"]] == ["scan", "expand", "anti-join"]
    assert all(step["facts"]["ms"] >= 0 for step in run["children"])


def test_counting_a_variable_nobody_asks_for_lists_nothing(graph):
    result = graph.run("match { $a knows $b $b knows $c } return { $a.key as key, count($c) as n } order { n, key }")
    assert [step.operator for step in result.steps if step.operator in ("count", "expand")] == ["count"]
    assert [row["n"] for row in result.to_table().to_pylist()] == [4] * 10


def test_variables_joined_by_a_value_need_no_cross_product(graph):
    body = "match { $a: Person $b: Person $a.age = $b.age } return { $a.key, $b.key } order { $a.key }"
    result = graph.run(body, options=ReadOptions(rows_max=20))
    assert "join" in [step.operator for step in result.steps]
    assert len(result) == 10


def test_dropping_every_cache_changes_nothing(graph):
    before = graph.ask(PAIRS)
    SHARED.clear()
    assert graph.now().ask(PAIRS) == before


def test_a_result_prints_itself_and_converts(graph):
    result = QueryResult("people", graph.run("match { $p: Person } return { $p.key, $p.age } order { $p.key }"))
    assert result.columns == ["p.key", "p.age"]
    assert len(result) == 10
    assert result.to_pylist()[1] == {"p.key": "p1", "p.age": 10} == list(result)[1]
    assert result.to_arrow().num_rows == 10
    assert list(result.to_pandas()["p.age"]) == [n * 10 for n in range(10)]
    assert repr(result).splitlines()[:4] == ["people: 10 rows", "p.key  p.age", "─────  ─────", "p0     0"]
    assert ">p9</td>" in result._repr_html_()
    empty = QueryResult("none", graph.run('match { $p: Person { key: "x" } } return { $p.key }'))
    assert repr(empty).startswith("none: 0 rows")
    assert empty.to_pylist() == []
