"""Merges on Spark give the graph and the report that the engine in this process gives."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.amounts import EXHAUSTIVE

from omnigraph import create
from omnigraph.engine.operations.merge import MergePlan
from omnigraph.errors import MergeConflictError
from omnigraph.graph import Graph

pytestmark = pytest.mark.spark

SCHEMA = """
node Person { name: String @key  age: I32?  email: String? @unique  tags: [String]?  vec: Vector(2)?  photo: Blob? }
edge Knows: Person -> Person @card(0..4) { since: Date?  @unique(src, dst, since) }
"""
BRANCHES = ("main", "one", "two")
STRATEGIES: tuple[Any, ...] = ("fields", "theirs", "ours", None)


def told(plan: MergePlan) -> dict[str, Any]:
    """What a plan says, but for what differs between two graphs of the same content."""
    own = ("engine", "engine_reason", "source_commit", "target_commit", "base_commits", "merge_conflicts")
    found = {name: value for name, value in plan.to_json().items() if name not in own}
    return {**found, "bases": len(plan.base_commits), "conflicts": [each.to_json() for each in plan.conflicts]}


class Twins:
    """The same history twice; one is merged in this process, the other on Spark."""

    def __init__(self, folder: Path, seed: int, *, plans: bool) -> None:
        self.random = random.Random(seed)
        self.plans = plans
        self.graphs: dict[Any, Graph] = {engine: create(folder / engine, SCHEMA) for engine in ("local", "spark")}
        self.edges = self.shares = 0
        self.seen: dict[str, int] = {}

    def each(self, do: Any) -> None:
        for graph in self.graphs.values():
            do(graph)

    def person(self) -> dict[str, Any]:
        pick = self.random.choice
        key = f"p{self.random.randrange(12)}"
        data = {
            "name": key,
            "age": pick([None, 1, 2]),
            "email": pick([None, f"{key}@x", f"{key}@y", *(["shared@x"] * self.shares)]),
        }
        data |= {"tags": pick([None, [], ["a"]]), "vec": pick([None, [0.0, 1.0], [2.0, 3.0]])}
        return {"type": "Person", "data": {**data, "photo": pick([None, "base64:", "base64:aGVsbG8="])}}

    def load(self, records: list[dict[str, Any]], branch: str, mode: Any = "merge") -> None:
        refused = set()
        for engine, graph in self.graphs.items():
            try:
                graph.load(records, mode, branch=branch, engine="local")
            except ValueError:
                refused.add(engine)
        assert len(refused) != 1

    def change(self, branch: str) -> None:
        """Some people, an edge, and a person less."""
        people = {each["data"]["name"]: each for each in (self.person() for _ in range(5))}
        self.load(list(people.values()), branch)
        self.edges += 1
        ends = [f"p{self.random.randrange(12)}" for _ in range(2)]
        data = {"id": f"e{self.edges}", "since": self.random.choice([None, "2026-01-01"])}
        self.load([{"edge": "Knows", "from": ends[0], "to": ends[1], "data": data}], branch)
        query, key = "query d($k: String) { delete Person where name = $k }", f"p{self.random.randrange(12)}"
        self.each(lambda graph: graph.mutate(query, {"k": key}, branch=branch))

    def cross(self, one: str, other: str) -> None:
        """Merge two branches into each other as they were, so that they part at two commits."""
        self.each(lambda graph: graph.branches.create("before", one))
        self.merge(other, one)
        self.merge("before", other)
        self.each(lambda graph: graph.branches.delete("before"))

    def round(self, number: int) -> None:
        """Change two branches and merge one into the other."""
        source, into = self.random.sample(BRANCHES, 2)
        self.shares = number // 4
        self.change(source)
        self.change(into)
        if number % 4 == 3:
            self.cross(source, into)
        elif number % 4 == 2:
            self.each(lambda graph: graph.maintenance.optimize())
        self.merge(source, into, STRATEGIES[number % 4])

    def merge(self, source: str, into: str, strategy: Any = "theirs") -> None:
        how = {"strategy": strategy}
        plans = [graph.branches.plan_merge(source, into, engine=engine, **how) for engine, graph in self.graphs.items()]
        assert told(plans[0]) == told(plans[1])
        results = []
        for engine, graph in self.graphs.items():
            try:
                results.append(told(graph.branches.merge(source, into, engine=engine, **how).plan))
            except MergeConflictError as refused:
                results.append({"refused": refused.by_kind, "conflicts": refused.conflicts})
        assert results[0] == results[1]
        outcome = "refused" if "refused" in results[0] else str(plans[0].outcome)
        self.seen[outcome] = self.seen.get(outcome, 0) + 1
        for kind in results[0].get("types", ()):
            self.seen[kind["how"]] = self.seen.get(kind["how"], 0) + 1

    def content(self, engine: Any, branch: str) -> list[Any]:
        graph = self.graphs[engine]
        found = [json.loads(line) for line in graph.export(branch=branch)]
        return sorted(found, key=lambda record: str(record["data"]["id"]))


def run(folder: Path, seed: int, rounds: Iterable[int], *, plans: bool = False) -> dict[str, int]:
    twins = Twins(folder, seed, plans=plans)
    twins.load([twins.person()], "main")
    twins.each(lambda graph: [graph.branches.create(name) for name in BRANCHES[1:]])
    for number in rounds:
        twins.round(number)
    for branch in BRANCHES:
        assert twins.content("spark", branch) == twins.content("local", branch)
    assert all(graph.maintenance.verify().clean for graph in twins.graphs.values())
    return twins.seen


@pytest.mark.usefixtures("spark")
def test_random_merges_give_the_same_graph_and_the_same_report(tmp_path: Path) -> None:
    seen = run(tmp_path, 6, (2, 3))
    assert {"merged", "refused", "adopted", "rewritten"} <= seen.keys(), seen


@EXHAUSTIVE
@pytest.mark.usefixtures("spark")
def test_many_random_merges_give_the_same_graph_and_the_same_report(tmp_path: Path, thorough: bool) -> None:
    seen: dict[str, int] = {}
    for seed in range(10, 16 if thorough else 12):
        for outcome, number in run(tmp_path / str(seed), seed, range(16), plans=True).items():
            seen[outcome] = seen.get(outcome, 0) + number
    assert {"merged", "refused", "fast_forward", "adopted", "rewritten", "mirrored"} <= seen.keys(), seen
