"""Four writers, one of them killed every second: nothing acknowledged is lost, nothing else is half there."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from tests.crash.killing import read_journal, write_until_killed
from tests.crash.writes import SCHEMA, SEED, Load

from omnigraph.engine.operations.verify import verify
from omnigraph.graph import connect, create
from omnigraph.ids import TableKey

WRITERS = 4
SEED_NUMBER = 20_26


class Crew:
    """Writer processes that are replaced when they are killed."""

    def __init__(self, root: Path, journals: Path) -> None:
        self.root, self.journals = root, journals
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["omnigraph.testing.crash", "pandas"])
        self.started = 0
        self.members: list[ForkServerProcess] = []

    def hire(self) -> None:
        worker = f"w{self.started}"
        self.started += 1
        arguments = (str(self.root), str(self.journals / f"{worker}.log"), worker)
        process = self.context.Process(target=write_until_killed, args=arguments, daemon=True)
        process.start()
        self.members.append(process)

    def kill(self, process: ForkServerProcess) -> None:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(10)
        self.members.remove(process)


def run_crew(root: Path, journals: Path, seconds: float) -> int:
    """Let the crew write, killing one member a second; returns how many were killed."""
    chance = random.Random(SEED_NUMBER)
    crew = Crew(root, journals)
    for _ in range(WRITERS):
        crew.hire()
    kills = 0
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            time.sleep(chance.uniform(0.8, 1.2))
            assert all(process.is_alive() for process in crew.members), "a writer died by itself"
            crew.kill(chance.choice(crew.members))
            kills += 1
            crew.hire()
    finally:
        for process in list(crew.members):
            crew.kill(process)
    return kills


def check_outcome(root: Path, journals: Path) -> dict[str, object]:
    """Compare what the writers said with what is there."""
    graph = connect(root)
    report = verify(graph.context)
    assert report.clean, report.problems
    assert graph.context.store.objects.list_dir("__recovery") == []
    lines = list(read_journal(journals))
    inserts = [line for line in lines if "-" in str(line["name"]) and int(str(line["name"]).split("-")[1]) % 5]
    done = {line["name"] for line in inserts if line["outcome"] == "done"}
    refused = {line["name"] for line in inserts if line["outcome"] == "conflict"}
    snapshot = graph.snapshot()
    people = Counter(snapshot.open(TableKey("node:Person")).scan(["id"])["id"].to_pylist())
    jobs = Counter(snapshot.open(TableKey("edge:WorksAt")).scan(["src"])["src"].to_pylist())
    assert done <= set(people), f"acknowledged and lost: {sorted(map(str, done - set(people)))[:5]}"
    assert not refused & set(people), "a refused write is there"
    assert {name for name in people if "-" in name} == {name for name in jobs if "-" in name}, "half a write is there"
    assert max(people.values()) == 1
    assert max(jobs.values()) == 1
    outcomes = Counter(str(line["outcome"]) for line in lines)
    waits = [float(str(line["seconds"])) for line in lines if line["outcome"] in ("done", "conflict")]
    return {"outcomes": dict(outcomes), "longest wait": max(waits), "commits": report.commits}


@pytest.mark.parametrize("seconds", [15.0, pytest.param(120.0, marks=pytest.mark.long)])
def test_killed_writers_lose_nothing_and_block_nobody(
    seconds: float, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    root, journals = tmp_path / "graph", tmp_path / "journals"
    journals.mkdir()
    create(root, SCHEMA)
    Load(SEED, "append").run(str(root))
    kills = run_crew(root, journals, seconds)
    outcome = check_outcome(root, journals)
    for name, value in {"kills": kills, **outcome}.items():
        record_property(name, value)
    print(kills, outcome)
    assert outcome["outcomes"].get("done", 0) > kills, outcome  # type: ignore[attr-defined]
