"""A branch goes on from what its table has kept: the first read after its first write is not made from nothing."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.engine.read.cache import persist
from omnigraph.engine.read.columns import nodes as nodes_module
from omnigraph.engine.read.columns.dictionary import IdDictionary, codes_key, shared_codes
from omnigraph.engine.read.graph import segments
from omnigraph.engine.storage.cache import SHARED, ByteCache
from omnigraph.ids import new_token

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"
PAIR = "query q($k: String, $o: String) { insert Person { name: $k } insert Knows { from: $k, to: $o } }"
PAIRS = "query q() { match { $a knows $b } return { $a.name as a, $b.name as b } order { a, b } }"
NAMES = [f"p{n}" for n in range(6)]


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> omnigraph.Graph:
    """A graph whose adjacency main has left on disk."""
    monkeypatch.setattr(persist, "EDGES_MIN", 1)
    # Under a name of its own, for what earlier graphs have left in the memory of this process goes by its place.
    graph = omnigraph.create(str(tmp_path / new_token()), SCHEMA)
    nodes = [{"type": "Person", "data": {"name": name}} for name in NAMES]
    edges = [{"edge": "Knows", "from": a, "to": b} for a, b in pairwise(NAMES)]
    graph.load([*nodes, *edges])
    assert len(graph.query(PAIRS)) == len(edges)
    return graph


def pairs(graph: omnigraph.Graph, branch: str) -> list[tuple[str, str]]:
    return [(row["a"], row["b"]) for row in graph.query(PAIRS, branch=branch).to_pylist()]


def bundles(graph: omnigraph.Graph) -> list[str]:
    return sorted(str(path) for path in Path(graph.uri, "_cache").rglob("facts.json"))


@pytest.mark.parametrize("known", ["warm", "warm, nothing on disk", "fresh process"])
def test_a_branch_goes_on_from_the_adjacency_of_its_table(
    graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    if "nothing" in known:
        shutil.rmtree(Path(graph.uri, "_cache"))
    main = pairs(graph, "main")
    for branch in ("a", "b"):
        graph.branches.create(branch)
        graph.mutate(PAIR, {"k": branch, "o": "p0"}, branch=branch)
    graph.mutate(PAIR, {"k": "m", "o": "p0"})  # so that one code is three nodes, each on its branch
    if known == "fresh process":
        SHARED.clear()
        nodes_module._DICTIONARIES.clear()
        graph = omnigraph.connect(graph.uri)
    kept = bundles(graph)
    monkeypatch.setattr(segments, "_new_segment", lambda *_: pytest.fail("adjacency was made again"))
    for branch, new in (("a", "a"), ("b", "b"), ("main", "m"), ("a", "a")):
        assert pairs(graph, branch) == sorted([*main, (new, "p0")])
    graph.mutate('query q() { delete Person where name = "p3" }', branch="a")
    gone = [pair for pair in main if "p3" not in pair]
    assert pairs(graph, "a") == sorted([*gone, ("a", "p0")])
    assert pairs(graph, "b") == sorted([*main, ("b", "p0")])
    assert bundles(graph) == kept, "to read a branch leaves nothing"


@pytest.mark.parametrize("branches", [("a", "main"), ("main", "a")])
def test_what_a_table_learns_after_a_branch_was_made_is_not_taken_for_the_branch(
    graph: omnigraph.Graph, branches: tuple[str, str]
) -> None:
    """Both know one node when they part, and then give their codes in different orders to those they have in common."""
    expected = {"main": pairs(graph, "main")}
    expected["a"] = sorted([*expected["main"], ("a", "p0")])
    graph.branches.create("a")
    graph.mutate(PAIR, {"k": "a", "o": "p0"}, branch="a")
    shutil.rmtree(Path(graph.uri, "_cache"))
    SHARED.clear()
    nodes_module._DICTIONARIES.clear()
    graph = omnigraph.connect(graph.uri)
    main = nodes_module.dictionary_of(graph.snapshot("main").open("node:Person"))
    main.encode(pa.array(["p4"]))
    branch_of_it = nodes_module.dictionary_of(graph.snapshot("a").open("node:Person"))
    assert branch_of_it.shared == ((main.lineage, 1),)
    assert main.encode(pa.array(["p5", "p3"])).tolist() == branch_of_it.encode(pa.array(["p2", "p1"])).tolist()
    for _ in range(2):
        for branch in branches:
            assert pairs(graph, branch) == expected[branch]
        SHARED.clear()


def test_codes_are_shared_while_they_mean_the_same() -> None:
    cache, table = ByteCache(), IdDictionary(pa.array(["x", "y"]))
    table.encode(pa.array(["late"]))
    branch = table.forked()
    assert branch.lineage != table.lineage
    assert table.encode(pa.array(["z"])).tolist() == branch.encode(pa.array(["w"])).tolist() == [3]
    assert branch.find(pa.array(["x", "y", "late", "w", "z"])).tolist() == [0, 1, 2, 3, -1]
    assert branch.ids_of(np.array([0, 2, 3])).to_pylist() == ["x", "late", "w"]
    for files, codes, is_shared in ((("f",), [0, 2], True), (("g",), [0, 3], False), (("h",), [], True)):
        made = np.array(codes, dtype=np.int32)
        cache.put(codes_key(table.lineage, files, "src"), made, 8)
        assert shared_codes(cache, table, files, "src") is made
        assert (shared_codes(cache, branch, files, "src") is made) == is_shared


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
