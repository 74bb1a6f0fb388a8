"""A process that was forked after storage was used says so; one that was started in another way, or before, works."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.coordination.file_lock import TurnFiles, Turns
from omnigraph.errors import ExecutionError, ForkedProcessError
from omnigraph.testing.children import run_child

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here"),
    # Lance and Python warn of what is done here on purpose.
    pytest.mark.filterwarnings("ignore:lance is not fork-safe"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
SCHEMA = "node Person { name: String @key }\n"
ADD = "query q($name: String) { insert Person { name: $name } }"
COUNT = "query c() { match { $p: Person } return { count($p) as n } }"
SECONDS_MAX = 20.0


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    graph = omnigraph.create(tmp_path / "g", SCHEMA)
    graph.mutate(ADD, {"name": "ann"})
    graph.query(COUNT)
    return graph


def insert_again(uri: str) -> None:
    with omnigraph.connect(uri) as graph:
        graph.load([{"name": "ann"}], type="Person")


def read_all(uri: str) -> omnigraph.QueryResult:
    with omnigraph.connect(uri, read_only=True) as graph:
        return graph.query("query q() { match { $p: Person } return { $p.name as name } }")


def in_fork(act: Callable[[], object]) -> str:
    """Run something in a forked child; returns what it said, within a bounded time."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                said = f"done {act()!r}"
            except (omnigraph.GraphError, RuntimeError, OSError) as exc:
                said = f"{type(exc).__name__}: {exc}"
            os.write(sending, said.encode())
        finally:
            os._exit(0)
    os.close(sending)
    try:
        limit = time.monotonic() + SECONDS_MAX
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > limit:
                os.kill(child, 9)
                os.waitpid(child, 0)
                return "it hung"
            time.sleep(0.01)
        return os.read(receiving, 10_000).decode()
    finally:
        os.close(receiving)


ACTS: dict[str, Callable[[omnigraph.Graph], object]] = {
    "query": lambda graph: graph.query(COUNT).to_pylist(),
    "mutate": lambda graph: graph.mutate(ADD, {"name": "bob"}),
    "load": lambda graph: graph.load(b'{"type": "Person", "data": {"name": "bob"}}'),
    "list branches": lambda graph: graph.branches.list(),
    "create a branch": lambda graph: graph.branches.create("review"),
    "history": lambda graph: graph.history.list(),
    "optimize": lambda graph: graph.maintenance.optimize(),
    "snapshot": lambda graph: graph.snapshot(),
    "connect": lambda graph: omnigraph.connect(graph.uri),
    "connect elsewhere": lambda graph: omnigraph.connect(f"{graph.uri}-other"),
    "create": lambda graph: omnigraph.create(f"{graph.uri}-new", SCHEMA),
}


@pytest.mark.parametrize("name", ACTS)
def test_a_forked_child_is_told_what_to_do_instead(graph: omnigraph.Graph, name: str) -> None:
    said = in_fork(lambda: ACTS[name](graph))
    assert said.startswith("ForkedProcessError: "), said
    assert "spawn" in said
    assert "forkserver" in said
    # The parent goes on as if nothing had happened.
    graph.mutate(ADD, {"name": "cid"})
    assert graph.query(COUNT).to_pylist() == [{"n": 2}]


def test_the_error_says_that_the_program_has_to_change() -> None:
    assert issubclass(ForkedProcessError, ExecutionError)
    assert ForkedProcessError("forked").code == "forked"


def test_a_fork_while_other_threads_write_neither_hangs_nor_disturbs_them(graph: omnigraph.Graph) -> None:
    stop, failures = threading.Event(), []

    def work() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                graph.mutate(ADD, {"name": f"n{number}"})
            except omnigraph.GraphError as exc:
                failures.append(exc)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(15):
            assert in_fork(lambda: graph.query(COUNT)).startswith("ForkedProcessError")
    finally:
        stop.set()
        thread.join()
    assert not failures
    assert graph.maintenance.verify().clean


