"""Several processes write to one graph; what they were told must be what is there."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from omnigraph.engine.operations.verify import verify
from omnigraph.graph import connect, create
from omnigraph.ids import RECOVERY_ACTOR

WORKER = Path(__file__).with_name("worker.py")


def run_workers(root: Path, folder: Path, processes: int, count: int) -> list[dict[str, Any]]:
    notes = [folder / f"notes-{number}.jsonl" for number in range(processes)]
    commands = [
        [sys.executable, str(WORKER), str(root), str(number), str(count), str(path)]
        for number, path in enumerate(notes)
    ]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    for process in running:
        _, errors = process.communicate(timeout=540)
        assert process.returncode == 0, errors
    return [json.loads(line) for path in notes for line in path.read_text().splitlines()]


def replay(commits: list[str], notes: list[dict[str, Any]]) -> tuple[dict[str, int], set[str], set[str]]:
    """The state that the acknowledged writes make when run in the order of history."""
    by_commit = {note["commit"]: note for note in notes if note["commit"] is not None}
    people: dict[str, int] = {}
    edges: set[str] = set()
    logs: set[str] = set()
    for commit in commits:
        note = by_commit.get(commit)
        if note is None:
            continue
        key, value = note["parameters"]["k"], note["parameters"].get("n")
        if note["query"] in ("insert", "upsert", "update"):
            people[key] = value
        if note["query"] == "insert":
            edges.add(key)
        if note["query"] == "delete":
            del people[key]
            edges.discard(key)
        if note["query"] == "log":
            logs.add(key)
    return people, edges, logs


def check(root: Path, notes: list[dict[str, Any]]) -> None:
    context = connect(root).context
    history = list(reversed(context.manifest.history.list("main")))
    ids = [commit.graph_commit_id for commit in history]
    assert len(set(ids)) == len(ids)
    for older, newer in pairwise(history):
        assert newer.parent_commit_id == older.graph_commit_id
    acknowledged = [note["commit"] for note in notes if note["commit"] is not None]
    assert len(set(acknowledged)) == len(acknowledged)
    assert set(acknowledged) <= set(ids)
    unexplained = [c for c in history[1:] if c.graph_commit_id not in acknowledged and c.actor_id != RECOVERY_ACTOR]
    assert not unexplained
    people, edges, logs = replay(ids, notes)
    snapshot = context.manifest.snapshot()
    found = snapshot.open("node:P").scan(["id", "n"]).to_pylist()
    assert len(found) == len({row["id"] for row in found})
    assert {row["id"]: row["n"] for row in found} == people
    assert sorted(snapshot.open("edge:E").scan(["src"]).column("src").to_pylist()) == sorted(edges)
    assert sorted(snapshot.open("node:L").scan(["text"]).column("text").to_pylist()) == sorted(logs)
    for key, entry in snapshot.entries.items():
        assert context.store.open(entry.path).version == entry.version, key
    assert not context.store.objects.list_dir("__recovery")
    assert not verify(context).problems


@pytest.mark.long
def test_two_processes_writing_at_once_are_told_the_truth(tmp_path, schema):
    create(tmp_path / "graph", schema)
    notes = run_workers(tmp_path / "graph", tmp_path, processes=2, count=30)
    assert len(notes) == 60
    check(tmp_path / "graph", notes)


@pytest.mark.long
def test_four_processes_with_two_hundred_mutations_each_lose_and_double_nothing(tmp_path, schema):
    create(tmp_path / "graph", schema)
    notes = run_workers(tmp_path / "graph", tmp_path, processes=4, count=200)
    assert len(notes) == 800
    check(tmp_path / "graph", notes)
    lenient = [note for note in notes if note["query"] in ("insert", "upsert", "log")]
    refused = [note for note in lenient if note["refused"] is not None]
    assert len(refused) <= len(lenient) // 20, refused[:5]
