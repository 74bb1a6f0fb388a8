"""Lists of conflicts that somebody went through, and bases that somebody chose: what is taken, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import ConflictError, InputError
from omnigraph.graph import Graph, create

SCHEMA = """
node P { k: String @key  s: String? @unique  t: String? @unique  f: F64?  l: [F64]? }
edge K: P -> P { w: F64?  @key(src, dst) }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = create(tmp_path / "graph", SCHEMA)
    put(made, "main", *(node(key) for key in "abc"), edge("a", "b", 1.0))
    made.branches.create("review")
    return made


def node(key: str, **values: Any) -> dict[str, Any]:
    return {"type": "P", "data": {"k": key, **values}}


def edge(source: str, target: str, w: float) -> dict[str, Any]:
    return {"edge": "K", "from": source, "to": target, "data": {"w": w}}


def put(graph: Graph, branch: str, *records: dict[str, Any]) -> None:
    graph.load(list(records), "merge", branch=branch)


def listed(graph: Graph, *takes: Any) -> list[dict[str, Any]]:
    found = [conflict.to_json() for conflict in graph.branches.conflicts("review")]
    return [{**line, "take": take} for line, take in zip(found, takes, strict=True)]


@pytest.mark.parametrize(("take", "left"), [("theirs", ["a", "c"]), ("ours", ["a", "b", "c"])])
def test_an_edge_and_its_node_are_settled_by_one_list(graph: Graph, take: str, left: list[str]) -> None:
    """The deletion of the edge settles its orphan too, and the line about that is no mistake."""
    graph.mutate('query d() { delete P where k = "b" }', branch="review")
    put(graph, "main", edge("a", "b", 2.0))
    lines = listed(graph, take, take)
    assert [line["kind"] for line in lines] == ["delete_vs_update", "orphan_edge"]
    graph.branches.merge("review", resolve=lines)
    assert sorted(row["id"] for row in graph.snapshot().open("node:P").scan(["id"]).to_pylist()) == left  # type: ignore[arg-type]
    assert graph.maintenance.verify().clean


def test_a_rule_that_another_decision_mends_may_be_decided_too(graph: Graph) -> None:
    put(graph, "main", node("a", s="x"))
    graph.branches.merge("main", "review")
    put(graph, "review", node("a", s="q"), node("d", s="x"))
    put(graph, "main", node("a", s="x", f=4.0))
    lines = listed(graph, "theirs", {"set": {"s": "other"}})
    assert [line["kind"] for line in lines] == ["divergent_update", "unique_violation"]
    graph.branches.merge("review", resolve=lines)
    found = graph.snapshot().open("node:P").scan(["id", "s"]).to_pylist()  # type: ignore[arg-type]
    assert {row["id"]: row["s"] for row in found} == {"a": "q", "b": None, "c": None, "d": "x"}


def test_a_rule_that_nothing_breaks_is_refused_all_the_same(graph: Graph) -> None:
    put(graph, "review", node("a", f=1.0))
    put(graph, "main", node("a", f=2.0))
    lines = [*listed(graph, "ours"), {"table_key": "edge:K", "kind": "orphan_edge", "take": "drop_edge"}]
    with pytest.raises(InputError, match="fits no conflict") as refused:
        graph.branches.merge("review", resolve=lines)
    assert refused.value.code == "stale_resolution"


def test_a_decision_about_a_rule_is_stale_once_something_else_breaks_it(graph: Graph) -> None:
    for branch, key in (("review", "a"), ("main", "b")):
        put(graph, branch, node(key, s="one"))
    lines = listed(graph, {"set": {"s": "three"}})
    for branch, key in (("review", "a"), ("main", "b")):
        put(graph, branch, node(key, s="two"))
    with pytest.raises(InputError, match="another state") as refused:
        graph.branches.merge("review", resolve=lines)
    assert refused.value.code == "stale_resolution"
    graph.branches.merge("review", resolve=listed(graph, {"set": {"s": "three"}}))


def test_two_entities_that_break_two_rules_are_two_conflicts(graph: Graph) -> None:
    """Each is listed, also from behind the other, and each has a decision of its own."""
    for branch, key in (("review", "a"), ("main", "b")):
        put(graph, branch, node(key, s="one", t="two"))
    lines = listed(graph, {"set": {"s": "three"}}, {"set": {"t": "four"}})
    assert [(line["row_id"], line["related"], line["columns"]) for line in lines] == [
        ("a", "b", ["s"]),
        ("a", "b", ["t"]),
    ]
    assert [each.columns for each in graph.branches.conflicts("review", after=lines[0]["token"])] == [("t",)]
    graph.branches.merge("review", resolve=lines)
    found = graph.snapshot().open("node:P").scan(["id", "s", "t"]).to_pylist()  # type: ignore[arg-type]
    assert {row["id"]: (row["s"], row["t"]) for row in found if row["s"]} == {
        "a": ("three", "four"),
        "b": ("one", "two"),
    }


def test_an_edge_without_its_node_is_told_with_both_ends(graph: Graph) -> None:
    """Its id is of no use to whoever decides, and one end is not enough to find it."""
    put(graph, "review", edge("b", "c", 1.0))
    graph.mutate('query d() { delete P where k = "c" }')
    put(graph, "main", edge("b", "a", 1.0))
    graph.mutate('query d() { delete P where k = "a" }', branch="review")
    told = [conflict.message.partition("; ")[2] for conflict in graph.branches.conflicts("review")]
    assert told == ["the edge goes from 'b' to 'a'", "the edge goes from 'b' to 'c'"]


