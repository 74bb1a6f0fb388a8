"""Columns whose values change with the schema: what is read before and after, warm and cold, and what is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.engine.storage.cache import SHARED
from omnigraph.engine.storage.written import WRITTEN
from omnigraph.errors import SchemaError

SCHEMA = """
node Person { name: String @key  age: I32?  size: U32 @index  bio: String? @index }
edge Knows: Person -> Person { w: F32? }
"""
WIDER = (
    SCHEMA.replace("age: I32?", "age: I64 @default(-1)")
    .replace("size: U32", "size: I64  joined: DateTime @default(now())")
    .replace("w: F32?", "w: F64?")
)
PEOPLE = "query q() { match { $p: Person } return { $p.name, $p.age, $p.size, $p.bio } order { $p.name } }"
NULLS = "query q() { match { $p: Person $p.age is null } return { $p.name } order { $p.name } }"


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    graph = omnigraph.create(tmp_path / "g.omni", SCHEMA)
    people = [
        {"name": f"p{i}", "age": None if i % 3 == 0 else i, "size": 2**32 - 1 - i, "bio": f"word{i % 2}"}
        for i in range(9)
    ]
    graph.load([{"type": "Person", "data": person} for person in people], mode="append")
    graph.load([{"edge": "Knows", "from": "p0", "to": "p1", "data": {"w": 0.1}}], mode="append")
    graph.mutate('query q() { delete Person where name = "p4" }')
    graph.maintenance.optimize()
    graph.mutate('query q() { insert Person { name: "late", size: 5 } }')
    return graph


def read(graph: omnigraph.Graph, text: str, at: Any = None) -> list[dict[str, Any]]:
    """The rows of a query, warm and cold alike."""
    warm = graph.query(text, at=at).to_pylist()
    SHARED.clear()
    WRITTEN.clear()
    cold = omnigraph.connect(graph.uri, read_only=True).query(text, at=at).to_pylist()
    assert warm == cold
    return warm


def test_filled_columns_are_read_alike_warm_and_cold_and_the_past_has_the_old_ones(graph: omnigraph.Graph) -> None:
    before, past = read(graph, PEOPLE), graph.snapshot().head
    assert graph.schema.apply(WIDER).applied
    after = read(graph, PEOPLE)
    assert after == [{**row, "p.age": -1 if row["p.age"] is None else row["p.age"]} for row in before]
    assert read(graph, PEOPLE, past) == before
    assert [row["p.name"] for row in read(graph, NULLS, past)] == ["late", "p0", "p3", "p6"]
    found = read(graph, 'query q() { match { $p: Person search($p.bio, "word1") $p.age > 1 } return { $p.name } }')
    assert sorted(row["p.name"] for row in found) == ["p5", "p7"]
    moments = read(graph, "query q() { match { $p: Person } return { count(distinct $p.joined) as n } }")
    assert moments == [{"n": 1}]
    assert graph.maintenance.verify().problems == []


def test_a_filled_column_is_written_alone_and_its_table_goes_on(graph: omnigraph.Graph) -> None:
    graph.schema.apply(WIDER)
    graph.mutate('query q() { insert Person { name: "new", size: 99999999999 } }')
    graph.mutate('query q() { update Person set { age: 70 } where name = "p1" }')
    graph.branches.create("review")
    graph.mutate('query q() { update Person set { age: 71 } where name = "p2" }', branch="review")
    graph.branches.merge("review")
    graph.maintenance.optimize()
    rows = {row["p.name"]: row["p.age"] for row in read(graph, PEOPLE)}
    assert (rows["new"], rows["p1"], rows["p2"], rows["p3"]) == (-1, 70, 71, -1)
    assert graph.maintenance.verify().problems == []


def test_a_difference_across_a_wider_column_compares_its_values(graph: omnigraph.Graph) -> None:
    past = graph.snapshot().head
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I64?"))
    assert list(graph.diff(past, "main")) == []
    graph.mutate('query q() { update Person set { age: 70 } where name = "p1" }')
    (change,) = graph.diff(past, "main")
    assert (change.id, change.columns) == ("p1", ("age",))
    (back,) = graph.diff("main", past)
    assert (back.id, back.columns) == ("p1", ("age",))


def test_a_plan_names_the_first_rows_that_break_a_rule_and_how_many_there_are(graph: omnigraph.Graph) -> None:
    graph.load([{"type": "Person", "data": {"name": f"q{i:02}", "size": 7}} for i in range(30)], mode="append")
    (step,) = graph.schema.plan(SCHEMA.replace("size: U32 @index", "size: U32 @index @range(size, 10..)")).steps
    body = step.to_json()
    assert (body["kind"], body["code"], body["row_count"]) == ("unsupported_change", "OG-MF-107", 31)
    assert [row["id"] for row in body["rows"]] == ["late", *(f"q{i:02}" for i in range(19))]
    assert body["rows"][0]["problem"] == "@range violation: Person.size 5 is not within 10.."


def test_data_goes_only_when_that_is_confirmed(graph: omnigraph.Graph) -> None:
    less = SCHEMA.replace("  age: I32?", "")
    with pytest.raises(SchemaError, match=r"\[OG-DS-104\] node:Person.age: dropping it takes the data of 5 rows"):
        graph.schema.apply(less)
    assert graph.schema.plan(less).to_json()["steps"][0]["rows"] == 5
    with pytest.raises(SchemaError, match="OG-DS-103"):
        graph.schema.apply(SCHEMA.partition("\nedge")[0])
    past = graph.snapshot().head
    assert graph.schema.apply(less, confirm_drops=True).applied
    assert len(read(graph, "query q() { match { $p: Person $p.age > 0 } return { $p.age } }", past)) == 5
