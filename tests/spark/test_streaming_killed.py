"""A streaming program that is killed and started again loses nothing and loads nothing twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.amounts import EXHAUSTIVE_FIRST
from tests.spark.standalone import end_tree

from omnigraph import connect, create
from omnigraph.graph import Graph
from omnigraph.pipeline.streaming import BATCH, STREAM

pytestmark = EXHAUSTIVE_FIRST

DRIVER = Path(__file__).with_name("stream_driver.py")
FILES, NOTES_PER_FILE = 5, 50
WAIT_SECONDS = 240


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return create(tmp_path / "graph", "node Note { text: String }")


def fill(inbox: Path) -> list[str]:
    """Notes have no key, so a note that is loaded twice is there twice."""
    inbox.mkdir()
    texts = []
    for number in range(FILES):
        notes = [f"{number}-{note}" for note in range(NOTES_PER_FILE)]
        texts += notes
        lines = [json.dumps({"type": "Note", "data": {"text": text}}) for text in notes]
        (inbox / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    return texts


def start(graph: Graph, folder: Path) -> subprocess.Popen[str]:
    words = [sys.executable, str(DRIVER), graph.uri, str(folder / "inbox"), str(folder / "checkpoint")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)


def kill_when(what: Callable[[], bool], program: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    try:
        while not what():
            assert program.poll() is None, "the program ended before it could be killed"
            assert time.monotonic() < deadline, "nothing happened in time"
            time.sleep(0.002)
    finally:
        end_tree(program.pid)
        program.wait(30)


def batches(graph: Graph) -> list[int]:
    commits = connect(graph.uri).history.list()
    return [int(commit.properties[BATCH]) for commit in commits if STREAM in commit.properties]


def test_a_stream_killed_inside_and_between_batches_arrives_exactly_once(graph: Graph, tmp_path: Path) -> None:
    texts = fill(tmp_path / "inbox")
    sidecars = Path(graph.uri) / "__recovery"
    # Inside a batch: its rows are written and its intent is there, its commit is not yet known to be published.
    kill_when(lambda: any(sidecars.glob("*.json")), start(graph, tmp_path))
    # Between two batches: the commit is there, and Spark has not noted that the batch is done, or just has.
    before = len(batches(graph))
    kill_when(lambda: len(batches(graph)) > before, start(graph, tmp_path))
    program = start(graph, tmp_path)
    try:
        output, _ = program.communicate(timeout=WAIT_SECONDS)
    finally:
        end_tree(program.pid)
    assert (program.returncode, output.strip()) == (0, "read")
    found = connect(graph.uri).snapshot().open("node:Note").scan(["text"])["text"].to_pylist()
    assert Counter(found) == Counter(texts)
    assert sorted(batches(graph)) == list(range(FILES))
    assert not list(sidecars.glob("*.json"))
    assert not connect(graph.uri).maintenance.verify().problems
