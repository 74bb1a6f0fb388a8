"""A merge on Spark whose driver is killed is whole or absent, and can be repeated on either engine.

Executors read, decide and write files that nobody refers to; whatever can be seen is done by the driver. The drivers
here are processes of their own on the JVM of this one, and are killed by SIGKILL: at the steps of a merge that have a
name, and after any part of the time a merge takes, most of which Spark is at work.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.crash.driver import Jvm, SparkMerge
from tests.crash.everywhere import Record, crash_everywhere
from tests.crash.test_reclaiming import clean, data_files

from omnigraph import connect, failpoints
from omnigraph.testing.children import child_process, run_child
from omnigraph.testing.crash import Content, check_recovered, content_of, copy_graph

pytestmark = [pytest.mark.long, pytest.mark.spark]

PARTED = "merge by workers"
INHERITING = "merge by workers into a branch that inherits tables"
BEFORE = (
    failpoints.MERGE_POST_VALIDATION,
    failpoints.MUTATION_PRE_ARM,
    failpoints.MUTATION_POST_TABLE_COMMIT,
    failpoints.MERGE_PRE_CONFIRM,
    failpoints.SIDECAR_CONFIRM,
)
AFTER = (failpoints.MUTATION_POST_FINALIZE, failpoints.PUBLISH_AFTER_COMMIT)
MOMENTS = 8
WAIT_SECONDS = 120.0


def die(name: str, window: str) -> None:
    if name == window:
        os.kill(os.getpid(), signal.SIGKILL)


def merge_until(write: SparkMerge, root: str, window: str) -> None:
    """A driver that comes to a sudden end."""
    failpoints.install(lambda name: die(name, window))
    write.run(root)


def merge_when_attached(write: SparkMerge, root: str, note: str) -> None:
    """A driver that says when it begins and when it is done."""
    write.attach()
    Path(f"{note}.began").touch()
    write.run(root)
    Path(f"{note}.done").touch()


def unmerged_and_merged(write: SparkMerge, template: Path, scratch: Path) -> tuple[Content, Content]:
    """What a graph holds before and after the merge, as the local engine makes it."""
    root = copy_graph(template, scratch / "local")
    before = content_of(connect(root, read_only=True))
    write.again(connect(root))
    return before, content_of(connect(root, read_only=True))


def check_repeated(write: SparkMerge, root: str, merged: Content) -> None:
    """The merge repeated is done once, with both parents, and leaves no file that nobody refers to."""
    graph = connect(root)
    write.again(graph)
    check_recovered(root, (merged,))
    source = graph.snapshot(write.source).head
    commits = graph.history.list(write.into)
    assert [commit.merged_parent_commit_id == source for commit in commits].count(True) == 1
    clean(graph)
    left = data_files(graph)
    assert clean(graph) == 0
    assert data_files(graph) == left
    assert content_of(connect(root, read_only=True)) == merged


@pytest.mark.parametrize("window", [*BEFORE, *AFTER])
def test_a_driver_killed_at_a_step_of_its_merge_leaves_it_whole_or_absent(
    window: str, spark: Any, to_merge: dict[str, Path], scratch: Path
) -> None:
    write = SparkMerge(Jvm.of(spark))
    before, merged = unmerged_and_merged(write, to_merge[PARTED], scratch)
    root = copy_graph(to_merge[PARTED], scratch / "killed")
    assert run_child(merge_until, write, root, window, timeout_seconds=WAIT_SECONDS) == -signal.SIGKILL
    check_recovered(root, (merged if window in AFTER else before,))
    check_repeated(write, root, merged)


def test_a_driver_killed_at_any_moment_of_its_merge_leaves_it_whole_or_absent(
    spark: Any, to_merge: dict[str, Path], scratch: Path
) -> None:
    write = SparkMerge(Jvm.of(spark))
    before, merged = unmerged_and_merged(write, to_merge[PARTED], scratch)
    whole = _timed(write, to_merge[PARTED], scratch, None)
    absent = 0
    for moment in range(MOMENTS):
        _timed(write, to_merge[PARTED], scratch, whole * (moment + 0.5) / MOMENTS)
        root = str(scratch / "killed")
        absent += check_recovered(root, (before, merged)) == before
        check_repeated(write, root, merged)
    assert absent, "no driver was killed while Spark was at work"


def _timed(write: SparkMerge, template: Path, scratch: Path, seconds: float | None) -> float:
    """Run a driver on a fresh copy, to its end or until so long after it began; tells how long it lived from there."""
    for old in scratch.glob("note.*"):
        old.unlink()
    root = scratch / "killed"
    shutil.rmtree(root, ignore_errors=True)
    driver = child_process(merge_when_attached, write, copy_graph(template, root), str(scratch / "note"))
    driver.start()
    limit = time.monotonic() + WAIT_SECONDS
    while not (scratch / "note.began").exists():
        assert driver.is_alive()
        assert time.monotonic() < limit
        time.sleep(0.005)
    began = time.monotonic()
    driver.join(WAIT_SECONDS if seconds is None else seconds)
    driver.kill()
    driver.join()
    assert seconds is not None or (scratch / "note.done").exists()
    return time.monotonic() - began


@pytest.mark.parametrize("name", [PARTED, INHERITING])
def test_a_merge_on_spark_survives_the_end_of_its_driver_around_every_storage_operation(
    name: str, spark: Any, to_merge: dict[str, Path], scratch: Path, record_property: Record
) -> None:
    jvm = Jvm.of(spark)
    write = SparkMerge(jvm) if name == PARTED else SparkMerge(jvm, "main", "review", "ours")
    crash_everywhere(write, to_merge[name], scratch, None, record_property)
