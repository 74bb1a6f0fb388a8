"""A real cluster of processes, a master and two workers, disturbed in the middle of a load."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.compute as pc
import pytest
from tests.amounts import EXHAUSTIVE
from tests.spark.cluster_driver import FAILING, HANGING
from tests.spark.standalone import Cluster, end_tree, standalone_cluster

from omnigraph import connect, create
from omnigraph.graph import Graph

pytestmark = [EXHAUSTIVE, pytest.mark.xdist_group("cluster")]

SCHEMA = "node Person { name: String @key  age: I32? }"
ROWS = 120_000
WAIT_SECONDS = 240
DRIVER = Path(__file__).with_name("cluster_driver.py")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return create(tmp_path / "graph", SCHEMA)


def start(graph: Graph, cluster: Cluster, *marks: str) -> subprocess.Popen[str]:
    words = [sys.executable, str(DRIVER), graph.uri, str(ROWS), cluster.master, *marks]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)


def finish(driver: subprocess.Popen[str]) -> str:
    try:
        output, _ = driver.communicate(timeout=WAIT_SECONDS)
    finally:
        end_tree(driver.pid)
    assert driver.returncode == 0
    return output


def data_files(graph: Graph) -> list[Path]:
    return list(Path(graph.uri).glob("nodes/*/data/*.lance"))


def wait_for(what: Callable[[], Any], driver: subprocess.Popen[str]) -> Any:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        assert driver.poll() is None, "the driver ended before it could be disturbed"
        time.sleep(0.05)
    raise AssertionError("nothing happened in time")


def assert_every_row_is_there_once(graph: Graph) -> None:
    table = connect(graph.uri).snapshot().open("node:Person")
    names = table.scan(["id"])["id"]
    assert (len(names), pc.count_distinct(names).as_py()) == (ROWS, ROWS)
    assert [commit.parent_commit_id is None for commit in connect(graph.uri).history.list()] == [False, True]


def test_attempts_that_fail_or_are_overtaken_cost_files_and_never_rows(
    graph: Graph, cluster: Cluster, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    assert "committed" in finish(start(graph, cluster, str(marks)))
    noted = {mark.name for mark in marks.iterdir()}
    assert {f"{FAILING}-first", f"{HANGING}-first", f"{FAILING}-1-done", f"{HANGING}-1-done"} <= noted
    assert f"{HANGING}-0-done" not in noted
    assert_every_row_is_there_once(graph)
    fragments = connect(graph.uri).snapshot().open("node:Person").fragments()
    assert len(data_files(graph)) > sum(len(fragment.files) for fragment in fragments)


def test_a_lost_driver_leaves_nothing_visible_and_the_next_write_works(graph: Graph, cluster: Cluster) -> None:
    before = graph.snapshot().version
    driver = start(graph, cluster)
    try:
        wait_for(lambda: len(data_files(graph)) >= 2, driver)
    finally:
        end_tree(driver.pid)
        driver.wait(30)
    reopened = connect(graph.uri)
    assert reopened.snapshot().version == before
    assert reopened.snapshot().open("node:Person").count_rows() == 0
    reopened.load([{"type": "Person", "data": {"name": "p1"}}], engine="local")
    assert connect(graph.uri).snapshot().open("node:Person").scan(["id"])["id"].to_pylist() == ["p1"]


def test_a_lost_worker_and_its_executor_cost_files_and_never_rows(graph: Graph, cluster: Cluster) -> None:
    driver = start(graph, cluster)
    try:
        wait_for(lambda: len(data_files(graph)) >= 6, driver)
        victim: psutil.Process = wait_for(cluster.executors, driver)[0]
        worker = next(each for each in cluster.workers if victim in psutil.Process(each.pid).children(recursive=True))
        end_tree(worker.pid)
        assert connect(graph.uri).snapshot().open("node:Person").count_rows() == 0, "the load was over too early"
        assert "committed" in finish(driver)
    finally:
        end_tree(driver.pid)
    assert_every_row_is_there_once(graph)
