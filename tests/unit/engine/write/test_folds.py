"""Small fragments are rewritten behind the calls that left them, and nothing depends on whether that works."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from omnigraph.engine.operations.cleanup import cleanup
from omnigraph.engine.storage import folding, steps
from omnigraph.engine.storage.cache import SHARED
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.write import compaction as folds
from omnigraph.errors import GraphError, StorageError
from omnigraph.graph import Graph, connect, create
from omnigraph.testing.failpoints import CRASH_EXIT_CODE, InjectedFailure
from omnigraph.testing.faults import Fault, FaultyStore

SCHEMA = "node P { k: String @key  n: I64? }\nedge K: P -> P"
PAIR = "query pair($k: String) { insert P { k: $k } insert K { from: $k, to: $k } }"
MANY = folding.FOLD_FRAGMENTS


class Folding:
    """Tells which threads fold."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def before(self, name: str, target: str) -> None:
        if name == "fold_fragments":
            self.threads.append(threading.current_thread().name)

    def after(self, name: str, target: str) -> None:
        """Only the start counts."""


@pytest.fixture
def observed():
    observer = Folding()
    previous = steps.observe(observer)
    yield observer
    steps.observe(previous)


@pytest.fixture
def graph(tmp_path):
    made = create(tmp_path / "g", SCHEMA)
    yield made
    made.close()


def insert(graph: Graph, first: int, count: int) -> None:
    for number in range(first, first + count):
        graph.mutate(PAIR, {"k": f"k{number}"})


def settled(graph: Graph) -> None:
    """Wait until the thread has nothing to do."""
    thread = graph.context.folds._thread
    if thread is not None:
        thread.join()


def fragments(graph: Graph, key: str = "node:P") -> int:
    return len(graph.snapshot().open(key).fragments())


def keys(graph: Graph) -> list[str]:
    cold = TableStore(graph.context.root)
    entry = graph.snapshot().entry("node:P")
    return sorted(cold.open(entry.path, version=entry.version).scan(["k"])["k"].to_pylist())


@pytest.mark.long
def test_no_call_folds_while_the_thread_keeps_up(graph, observed):
    for number in range(4 * MANY):
        graph.mutate(PAIR, {"k": f"k{number}"})
        settled(graph)
        assert fragments(graph) <= MANY + 2
        assert fragments(graph, "edge:K") <= MANY + 2
    assert set(observed.threads) == {"omnigraph-fold"}
    assert keys(graph) == sorted(f"k{number}" for number in range(4 * MANY))


def test_a_folded_row_keeps_its_row_id_and_versions(graph):
    columns = ["k", "_row_created_at_version", "_row_last_updated_at_version"]

    def rows() -> dict[str, tuple[int, ...]]:
        found = graph.snapshot().open("node:P").scan(columns, with_row_id=True).to_pylist()
        return {row["k"]: (row["_rowid"], row[columns[1]], row[columns[2]]) for row in found}

    insert(graph, 0, MANY - 3)
    graph.mutate('query q() { update P set { n: 5 } where k = "k3" }')
    graph.mutate('query q() { delete P where k = "k4" }')
    before = rows()
    for number in range(8):
        insert(graph, 100 + number, 1)
        settled(graph)
    assert fragments(graph) < MANY / 2
    assert {key: row for key, row in rows().items() if key in before} == before


def test_a_fold_of_fragments_that_changed_meanwhile_is_not_taken(graph):
    insert(graph, 0, MANY)
    settled(graph)
    assert graph.context.folds._ready
    graph.mutate('query q() { delete P where k = "k1" }')
    graph.mutate('query q() { update P set { n: 5 } where k = "k2" }')
    insert(graph, 500, 2)
    settled(graph)
    insert(graph, 600, 2)
    assert keys(graph) == sorted([f"k{n}" for n in range(MANY) if n != 1] + ["k500", "k501", "k600", "k601"])
    assert graph.query('query q() { match { $p: P { k: "k2" } } return { $p.n as n } }').to_pylist() == [{"n": 5}]


