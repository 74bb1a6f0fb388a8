"""Five processes, one of them killed again and again: nothing acknowledged is lost, nothing else is half there."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from tests.crash.killing import BRANCHING, SCHEMAS, SLOTS, Line, branch_of, read_journal, write_until_killed
from tests.crash.summary import RANDOM
from tests.crash.writes import SCHEMA, SEED, Load

from omnigraph.engine.operations.verify import verify
from omnigraph.graph import Graph, connect, create
from omnigraph.ids import TableKey
from omnigraph.testing.children import child_process
from omnigraph.testing.crash import check_recovered, content_of

SEED_NUMBER = 20_26
WRITTEN = ("insert", "load")


class Crew:
    """Writer processes, one per slot, that are replaced when they are killed."""

    def __init__(self, root: Path, journals: Path) -> None:
        self.root, self.journals = root, journals
        self.started = 0
        self.members: dict[int, ForkServerProcess] = {}

    def hire(self, slot: int) -> None:
        worker = f"w{self.started}"
        self.started += 1
        journal = str(self.journals / f"{worker}.log")
        self.members[slot] = child_process(write_until_killed, str(self.root), journal, slot, worker)
        self.members[slot].start()

    def kill(self, slot: int) -> None:
        process = self.members.pop(slot)
        process.kill()
        process.join(10)


def run_crew(root: Path, journals: Path, kills: int) -> None:
    """Let the crew write, killing a member about twice a second."""
    chance = random.Random(SEED_NUMBER)
    crew = Crew(root, journals)
    for slot in range(SLOTS):
        crew.hire(slot)
    try:
        for _ in range(kills):
            time.sleep(chance.uniform(0.3, 0.6))
            assert all(process.is_alive() for process in crew.members.values()), "a writer died by itself"
            slot = chance.randrange(SLOTS)
            crew.kill(slot)
            crew.hire(slot)
    finally:
        for slot in list(crew.members):
            crew.kill(slot)


# --- what must be true afterwards ------------------------------------------------------------------------------------


def ids(graph: Graph, branch: str, key: str, column: str) -> Counter[str]:
    table = graph.snapshot(branch).open(TableKey(key)).scan([column])
    return Counter(name for name in table[column].to_pylist() if "-" in name)


def check_writes(graph: Graph, branch: str, done: set[str], not_done: set[str]) -> None:
    """Every acknowledged write is there once, no refused one is, and none is half there."""
    people = ids(graph, branch, "node:Person", "id")
    jobs = ids(graph, branch, "edge:WorksAt", "src")
    assert done <= set(people), f"acknowledged on {branch} and lost: {sorted(done - set(people))[:5]}"
    assert not not_done & set(people), f"refused, or of a branch that was deleted, and there: {branch}"
    assert set(people) == set(jobs), f"half a write is on {branch}"
    assert max([*people.values(), *jobs.values()], default=1) == 1


def check_main(graph: Graph, lines: list[Line]) -> None:
    written = [line for line in lines if line.kind in WRITTEN and line.branch == "main"]
    done = {line.name for line in written if line.outcome == "done"}
    for slot in BRANCHING:
        done |= merged(branch_of(slot), lines)
    check_writes(graph, "main", done, {line.name for line in written if line.outcome == "refused"})


def merged(branch: str, lines: list[Line], outcome: str = "done") -> set[str]:
    """What was written on a branch before a merge of it was acknowledged, or begun."""
    written: set[str] = set()
    found: set[str] = set()
    for line in (line for line in lines if line.branch == branch):
        if line.kind == "delete" and line.outcome != "refused":
            written = set()
        elif line.kind == "insert" and line.outcome == "done":
            written.add(line.name)
        elif line.kind == "merge" and line.outcome == outcome:
            found |= written
    return found


def check_branch(graph: Graph, branch: str, lines: list[Line]) -> None:
    """Follow one branch through its lives; what a killed process began counts as possible, either way."""
    exists: bool | None = False
    done: set[str] = set()
    gone: set[str] = set()
    for line in (line for line in lines if line.branch == branch):
        if line.kind == "create":
            exists = {"begin": None, "done": True}.get(line.outcome, exists)
        elif line.kind == "delete":
            gone |= done if line.outcome == "begin" else set()
            exists = {"begin": None, "done": False}.get(line.outcome, exists)
            if line.outcome == "refused":
                gone -= done
            elif line.outcome != "begin":
                done = set()
        elif line.kind in WRITTEN and line.outcome == "done":
            done.add(line.name)
        elif line.kind in WRITTEN and line.outcome == "refused":
            gone.add(line.name)
    if exists is not None:
        assert (branch in graph.branches.list()) == exists
    if exists:
        # What was merged, or may have been, is on main, and so on every branch that was created there afterwards.
        on_main = merged(branch, lines, "begin")
        check_writes(graph, branch, done - gone, gone - done - on_main)


def check_outcome(root: Path, journals: Path) -> dict[str, object]:
    """Compare what the writers said with what is there."""
    graph = connect(root)
    report = verify(graph.context)
    assert report.clean, report.problems
    check_recovered(str(root), (content_of(graph),))
    lines = list(read_journal(journals))
    check_main(graph, lines)
    for slot in BRANCHING:
        check_branch(graph, branch_of(slot), lines)
    assert graph.schema.source in SCHEMAS
    ended = [line for line in lines if line.outcome in ("done", "refused")]
    slowest = max(ended, key=lambda line: line.seconds)
    counts = Counter(f"{line.kind} {line.outcome}" for line in ended)
    return {
        "outcomes": dict(sorted(counts.items())),
        "longest blocked": round(slowest.seconds, 2),
        "by": f"{slowest.kind} on {slowest.branch}",
        "commits": report.commits,
    }


@pytest.mark.long
def test_killed_writers_lose_nothing_and_block_nobody(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    kills = 72
    root, journals = tmp_path / "graph", tmp_path / "journals"
    journals.mkdir()
    create(root, SCHEMA)
    Load(SEED, "append").run(str(root))
    run_crew(root, journals, kills)
    outcome = check_outcome(root, journals)
    record_property(RANDOM, {"kills": kills, **outcome})
    done = outcome["outcomes"]
    assert isinstance(done, dict)
    assert done["insert done"] > kills
    assert all(done.get(f"{kind} done") for kind in ("load", "create", "merge", "delete", "read", "optimize")), done
