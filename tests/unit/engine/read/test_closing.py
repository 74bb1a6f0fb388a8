"""Hops checked while they are followed: equal to listing every way and checking it, at any size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.read.context import ReadOptions
from omnigraph.engine.read.graph import intersect as closing
from omnigraph.engine.read.graph.adjacency import Adjacency, Part
from omnigraph.engine.read.graph.intersect import common_neighbours, marks_of, signatures_of
from omnigraph.engine.read.kernels import build_csr, first_of_pair, marks_at, pair_places
from omnigraph.errors import LimitError
from omnigraph.graph import Graph, create

NONE = np.zeros(1, dtype=np.int64)
PATTERNS = {
    "transitive": "$a knows $b $b knows $c $a knows $c",
    "cyclic": "$a knows $b $b knows $c $c knows $a",
    "from one": '$a: Person { key: "p3" } $a knows $b $b knows $c $a knows $c',
    "two kinds": "$a knows $b $b knows $c $a likes $c",
    "to itself": "$a knows $b $b knows $c $c knows $c",
    "four": "$a knows $b $b knows $c $a knows $c $c knows $d $a knows $d",
}


def adjacency_of(rng: np.random.Generator, nodes: int, sizes: list[int], dead: float = 0.0) -> tuple[Adjacency, set]:
    """Parts of random edges, some twice, some dead, none in two parts; and the pairs that are alive."""
    parts, alive, seen = [], set(), set()
    for size in sizes:
        ends = rng.integers(0, nodes, (size, 2))
        ends = np.array([pair for pair in ends.tolist() if tuple(pair) not in seen])
        ends = np.concatenate((ends, ends[: size // 8]))
        csr = build_csr(ends[:, 0], ends[:, 1], np.arange(len(ends)), nodes)
        live = rng.random(len(ends)) >= dead if dead else None
        starts = np.repeat(np.arange(csr.node_count), np.diff(csr.offsets))
        slots = np.flatnonzero(live) if live is not None else np.arange(len(ends))
        alive |= set(zip(starts[slots].tolist(), csr.neighbours[slots].tolist(), strict=True))
        seen |= set(map(tuple, ends.tolist()))
        parts.append(Part(csr, live, first_of_pair(csr, live), NONE, NONE))
    return Adjacency(tuple(parts)), alive


@pytest.mark.parametrize("sizes", [[300], [300, 20], [900, 5]])
@pytest.mark.parametrize("dead", [0.0, 0.3])
@pytest.mark.parametrize("shortcuts", [False, True])
def test_common_neighbours_are_those_of_the_two_sets(sizes, dead, shortcuts, monkeypatch):
    if shortcuts:
        for name, value in {"FEW_ROWS": 0, "BLOCK": 32, "TABLES_FACTOR": 10_000}.items():
            monkeypatch.setattr(closing, name, value)
    rng = np.random.default_rng(len(sizes) + int(dead * 10))
    first, pairs = adjacency_of(rng, 60, sizes, dead)
    second, others = adjacency_of(rng, 60, sizes, dead)
    rows = rng.integers(0, 70, (200, 2))
    heard = []
    met, owner, ways = common_neighbours(first, rows[:, 0], second, rows[:, 1], heard.append)
    expected = sorted(
        (r, c) for r, (a, b) in enumerate(rows.tolist()) for c in range(60) if (a, c) in pairs and (b, c) in others
    )
    assert sorted(zip(owner.tolist(), met.tolist(), strict=True)) == expected
    assert expected
    assert ways >= len(expected)
    assert heard


def test_each_row_is_followed_from_the_end_that_leads_to_less(monkeypatch):
    monkeypatch.setattr(closing, "FEW_ROWS", 0)
    hubs = [(hub, c) for hub in (0, 1) for c in range(100)]
    pairs = {*hubs, *((n, (n * 7) % 100) for n in range(2, 50)), *((n, (n * 3) % 100) for n in range(2, 50))}
    starts, neighbours = (np.array(side) for side in zip(*sorted(pairs), strict=True))
    csr = build_csr(starts, neighbours, np.arange(len(starts)))
    adjacency = Adjacency((Part(csr, None, None, NONE, NONE),))
    rows = [(hub, n) for hub in (0, 1) for n in range(2, 50)] + [(n, hub) for hub in (0, 1) for n in range(2, 50)]
    nodes, others = (np.array(side) for side in zip(*rows, strict=True))
    met, owner, ways = common_neighbours(adjacency, nodes, adjacency, others, lambda _: None)
    expected = {(r, c) for r, (a, b) in enumerate(rows) for c in range(100) if {(a, c), (b, c)} <= pairs}
    assert set(zip(owner.tolist(), met.tolist(), strict=True)) == expected
    assert ways == len(met) == len(expected)


@pytest.mark.parametrize("listed", [0, 4096])
def test_rows_that_begin_at_one_node_meet_what_it_shares_with_the_others(listed, monkeypatch):
    monkeypatch.setattr(closing, "LISTED_MAX", listed)
    rng = np.random.default_rng(8)
    adjacency, pairs = adjacency_of(rng, 40, [300, 9], 0.2)
    others = rng.permutation(45)
    met, owner, _ = common_neighbours(adjacency, np.full(45, 3), adjacency, others, lambda _: None)
    expected = {(r, c) for r, b in enumerate(others.tolist()) for c in range(40) if {(3, c), (b, c)} <= pairs}
    assert set(zip(owner.tolist(), met.tolist(), strict=True)) == expected
    assert len(met) == len(expected) > 0


def test_nothing_is_shared_with_edges_that_are_not_there():
    adjacency, _ = adjacency_of(np.random.default_rng(8), 40, [300])
    nodes = np.arange(40)
    for first, second in ((adjacency, Adjacency(())), (Adjacency(()), adjacency)):
        assert [len(part) for part in common_neighbours(first, nodes, second, nodes, lambda _: None)[:2]] == [0, 0]


@pytest.mark.long
def test_signatures_and_marks_have_every_pair_of_every_part():
    rng = np.random.default_rng(4)
    adjacency, pairs = adjacency_of(rng, 500, [2000, 40])
    starts, neighbours = (np.array(side) for side in zip(*sorted(pairs), strict=True))
    assert marks_at(marks_of(adjacency), pair_places(starts, neighbours)).all()
    absent = rng.integers(0, 500, (4000, 2))
    absent = absent[[tuple(pair) not in pairs for pair in absent.tolist()]]
    assert marks_at(marks_of(adjacency), pair_places(absent[:, 0], absent[:, 1])).mean() < 0.1
    signatures = signatures_of(adjacency)
    assert signatures is not None
    joined = [
        (a, b)
        for a in range(200)
        for b in range(200)
        if {c for x, c in pairs if x == a} & {c for x, c in pairs if x == b}
    ]
    assert joined
    assert all((signatures[a] & signatures[b]).any() for a, b in joined[:300])


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    rng = np.random.default_rng(21)
    root: Path = tmp_path_factory.mktemp("closing")
    graph = create(
        root / "graph", "node Person { key: String @key }\nedge Knows: Person -> Person\nedge Likes: Person -> Person"
    )
    keys = np.array([f"p{number}" for number in range(700)])
    edges = {
        name: pa.table({end: keys[rng.integers(0, len(keys), 4000)] for end in ("from", "to")})
        for name in ("Knows", "Likes")
    }
    graph.load({"Person": pa.table({"key": keys}), **edges}, mode="overwrite", engine="local")
    graph.query("query q() { match { $a knows $b } return { count($b) as n } }").to_pylist()
    graph.mutate('query m() { delete Person where key = "p7" }')
    for number in range(3):
        graph.mutate(f'query m() {{ insert Knows {{ from: "p{number}", to: "p{number + 2}" }} }}')
    return graph


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_patterns_that_close_give_the_same_rows_however_they_are_checked(graph, pattern, monkeypatch):
    last = max(name for name in "abcd" if f"${name}" in pattern)
    returned = f"$a.key as a, ${last}.key as z, count($b) as n"
    text = f"query q() {{ match {{ {pattern} }} return {{ {returned} }} order {{ a, z }} }}"
    rows = graph.query(text).to_pylist()
    with monkeypatch.context() as changed:
        changed.setattr("omnigraph.engine.read.operators.match._closing", lambda *_: None)
        assert graph.query(text).to_pylist() == rows
    monkeypatch.setattr(closing, "BLOCK", 64)
    monkeypatch.setattr(closing, "TABLES_FACTOR", 10_000)
    assert graph.query(text).to_pylist() == rows
    assert rows or "p3" in pattern


def test_ways_that_do_not_exist_at_once_are_not_counted_against_the_limit(graph, monkeypatch):
    text = "query q() { match { $a knows $b $b knows $c $a knows $c } return { count($c) as n } }"
    expected = graph.query(text).to_pylist()
    monkeypatch.setattr(closing, "BLOCK", 256)
    assert graph.query(text, options=ReadOptions(rows_max=5000)).to_pylist() == expected
    with pytest.raises(LimitError):
        graph.query(text, options=ReadOptions(rows_max=100))
