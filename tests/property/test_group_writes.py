"""Writes that are published together are what they would be one after the other: content, receipts and refusals."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.together import written_together

from omnigraph.engine.operations.load import load
from omnigraph.engine.operations.mutate import mutate
from omnigraph.engine.write.context import GraphContext
from omnigraph.engine.write.writer import Written
from omnigraph.errors import GraphError
from omnigraph.graph import Graph, create
from omnigraph.plan import compile_query
from omnigraph.plan.statements import WritePlan

SCHEMA = """
node Person { name: String @key
              badge: I32? @unique
              score: F64?
              @range(score, 0..10) }
node Note { text: String }
edge Knows: Person -> Person { since: I32? }
edge Owns: Person -> Note @card(0..2)
edge Boss: Person -> Person @card(0..1)
"""
NAMES = ("ann", "bob", "cid", "dan")
ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")

names = st.sampled_from(NAMES)
badges = st.sampled_from(["1", "2", "3", "null"])
statements = st.one_of(
    st.builds('insert Person {{ name: "{}", badge: {} }}'.format, names, badges),
    st.builds(
        'insert Person {{ name: "{}", score: {} }}'.format, names, st.sampled_from(["1.5", "0.0", "-0.0", "11.0"])
    ),
    st.builds('insert Note {{ text: "{}" }}'.format, names),
    st.builds('insert Knows {{ from: "{}", to: "{}" }}'.format, names, names),
    st.builds('insert Boss {{ from: "{}", to: "{}" }}'.format, names, names),
    st.builds('update Person set {{ badge: {} }} where name = "{}"'.format, badges, names),
    st.builds(
        "update Person set {{ score: {} }} where badge > {}".format,
        st.sampled_from(["2.0", "9.0"]),
        badges.filter(lambda it: it != "null"),
    ),
    st.builds('update Note set {{ text: "{}" }} where text = "{}"'.format, names, names),
)
deletes = st.one_of(
    st.builds('delete Person where name = "{}"'.format, names),
    st.builds("delete Person where badge = {}".format, st.sampled_from(["1", "2"])),
    st.builds('delete Knows where from = "{}"'.format, names),
    st.builds('delete Boss where to = "{}"'.format, names),
    st.builds('delete Note where text = "{}"'.format, names),
)
mutations = st.one_of(
    st.lists(statements, min_size=1, max_size=3).map(" ".join), st.lists(deletes, min_size=1, max_size=2).map(" ".join)
)


def person(name: str, badge: int | None) -> str:
    return json.dumps({"type": "Person", "data": {"name": name, "badge": badge}})


lines = st.lists(st.builds(person, names, st.sampled_from([None, 1, 2, 9])), min_size=1, max_size=2)
loads = st.tuples(lines.map("\n".join), st.sampled_from(["append", "merge"]))


@dataclass(frozen=True)
class Program:
    """One write: the text of a mutation, or the lines and the mode of a load."""

    what: str | tuple[str, str]

    def ask(self, context: GraphContext, number: int) -> Any:
        actor = f"act-{number % 3}"
        if isinstance(self.what, tuple):
            return load(context, self.what[0].encode(), mode=self.what[1], actor=actor, message="m")
        plan = compile_query(context.catalog, f"query q{number}() {{ {self.what} }}")
        assert isinstance(plan, WritePlan)
        return mutate(context, plan, {}, actor=actor)


programs = st.one_of(mutations, mutations, mutations, loads).map(Program)
rounds = st.lists(st.lists(programs, min_size=2, max_size=6), min_size=1, max_size=3)


def content(graph: Graph) -> list[str]:
    """Every entity, without the ids that were minted for it."""
    told = []
    for line in graph.export():
        record = json.loads(line)
        if "edge" in record or record["type"] == "Note":
            record.get("data", {}).pop("id", None)
            record.pop("id", None)
        told.append(ULID.sub("*", json.dumps(record, sort_keys=True)))
    return sorted(told)


def refusal(error: GraphError) -> tuple[str, str]:
    return type(error).__name__, ULID.sub("*", str(error))


def by_itself(graph: Graph, number: int, program: Program) -> tuple[Any, ...]:
    try:
        result = program.ask(graph.context, number)
    except GraphError as error:
        return refusal(error)
    if isinstance(program.what, tuple):
        return (result.nodes_loaded, result.edges_loaded, result.commit_id is not None)
    return (result.affected_nodes, result.affected_edges, result.commit_id is not None)


def together(graph: Graph, batch: list[Program]) -> list[tuple[Any, ...]]:
    def asking(number: int, program: Program) -> Callable[[GraphContext], object]:
        return lambda context: program.ask(context, number)

    asks = [asking(number, program) for number, program in enumerate(batch)]
    told: list[tuple[Any, ...]] = []
    for program, outcome in zip(batch, written_together(graph.context, asks), strict=True):
        ended = outcome[1] if isinstance(outcome, tuple) else outcome
        if not isinstance(ended, Written):
            told.append(refusal(ended))
        elif isinstance(program.what, tuple):
            told.append((len(program.what[0].split("\n")), 0, ended.committed is not None))
        else:
            value = ended.value
            told.append((value.affected_nodes, value.affected_edges, ended.committed is not None))
    return told


@pytest.mark.long
@settings(max_examples=12, deadline=None)
@given(rounds)
def test_together_is_one_after_the_other(batches: list[list[Program]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        grouped, serial = create(Path(folder) / "grouped", SCHEMA), create(Path(folder) / "serial", SCHEMA)
        for batch in batches:
            expected = [by_itself(serial, number, program) for number, program in enumerate(batch)]
            assert together(grouped, batch) == expected, batch
            assert content(grouped) == content(serial), batch
            assert grouped.snapshot().entries.keys() == serial.snapshot().entries.keys()
            for key, entry in serial.snapshot().entries.items():
                assert grouped.snapshot().entries[key].row_count == entry.row_count
        assert grouped.maintenance.verify().clean
        assert len(grouped.history.list()) <= len(serial.history.list())


@settings(max_examples=5, deadline=None)
@given(st.lists(programs, min_size=2, max_size=6))
def test_a_commit_of_several_writes_lists_them(batch: list[Program]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        graph = create(Path(folder) / "graph", SCHEMA)
        before = len(graph.history.list())
        told = together(graph, batch)
        commits = graph.history.list()[: len(graph.history.list()) - before]
        changed = [number for number, each in enumerate(told) if each[-1] is True]
        listed = [write.actor_id for commit in reversed(commits) for write in commit.writes] or [
            commit.actor_id for commit in reversed(commits)
        ]
        assert listed == [f"act-{number % 3}" for number in changed]
        for actor in set(listed):
            assert actor is not None
            assert graph.history.list(actor=actor)
