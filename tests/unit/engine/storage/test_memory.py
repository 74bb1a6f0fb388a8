"""What a process gives back when it closes its last graph, and what that costs."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.engine.storage import memory

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


AGAIN_AND_AGAIN = """
import gc, sys
import omnigraph
collect, found = gc.collect, []
gc.collect = lambda: found.append(collect())
with omnigraph.create(sys.argv[1], "node Person { name: String @key }") as graph:
    graph.mutate('query q() { insert Person { name: "ann" } }')
for _ in range(20):
    with omnigraph.connect(sys.argv[1]) as graph:
        assert len(graph.query("query q() { match { $p: Person } return { $p.name as n } }")) == 1
print(len(found))
"""


def test_a_graph_that_is_opened_and_closed_again_and_again_does_not_search_the_process(tmp_path: Path) -> None:
    """In a process of its own, because nothing is given back while another graph is open."""
    command = [sys.executable, "-c", AGAIN_AND_AGAIN, str(tmp_path / "g")]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    assert 1 <= int(told.stdout) < 5


def test_what_was_much_is_given_back(collections: list[int]) -> None:
    memory.return_memory()
    Ring()
    before = held()
    collections.clear()
    memory.return_memory()
    assert collections == [1]
    assert held() < before - LARGE_BYTES // 2


def test_where_the_system_does_not_say_what_is_held_it_is_given_back_each_time(
    tmp_path: Path, collections: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_STATM", tmp_path / "nothing")
    memory.return_memory()
    memory.return_memory()
    assert collections == [1, 1]
