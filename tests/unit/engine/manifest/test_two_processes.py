"""Two processes that both found their expectations true, and only then publish: at most one of them may be right."""

from __future__ import annotations

import multiprocessing
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from tests.unit.engine.manifest.publishers import COMPANY, PERSON, assert_linear, lineage, manifest_at

from omnigraph import failpoints
from omnigraph.engine.manifest.delta import UpdateTable
from omnigraph.errors import GraphError
from omnigraph.ids import TableKey

SPAWN = multiprocessing.get_context("spawn")
WAIT_SECONDS = 60.0


class _Meet:
    """Wait for the other process between the check and the commit, the first time only."""

    def __init__(self, barrier: Barrier) -> None:
        self._barrier: Barrier | None = barrier

    def __call__(self, name: str) -> None:
        if name == failpoints.PUBLISH_AFTER_PRECHECK and self._barrier is not None:
            barrier, self._barrier = self._barrier, None
            barrier.wait(WAIT_SECONDS)


def _publish(
    root: str, writes: str, reads: list[str], whole: bool, barrier: Barrier, answers: multiprocessing.Queue[str]
) -> None:
    manifest = manifest_at(root)
    seen = manifest.snapshot()
    key = TableKey(writes)
    expected = {each: seen.entry(each).version for each in (key, *map(TableKey, reads))}
    failpoints.install(_Meet(barrier))
    try:
        manifest.publish(
            "main",
            [UpdateTable(key, seen.entry(key).version + 1, None, 1)],
            lineage=lineage(writes),
            expected=expected,
            expected_head=seen.head if whole else None,
        )
        answers.put("ok")
    except GraphError as refused:
        answers.put(type(refused).__name__)


@pytest.mark.long
@pytest.mark.parametrize(
    ("writes", "reads", "whole", "answers"),
    [
        ((PERSON, PERSON), ((), ()), False, ["ExpectedVersionMismatchError", "ok"]),
        ((PERSON, COMPANY), ((), ()), False, ["ok", "ok"]),
        ((PERSON, COMPANY), ((COMPANY,), (PERSON,)), False, ["ExpectedVersionMismatchError", "ok"]),
        ((PERSON, COMPANY), ((), ()), True, ["ReadSetChangedError", "ok"]),
    ],
    ids=["one table", "two tables", "each has read what the other writes", "each expects the head"],
)
def test_of_two_processes_between_check_and_commit_only_those_publish_whose_expectations_still_hold(
    root: Path,
    writes: tuple[TableKey, TableKey],
    reads: tuple[tuple[TableKey, ...], tuple[TableKey, ...]],
    whole: bool,
    answers: list[str],
) -> None:
    barrier, queue = SPAWN.Barrier(2), SPAWN.Queue()
    before = manifest_at(root).snapshot()
    processes = [
        SPAWN.Process(target=_publish, args=(str(root), writes[each], list(reads[each]), whole, barrier, queue))
        for each in range(2)
    ]
    for process in processes:
        process.start()
    assert sorted(queue.get(timeout=WAIT_SECONDS) for _ in processes) == answers
    for process in processes:
        process.join()
    after = manifest_at(root)
    landed = answers.count("ok")
    assert after.snapshot().version == before.version + landed
    moved = [key for key in set(writes) if after.snapshot().entry(key).version > before.entry(key).version]
    assert len(moved) == landed
    assert_linear(after.history, 1 + landed)
