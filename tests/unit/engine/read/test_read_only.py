"""A graph opened read-only is left exactly as it was, derived state included."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.read.cache import persist

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"
HOPS = 'query hops() { match { $p: Person { name: "p0" } $p knows{1,3} $q } return { $q.name } order { $q.name } }'


def _tree(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): path.stat().st_mtime_ns for path in sorted(root.rglob("*"))}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(persist, "EDGES_MIN", 1)
    graph = omnigraph.create(tmp_path / "g", SCHEMA)
    people = [{"type": "Person", "data": {"name": f"p{i}"}} for i in range(30)]
    edges = [{"edge": "Knows", "from": f"p{i}", "to": f"p{i + 1}"} for i in range(29)]
    graph.load([*people, *edges], engine="local")
    return tmp_path / "g"


def test_a_read_only_graph_writes_nothing_at_all(root: Path) -> None:
    before = _tree(root)
    graph = omnigraph.connect(root, read_only=True)
    assert [row["q.name"] for row in graph.query(HOPS)] == ["p1", "p2", "p3"]
    assert _tree(root) == before


def test_a_writable_graph_keeps_what_it_derived(root: Path) -> None:
    before = _tree(root)
    assert len(omnigraph.connect(root).query(HOPS)) == 3
    assert set(_tree(root)) - set(before)
