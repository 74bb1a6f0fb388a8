"""Temporary folders: nothing of them stays, neither of processes that end nor, at the next need, of killed ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from omnigraph.graph import create
from omnigraph.scratch import Scratch, remove_abandoned

HOLD = """
from omnigraph.graph import create
from omnigraph.scratch import Scratch
scratch = Scratch("spark")
folder = scratch.path
open(f"{folder}/shuffle", "w").close()
print(folder, flush=True)
input()
"""
WORK = """
from omnigraph.pipeline.session import obtain_session
session = obtain_session(master="local[2]")
print(session.range(10_000).repartition(3).groupBy("id").count().count())
"""


def holder(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that has a folder below `parent`, and the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env={**os.environ, "TMPDIR": str(parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_lives_as_long_as_its_process_and_is_removed_after_a_kill(tmp_path: Path) -> None:
    ending, first = holder(tmp_path)
    killed, second = holder(tmp_path)
    (tmp_path / "omnigraph-spark-being-made").mkdir()
    try:
        remove_abandoned(tmp_path)
        assert (first / "shuffle").exists()
        assert (second / "shuffle").exists()
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        assert (second / "shuffle").exists()
        third, newest = holder(tmp_path)
        third.communicate("\n")
        assert (first.exists(), second.exists(), newest.exists()) == (True, False, False)
    finally:
        ending.communicate("\n")
        killed.communicate()
    assert [each.name for each in tmp_path.iterdir()] == ["omnigraph-spark-being-made"]


@pytest.mark.spark
@pytest.mark.long
def test_spark_works_in_a_folder_with_spaces_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "my files"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", WORK], env={**os.environ, "TMPDIR": str(folder)}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (0, "10000"), done.stderr
    assert list(folder.iterdir()) == []


def test_a_folder_goes_when_it_is_left_or_nobody_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Scratch("stdin") as folder:
        remove_abandoned(tmp_path)
        assert folder.is_dir()
    scratch = Scratch("baseline")
    assert [each.name for each in tmp_path.iterdir()] == [scratch.path.name]
    del scratch
    assert list(tmp_path.iterdir()) == []
    scratch = Scratch("spark")
    scratch.remove()
    assert list(tmp_path.iterdir()) == []


def test_standard_input_that_a_killed_load_has_kept_is_removed_by_the_next(tmp_path: Path) -> None:
    graph, parent = tmp_path / "g.omni", tmp_path / "temporary"
    parent.mkdir()
    create(graph, "node P { k: String @key }").close()
    command = [sys.executable, "-m", "omnigraph.cli.main", "load", str(graph), "--data", "-"]
    env = {**os.environ, "TMPDIR": str(parent)}
    killed = subprocess.Popen(command, env=env, stdin=subprocess.PIPE)
    while not list(parent.glob("omnigraph-stdin-*/stdin.jsonl")):
        assert killed.poll() is None
        time.sleep(0.01)
    killed.kill()
    killed.communicate()
    assert list(parent.glob("omnigraph-stdin-*"))
    line = b'{"type": "P", "data": {"k": "a"}}\n'
    done = subprocess.run(command, env=env, input=line, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert list(parent.glob("omnigraph-stdin-*")) == []