def test_a_loop_whose_node_was_deleted_is_settled_as_listed(graph: Graph) -> None:
    put(graph, "review", edge("c", "c", 1.0))
    graph.mutate('query d() { delete P where k = "c" }')
    lines = listed(graph, "theirs", "theirs")
    assert [(line["kind"], line["columns"]) for line in lines] == [("orphan_edge", ["from"]), ("orphan_edge", ["to"])]
    graph.branches.merge("review", resolve=lines)
    assert graph.maintenance.verify().clean
    assert len(graph.snapshot().open("edge:K").scan(["id"])) == 2  # type: ignore[arg-type]


def test_both_zeros_are_one_state_of_an_entity(graph: Graph) -> None:
    put(graph, "review", node("a", f=0.0, l=[0.0, 1.0]))
    put(graph, "main", node("a", f=2.0))
    lines = listed(graph, "theirs")
    put(graph, "review", node("a", f=-0.0, l=[-0.0, 1.0]))
    assert graph.branches.merge("review", resolve=lines).plan.resolved == {"theirs": 1}


def test_a_base_is_a_commit_that_both_branches_come_from(graph: Graph) -> None:
    """Any other one would delete what only one of them has, and say nothing."""
    parted = graph.history.list(limit=1)[0].graph_commit_id
    put(graph, "main", node("d"))
    graph.tags.create("ours")
    put(graph, "main", node("e"))
    put(graph, "review", node("a", f=1.0))
    heads = [str(graph.snapshot(name).head) for name in ("main", "review")]
    for base in (*heads, "ours"):
        for verb in (graph.branches.merge, graph.branches.plan_merge):
            with pytest.raises(InputError, match="a base is a commit that both branches come from"):
                verb("review", base=base)
    assert [str(graph.snapshot(name).head) for name in ("main", "review")] == heads
    graph.tags.create("parted", at=parted)
    for base in (parted, parted[:22], "parted"):
        assert graph.branches.plan_merge("review", base=base).base_commits == (parted,)
    assert str(graph.branches.merge("review", base="parted").outcome) == "merged"


def test_a_base_has_the_schema_and_the_properties_of_the_branches(tmp_path: Path) -> None:
    graph = create(tmp_path / "changed", SCHEMA)
    put(graph, "main", node("a", f=1.0))
    then = str(graph.snapshot().head)
    put(graph, "main", node("a", f=2.0))

    def part() -> None:
        graph.branches.create("review")
        put(graph, "review", node("b"))
        put(graph, "main", node("c"))

    graph.schema.apply(SCHEMA.replace("  f: F64?", ""), confirm_drops=True)
    part()
    with pytest.raises(InputError, match=f"commit {then} cannot be the base, because the schema has been changed"):
        graph.branches.merge("review", base=then)
    graph.branches.delete("review")
    graph.schema.apply(SCHEMA)
    part()
    for verb in (graph.branches.merge, graph.branches.plan_merge):
        with pytest.raises(ConflictError, match="'node:P' was dropped and another has its name"):
            verb("review", base=then)
    assert str(graph.branches.merge("review").outcome) == "merged"


def test_edges_that_both_sides_have_are_not_counted_when_those_of_one_side_count(tmp_path: Path) -> None:
    graph = create(tmp_path / "cards", "node P { k: String @key }\nedge M: P -> P @card(0..2)")

    def link(branch: str, id: str) -> None:
        graph.load([{"edge": "M", "from": "a", "to": "a", "data": {"id": id}}], "append", branch=branch)

    put(graph, "main", node("a"))
    link("main", "both")
    graph.branches.create("review")
    for branch in ("main", "review"):
        link(branch, branch)
    result = graph.branches.merge("review", resolve=lambda conflict: "theirs")
    [found] = result.plan.types
    assert (found.inserted, found.updated, found.deleted, found.counts_exact) == (1, 0, 1, True)
    assert (str(found.how), found.rows_written) == ("adopted", 0)
    assert set(graph.snapshot().open("edge:M").scan(["id"])["id"].to_pylist()) == {"both", "review"}  # type: ignore[arg-type]


def test_a_commit_tells_the_counts_of_two_types_of_one_name(tmp_path: Path) -> None:
    graph = create(tmp_path / "names", "node X { k: String @key }\nedge X: X -> X")
    graph.branches.create("review")
    records = [{"type": "X", "data": {"k": key}} for key in "ab"] + [{"edge": "X", "from": "a", "to": "b"}]
    graph.load(records, "append", branch="review")
    graph.branches.merge("review")
    counts = json.loads(graph.history.list(limit=1)[0].properties["merge.counts"])
    assert counts == {"node:X": [2, 0, 0], "edge:X": [1, 0, 0]}


def test_entities_are_found_where_ours_has_moved_them(tmp_path: Path) -> None:
    """Nobody changed them on this side, but optimize has put them into another fragment."""
    graph = create(tmp_path / "moved", "node P { k: String @key  v: I64? }")
    for group in range(6):
        put(graph, "main", *(node(f"k{group}{number}", v=0) for number in range(5)))
    graph.branches.create("review")
    put(graph, "review", node("k23", v=7), node("k51", v=8))
    graph.mutate('query d() { delete P where k = "k44" }', branch="review")
    put(graph, "main", node("k00", v=1))
    [moved] = graph.maintenance.optimize().tables
    assert moved.fragments_removed > 1
    put(graph, "main", node("new", v=3))
    graph.branches.merge("review")
    found = {row["k"]: row["v"] for row in graph.snapshot().open("node:P").scan(["k", "v"]).to_pylist()}
    assert {key: value for key, value in found.items() if value} == {"k00": 1, "k23": 7, "k51": 8, "new": 3}
    assert len(found) == 30
    assert graph.maintenance.verify().clean
