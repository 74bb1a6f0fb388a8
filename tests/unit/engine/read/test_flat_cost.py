"""What a read costs in storage operations does not depend on how long the history is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.storage import steps

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
ADD = "query add($n: String) { insert Person { name: $n, age: 1 } }"
FIND = "query find($n: String) { match { $p: Person { name: $n } } return { $p.age } }"


class Recorder:
    """Counts storage operations by name."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def before(self, name: str, target: str) -> None:
        self.seen[name] += 1

    def after(self, name: str, target: str) -> None:
        return None


def _steps_of_a_read(graph: omnigraph.Graph) -> Counter[str]:
    recorder = Recorder()
    previous = steps.observe(recorder)
    try:
        assert graph.query(FIND, params={"n": "p0"}).to_pylist() == [{"p.age": 1}]
    finally:
        steps.observe(previous)
    return recorder.seen


def _grow(graph: omnigraph.Graph, start: int, end: int) -> None:
    for number in range(start, end):
        graph.mutate(ADD, params={"n": f"p{number}"})


@pytest.mark.long
def test_a_read_costs_the_same_after_ten_and_after_a_thousand_commits(tmp_path: Path) -> None:
    graph = omnigraph.create(tmp_path / "g", SCHEMA)
    _grow(graph, 0, 10)
    young_first, young_warm = _steps_of_a_read(graph), _steps_of_a_read(graph)
    _grow(graph, 10, 1_000)
    old_first, old_warm = _steps_of_a_read(graph), _steps_of_a_read(graph)
    assert young_warm == old_warm == Counter({"probe_head": 1})
    assert sum(old_first.values()) <= sum(young_first.values()) + 2
