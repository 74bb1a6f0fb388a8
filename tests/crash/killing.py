"""Writer processes that are killed at any moment, and say beforehand and afterwards what they wrote.

There is one writer per slot at a time. All insert and update on main, where they meet; two of them also create a
branch, write on it, merge it and delete it again, under one name each; one changes the schema; one loads; one reads
every branch, compacts and cleans up.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.writes import SCHEMA

from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    NotFoundError,
    RecoveryRequiredError,
    VersionReclaimedError,
)
from omnigraph.graph import Graph, connect

SLOTS = 5
BRANCHING, CHANGING, LOADING, KEEPING = (0, 1), 2, 3, 4
INSERT = """query q($name: String, $hub: String, $hot: String, $age: I32) {
  insert Person { name: $name, age: $age }
  insert WorksAt { from: $name, to: $hub, since: $age }
  insert Company { name: $hot }
}"""
READ = "query q() { match { $p: Person $p worksAt $c } return { $p.name as name, $c.name as at } }"
UPDATE = 'query q($age: I32) { update Person set { age: $age } where name = "ann" }'
SCHEMAS = [SCHEMA, SCHEMA.replace("node Note { text: String }", "node Note { text: String\n extra: I32? }")]


def branch_of(slot: int) -> str:
    """The branch that the writers of a slot have to themselves; all of them lie in one folder."""
    return f"agents/own-{slot}"


@dataclass(frozen=True)
class Line:
    """What a writer said of one operation: `begin`, and later how it ended, unless it was killed."""

    at: float
    slot: int
    kind: str
    name: str
    branch: str
    outcome: str
    seconds: float


class Worker:
    """One process in one slot."""

    def __init__(self, graph: Graph, log: int, slot: int, worker: str) -> None:
        self.graph, self.log, self.slot, self.worker = graph, log, slot, worker
        self.branch = branch_of(slot)

    def run(self, number: int) -> None:
        """The `number`-th operation of this process."""
        name = f"{self.worker}-{number}"
        turn = number % 8
        if self.slot == KEEPING:
            self.do(("read", "optimize", "read", "cleanup")[number % 4], name, "main", {})
        elif self.slot in BRANCHING and turn >= 4:
            kind = ("create", "insert", "merge", "delete")[turn - 4]
            self.do(kind, name, self.branch, {"age": number})
        elif self.slot == CHANGING and turn in (3, 7):
            self.do("schema", name, "main", {"desired": SCHEMAS[(number // 4) % 2]})
        elif self.slot == LOADING and turn % 3 == 0:
            self.do("load", name, "main", {"age": number})
        elif turn == 2:
            self.do("update", name, "main", {"age": number})
        else:
            self.do("insert", name, "main", {"age": number})

    def do(self, kind: str, name: str, branch: str, facts: dict[str, Any]) -> None:
        self.say(kind, name, branch, "begin", 0.0)
        started = time.monotonic()
        try:
            getattr(self, f"_{kind}")(name, branch, facts)
            outcome = "done"
        except (ConflictError, NotFoundError):
            outcome = "refused"
            self.graph.refresh()
        except RecoveryRequiredError:
            outcome = "unfinished"
        self.say(kind, name, branch, outcome, time.monotonic() - started)

    def say(self, kind: str, name: str, branch: str, outcome: str, seconds: float) -> None:
        """One line in one system call, so that a kill never leaves half of one."""
        line = Line(time.time(), self.slot, kind, name, branch, outcome, seconds)
        os.write(self.log, f"{json.dumps(line.__dict__)}\n".encode())

    def _insert(self, name: str, branch: str, facts: dict[str, Any]) -> None:
        values = {"name": name, "hub": "acme", "hot": f"hot-{facts['age'] % 3}", "age": facts["age"]}
        self.graph.mutate(INSERT, values, branch=branch, actor=self.worker)

    def _update(self, name: str, branch: str, facts: dict[str, Any]) -> None:
        self.graph.mutate(UPDATE, facts, branch=branch, actor=self.worker)

    def _load(self, name: str, branch: str, facts: dict[str, Any]) -> None:
        records = [
            {"type": "Person", "data": {"name": name, **facts}},
            {"edge": "WorksAt", "from": name, "to": "acme", "data": {"since": facts["age"]}},
        ]
        self.graph.load("\n".join(map(json.dumps, records)).encode(), mode="append", branch=branch, actor=self.worker)

    def _create(self, name: str, branch: str, facts: dict[str, Any]) -> None:
        if branch not in self.graph.branches.list():
            self.graph.branches.create(branch)

    def _merge(self, name: str, branch: str, facts: dict[str, Any]) -> None:
        self.graph.branches.merge(branch, "main", actor=self.worker)

    def _delete(self, name: str, branch: str, facts: dict[str, Any]) -> None:
        try:
            self.graph.branches.delete(branch)
        except BranchNotFoundError:
            return  # A predecessor in this slot was killed after it had deleted the branch.

    def _read(self, name: str, branch: str, facts: dict[str, Any]) -> None:
        for existing in self.graph.branches.list():
            try:
                found = {row["name"] for row in self.graph.query(READ, branch=existing)}
            except (BranchNotFoundError, VersionReclaimedError):
                if existing == "main":
                    raise
                continue  # Deleted since they were listed.
            if "ann" not in found:
                raise AssertionError(f"rows are missing on {existing}")

    def _optimize(self, name: str, branch: str, facts: dict[str, Any]) -> None:
        self.graph.maintenance.optimize(actor=self.worker)

    def _cleanup(self, name: str, branch: str, facts: dict[str, Any]) -> None:
        report = self.graph.maintenance.cleanup(keep=20)
        if report.failed:
            raise AssertionError(f"cleanup failed: {report}")

    def _schema(self, name: str, branch: str, facts: dict[str, Any]) -> None:
        self.graph.schema.apply(facts["desired"], actor=self.worker, confirm_drops=True)


def write_until_killed(root: str, journal: str, slot: int, worker: str) -> None:
    """Write for ever, or until nobody is left who could kill this process."""
    parent = os.getppid()
    logging.disable(logging.WARNING)
    with open(journal, "a", encoding="utf-8") as log:
        process = Worker(connect(root), log.fileno(), slot, worker)
        process.say("open", worker, "main", "done", 0.0)
        number = 0
        while os.getppid() == parent:
            number += 1
            process.run(number)


def read_journal(folder: Path) -> Iterator[Line]:
    """Everything that was said, in order."""
    lines = [
        Line(**json.loads(text))
        for path in sorted(folder.glob("*.log"))
        for text in path.read_text(encoding="utf-8").splitlines()
    ]
    yield from sorted(lines, key=lambda line: line.at)