def _count(root: str) -> int:
    return int(omnigraph.connect(root).query(COUNT).to_pylist()[0]["n"])


def _add(root: str) -> int:
    graph = omnigraph.connect(root)
    graph.mutate(ADD, {"name": f"from {os.getpid()}"})
    return int(graph.query(COUNT).to_pylist()[0]["n"])


@pytest.mark.long
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_pool_that_is_not_forked_reads_and_writes(graph: omnigraph.Graph, method: str) -> None:
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.apply_async(_count, (graph.uri,)).get(60) >= 1
        assert pool.apply_async(_add, (graph.uri,)).get(60) >= 2
    assert graph.query(COUNT).to_pylist()[0]["n"] >= 2


def test_a_forked_pool_is_told_at_once(graph: omnigraph.Graph) -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for act in (_count, _add):
            with pytest.raises(ForkedProcessError, match="spawn"):
                pool.apply_async(act, (graph.uri,)).get(SECONDS_MAX)


FORK_FIRST = """
import multiprocessing, os, sys
import omnigraph

def add(name):
    graph = omnigraph.connect(sys.argv[1])
    graph.mutate("query q($name: String) { insert Person { name: $name } }", {"name": name})
    return os.getpid()

if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert os.getpid() not in pool.map_async(add, ["p1", "p2", "p3"]).get(60)
    assert len(omnigraph.connect(sys.argv[1]).query("query c() { match { $p: Person } return { $p.name } }")) == 4
"""


@pytest.mark.long
def test_whoever_forks_before_a_graph_is_used_works_in_the_children_and_afterwards(
    graph: omnigraph.Graph, tmp_path: Path
) -> None:
    script = tmp_path / "fork_first.py"
    script.write_text(FORK_FIRST)
    done = subprocess.run(
        [sys.executable, str(script), graph.uri], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_commands_are_started_as_ever(graph: omnigraph.Graph) -> None:
    for options in ({}, {"preexec_fn": os.getpid}, {"start_new_session": True}):
        done = subprocess.run(["echo", "hello"], capture_output=True, text=True, timeout=20, check=True, **options)
        assert done.stdout == "hello\n"
        assert "Error" not in done.stderr
    graph.mutate(ADD, {"name": "bob"})


def _take_turn(folder: str) -> None:
    turn = Turns("/graph", TurnFiles(folder)).take(("node:A", None), time.monotonic() + 0.5)
    assert turn, "the turn is kept by a forked child of the one that gave it back"


def test_a_forked_child_does_not_keep_the_turn_its_parent_gives_back(tmp_path: Path) -> None:
    files = TurnFiles(str(tmp_path / "turns"))
    turn = Turns("/graph", files).take(("node:A", None), time.monotonic() + 1)
    assert turn
    child = os.fork()
    if child == 0:
        time.sleep(SECONDS_MAX)
        os._exit(0)
    try:
        turn.close()
        assert run_child(_take_turn, files.folder) == 0
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_errors_and_results_come_back_from_a_pool_of_processes(graph: omnigraph.Graph) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        with pytest.raises(omnigraph.KeyConflictError, match="node 'Person' already has id 'ann'"):
            pool.apply_async(insert_again, (graph.uri,)).get(timeout=120)
        result = pool.apply_async(read_all, (graph.uri,)).get(timeout=120)
    assert (result.to_pylist(), result.columns, len(result)) == ([{"name": "ann"}], ["name"], 1)
    assert (result.query_name, result.commit_id) == ("q", graph.snapshot().head)


def test_a_graph_itself_is_not_handed_to_another_process(graph: omnigraph.Graph) -> None:
    for carried in (pickle.dumps, copy.deepcopy):
        with pytest.raises(ExecutionError, match="a graph cannot be pickled or copied: pass its address"):
            carried(graph)
