"""A diff, found from fragments alone, is what comparing every entity of both states gives: random histories."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.amounts import always_first

from omnigraph.engine.changes import rows as changed_rows
from omnigraph.engine.storage import folding
from omnigraph.engine.storage.lance_internals import row_versions
from omnigraph.graph import Graph, create

SCHEMA = """
node P { k: String @key  n: I32?  tags: [String]?  v: Vector(3)?  data: Blob? }
node Q { name: String  when: DateTime? }
edge E: P -> P { w: F64? }
"""
BRANCHES = ("main", "one", "two")
Content = dict[tuple[str, str], str]


def content(graph: Graph, at: str) -> Content:
    """Every entity of a state, by kind, type and id, as the text of its load record."""
    found = {}
    for line in graph.export(at=at):
        record = json.loads(line)
        kind = "node" if "type" in record else "edge"
        found[(f"{kind}:{record.get('type') or record['edge']}", record["data"]["id"])] = line
    return found


def plain_diff(older: Content, newer: Content) -> list[tuple[str, str, str]]:
    changes = [("insert", *key) for key in newer.keys() - older.keys()]
    changes += [("delete", *key) for key in older.keys() - newer.keys()]
    changes += [("update", *key) for key in newer.keys() & older.keys() if newer[key] != older[key]]
    return sorted(changes, key=lambda change: (change[1].startswith("edge"), change[1], change[2]))


class Program:
    """Random writes to a graph and two branches of it; every state it was in stays listed."""

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.graph = create(root, SCHEMA)
        self.states: list[str] = []
        self.branches = ["main"]

    def note(self, branch: str) -> None:
        head = self.graph.snapshot(branch).head
        assert head is not None
        if head not in self.states:
            self.states.append(head)

    def person(self) -> dict[str, Any]:
        pick = self.random
        return {
            "k": f"p{pick.randrange(30)}",
            "n": pick.choice([None, 0, 1, 2]),
            "tags": pick.choice([None, [], ["a"], ["a", "b"]]),
            "v": pick.choice([None, [0.0, 1.0, 2.0], [-0.0, 1.0, 2.0], [3.0, 1.0, 2.0]]),
            "data": pick.choice([None, "base64:", "base64:AAEC"]),
        }

    def step(self) -> None:
        branch = self.random.choice(self.branches)
        choice = self.random.choice(
            ["insert", "insert", "update", "delete", "merge", "merge", "overwrite", "edges", "optimize", "branch", "q"]
        )
        getattr(self, f"do_{choice}")(branch)
        self.note(branch)

    def do_insert(self, branch: str) -> None:
        text = "query i($k: String, $n: I32?) { insert P { k: $k, n: $n } }"
        person = self.person()
        self.graph.mutate(text, {"k": person["k"], "n": person["n"]}, branch=branch)

    def do_update(self, branch: str) -> None:
        text = "query u($k: String, $n: I32?) { update P set { n: $n } where k = $k }"
        self.graph.mutate(text, {"k": f"p{self.random.randrange(30)}", "n": self.random.randrange(3)}, branch=branch)

    def do_delete(self, branch: str) -> None:
        text = "query d($k: String) { delete P where k = $k }"
        self.graph.mutate(text, {"k": f"p{self.random.randrange(30)}"}, branch=branch)

    def do_merge(self, branch: str) -> None:
        rows = {row["k"]: row for row in (self.person() for _ in range(self.random.randrange(1, 12)))}
        self.graph.load([{"type": "P", "data": row} for row in rows.values()], "merge", branch=branch)

    def do_overwrite(self, branch: str) -> None:
        """The same people again, in another order, with a few changed: nearly nothing differs."""
        lines = [json.loads(line) for line in self.graph.export(branch=branch, types=["P"])]
        self.random.shuffle(lines)
        for line in lines:
            if not self.random.randrange(8):
                line["data"]["n"] = self.random.randrange(3)
        if lines:
            self.graph.load(lines, "overwrite", branch=branch)

    def do_edges(self, branch: str) -> None:
        people = [json.loads(line)["data"]["k"] for line in self.graph.export(branch=branch, types=["P"])]
        pairs = [(self.random.choice(people), self.random.choice(people)) for _ in range(4)] if people else []
        edges = [
            {"edge": "E", "from": a, "to": b, "data": {"w": self.random.choice([0.0, -0.0, 1.5])}} for a, b in pairs
        ]
        if edges:
            self.graph.load(edges, "append", branch=branch)

    def do_optimize(self, branch: str) -> None:
        self.graph.maintenance.optimize()

    def do_branch(self, branch: str) -> None:
        fresh = [name for name in BRANCHES if name not in self.branches]
        if fresh:
            self.graph.branches.create(fresh[0], branch)
            self.branches.append(fresh[0])

    def do_q(self, branch: str) -> None:
        self.graph.mutate("query q($n: String) { insert Q { name: $n } }", {"n": "x"}, branch=branch)


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Folding, rounding of versions and comparing in pieces happen with a handful of rows."""
    monkeypatch.setattr(folding, "FOLD_FRAGMENTS", 4)
    monkeypatch.setattr(folding, "FOLD_RUN", 2)
    monkeypatch.setattr(row_versions, "RUNS_MAX", 3)
    monkeypatch.setattr(changed_rows, "COMPARED_ROWS", 3)
    monkeypatch.setattr(changed_rows, "WIDE_ROWS", 2)
    return


def _normal(lines: Content) -> Content:
    """Both zeros are one number."""
    return {key: line.replace("-0.0", "0.0") for key, line in lines.items()}


@pytest.mark.long
@pytest.mark.usefixtures("lowered")
@pytest.mark.parametrize("seed", always_first(2, range(6)))
def test_a_diff_is_what_comparing_everything_gives(tmp_path: Path, seed: int) -> None:
    program = Program(tmp_path / "graph", seed)
    program.note("main")
    for _ in range(30):
        program.step()
    states = {state: _normal(content(program.graph, state)) for state in program.states}
    picked = program.random.sample(program.states, min(9, len(program.states)))
    for older in picked:
        for newer in picked:
            found = program.graph.diff(older, newer, values="none")
            listed = [(str(change.op), f"{change.kind}:{change.type_name}", change.id) for change in found]
            assert listed == plain_diff(states[older], states[newer]), (older, newer)
            assert len(found) == len(listed)
            assert (found.inserted, found.updated, found.deleted) == tuple(
                sum(op == wanted for op, _, _ in listed) for wanted in ("insert", "update", "delete")
            )
