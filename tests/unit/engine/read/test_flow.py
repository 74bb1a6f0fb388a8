"""Counting over all nodes: equal to listing every way, also beside parallel, dead and later edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.read import kernels
from omnigraph.engine.read.context import ReadOptions
from omnigraph.engine.read.kernels import build_csr, find_pairs
from omnigraph.graph import Graph, create

SCHEMA = "node Person { key: String @key  age: I32 }\nedge Knows: Person -> Person"
COUNTS = [
    "$a knows $b",
    "$a knows $b $b knows $c",
    "$a knows $b $b knows $c $c knows $d",
    "$a knows $b $b knows $c $c.age > 30 $c knows $d",
    "$a knows $b $b knows $c $a knows $c",
    "$a knows $b $c knows $b $c knows $d",
]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    rng = np.random.default_rng(11)
    graph = create(tmp_path / "graph", SCHEMA)
    keys = np.array([f"p{number}" for number in range(1500)])
    people = pa.table({"key": keys, "age": pa.array(rng.integers(18, 60, len(keys)), pa.int32())})
    edges = {name: keys[rng.integers(0, len(keys), 6000)] for name in ("from", "to")}
    # Parallel edges: two of every first hundred.
    knows = pa.table({name: np.concatenate((ends, ends[:100])) for name, ends in edges.items()})
    graph.load({"Person": people, "Knows": knows}, mode="overwrite", engine="local")
    graph.query("query q() { match { $a knows $b } return { count($b) as n } }").to_pylist()
    graph.mutate('query m() { delete Person where key = "p7" }')
    graph.mutate('query m() { insert Knows { from: "p1", to: "p2" } }')
    return graph


@pytest.mark.parametrize("pattern", COUNTS)
def test_counts_over_all_nodes_equal_the_number_of_listed_ways(graph: Graph, pattern: str) -> None:
    last = max(name for name in "abcd" if f"${name}" in pattern)
    for returned in (f"count(${last}) as n", f"${last}.key as key, count($a) as n"):
        order = " order { key }" if "key" in returned else ""
        text = f"query q() {{ match {{ {pattern} }} return {{ {returned} }}{order} }}"
        listed = graph.query(text, options=ReadOptions(use_factoring=False)).to_pylist()
        assert graph.query(text).to_pylist() == listed
        assert listed[0]["n"] > 0


def test_pairs_looked_up_in_blocks_are_those_looked_up_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(12)
    starts, neighbours = rng.integers(0, 50, 400), rng.integers(0, 70, 400)
    csr = build_csr(starts, neighbours, np.arange(400))
    sought = rng.integers(0, 80, 5000), rng.integers(0, 90, 5000)
    plain = find_pairs(csr, *sought)
    monkeypatch.setattr(kernels, "PAIRS_BLOCK", 256)
    assert np.array_equal(find_pairs(csr, *sought), plain)
    few = tuple(part[:300] for part in sought)
    assert np.array_equal(find_pairs(csr, *few), plain[:300])
    assert {(int(a), int(b)) for a, b, slot in zip(*sought, plain, strict=True) if slot >= 0} <= set(
        zip(starts.tolist(), neighbours.tolist(), strict=True)
    )
