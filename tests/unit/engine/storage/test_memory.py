"""What a process gives back when it closes its last graph, and what that costs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.storage import memory

SCHEMA = "node Person { name: String @key }"
COUNT = "query q() { match { $p: Person } return { count($p) as n } }"
LARGE_BYTES = 4 * memory.WORTHWHILE_BYTES


@pytest.fixture
def collections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How often all objects of the process were looked through."""
    found: list[int] = []
    collect = gc.collect
    monkeypatch.setattr(gc, "collect", lambda: (found.append(1), collect())[1])
    return found


def held() -> int:
    found = memory._resident_bytes()
    assert found is not None
    return found


class Ring:
    """Refers to itself, as handles and snapshots refer to each other."""

    def __init__(self) -> None:
        self.itself = self
        self.content = bytearray(b"x") * LARGE_BYTES


def test_a_graph_that_is_opened_and_closed_again_and_again_does_not_search_the_process(
    tmp_path: Path, collections: list[int]
) -> None:
    with omnigraph.create(str(tmp_path / "g"), SCHEMA) as graph:
        graph.mutate('query q() { insert Person { name: "ann" } }')
    collections.clear()
    for _ in range(20):
        with omnigraph.connect(str(tmp_path / "g")) as graph:
            assert graph.query(COUNT).to_pylist() == [{"n": 1}]
    assert len(collections) < 5


def test_what_was_much_is_given_back(tmp_path: Path, collections: list[int]) -> None:
    with omnigraph.create(str(tmp_path / "g"), SCHEMA):
        Ring()
        before = held()
        collections.clear()
    assert collections == [1]
    assert held() < before - LARGE_BYTES // 2


def test_where_the_system_does_not_say_what_is_held_it_is_given_back_each_time(
    tmp_path: Path, collections: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_STATM", tmp_path / "nothing")
    memory.return_memory()
    memory.return_memory()
    assert collections == [1, 1]
