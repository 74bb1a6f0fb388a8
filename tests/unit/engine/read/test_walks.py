"""Ways that lead on from a node are the same number, followed hop by hop or worked out for every node."""

from __future__ import annotations

import lance
import pytest

from omnigraph.engine.read import ReadOptions
from omnigraph.engine.read.operators import count_paths as walks

LISTED = ReadOptions(use_factoring=False)
COUNTS = [
    'match { $a: Person { key: "p1" } $a knows $b $b knows $c } return { count($c) as n }',
    'match { $a: Person { key: "p1" } $a knows $b $b knows $c $c knows $d } return { count($d) as n }',
    "match { $a knows $b $b knows $c $c knows $d } return { count($a) as n }",
    "match { $a knows $b $b knows $c } return { $a.key, count($c) as n } order { $a.key }",
    "match { $a: Person $a.age > 30 $a knows $b $b knows $c $c $e: knows $d } return { $a.key, count($d) as n }"
    " order { n desc, $a.key } limit 3",
    "match { $a knows $b $b knows $c $c knows $a } return { count($a) as n }",
    "match { $a <knows> $b $b <knows> $c } return { count($c) as n }",
]


@pytest.mark.parametrize("body", COUNTS)
@pytest.mark.parametrize("after", [0, 10**9])
def test_counting_ways_gives_what_listing_them_gives(graph, monkeypatch, body, after):
    monkeypatch.setattr(walks, "WALKS_AFTER", after)
    if after:
        monkeypatch.setattr(walks, "ALL_FACTOR", 0)
    twins = graph.rows("edge:Knows", [{"id": f"t{n}", "src": "p1", "dst": "p2", "since": n} for n in range(3)])
    lance.write_dataset(twins, graph.uri("edge:Knows"), mode="append")
    lance.dataset(graph.uri("node:Person")).delete("key = 'p4'")
    lance.dataset(graph.uri("edge:Knows")).delete("id = 'e7-1'")
    now = graph.now()
    assert now.ask(body) == now.ask(body) == now.ask(body, options=LISTED)


def test_hops_from_one_node_are_followed_until_they_are_asked_for_often(graph, monkeypatch):
    monkeypatch.setattr(walks, "WALKS_AFTER", 2)
    monkeypatch.setattr(walks, "ALL_FACTOR", 0)
    kinds = [[step.operator for step in graph.run(COUNTS[1]).steps] for _ in range(4)]
    assert kinds[0] == kinds[1] == ["scan", "expand", "expand", "count"]
    assert kinds[2] == kinds[3] == ["scan", "count"]


def test_a_walk_goes_on_with_numbers_that_are_known_for_its_rest(graph, monkeypatch):
    monkeypatch.setattr(walks, "WALKS_AFTER", 2)
    monkeypatch.setattr(walks, "ALL_FACTOR", 0)
    for _ in range(3):
        graph.run(COUNTS[0])
    assert [step.operator for step in graph.run(COUNTS[1]).steps] == ["scan", "expand", "count"]
    assert graph.ask(COUNTS[1]) == graph.ask(COUNTS[1]) == graph.ask(COUNTS[1], options=LISTED)


def test_the_more_edges_there_are_the_longer_hops_are_followed(graph, monkeypatch):
    monkeypatch.setattr(walks, "WALKS_AFTER", 1)
    monkeypatch.setattr(walks, "ALL_FACTOR", 0)
    monkeypatch.setattr(walks, "EDGES_PER_CALL", 10)
    kinds = [[step.operator for step in graph.run(COUNTS[0]).steps][1] for _ in range(4)]
    assert kinds == ["expand", "expand", "count", "count"]


def test_numbers_that_might_not_fit_are_not_worked_out(graph, monkeypatch):
    monkeypatch.setattr("omnigraph.engine.read.graph.adjacency.EXACT_MAX", 3.0)
    assert graph.ask(COUNTS[2]) == graph.ask(COUNTS[2], options=LISTED)
    assert "expand" in [step.operator for step in graph.run(COUNTS[2]).steps]