def test_a_fold_whose_file_was_reclaimed_is_forgotten(graph):
    insert(graph, 0, MANY)
    settled(graph)
    files = [Path(graph.context.root) / file for each in graph.context.folds._ready.values() for file in each.files]
    assert files
    cleanup(graph.context, keep_versions=1_000)
    assert not any(file.exists() for file in files)
    insert(graph, 100, 3)
    settled(graph)
    insert(graph, 200, 3)
    assert len(keys(graph)) == MANY + 6


def test_a_fold_made_before_the_note_of_the_process_had_a_gap_is_forgotten(graph, monkeypatch):
    insert(graph, 0, MANY)
    settled(graph)
    handle = graph.snapshot().open("node:P")
    assert graph.context.folds.fold(handle, ()).ahead
    monkeypatch.setattr(folds.Heartbeat, "covers", lambda self, since: False)
    assert not graph.context.folds.fold(handle, ()).kept


def test_a_thread_that_fails_costs_nothing_but_time(graph, monkeypatch):
    def fail(*_: object) -> None:
        raise StorageError("no space left", kind="permanent")

    monkeypatch.setattr(folds, "fold_small", fail)
    insert(graph, 0, MANY + 5)
    settled(graph)
    assert fragments(graph) == MANY + 5
    monkeypatch.undo()
    insert(graph, 100, 2)
    settled(graph)
    insert(graph, 200, 1)
    assert fragments(graph) < MANY
    assert len(keys(graph)) == MANY + 8


def test_a_write_folds_by_itself_when_nobody_else_did(graph, observed):
    graph.context.folds.stop()
    insert(graph, 0, 2 * MANY + 1)
    assert set(observed.threads) == {"MainThread"}
    assert fragments(graph) <= 2 * MANY
    assert len(keys(graph)) == 2 * MANY + 1


@pytest.mark.long
def test_processes_that_write_once_and_end_leave_few_fragments(graph):
    once = "import sys; from omnigraph.graph import connect\n" + (
        f"g = connect(sys.argv[1])\nfor k in sys.argv[2:]: g.mutate({PAIR!r}, {{'k': k}})"
    )
    for number in range(3):
        names = [f"x{number}-{n}" for n in range(MANY)]
        subprocess.run([sys.executable, "-c", once, graph.context.root, *names], check=True)
    assert fragments(graph) <= 2 * MANY
    assert len(keys(graph)) == 3 * MANY


def test_closing_ends_the_thread_and_lets_nobody_start_another(tmp_path):
    graph = create(tmp_path / "g", SCHEMA)
    insert(graph, 0, MANY + 1)
    context, handle = graph.context, graph.snapshot().open("node:P")
    graph.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "omnigraph-fold"]
    context.folds.offer(context.store.objects, handle)
    assert not [thread for thread in threading.enumerate() if thread.name == "omnigraph-fold"]


