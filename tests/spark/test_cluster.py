"""A real cluster of processes, disturbed in the middle of a load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow.compute as pc
import pytest

from omnigraph.graph import Graph, connect, create

pytestmark = [pytest.mark.spark, pytest.mark.long]

SCHEMA = "node Person { name: String @key  age: I32? }"
ROWS = 80_000
WAIT_SECONDS = 240
DRIVER = Path(__file__).with_name("cluster_driver.py")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return create(tmp_path / "graph", SCHEMA)


def start(graph: Graph) -> subprocess.Popen[str]:
    words = [sys.executable, str(DRIVER), graph.uri, str(ROWS), "local-cluster[2,1,512]"]
    folder = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment)


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


def executors(driver: subprocess.Popen[str]) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(driver.pid).children(recursive=True):
        try:
            if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def end(driver: subprocess.Popen[str]) -> None:
    """Stop everything this test started: the driver leads a session of its own."""
    try:
        os.killpg(driver.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        driver.wait(30)


def test_a_lost_executor_costs_files_and_never_rows(graph: Graph) -> None:
    driver = start(graph)
    try:
        wait_for(lambda: len(data_files(graph)) >= 2, driver)
        victim = wait_for(lambda: executors(driver), driver)[0]
        victim.kill()
        output, _ = driver.communicate(timeout=WAIT_SECONDS)
    finally:
        end(driver)
    assert driver.returncode == 0
    assert "committed" in output
    table = connect(graph.uri).snapshot().open("node:Person")
    names = table.scan(["id"])["id"]
    assert (len(names), pc.count_distinct(names).as_py()) == (ROWS, ROWS)
    assert [commit.parent_commit_id is None for commit in graph.history.list()] == [False, True]


def test_a_lost_driver_leaves_nothing_visible_and_the_next_write_works(graph: Graph, tmp_path: Path) -> None:
    before = graph.snapshot().version
    driver = start(graph)
    try:
        wait_for(lambda: len(data_files(graph)) >= 2, driver)
    finally:
        end(driver)
    reopened = connect(graph.uri)
    assert reopened.snapshot().version == before
    assert reopened.snapshot().open("node:Person").count_rows() == 0
    lines = tmp_path / "next.jsonl"
    lines.write_text('{"type":"Person","data":{"name":"p1"}}\n')
    reopened.load(lines, engine="local")
    assert connect(graph.uri).snapshot().open("node:Person").scan(["id"])["id"].to_pylist() == ["p1"]
