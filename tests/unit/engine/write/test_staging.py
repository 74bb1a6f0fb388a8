"""Files written before a write is judged: there when it may go on, gone when it is refused, and never seen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.commit import path
from omnigraph.engine.coordination.intent import Intent
from omnigraph.engine.coordination.intents import IntentStore
from omnigraph.engine.storage import folding, staged
from omnigraph.engine.write import staging, transaction
from omnigraph.errors import ConstraintError, StorageError
from omnigraph.testing.faults import Fault, FaultyStore

SCHEMA = "node Person { name: String @key  age: I64?  @range(age, 0..150) }\nedge Knows: Person -> Person"
PAIR = "query pair($k: String, $o: String) { insert Person { name: $k } insert Knows { from: $k, to: $o } }"


class Judging:
    """Stops where a write is judged, and tells which files it finds there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.found: list[set[str]] = []
        self.then: Callable[[], None] = lambda: None
        self._root, check = root, transaction.validate

        def judge(*args: object) -> None:
            self.found.append(files(self._root))
            self.then()
            check(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(transaction, "validate", judge)


def files(root: Path) -> set[str]:
    """The data and deletion files of nodes and edges."""
    found = (str(path.relative_to(root)) for path in root.rglob("*") if path.parent.name in ("data", "_deletions"))
    return {path for path in found if path.startswith(("nodes/", "edges/"))}


def in_place() -> FaultyStore:
    """Storage operations are counted, so that what is done ahead is done at once, in the calling thread."""
    return FaultyStore(Fault.RAISE_BEFORE, 1_000_000)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with omnigraph.create(str(tmp_path / "g"), SCHEMA) as graph:
        graph.mutate(PAIR, {"k": "ann", "o": "ann"})
    return tmp_path / "g"


def test_a_small_write_is_staged_before_it_is_judged(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judging, before = Judging(monkeypatch, root), files(root)
    with omnigraph.connect(str(root)) as graph, in_place():
        graph.mutate(PAIR, {"k": "bob", "o": "ann"})
    new = judging.found[0] - before
    assert sorted(name.split("/")[0] for name in new) == ["edges", "nodes"]
    assert files(root) == before | new


def test_a_refused_write_leaves_no_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judging, before = Judging(monkeypatch, root), files(root)
    with omnigraph.connect(str(root)) as graph:
        for _ in range(5):
            with pytest.raises(ConstraintError, match="nobody"):
                graph.mutate(PAIR, {"k": "bob", "o": "nobody"})
            assert files(root) == before
        with in_place(), pytest.raises(ConstraintError, match="nobody"):
            graph.mutate(PAIR, {"k": "bob", "o": "nobody"})
        assert len(judging.found[-1]) == len(before) + 2, "it had been staged"
        assert files(root) == before
        graph.mutate(PAIR, {"k": "bob", "o": "ann"})
        assert graph.maintenance.verify().problems == []


def test_a_refused_update_takes_its_deletion_file_along(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with omnigraph.connect(str(root)) as graph:
        graph.mutate('query q() { insert Person { name: "bob" } }')
        before = files(root)

        def fail() -> None:
            raise ConstraintError("refused here")

        judging = Judging(monkeypatch, root)
        judging.then = fail
        with in_place(), pytest.raises(ConstraintError, match="refused here"):
            graph.mutate('query q() { insert Person { name: "bob", age: 5 } }')
        kinds = {name.split("/")[-2] for name in judging.found[0] - before}
        assert "data" in kinds
        assert files(root) == before
        judging.then = lambda: None
        graph.mutate('query q() { update Person set { age: 7 } where name = "bob" }')
        found = graph.query('query q() { match { $p: Person { name: "bob" } } return { $p.age as age } }').to_pylist()
    assert found == [{"age": 7}]


def test_a_large_write_is_judged_first(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judging, before = Judging(monkeypatch, root), files(root)
    lines = [{"type": "Person", "data": {"name": f"p{n}"}} for n in range(staging.AHEAD_ROWS + 1)]
    edge = {"edge": "Knows", "from": "p1", "to": "nobody"}
    with omnigraph.connect(str(root)) as graph, in_place():
        with pytest.raises(ConstraintError, match="nobody"):
            graph.load([*lines, edge], engine="local")
        assert judging.found == [before]
        with pytest.raises(ConstraintError, match="nobody"):
            graph.load([*lines[:-2], edge], engine="local")
        assert [len(found - before) for found in judging.found] == [0, 2]
    assert files(root) == before


def test_rows_that_are_removed_count_as_those_that_are_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with omnigraph.connect(str(root)) as graph:
        graph.load([{"type": "Person", "data": {"name": f"p{n}"}} for n in range(4)], engine="local")
        monkeypatch.setattr(staging, "AHEAD_ROWS", 2)
        judging, before = Judging(monkeypatch, root), files(root)
        with in_place():
            graph.mutate('query q() { delete Person where name = "p1" }')
            graph.mutate('query q() { delete Person where name = "p2" or name = "p3" or name = "p0" }')
        assert [len(found - before) for found in judging.found] == [1, 1], "the second was judged first"


def test_what_names_files_elsewhere_is_judged_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a blob more is written than the change names, which nobody could remove again."""
    with omnigraph.create(str(tmp_path / "b"), "node Doc { name: String @key  body: Blob? }") as graph:
        judging = Judging(monkeypatch, tmp_path / "b")
        with in_place():
            graph.load([{"type": "Doc", "data": {"name": "a", "body": "base64:AAEC"}}], engine="local")
        assert judging.found == [set()]


def test_an_interrupt_while_judging_leaves_no_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files(root)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with omnigraph.connect(str(root)) as graph:
        judging = Judging(monkeypatch, root)
        judging.then = interrupt
        for observed in (True, False):
            with in_place() if observed else nullcontext(), pytest.raises(KeyboardInterrupt):
                graph.mutate(PAIR, {"k": "bob", "o": "ann"})
            assert files(root) == before
        judging.then = lambda: None
        graph.mutate(PAIR, {"k": "bob", "o": "ann"})


def test_a_failure_ahead_is_told_where_the_write_would_fail(root: Path) -> None:
    with omnigraph.connect(str(root)) as graph:
        with FaultyStore(Fault.RAISE_BEFORE, 1, only=lambda step: step.name == "write_fragments") as store:
            graph.mutate(PAIR, {"k": "bob", "o": "ann"})
        assert store.met
        assert graph.maintenance.verify().problems == []


class Slow:
    """Writes files only when told to, and tells what it finds then; the threads that write are real."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.go, self.then, self.pending = threading.Event(), lambda: None, []
        self._begun, write = threading.Semaphore(0), staged.write_fragments

        def slowly(*args: object, **named: object) -> object:
            if threading.current_thread() is not threading.main_thread():
                self._begun.release()
                assert self.go.wait(60)
                self.pending.append(len(list((root / "__recovery").glob("*.json"))))
                self.then()
            return write(*args, **named)

        monkeypatch.setattr(staged, "write_fragments", slowly)

    def let_go(self) -> None:
        """Once threads are at the files of both tables: what no thread has begun, the caller would write."""
        for _ in range(2):
            assert self._begun.acquire(timeout=60)
        self.go.set()


@pytest.fixture
def slow(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    slow = Slow(monkeypatch, root)
    yield slow
    slow.go.set()


def when_armed(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    arm = IntentStore.arm

    def armed(intents: IntentStore, intent: Intent) -> Intent:
        owned = arm(intents, intent)
        then()
        return owned

    monkeypatch.setattr(IntentStore, "arm", armed)


def test_a_write_is_armed_while_its_files_are_written(root: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first effect waits for all of them."""
    when_armed(monkeypatch, slow.let_go)
    with omnigraph.connect(str(root)) as graph:
        graph.mutate(PAIR, {"k": "bob", "o": "ann"})
        assert graph.maintenance.verify().problems == []
        assert [entry.row_count for entry in graph.snapshot().entries.values()] == [2, 2]
    # The thread that writes the manifest ahead may be told as well, and finds the same.
    assert len(slow.pending) >= 2
    assert set(slow.pending) == {1}


@pytest.mark.parametrize("failure", [StorageError("no room", kind="no_space"), KeyboardInterrupt()])
def test_what_fails_between_arming_and_the_last_file_leaves_nothing(
    root: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    before = files(root)

    def fail(*args: object) -> None:
        raise failure

    when_armed(monkeypatch, slow.let_go)
    with omnigraph.connect(str(root)) as graph:
        # An armed write looks for locks before it waits for its files.
        with monkeypatch.context() as patch:
            patch.setattr(path, "refuse_while_branch_changes", fail)
            with pytest.raises(type(failure)):
                graph.mutate(PAIR, {"k": "bob", "o": "ann"})
        assert files(root) == before
        assert list((root / "__recovery").iterdir()) == []
        graph.mutate(PAIR, {"k": "bob", "o": "ann"})
        assert graph.maintenance.verify().problems == []
        assert [entry.row_count for entry in graph.snapshot().entries.values()] == [2, 2]


def test_a_file_that_a_thread_could_not_write_is_written_by_the_caller(
    root: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise StorageError("no answer", kind="unavailable")

    when_armed(monkeypatch, slow.let_go)
    slow.then = fail
    with omnigraph.connect(str(root)) as graph:
        graph.mutate(PAIR, {"k": "bob", "o": "ann"})
        assert graph.maintenance.verify().problems == []
        assert [entry.row_count for entry in graph.snapshot().entries.values()] == [2, 2]
    assert len(slow.pending) >= 2


def test_a_write_that_became_stale_takes_its_files_along(root: Path, slow: Slow) -> None:
    """Another writes when this one is judged; it writes its files once more, and leaves those it has."""
    slow.go.set()
    before = len(files(root))
    with (
        omnigraph.connect(str(root)) as graph,
        omnigraph.connect(str(root)) as other,
        pytest.MonkeyPatch.context() as p,
    ):
        judging = Judging(p, root)

        def overtake() -> None:
            judging.then = lambda: None
            other.mutate(PAIR, {"k": "cid", "o": "ann"})

        judging.then = overtake
        graph.mutate(PAIR, {"k": "bob", "o": "ann"})
        assert len(judging.found) == 3
        assert [entry.row_count for entry in graph.snapshot().entries.values()] == [3, 3]
    assert len(files(root)) == before + 4


def test_files_that_were_folded_for_whoever_comes_first_stay(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judging = Judging(monkeypatch, root)
    with omnigraph.connect(str(root)) as graph:
        for number in range(folding.FOLD_FRAGMENTS):
            graph.mutate(PAIR, {"k": f"k{number}", "o": "ann"})
        thread = graph.context.folds._thread
        if thread is not None:
            thread.join()
        folded = [file for ready in graph.context.folds._ready.values() for file in ready.files]
        assert folded
        judging.found.clear()
        for _ in range(2):
            with in_place(), pytest.raises(ConstraintError, match="nobody"):
                graph.mutate(PAIR, {"k": "bob", "o": "nobody"})
        assert len(judging.found) == 2
        assert files(root).issuperset(folded)
        graph.mutate(PAIR, {"k": "last", "o": "ann"})
        assert len(graph.snapshot().open("node:Person").fragments()) < 8, "the fold was taken"
        found = graph.query("query q() { match { $p: Person } return { count($p) as n } }").to_pylist()
        assert graph.maintenance.verify().problems == []
    assert found == [{"n": folding.FOLD_FRAGMENTS + 2}]


@pytest.mark.parametrize("rows", [0, 3, 1_024])
def test_writes_end_alike_whatever_is_staged_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(staging, "AHEAD_ROWS", rows)
    calls: list[str] = []
    write = staged.write_fragments
    monkeypatch.setattr(staged, "write_fragments", lambda *a, **k: (calls.append("w"), write(*a, **k))[1])
    with omnigraph.create(str(tmp_path / "g"), SCHEMA) as graph:
        for number in range(6):
            graph.mutate(PAIR, {"k": f"k{number}", "o": "k0"})
        graph.load(
            [{"type": "Person", "data": {"name": f"k{n}", "age": n}} for n in range(10)], mode="merge", engine="local"
        )
        with pytest.raises(ConstraintError):
            graph.load([{"type": "Person", "data": {"name": "z", "age": 999}}], engine="local")
        graph.mutate('query q() { delete Person where name = "k3" }')
        people = graph.query("query q() { match { $p: Person } return { $p.name as n, $p.age as a } order { n } }")
        knows = graph.query(
            "query q() { match { $p: Person  $p knows $o } return { $p.name as n, $o.name as o } order { n } }"
        )
        assert people.to_pylist() == [{"n": f"k{n}", "a": n} for n in range(10) if n != 3]
        assert knows.to_pylist() == [{"n": f"k{n}", "o": "k0"} for n in range(6) if n != 3]
        assert graph.maintenance.verify().problems == []
    assert calls
