"""Where a local Spark works: nothing of it stays, neither of processes that end nor, at the next start, of killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.pipeline.scratch import remove_abandoned

HOLD = """
from omnigraph.pipeline.scratch import make_scratch
folder = make_scratch()
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
