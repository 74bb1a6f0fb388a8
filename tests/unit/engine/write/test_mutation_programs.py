"""Mutations with a match, keyed edges and returns: what the tables of the language cannot show."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph
from omnigraph.catalog.migration import carry_key_order, key_orders, plan_migration, with_key_orders
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.operations.mutate import touched as told
from omnigraph.errors import ParameterError

SCHEMA = """
node P { k: String @key  n: I64?  tags: [String]? }
edge Knows: P -> P { since: I32?  @key(src, dst) }
"""


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    made = omnigraph.create(tmp_path / "graph.omni", SCHEMA)
    made.load([{"type": "P", "data": {"k": f"k{i:04}", "n": i % 7}} for i in range(1_200)], mode="append")
    return made


def test_ids_are_told_up_to_a_bound_in_ascending_order(graph: omnigraph.Graph) -> None:
    result = graph.mutate("query q() { update P set { n: n + 1 } where true }")
    (touched,) = result.ids
    assert result.affected_nodes == 1_200
    assert touched.ids == tuple(f"k{i:04}" for i in range(told.IDS_MAX))
    assert touched.more
    exact = graph.mutate(f'query q() {{ update P set {{ n: 1 }} where k < "k{told.IDS_MAX:04}" }}').ids[0]
    assert (len(exact.ids), exact.more) == (told.IDS_MAX, False)


def test_a_pattern_that_cannot_be_used_is_refused_before_anything_is_read(graph: omnigraph.Graph) -> None:
    with pytest.raises(ParameterError, match="pattern"):
        graph.mutate("query q($p: String) { delete P where k matches $p }", {"p": "("})


def test_a_failing_condition_is_not_asked_of_what_is_gone_or_was_changed(graph: omnigraph.Graph) -> None:
    graph.mutate("query q() { delete P where n = 0 }")
    assert graph.mutate("query q() { update P set { n: 9 } where 10 % n = 0 }").affected_nodes > 0
    graph.mutate('query q() { insert P { k: "zero", n: 0 } }')
    text = 'query q() { update P set { n: 5 } where k = "zero"  update P set { n: 3 } where 10 % n = 0 }'
    assert graph.mutate(text).affected_nodes > 1


def test_lists_are_copied_by_expressions(graph: omnigraph.Graph) -> None:
    graph.mutate('query q() { update P set { tags: ["a", "b"] } where k = "k0001" }')
    text = """query q() {
        match { $a: P { k: "k0001" } }
        update P set { tags: $a.tags } where k in ["k0002", "k0003"]
        delete_me: 1
    }"""
    with pytest.raises(omnigraph.ParseError):
        graph.mutate(text)
    graph.mutate(text.replace("delete_me: 1", ""))
    found = graph.query('query q() { match { $p: P $p.tags contains "b" } return { $p.k } order { $p.k } }')
    assert [row["p.k"] for row in found] == ["k0001", "k0002", "k0003"]


def test_two_branches_that_add_one_keyed_edge_have_one_after_a_merge(graph: omnigraph.Graph) -> None:
    graph.branches.create("review")
    for branch in ("main", "review"):
        graph.mutate('query q() { insert Knows { from: "k0001", to: "k0002", since: 1 } }', branch=branch)
    graph.branches.merge("review")
    found = graph.query("query q() { match { $a $e:knows $b } return { $e.id } }").to_pylist()
    assert found == [{"e.id": '["k0001","k0002"]'}]
    assert graph.maintenance.verify().clean


def test_renaming_a_key_property_of_an_edge_changes_no_id() -> None:
    older = compile_schema("node P { k: String @key } edge E: P -> P { a: I32  b: I32  @key(src, dst, a, b) }")
    newer = compile_schema(
        'node P { k: String @key } edge E: P -> P { z: I32 @rename_from("a")  b: I32  @key(src, dst, b, z) }'
    )
    carried = carry_key_order(older, newer, plan_migration(older, newer))
    assert carried.edges["E"].key == ("src", "dst", "z", "b")
    assert key_orders(carried) == {"edge:E": ("src", "dst", "z", "b")}
    assert with_key_orders(newer, key_orders(carried)).edges["E"].key == ("src", "dst", "z", "b")
    assert key_orders(older) == {}
