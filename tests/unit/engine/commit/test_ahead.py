"""What is prepared beside a wait: used when it fits, done by the caller when it does not, and never seen before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

import omnigraph
from omnigraph.engine.commit import ahead as ahead_module
from omnigraph.engine.commit.ahead import THREADS_MAX, Ahead
from omnigraph.engine.manifest import publish as publish_module
from omnigraph.engine.manifest.publish import Manifest, Prepared
from omnigraph.engine.storage import steps
from omnigraph.engine.storage.durability import Durability, durability_of, is_full
from omnigraph.errors import StorageError
from omnigraph.testing.faults import Fault, FaultyStore

SCHEMA = "node Person { name: String @key  age: I64? }\nedge Knows: Person -> Person"
PAIR = "query pair($k: String) { insert Person { name: $k } insert Knows { from: $k, to: $k } }"


T = TypeVar("T")


def begun(work: Callable[[], T]) -> Ahead[T]:
    """Work that a thread has come to; otherwise nobody would wait for it."""
    begins = threading.Event()

    def run() -> T:
        begins.set()
        return work()

    ahead = Ahead(run)
    assert begins.wait(60)
    return ahead


def test_work_is_done_elsewhere_with_the_context_of_whoever_asked() -> None:
    with durability_of(Durability.FULL):
        ahead = begun(lambda: (threading.current_thread().name, is_full(Durability.FAST)))
    name, full = ahead.result() or ("", False)
    assert name.startswith("omnigraph-ahead")
    assert full


def test_a_failure_of_storage_is_nobodys_and_any_other_is_the_callers() -> None:
    def fail() -> int:
        raise StorageError("no answer", kind="unavailable")

    assert begun(fail).result() is None
    with pytest.raises(ZeroDivisionError):
        begun(lambda: 1 // 0).result()


def test_nobody_waits_for_work_that_no_thread_has_begun() -> None:
    release = threading.Event()
    busy = [begun(lambda: release.wait(60)) for _ in range(THREADS_MAX)]
    done: list[int] = []
    late = Ahead(lambda: done.append(1))
    try:
        assert late.result() is None
    finally:
        release.set()
    assert [each.result() for each in busy] == [True] * THREADS_MAX
    assert begun(lambda: 7).result() == 7
    assert done == []


def test_who_counts_operations_finds_the_work_in_its_place() -> None:
    with FaultyStore(Fault.RAISE_BEFORE, 1):
        assert Ahead(lambda: threading.current_thread()).result() is threading.current_thread()
    assert not steps.are_observed()


def test_a_process_that_gets_no_thread_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    class Exhausted:
        def submit(self, *_: object) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ahead_module, "_pool", Exhausted())
    assert Ahead(lambda: 7).result() is None


class Uses:
    """Counts how publishes were made, and can make preparing fail or come too late."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fitted = self.made = 0
        prepared, fits = Manifest._prepared, Prepared.fits

        def make(manifest: Manifest, *args: object) -> Prepared:
            self.made += 1
            return prepared(manifest, *args)  # type: ignore[arg-type]

        def fit(ready: Prepared, *args: object) -> bool:
            found = fits(ready, *args)  # type: ignore[arg-type]
            self.fitted += found
            return found

        monkeypatch.setattr(Manifest, "_prepared", make)
        monkeypatch.setattr(Prepared, "fits", fit)


def _write_all(root: Path) -> list[object]:
    """Writes of every kind that publishes; what the manifest says after each, without what differs by chance."""
    told: list[object] = []

    def tell(graph: omnigraph.Graph, branch: str = "main") -> None:
        state = graph.snapshot(branch).state
        entries = {key: (entry.version, entry.branch, entry.row_count) for key, entry in state.entries.items()}
        head = state.commits[state.head] if state.head is not None else None
        facts = None if head is None else (head.actor_id, head.manifest_version, sorted(head.properties))
        told.append((branch, state.version, entries, len(state.commits), facts))

    with omnigraph.create(str(root), SCHEMA) as graph:
        for number in range(publish_module.COMMIT_WINDOW + 3):
            graph.mutate(PAIR, params={"k": f"p{number}"}, actor="ada", message=f"the {number}th")
            tell(graph)
        graph.mutate('query q() { delete Person where name = "p1" }')
        tell(graph)
        graph.branches.create("side")
        for name in ("x", "y"):
            graph.mutate(PAIR, params={"k": name}, branch="side")
            tell(graph, "side")
        graph.mutate('query q() { update Person set { age: 3 } where name = "p2" }')
        graph.branches.merge("side")
        tell(graph)
        graph.branches.delete("side")
        graph.schema.apply(SCHEMA.replace("age: I64?", "age: I64?  born: I32?"))
        tell(graph)
        graph.maintenance.optimize()
        tell(graph)
        told.append(graph.query("query q() { match { $p: Person } return { count($p) as n } }").to_pylist())
        assert graph.maintenance.verify().problems == []
    return told


def test_writes_say_the_same_prepared_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        uses = Uses(patch)
        ahead = _write_all(tmp_path / "ahead")
        assert uses.fitted > publish_module.COMMIT_WINDOW // 2  # a busy machine may not get to every one in time
    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "prepare", lambda *_: None)
        uses = Uses(patch)
        plain = _write_all(tmp_path / "plain")
        assert uses.fitted == 0
    assert ahead == plain


def test_what_was_prepared_before_another_published_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = omnigraph.create(str(tmp_path / "g"), SCHEMA + "\nnode City { name: String @key }")
    other = omnigraph.connect(str(tmp_path / "g"))
    uses, prepare, raced = Uses(monkeypatch), Manifest.prepare, []

    def late(manifest: Manifest, *args: object) -> Prepared | None:
        found = prepare(manifest, *args)  # type: ignore[arg-type]
        if not raced:
            raced.append(True)
            other.mutate('query q() { insert City { name: "rome" } }')
        return found

    monkeypatch.setattr(Manifest, "prepare", late)
    with FaultyStore(Fault.RAISE_BEFORE, 1_000_000):  # never met, but what is done ahead is done in its place
        graph.mutate(PAIR, params={"k": "ann"})
    assert raced == [True]
    assert (uses.made, uses.fitted) == (3, 1)
    assert [entry.row_count for entry in graph.snapshot().entries.values()] == [1, 1, 1]
    assert len(graph.history.list()) == 3
