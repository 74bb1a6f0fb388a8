"""A schema is changed while other processes write, read and create branches: nothing is lost or half visible."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import pytest

from omnigraph.engine.operations.verify import verify
from omnigraph.errors import BranchNotFoundError, ConflictError, RecoveryRequiredError
from omnigraph.graph import connect, create
from omnigraph.testing.crash import check_recovered, content_of

PLAIN = "node P { k: String @key\n n: I64? }\nnode L { text: String }\nedge E: P -> P\n"
WIDER = (
    'node P { k: String @key\n bio: String?\n m: I64? @rename_from("n") }\nnode L { text: String }\nedge E: P -> P\n'
)
BACK = PLAIN.replace("n: I64?", 'n: I64? @rename_from("m")')
WRITERS, CHANGES, SECONDS_MAX = 3, 6, 60.0


def keep_writing(root: str, number: int, stop: str, journal: str) -> None:
    """Insert until told to stop, noting what was acknowledged; a conflict is simply tried again."""
    graph = connect(root)
    done = 0
    while not Path(stop).exists():
        try:
            graph.mutate(f'query q() {{ insert P {{ k: "{number}-{done}" }} insert L {{ text: "x" }} }}')
            done += 1
            Path(journal).write_text(str(done))
        except ConflictError:
            time.sleep(0.001)


def keep_reading(root: str, number: int, stop: str, journal: str) -> None:
    """Read with what exists under both schemas; the answers only grow."""
    graph = connect(root, read_only=True)
    seen = reads = 0
    while not Path(stop).exists():
        (row,) = graph.query("query q() { match { $p: P } return { count($p) as n } }")
        assert row["n"] >= seen, "a read went back in time"
        seen, reads = row["n"], reads + 1
        Path(journal).write_text(str(reads))


def keep_branching(root: str, number: int, stop: str, journal: str) -> None:
    """Create a branch and delete it again, for ever."""
    graph = connect(root)
    made = 0
    while not Path(stop).exists():
        try:
            # A deletion that met a schema change was refused, and the branch is still there.
            if f"b{number}" not in graph.branches.list():
                graph.branches.create(f"b{number}")
            made += 1
            Path(journal).write_text(str(made))
            graph.branches.delete(f"b{number}")
        except (ConflictError, BranchNotFoundError):
            time.sleep(0.005)
        time.sleep(0.01)
    while f"b{number}" in graph.branches.list():
        graph.branches.delete(f"b{number}")


@pytest.mark.long
def test_a_schema_changes_among_writers_readers_and_branches(tmp_path: Path) -> None:
    graph = create(tmp_path / "g.omni", PLAIN)
    stop = tmp_path / "stop"
    context = multiprocessing.get_context("forkserver")
    roles = [*[keep_writing] * WRITERS, keep_reading, keep_branching]
    journals = [tmp_path / f"journal-{number}" for number in range(len(roles))]
    workers = [
        context.Process(target=role, args=(graph.uri, number, str(stop), str(journal)), daemon=True)
        for number, (role, journal) in enumerate(zip(roles, journals, strict=True))
    ]
    for worker in workers:
        worker.start()
    changed, deadline = 0, time.monotonic() + SECONDS_MAX
    while not all(journal.exists() for journal in journals) and time.monotonic() < deadline:
        time.sleep(0.01)
    while changed < CHANGES and time.monotonic() < deadline:
        try:
            graph.schema.apply(BACK if changed % 2 else WIDER, confirm_drops=True)
            changed += 1
            time.sleep(0.2)
        except (ConflictError, RecoveryRequiredError):
            time.sleep(0.01)
    stop.touch()
    for worker in workers:
        worker.join(30)
    assert [worker.exitcode for worker in workers] == [0] * len(workers)
    assert changed == CHANGES
    acknowledged = sum(int(journal.read_text()) for journal in journals[:WRITERS])
    assert acknowledged > 0
    (row,) = graph.query("query q() { match { $p: P } return { count($p) as n } }")
    assert row["n"] == acknowledged
    assert verify(graph.context).clean, verify(graph.context).problems
    check_recovered(graph.uri, (content_of(graph),))