@pytest.mark.long
def test_writers_of_two_handles_fold_beside_each_other(graph):
    other = connect(graph.context.root)

    def write(handle: Graph, name: str) -> None:
        for number in range(2 * MANY):
            handle.mutate(PAIR, {"k": f"{name}{number}"})

    threads = [threading.Thread(target=write, args=(handle, name)) for handle, name in ((graph, "a"), (other, "b"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    assert len(keys(graph)) == 4 * MANY
    assert fragments(graph) <= 2 * MANY


@pytest.mark.long
def test_the_fragments_a_write_knows_are_those_of_its_version(graph):
    """What is carried over from the version before is what a fresh look at the table tells."""
    for number in range(2 * MANY):
        graph.mutate(PAIR, {"k": f"k{number}"})
        if number % 7 == 0:
            graph.mutate("query q($k: String) { delete P where k = $k }", {"k": f"k{number // 2}"})
        if number % 5 == 0:
            graph.mutate("query q($k: String) { update P set { n: 1 } where k = $k }", {"k": f"k{number}"})
        for key in ("node:P", "edge:K"):
            entry, known = graph.snapshot().entry(key), graph.snapshot().open(key)
            fresh = TableStore(graph.context.root).open(entry.path, version=entry.version)
            assert known.fragments() == fresh.fragments()
            for fragment in fresh.fragments():
                kept = known.deleted_offsets(fragment).tolist()
                SHARED.clear()
                assert fresh.deleted_offsets(fragment).tolist() == kept


def test_nothing_waits_for_the_thread(graph, monkeypatch):
    """A write that comes while fragments are being folded goes on without."""
    original, waiting = folds.fold_small, threading.Event()

    def slowly(*arguments):
        waiting.wait(20)
        return original(*arguments)

    monkeypatch.setattr(folds, "fold_small", slowly)
    insert(graph, 0, MANY)
    began = time.monotonic()
    insert(graph, 100, 3)
    assert time.monotonic() - began < 15
    assert fragments(graph) == MANY + 3
    waiting.set()
    settled(graph)
    insert(graph, 200, 2)
    assert len(keys(graph)) == MANY + 5


FEW = 6


def ready(root: Path) -> Graph:
    """A graph whose next write takes a fold along, made anew."""
    graph = create(root, SCHEMA)
    insert(graph, 0, FEW)
    settled(graph)
    for key in ("node:P", "edge:K"):
        assert graph.context.folds.fold(graph.snapshot().open(key), ()).ahead
    return graph


@pytest.mark.long
@pytest.mark.parametrize("fault", [Fault.RAISE_BEFORE, Fault.RAISE_AFTER, Fault.OUTAGE])
def test_a_write_that_takes_a_fold_survives_a_fault_at_every_step(tmp_path, monkeypatch, fault):
    monkeypatch.setattr(folding, "FOLD_FRAGMENTS", FEW)
    monkeypatch.setattr(folding, "FOLD_RUN", FEW // 2)
    source = ready(tmp_path / "source")
    source.close()
    at = 0
    while True:
        at += 1
        root = shutil.copytree(tmp_path / "source", tmp_path / f"at{at}")
        graph = connect(root)
        graph.context.folds.offer(graph.context.store.objects, graph.snapshot().open("node:P"))
        settled(graph)
        assert graph.context.folds.fold(graph.snapshot().open("node:P"), ()).ahead
        with FaultyStore(fault, at) as faulty:
            try:
                graph.mutate(PAIR, {"k": "last"})
                acknowledged = True
            except (GraphError, InjectedFailure):
                acknowledged = False
        settled(graph)
        graph.close()
        again = connect(root)
        found = keys(again)
        assert found in ([*before(), "last"], before())
        assert "last" in found or not acknowledged
        insert(again, 100, 2)
        assert len(keys(again)) == len(found) + 2
        again.close()
        shutil.rmtree(root)
        if not faulty.met:
            break
    assert acknowledged
    assert at > 10


def before() -> list[str]:
    return [f"k{number}" for number in range(FEW)]


KILLED = f"""
import sys
from pathlib import Path
from omnigraph.engine.storage import folding
from omnigraph.testing.faults import Fault, FaultyStore
from omnigraph.graph import connect
folding.FOLD_FRAGMENTS, folding.FOLD_RUN = {FEW}, {FEW // 2}
graph = connect(sys.argv[1])
folds = graph.context.folds
folds.offer(graph.context.store.objects, graph.snapshot().open("node:P"))
folds._thread and folds._thread.join()
assert folds.fold(graph.snapshot().open("node:P"), ()).ahead
with FaultyStore(Fault(sys.argv[2]), int(sys.argv[3]), only=lambda step: step.name in ("commit", "delete")):
    graph.mutate({PAIR!r}, {{"k": "last"}})
"""


@pytest.mark.long
@pytest.mark.parametrize("fault", [Fault.EXIT_BEFORE, Fault.EXIT_AFTER])
def test_a_write_that_takes_a_fold_survives_being_killed_at_every_commit(tmp_path, monkeypatch, fault):
    monkeypatch.setattr(folding, "FOLD_FRAGMENTS", FEW)
    monkeypatch.setattr(folding, "FOLD_RUN", FEW // 2)
    ready(tmp_path / "source").close()
    for at in range(1, 5):
        root = shutil.copytree(tmp_path / "source", tmp_path / f"at{at}")
        died = subprocess.run([sys.executable, "-c", KILLED, str(root), fault.value, str(at)], check=False)
        assert died.returncode == CRASH_EXIT_CODE
        again = connect(root)
        assert keys(again) in ([*before(), "last"], before())
        insert(again, 100, 1)
        again.close()
