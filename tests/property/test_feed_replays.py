"""Whoever has a baseline and hears the feed has, after every commit, what the graph has.

Random programs change a graph on two branches: inserts, updates, deletes, loads, merges both ways, reverts, compaction,
branches made anew, changes of schema. A reader with plain dictionaries follows main by pages of random size, and
another asks for everything at once; both end with what an export says, and hear the same.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.engine.operations.feed import ChangeBlock
from omnigraph.errors import (
    ChangesUnavailableError,
    ConflictError,
    InputError,
    MergeConflictError,
    NotFoundError,
)

SCHEMA = """
node Person { name: String @key
              age: I32?
              v: Vector(2)? }
node City { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""
NAMES = [f"p{number}" for number in range(8)]
PROGRAMS, STEPS = 8, 22
State = dict[tuple[str, str, str], dict[str, Any]]


def exported(lines: list[str]) -> State:
    """The entities of load records, by kind, type and id."""
    found: State = {}
    for line in lines:
        record = json.loads(line)
        if "type" in record:
            data = dict(record["data"])
            key = ("node", record["type"], data.pop("id"))
            found[key] = _present(data)
        elif "edge" in record:
            data = dict(record["data"])
            ends = {"from": record["from"], "to": record["to"]}
            key = ("edge", record["edge"], data.pop("id"))
            found[key] = _present({**data, **ends})
    return found


def _present(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value is not None}


def replay(state: State, block: ChangeBlock) -> None:
    """Apply a block; what it says was there before must have been."""
    for change in block.changes:
        key = (change.kind, change.type_name, change.id)
        images = []
        for image in (change.before, change.after):
            ends = {} if image is None or image.ends is None else dict(zip(("from", "to"), image.ends, strict=True))
            images.append(None if image is None else _present({**image.properties, **ends}))
        before, after = images
        assert state.get(key) == before, (change, state.get(key))
        if after is None:
            del state[key]
        else:
            state[key] = after


class Program:
    """One random program, and the reader of its feed."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.graph = omnigraph.create(root, SCHEMA)
        self.cursor, self.state = "", State()
        self.columns, self.refused = 0, 0
        self.boundaries: list[str] = []
        self.rebase()

    def rebase(self) -> None:
        out = Path(self.graph.uri).parent / "base.jsonl"
        made = self.graph.changes.baseline(out)
        *lines, last = out.read_text().splitlines()
        assert json.loads(last)["baseline"]["resume_cursor"] == made.resume_cursor
        self.cursor, self.state = made.resume_cursor, exported(lines)

    def step(self) -> None:
        verbs = {"write": 8, "load": 3, "merge": 3, "branch": 2, "optimize": 1, "revert": 2, "schema": 1}
        verb = self.chance.choices(list(verbs), list(verbs.values()))[0]
        try:
            getattr(self, verb)()
        except MergeConflictError:
            self.merge(strategy="theirs")
        except (InputError, ConflictError, NotFoundError):
            self.refused += 1

    def _branch(self) -> str:
        return self.chance.choice([name for name in self.graph.branches.list() if name in ("main", "side")])

    def write(self) -> None:
        one, other = self.chance.sample(NAMES, 2)
        text = self.chance.choice(
            [
                f'insert Person {{ name: "{one}", age: {self.chance.randrange(3)} }}',
                f'update Person set {{ age: {self.chance.randrange(3)} }} where name = "{one}"',
                f'delete Person where name = "{one}"',
                f'insert Knows {{ from: "{one}", to: "{other}", since: {self.chance.randrange(3)} }}',
                f'delete Knows where from = "{one}"',
                f'insert City {{ name: "{one}" }}',
            ]
        )
        self.graph.mutate(f"query q() {{ {text} }}", branch=self._branch())

    def load(self) -> None:
        names = self.chance.sample(NAMES, 3)
        rows = [
            {"type": "Person", "data": {"name": name, "age": self.chance.randrange(3), "v": [1.0, float(len(name))]}}
            for name in names
        ]
        mode = self.chance.choice(["merge", "merge", "append"])
        self.graph.load(rows, mode=mode, branch=self._branch(), engine="local")

    def merge(self, strategy: str | None = None) -> None:
        sides = ["side", "main"] if self.chance.random() < 0.7 else ["main", "side"]
        self.graph.branches.merge(sides[0], sides[1], strategy=strategy)

    def branch(self) -> None:
        if "side" in self.graph.branches.list():
            self.graph.branches.delete("side")
        self.graph.branches.create("side")

    def optimize(self) -> None:
        self.graph.maintenance.optimize()

    def revert(self) -> None:
        commits = self.graph.history.list(limit=5)
        self.graph.revert(self.chance.choice(commits).graph_commit_id, strategy="ours")

    def schema(self) -> None:
        if "side" in self.graph.branches.list():
            self.graph.branches.delete("side")
        self.columns += 1
        source = self.graph.schema.source.replace("v: Vector(2)? }", f"v: Vector(2)?\n extra{self.columns}: I32? }}")
        if self.columns == 1:
            self.graph.schema.apply(source, confirm_drops=True)

    def catch_up(self) -> None:
        """Hear what is new by pages of random size, and compare it with one large answer."""
        began, heard = self.cursor, []
        while True:
            try:
                page = self.graph.changes.poll(self.cursor, values="full", limit=self.chance.randint(1, 4))
            except ChangesUnavailableError as boundary:
                self.boundaries.append(boundary.reason)
                self.rebase()
                return
            heard += page.blocks
            while page.next_page_token is not None:
                page = self.graph.changes.poll(
                    page_token=page.next_page_token, values="full", limit=self.chance.randint(1, 4)
                )
                heard += page.blocks
            assert page.cursor is not None
            self.cursor = page.cursor
            if page.caught_up:
                break
        for block in heard:
            replay(self.state, block)
        whole = self.graph.changes.poll(began, values="full", limit=8_192)
        if whole.caught_up:
            assert told(list(whole.blocks)) == told(heard)
        assert self.state == exported(list(self.graph.export()))


def told(blocks: list[ChangeBlock]) -> list[tuple[str, list[Any]]]:
    """Blocks with the parts of one commit put together."""
    found: list[tuple[str, list[Any]]] = []
    for block in blocks:
        commit = block.cause.graph_commit_id
        if not found or found[-1][0] != commit:
            found.append((commit, []))
        found[-1][1].extend(change.to_json() for change in block.changes)
    return found


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_baseline_and_the_feed_are_the_graph(tmp_path: Path, seed: int) -> None:
    program = Program(tmp_path / "g.omni", seed)
    for _ in range(STEPS):
        program.step()
        if program.chance.random() < 0.5:
            program.catch_up()
    program.catch_up()
    assert set(program.boundaries) <= {"schema_boundary"}
    assert program.refused < STEPS // 2, "most of a program has to happen"
    assert program.graph.maintenance.verify().clean
