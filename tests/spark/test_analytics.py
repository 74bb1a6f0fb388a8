"""Algorithms over a snapshot, each against a plain computation of the same thing."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from tests.spark.records import knows, person, rows, write_lines

from omnigraph import create
from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.pipeline import GraphFrames, run_job
from omnigraph.pipeline.analytics import Analytics

pytestmark = pytest.mark.spark

SCHEMA = """
node Person { name: String @key  age: I32?  rank: F64? }
edge Knows: Person -> Person { }
"""
NAMES = [f"p{number:02d}" for number in range(24)]


def pairs() -> list[tuple[str, str]]:
    """Two parts that do not touch, a loop, a parallel edge and two vertices without any edge."""
    chosen = random.Random(5)
    left, right = NAMES[:14], NAMES[14:22]
    found = [(chosen.choice(left), chosen.choice(left)) for _ in range(30)]
    found += [(right[n], right[n + 1]) for n in range(len(right) - 1)]
    return [*found, found[0], ("p03", "p03")]


@pytest.fixture(scope="module")
def analytics(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Analytics:
    folder = tmp_path_factory.mktemp("analytics")
    graph = create(folder / "graph", SCHEMA)
    records = [*(person(name, age=1) for name in NAMES), *(knows(source, target) for source, target in pairs())]
    run_job(graph.context, write_lines(folder / "a.jsonl", *records), mode="append", spark=spark)
    return GraphFrames(graph.context, spark).analytics("Knows")


def neighbours(directed: bool = False) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for source, target in pairs():
        found[source].add(target)
        if not directed:
            found[target].add(source)
    return found


def test_degrees_count_every_edge(analytics: Analytics) -> None:
    found = {row["id"]: (row["out_degree"], row["in_degree"], row["degree"]) for row in analytics.degrees().collect()}
    for name in NAMES:
        out, into = sum(s == name for s, _ in pairs()), sum(t == name for _, t in pairs())
        assert found[name] == (out, into, out + into)
    [line] = analytics.degree_statistics().where("measure = 'out_degree'").collect()
    assert (line["vertices"], line["total"], line["least"]) == (len(NAMES), len(pairs()), 0)


def test_pagerank_agrees_with_power_iteration_and_adds_up_to_one(analytics: Analytics) -> None:
    ranks = {name: 1 / len(NAMES) for name in NAMES}
    outgoing = {name: [t for s, t in pairs() if s == name] for name in NAMES}
    for _ in range(4):
        lost = sum(ranks[name] for name in NAMES if not outgoing[name])
        fresh = {name: 0.15 / len(NAMES) + 0.85 * lost / len(NAMES) for name in NAMES}
        for name, targets in outgoing.items():
            for target in targets:
                fresh[target] += 0.85 * ranks[name] / len(targets)
        ranks = fresh
    found = {row["id"]: row["rank"] for row in analytics.pagerank(rounds=4).collect()}
    assert sum(found.values()) == pytest.approx(1)
    assert found == pytest.approx(ranks)


def test_connected_components_ignore_direction(analytics: Analytics) -> None:
    found = {row["id"]: row["component"] for row in analytics.connected_components().collect()}
    near = neighbours()
    for start in NAMES:
        reached, todo = {start}, [start]
        while todo:
            todo = [name for each in todo for name in near[each] if name not in reached and not reached.add(name)]  # type: ignore[func-returns-value]
        assert {name for name in NAMES if found[name] == found[start]} == reached


def test_label_propagation_never_crosses_between_components(analytics: Analytics) -> None:
    found = {row["id"]: row["community"] for row in analytics.label_propagation(rounds=3).collect()}
    assert {found[name] for name in NAMES[:14]}.isdisjoint({found[name] for name in NAMES[14:]})
    assert len({found["p22"], found["p23"]}) == 2


@pytest.mark.parametrize("directed", [True, False])
def test_shortest_paths_are_breadth_first_distances(analytics: Analytics, directed: bool) -> None:
    near = neighbours(directed)
    expected, frontier = {"p14": 0}, ["p14"]
    while frontier:
        step = sorted({name for each in frontier for name in near[each]} - set(expected))
        expected.update(dict.fromkeys(step, expected[frontier[0]] + 1))
        frontier = step
    found = {row["id"]: row["distance"] for row in analytics.shortest_paths(["p14"], directed=directed).collect()}
    assert found == expected


def test_triangles_are_counted_once_per_corner(analytics: Analytics) -> None:
    near = neighbours()
    expected = dict.fromkeys(NAMES, 0)
    for corners in combinations(NAMES, 3):
        if all(b in near[a] for a, b in combinations(corners, 2)):
            for corner in corners:
                expected[corner] += 1
    assert {row["id"]: row["triangles"] for row in analytics.triangle_counts().collect()} == expected


def test_a_result_is_written_back_as_one_commit_and_leaves_other_properties(analytics: Analytics) -> None:
    graph = Graph(analytics.frames.context)
    before = len(graph.history.list())
    ranks = analytics.pagerank(rounds=1)
    expected = {row["id"]: row["rank"] for row in ranks.collect()}
    graph.mutate('query q() { update Person set { age: 7 } where name = "p03" }')  # While the algorithm ran.
    analytics.write_back(ranks, "rank", "Person", "rank", actor="analyst")
    assert {row["id"]: row["rank"] for row in rows(graph, "node:Person")} == pytest.approx(expected)
    assert {row["id"]: row["age"] for row in rows(graph, "node:Person")} == dict.fromkeys(NAMES, 1) | {"p03": 7}
    assert len(graph.history.list()) == before + 2
    with pytest.raises(InputError, match="is not a property"):
        analytics.write_back(ranks, "rank", "Person", "nope")


def test_a_schema_without_edges_has_nothing_to_analyse(tmp_path: Path, spark: Any) -> None:
    graph = create(tmp_path / "graph", "node Note { text: String }")
    with pytest.raises(InputError, match="no edge type"):
        GraphFrames(graph.context, spark).analytics()
