"""A branch goes on from what its table has kept: the first read after its first write is not made from nothing."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.read.cache import persist
from omnigraph.engine.read.columns import nodes as nodes_module
from omnigraph.engine.read.graph import segments
from omnigraph.engine.storage.cache import SHARED

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"
PAIR = "query q($k: String, $o: String) { insert Person { name: $k } insert Knows { from: $k, to: $o } }"
PAIRS = "query q() { match { $a knows $b } return { $a.name as a, $b.name as b } order { a, b } }"
NAMES = [f"p{n}" for n in range(6)]


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> omnigraph.Graph:
    """A graph whose adjacency main has left on disk."""
    monkeypatch.setattr(persist, "EDGES_MIN", 1)
    graph = omnigraph.create(str(tmp_path / "g"), SCHEMA)
    nodes = [{"type": "Person", "data": {"name": name}} for name in NAMES]
    edges = [{"edge": "Knows", "from": a, "to": b} for a, b in pairwise(NAMES)]
    graph.load([*nodes, *edges])
    assert len(graph.query(PAIRS)) == len(edges)
    return graph


def pairs(graph: omnigraph.Graph, branch: str) -> list[tuple[str, str]]:
    return [(row["a"], row["b"]) for row in graph.query(PAIRS, branch=branch).to_pylist()]


def bundles(graph: omnigraph.Graph) -> list[str]:
    return sorted(str(path) for path in Path(graph.uri, "_cache").rglob("facts.json"))


@pytest.mark.parametrize("fresh", [False, True], ids=["warm", "fresh process"])
def test_a_branch_reads_the_adjacency_that_its_table_has_kept(
    graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch, fresh: bool
) -> None:
    main, kept = pairs(graph, "main"), bundles(graph)
    for branch in ("a", "b"):
        graph.branches.create(branch)
        graph.mutate(PAIR, {"k": branch, "o": "p0"}, branch=branch)
    graph.mutate(PAIR, {"k": "m", "o": "p0"})  # so that one code is three nodes, each on its branch
    if fresh:
        SHARED.clear()
        nodes_module._DICTIONARIES.clear()
        graph = omnigraph.connect(graph.uri)
    monkeypatch.setattr(segments, "_new_segment", lambda *_: pytest.fail("adjacency was made again"))
    for branch, new in (("a", "a"), ("b", "b"), ("main", "m"), ("a", "a")):
        assert pairs(graph, branch) == sorted([*main, (new, "p0")])
    graph.mutate('query q() { delete Person where name = "p3" }', branch="a")
    gone = [pair for pair in main if "p3" not in pair]
    assert pairs(graph, "a") == sorted([*gone, ("a", "p0")])
    assert pairs(graph, "b") == sorted([*main, ("b", "p0")])
    assert bundles(graph) == kept, "a branch leaves nothing"


def test_a_branch_that_has_little_in_common_with_its_table_makes_its_own(
    graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "OVERLAY_MIN", 1)
    kept = bundles(graph)
    graph.branches.create("a")
    graph.load(
        [{"type": "Person", "data": {"name": n}} for n in "xy"] + [{"edge": "Knows", "from": "x", "to": "y"}],
        mode="overwrite",
        branch="a",
    )
    assert pairs(graph, "a") == [("x", "y")]
    assert len(pairs(graph, "main")) == len(NAMES) - 1
    assert bundles(graph) == kept
