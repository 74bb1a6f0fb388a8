"""Merges as callers see them: the table of rows, strategies, resolutions, and what moves meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import failpoints
from omnigraph.engine.operations.merge import MergeConflict
from omnigraph.errors import (
    ConflictError,
    ConstraintError,
    InputError,
    MergeConflictError,
    NotFoundError,
    PreconditionFailedError,
)
from omnigraph.graph import Graph, connect, create
from omnigraph.ids import TableKey

SCHEMA = """
node Doc { k: String @key  title: String?  n: I32?  v: Vector(2)? @embed("title")  data: Blob? }
edge Links: Doc -> Doc { w: I32? }
"""
B, X, Y = ({"title": title, "n": n} for title, n in (("b", 0), ("x", 1), ("y", 2)))
ROWS: list[tuple[Any, Any, Any, Any]] = [
    (None, X, None, X),
    (None, None, Y, Y),
    (None, X, X, X),
    (None, X, Y, "divergent_insert"),
    (B, B, B, B),
    (B, B, Y, Y),
    (B, X, B, X),
    (B, None, B, None),
    (B, B, None, None),
    (B, None, None, None),
    (B, None, Y, "delete_vs_update"),
    (B, X, None, "delete_vs_update"),
    (B, X, X, X),
    (B, X, Y, "divergent_update"),
]
"""Base, theirs, ours, and the row or the conflict that comes of it."""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return create(tmp_path / "graph", SCHEMA)


def put(graph: Graph, branch: str, key: str, row: dict[str, Any] | None) -> None:
    if row is None:
        graph.mutate("query d($k: String) { delete Doc where k = $k }", {"k": key}, branch=branch)
    else:
        graph.load([{"type": "Doc", "data": {"k": key, **row}}], "merge", branch=branch)


def docs(graph: Graph, branch: str = "main") -> dict[str, dict[str, Any]]:
    query = "query q() { match { $d: Doc } return { $d.k as k, $d.title as title, $d.n as n } }"
    return {row.pop("k"): row for row in graph.query(query, branch=branch)}


def parted(graph: Graph, states: dict[str, tuple[Any, Any, Any]]) -> None:
    """Main and `review` in these states of some entities: base, theirs, ours."""
    put(graph, "main", "other", B)
    for key, (base, _, _) in states.items():
        if base is not None:
            put(graph, "main", key, base)
    graph.branches.create("review")
    for key, (base, theirs, ours) in states.items():
        for branch, now in (("review", theirs), ("main", ours)):
            if now != base:
                put(graph, branch, key, now)


def test_every_cell_of_the_table_of_rows(graph: Graph) -> None:
    parted(graph, {f"r{place}": row[:3] for place, row in enumerate(ROWS)})
    wanted = {f"r{place}": row[3] for place, row in enumerate(ROWS)}
    conflicts = {conflict.row_id: str(conflict.kind) for conflict in graph.branches.conflicts("review")}
    assert conflicts == {key: result for key, result in wanted.items() if isinstance(result, str)}
    with pytest.raises(MergeConflictError):
        graph.branches.merge("review")
    graph.branches.merge("review", resolve=lambda conflict: "ours")
    ours = {f"r{place}": row[2] for place, row in enumerate(ROWS)}
    expected = {key: ours[key] if isinstance(result, str) else result for key, result in wanted.items()}
    assert docs(graph) == {"other": B, **{key: row for key, row in expected.items() if row is not None}}
    assert graph.maintenance.verify().clean


@pytest.mark.parametrize("side", [1, 2])
def test_a_strategy_decides_every_conflict_of_rows(graph: Graph, side: int) -> None:
    conflicting = {f"r{place}": row for place, row in enumerate(ROWS) if isinstance(row[3], str)}
    parted(graph, {key: row[:3] for key, row in conflicting.items()})
    name = {1: "theirs", 2: "ours"}[side]
    result = graph.branches.merge("review", strategies={"Doc": name})
    assert result.plan.resolved == {name: len(conflicting)}
    assert docs(graph) == {"other": B, **{key: row[side] for key, row in conflicting.items() if row[side] is not None}}


def test_fields_takes_both_where_they_changed_different_properties(graph: Graph) -> None:
    parted(graph, {"a": (B, {**B, "n": 5}, {**B, "title": "ours"}), "c": (B, {**B, "n": 5}, {**B, "n": 6})})
    (left,) = graph.branches.conflicts("review", strategy="fields")
    assert (left.row_id, left.columns) == ("c", ("n",))
    graph.branches.merge("review", strategy="fields", resolve=lambda conflict: "base")
    assert docs(graph) == {"other": B, "a": {"title": "ours", "n": 5}, "c": B}


def test_a_text_and_its_vector_are_one_column(graph: Graph) -> None:
    parted(graph, {"a": (B, {**B, "title": "theirs"}, {**B, "v": [1.0, 2.0]})})
    assert [str(c.kind) for c in graph.branches.conflicts("review", strategy="fields")] == ["divergent_update"]


@pytest.mark.parametrize(
    ("take", "becomes"),
    [
        ("ours", Y),
        ("theirs", X),
        ("base", B),
        ({"set": {"n": 9}}, {**Y, "n": 9}),
    ],
)
def test_a_conflict_is_resolved_as_decided(graph: Graph, take: Any, becomes: dict[str, Any]) -> None:
    parted(graph, {"a": (B, X, Y)})
    seen: list[MergeConflict] = []

    def decide(conflict: MergeConflict) -> Any:
        seen.append(conflict)
        return take

    graph.branches.merge("review", resolve=decide)
    assert docs(graph)["a"] == becomes
    (conflict,) = {each.fingerprint: each for each in seen}.values()
    images = [image and dict(image.properties) for image in (conflict.base, conflict.ours, conflict.theirs)]
    assert [image and (image["title"], image["n"]) for image in images] == [("b", 0), ("y", 2), ("x", 1)]


@pytest.mark.parametrize(
    ("resolve", "error"),
    [
        ([{"table_key": "node:Doc", "kind": "divergent_update"}], InputError),
        ([{"table_key": "node:Doc", "kind": "divergent_update", "take": "mine"}], InputError),
        (lambda conflict: {"set": {"nope": 1}}, InputError),
        (lambda conflict: {"set": {"k": "z"}}, InputError),
        (lambda conflict: {"set": {"n": "many"}}, InputError),
        (lambda conflict: None, MergeConflictError),
    ],
)
def test_a_resolution_that_does_not_fit_changes_nothing(graph: Graph, resolve: Any, error: type[Exception]) -> None:
    parted(graph, {"a": (B, X, Y)})
    before = graph.snapshot().head
    with pytest.raises(error):
        graph.branches.merge("review", resolve=resolve)
    assert graph.snapshot().head == before
    assert docs(graph)["a"] == Y


def test_a_resolution_that_breaks_a_rule_is_a_conflict_again(tmp_path: Path) -> None:
    graph = create(tmp_path / "graph", "node Doc { k: String @key  n: I32?  @range(n, 0..5) }")
    graph.load([{"type": "Doc", "data": {"k": "a", "n": 0}}], "append")
    graph.branches.create("review")
    graph.load([{"type": "Doc", "data": {"k": "a", "n": 1}}], "merge", branch="review")
    graph.load([{"type": "Doc", "data": {"k": "a", "n": 2}}], "merge")
    with pytest.raises(MergeConflictError) as refused:
        graph.branches.merge("review", resolve=lambda conflict: {"set": {"n": 9}})
    assert [conflict["kind"] for conflict in refused.value.conflicts] == ["value_constraint_violation"]
    with pytest.raises(ConstraintError):
        graph.load([{"type": "Doc", "data": {"k": "a", "n": 9}}], "merge")


@pytest.mark.parametrize(("changed", "new"), [("a", "b"), ("b", "a")])
def test_of_two_rows_that_a_resolution_lets_meet_that_of_the_source_is_named(
    tmp_path: Path, changed: str, new: str
) -> None:
    graph = create(tmp_path / "graph", "node P { k: String @key  s: String? @unique  t: String? }")

    def put(branch: str, key: str, **values: str) -> None:
        graph.load([{"type": "P", "data": {"k": key, **values}}], "merge", branch=branch)

    put("main", changed, t="base")
    graph.branches.create("review")
    put("review", changed, t="theirs")
    put("review", new, s="same")
    put("main", changed, s="same", t="ours")
    settled = {"table_key": "node:P", "row_id": changed, "kind": "divergent_update"}
    for take in ("ours", {"set": {"t": "both"}}):
        plan = graph.branches.plan_merge("review", resolve=[{**settled, "take": take}])
        assert [(str(each.kind), each.row_id) for each in plan.conflicts] == [("unique_violation", new)]


@pytest.mark.parametrize("deletes", ["main", "review"])
def test_a_node_is_kept_for_an_edge_that_a_resolution_has_made(tmp_path: Path, deletes: str) -> None:
    graph = create(tmp_path / "graph", "node P { k: String @key }\nedge E: P -> P { w: I32? }")

    def edge(branch: str, w: int) -> None:
        graph.load([{"edge": "E", "from": "a", "to": "b", "data": {"id": "e", "w": w}}], "merge", branch=branch)

    graph.load([{"type": "P", "data": {"k": key}} for key in "ab"], "append")
    edge("main", 0)
    graph.branches.create("review")
    graph.mutate('query d() { delete P where k = "b" }', branch=deletes)
    edge("main" if deletes == "review" else "review", 1)
    takes = {"delete_vs_update": {"set": {"w": 2}}, "orphan_edge": "keep_node"}
    graph.branches.merge("review", resolve=lambda conflict: takes[str(conflict.kind)])
    assert sorted(graph.snapshot().open(TableKey("node:P")).scan(["id"])["id"].to_pylist()) == ["a", "b"]
    assert graph.snapshot().open(TableKey("edge:E")).scan(["w"])["w"].to_pylist() == [2]
    assert graph.maintenance.verify().clean


@pytest.mark.parametrize("ids", ["xy", "yx"])
def test_a_node_that_edges_of_both_sides_keep_comes_back_as_ours_has_it(tmp_path: Path, ids: str) -> None:
    graph = create(tmp_path / "graph", "node P { k: String @key  n: I32? }\nedge E: P -> P")
    graph.load([{"type": "P", "data": {"k": "a"}}], "append")
    graph.branches.create("review")
    for branch, edge, n in zip(("main", "review"), ids, (1, 2), strict=True):
        records = [
            {"type": "P", "data": {"k": "b", "n": n}},
            {"edge": "E", "from": "a", "to": "b", "data": {"id": edge}},
        ]
        graph.load(records, "append", branch=branch)
    takes = {"divergent_insert": "base", "orphan_edge": "keep_node"}
    graph.branches.merge("review", resolve=lambda conflict: takes[str(conflict.kind)])
    rows = graph.snapshot().open(TableKey("node:P")).scan(["id", "n"]).to_pylist()
    assert sorted((row["id"], row["n"]) for row in rows) == [("a", None), ("b", 1)]
    assert len(graph.snapshot().open(TableKey("edge:E")).scan(["id"])) == 2


def test_blobs_and_vectors_arrive(graph: Graph) -> None:
    put(graph, "main", "a", B)
    graph.branches.create("review")
    put(graph, "review", "a", {**B, "v": [1.0, 2.0], "data": "base64:AAEC"})
    graph.branches.merge("review")
    assert graph.read_blob("Doc", "a", "data") == b"\x00\x01\x02"
    (row,) = graph.query('query q() { match { $d: Doc { k: "a" } } return { $d.v as v } }').to_pylist()
    assert row == {"v": [1.0, 2.0]}


def test_both_directions_and_a_branch_of_a_branch(graph: Graph) -> None:
    put(graph, "main", "a", B)
    graph.branches.create("one")
    graph.branches.create("two", "one")
    put(graph, "two", "x", X)
    put(graph, "main", "y", Y)
    assert str(graph.branches.merge("main", "two").outcome) == "merged"
    assert docs(graph, "two") == {"a": B, "x": X, "y": Y}
    assert str(graph.branches.merge("two", "main").outcome) == "fast_forward"
    assert str(graph.branches.merge("two", "one").outcome) == "fast_forward"
    assert docs(graph, "one") == docs(graph, "main") == docs(graph, "two")
    assert graph.maintenance.verify().clean


def test_a_merge_that_changes_nothing_is_recorded(graph: Graph) -> None:
    put(graph, "main", "a", B)
    graph.branches.create("review")
    put(graph, "review", "a", X)
    put(graph, "review", "a", B)
    assert graph.branches.plan_merge("review").types == ()
    result = graph.branches.merge("review", actor="ana")
    # Going forward reads no row, so nobody can say that the row which was written twice is what it was.
    assert [(str(t.how), t.updated, t.counts_exact) for t in result.plan.types] == [("mirrored", 1, False)]
    assert docs(graph, "main") == {"a": B}
    commit = graph.history.show(str(result.commit_id))
    assert (commit.merged_parent_commit_id, commit.actor_id) == (graph.snapshot("review").head, "ana")
    assert graph.branches.merge("review").commit_id is None


def test_what_was_reviewed_is_what_is_merged(graph: Graph) -> None:
    put(graph, "main", "a", B)
    graph.branches.create("review")
    put(graph, "review", "a", X)
    plan = graph.branches.plan_merge("review")
    put(graph, "review", "a", Y)
    with pytest.raises(PreconditionFailedError):
        graph.branches.merge("review", expect_source=plan.source_commit)
    put(graph, "main", "c", X)
    with pytest.raises(PreconditionFailedError):
        graph.branches.merge("review", expect_target=plan.target_commit)
    assert docs(graph) == {"a": B, "c": X}


def test_a_read_only_handle_can_plan_and_not_merge(graph: Graph) -> None:
    put(graph, "main", "a", B)
    graph.branches.create("review")
    put(graph, "review", "a", X)
    reader = connect(graph.uri, read_only=True)
    assert reader.branches.plan_merge("review").types[0].updated == 1
    with pytest.raises(InputError):
        reader.branches.merge("review")


def during(name: str, act: Callable[[], None]) -> Callable[[str], None]:
    """Do something once, when a write comes to a failpoint."""
    done: list[str] = []

    def plan(at: str) -> None:
        if at == name and not done:
            done.append(at)
            act()

    return plan


@pytest.mark.parametrize(("key", "lands"), [("c", True), ("a", False)])
def test_a_target_that_moves_meanwhile_is_planned_again(graph: Graph, key: str, lands: bool) -> None:
    """Another entity of the table: both land. The same one: now it is a conflict."""
    put(graph, "main", "a", B)
    graph.branches.create("review")
    put(graph, "review", "a", X)
    other = connect(graph.uri)
    previous = failpoints.install(during(failpoints.MERGE_POST_VALIDATION, lambda: put(other, "main", key, Y)))
    try:
        if lands:
            assert str(graph.branches.merge("review").outcome) == "merged"
        else:
            with pytest.raises(MergeConflictError):
                graph.branches.merge("review")
    finally:
        failpoints.install(previous)
    assert docs(graph) == ({"a": X, "c": Y} if lands else {"a": Y})
    assert graph.maintenance.verify().clean


@pytest.mark.parametrize("window", [failpoints.MERGE_POST_VALIDATION, failpoints.MUTATION_POST_STAGE])
@pytest.mark.parametrize("anew", [False, True], ids=["deleted", "made anew"])
def test_a_source_that_is_deleted_in_the_middle_ends_the_merge(graph: Graph, window: str, anew: bool) -> None:
    """It has been planned, or even staged."""
    put(graph, "main", "a", B)
    graph.branches.create("review")
    put(graph, "review", "a", X)
    put(graph, "main", "c", Y)
    before, other = graph.snapshot().head, connect(graph.uri)

    def delete() -> None:
        other.branches.delete("review")
        if anew:
            other.branches.create("review")
            put(other, "review", "a", Y)

    previous = failpoints.install(during(window, delete))
    try:
        with pytest.raises(
            ConflictError, match="'review' cannot be merged into 'main': it was deleted or created anew"
        ):
            graph.branches.merge("review")
    finally:
        failpoints.install(previous)
    assert graph.snapshot().head == before
    assert docs(graph) == {"a": B, "c": Y}
    assert graph.maintenance.verify().clean
    assert graph.maintenance.unfinished() == []
    put(graph, "main", "d", X)


@pytest.mark.parametrize(("source", "into"), [("nowhere", "main"), ("review", "nowhere"), ("review", "review")])
def test_names_that_cannot_be_merged_change_nothing(graph: Graph, source: str, into: str) -> None:
    put(graph, "main", "a", B)
    graph.branches.create("review")
    put(graph, "review", "a", X)
    heads = {name: graph.snapshot(name).head for name in graph.branches.list()}
    for verb in (graph.branches.merge, graph.branches.plan_merge, graph.branches.conflicts):
        with pytest.raises((NotFoundError, InputError)) as refused:
            list(verb(source, into))  # type: ignore[call-overload]
        assert "nowhere" in str(refused.value) or "into itself" in str(refused.value)
    assert {name: graph.snapshot(name).head for name in graph.branches.list()} == heads
