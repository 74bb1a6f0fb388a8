"""What differs between two states, as callers see it: order, filters, values, schemas, and what cannot be told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph.catalog.identity import type_id
from omnigraph.engine.changes import Change
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.errors import (
    BranchNotFoundError,
    ChangesUnavailableError,
    CommitNotFoundError,
    GraphError,
    InputError,
    VersionReclaimedError,
)
from omnigraph.graph import Graph, connect, create

SCHEMA = """
node Person { name: String @key  age: I32?  face: Blob?  v: Vector(2)? }
node Place { title: String @key }
edge Knows: Person -> Person { since: I32? }
"""
PEOPLE = [
    {"type": "Person", "data": {"name": "ada", "age": 36, "v": [1.0, 0.0], "face": "base64:AAEC"}},
    {"type": "Person", "data": {"name": "bob", "age": 40}},
    {"type": "Person", "data": {"name": "cleo"}},
    {"edge": "Knows", "from": "ada", "to": "bob", "data": {"id": "k1", "since": 1840}},
]


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = create(tmp_path / "graph", SCHEMA)
    made.load(PEOPLE, "append")
    return made


def head(graph: Graph, branch: str = "main") -> str:
    found = graph.snapshot(branch).head
    assert found is not None
    return found


def short(changes: Any) -> list[tuple[str, str, str]]:
    return [(str(change.op), change.type_name, change.id) for change in changes]


def test_changes_are_listed_nodes_first_then_by_type_and_id(graph: Graph) -> None:
    before = head(graph)
    graph.mutate('query a() { insert Place { title: "x" } insert Person { name: "aa" } }')
    graph.mutate('query b() { update Person set { age: 1 } where name = "cleo" }')
    graph.mutate('query c() { delete Person where name = "bob" }')
    assert short(graph.diff(before, "main")) == [
        ("insert", "Person", "aa"),
        ("delete", "Person", "bob"),
        ("update", "Person", "cleo"),
        ("insert", "Place", "x"),
        ("delete", "Knows", "k1"),
    ]
    backwards = {change.id: str(change.op) for change in graph.diff("main", before)}
    assert backwards == {"aa": "delete", "bob": "insert", "cleo": "update", "x": "delete", "k1": "insert"}


def test_an_update_tells_what_differs(graph: Graph) -> None:
    before = head(graph)
    graph.load([{"type": "Person", "data": {"name": "ada", "age": 37, "v": [1.0, 5.0], "face": "base64:"}}], "merge")
    (changed,) = graph.diff(before, "main")
    assert changed.columns == ("age", "face", "v")
    assert changed.before is not None
    assert changed.after is not None
    assert (changed.before.properties, changed.after.properties) == ({"age": 36}, {"age": 37})
    (full,) = graph.diff(before, "main", values="full")
    assert full.before is not None
    assert full.after is not None
    assert full.before.properties == {"age": 36, "face": "base64:AAEC", "name": "ada", "v": [1.0, 0.0]}
    assert full.after.properties == {"age": 37, "face": "base64:", "name": "ada", "v": [1.0, 5.0]}
    (bare,) = graph.diff(before, "main", values="none")
    assert (bare.before, bare.after, bare.columns) == (None, None, ())


def test_the_wire_form_has_the_ends_of_an_edge(graph: Graph) -> None:
    before = head(graph)
    graph.mutate('query q() { insert Knows { from: "cleo", to: "ada", since: 2 } }')
    (change,) = graph.diff(before, "main")
    assert change.to_json() == {
        "kind": "edge",
        "type": {"id": type_id("edge", "Knows"), "name": "Knows"},
        "id": change.id,
        "op": "insert",
        "after": {"properties": {"since": 2}, "endpoints": {"from": "cleo", "to": "ada"}},
    }


def test_filters_leave_out_the_rest(graph: Graph) -> None:
    before = head(graph)
    graph.mutate('query q() { insert Place { title: "x" } insert Person { name: "dan" } }')
    graph.mutate('query q() { delete Person where name = "bob" }')
    assert short(graph.diff(before, "main", types=["Place"])) == [("insert", "Place", "x")]
    assert short(graph.diff(before, "main", kinds=["edge"])) == [("delete", "Knows", "k1")]
    assert short(graph.diff(before, "main", ops=["delete"])) == [("delete", "Person", "bob"), ("delete", "Knows", "k1")]


def test_a_rewrite_of_equal_values_is_no_change(graph: Graph) -> None:
    before = head(graph)
    graph.load([record for record in PEOPLE if "type" in record], "overwrite")
    graph.maintenance.optimize()
    assert short(graph.diff(before, "main")) == []
    assert "no differences" in repr(graph.diff(before, "main"))


def test_a_commit_tells_what_it_changed(graph: Graph) -> None:
    graph.mutate('query q() { update Person set { age: 41 } where name = "bob" }')
    graph.mutate('query q() { insert Place { title: "y" } }')
    last, update, load, first = graph.history.list()
    assert short(graph.history.changes(last.graph_commit_id)) == [("insert", "Place", "y")]
    assert short(graph.history.changes(update.graph_commit_id)) == [("update", "Person", "bob")]
    assert graph.history.changes(load.graph_commit_id).inserted == len(PEOPLE)
    with pytest.raises(ChangesUnavailableError) as refused:
        graph.history.changes(first.graph_commit_id)
    assert refused.value.facts() == {
        "change_diff_refusal": {"reason": "parentless_commit", "graph_commit_id": first.graph_commit_id}
    }


def test_a_change_of_schema_is_listed_apart(graph: Graph) -> None:
    before = head(graph)
    renamed = SCHEMA.replace("node Place", 'node Site @rename_from("Place")').replace(
        "age: I32?", 'years: I32? @rename_from("age")  mail: String?'
    )
    graph.schema.apply(renamed)
    changed = head(graph)
    with pytest.raises(ChangesUnavailableError, match="changed the schema") as refused:
        graph.history.changes(changed)
    assert refused.value.reason == "schema_boundary"
    found = graph.diff(before, changed)
    assert short(found) == []
    assert {step.kind for step in found.schema_steps} == {"rename_type", "rename_property", "add_property"}
    graph.mutate('query q() { update Person set { mail: "a@b", years: 3 } where name = "ada" }')
    (change,) = graph.diff(before, "main")
    assert change.columns == ("mail", "years")
    assert change.after is not None
    assert change.after.properties == {"mail": "a@b", "years": 3}
    graph.mutate('query q() { insert Site { title: "z" } }')
    assert ("insert", "Site", "z") in short(graph.diff(before, "main"))


RENAMED = SCHEMA.replace("node Person", 'node Human @rename_from("Person")').replace("Person ->", "Human ->")
RENAMED = RENAMED.replace("-> Person", "-> Human").replace("age: I32?", 'years: I32? @rename_from("age")')


def test_an_update_of_a_renamed_property_tells_what_it_was(graph: Graph) -> None:
    before = head(graph)
    graph.schema.apply(RENAMED)
    graph.mutate('query q() { update Human set { years: 3 } where name = "ada" }')
    for older, newer, then, now in (
        (before, "main", {"age": 36}, {"years": 3}),
        ("main", before, {"years": 3}, {"age": 36}),
    ):
        (change,) = graph.diff(older, newer)
        assert change.before is not None
        assert change.after is not None
        assert (change.before.properties, change.after.properties) == (then, now)


def test_a_property_that_is_declared_anew_was_not_there_before(graph: Graph) -> None:
    before = head(graph)
    graph.schema.apply(SCHEMA.replace("age: I32?", ""), confirm_drops=True)
    graph.schema.apply(SCHEMA)
    graph.mutate('query q() { update Person set { age: 3 } where name = "ada" }')
    (change,) = graph.diff(before, "main")
    assert change.before is not None
    assert change.after is not None
    assert (change.before.properties, change.after.properties) == ({}, {"age": 3})


def test_a_renamed_type_is_found_by_both_its_names(graph: Graph) -> None:
    before = head(graph)
    graph.schema.apply(RENAMED)
    graph.mutate('query q() { insert Human { name: "dan" } }')
    for name in ("Person", "Human"):
        assert short(graph.diff(before, "main", types=[name])) == [("insert", "Human", "dan")]
        assert short(graph.diff("main", before, types=[name])) == [("delete", "Person", "dan")]
    assert short(graph.diff(before, "main", types=["Place"])) == []
    with pytest.raises(InputError, match="there is no type 'Persona'"):
        graph.diff(before, "main", types=["Persona"])


def test_a_type_that_gets_its_old_name_back_keeps_its_entities(graph: Graph) -> None:
    heads = [head(graph)]
    graph.schema.apply(RENAMED)
    heads.append(head(graph))
    back = SCHEMA.replace("node Person", 'node Person @rename_from("Human")')
    graph.schema.apply(back.replace("age: I32?", 'age: I32? @rename_from("years")'))
    graph.mutate('query q() { insert Person { name: "dan" } }')
    for before in heads:
        assert short(graph.diff(before, "main")) == [("insert", "Person", "dan")]
    graph.schema.apply("node Place { title: String @key }", confirm_drops=True)
    graph.schema.apply(SCHEMA)
    graph.load([{"type": "Person", "data": {"name": "bob"}}])
    told = short(graph.diff(heads[0], "main", types=["Person"]))
    assert told == [("insert", "Person", "bob"), *(("delete", "Person", name) for name in ("ada", "bob", "cleo"))]


def test_a_value_of_an_added_property_is_a_change(graph: Graph) -> None:
    """Not what entities were given when it was added: null where it is optional, its default where it is required."""
    graph.load([{"type": "Person", "data": {"name": name}} for name in ("ada", "bob", "cleo")], "merge")
    before = head(graph)
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  mail: String?  level: I32 @default(3)"))
    graph.load([{"type": "Person", "data": {"name": "cleo"}}], "merge")
    assert short(graph.diff(before, "main")) == []
    graph.mutate('query q() { update Person set { mail: "a@b" } where name = "ada" }')
    graph.mutate('query q() { update Person set { level: 4 } where name = "bob" }')
    for _ in range(2):
        found = {change.id: change.columns for change in graph.diff(before, "main")}
        assert found == {"ada": ("mail",), "bob": ("level",)}
        graph.maintenance.optimize()


@pytest.mark.parametrize(
    ("added", "later", "other"),
    [
        ("level: I32 @default(3)", "level: I32 @default(4)", 4),
        ("level: I32 @default(3)", "level: I64? @default(4)", 4),
        ("level: F32 @default(0.1)", "level: F64 @default(0.5)", 0.5),
        ("level: I32? @default(3)", "level: I32 @default(4)", 5),
        ('level: Date @default("2024-02-29")', "level: Date?", "2025-01-01"),
        ("level: DateTime @default(now())", 'level: DateTime @default("2020-01-01T00:00:00Z")', "2020-01-01T00:00:00Z"),
        ('level: enum(low, high) @default("low")', 'level: String @default("high")', "high"),
    ],
)
def test_what_entities_were_given_is_remembered_when_the_default_changes(
    graph: Graph, added: str, later: str, other: Any
) -> None:
    before = head(graph)
    for text in (added, later):
        graph.schema.apply(SCHEMA.replace("age: I32?", f"age: I32?  {text}"))
        assert short(graph.diff(before, "main")) == []
    graph.load([{"type": "Person", "data": {"name": "bob", "level": other}}], "update")
    graph.mutate('query q() { update Person set { age: 3 } where name = "ada" }')
    changed = {"ada": ("age",), "bob": ("level",)}
    assert {change.id: change.columns for change in graph.diff(before, "main")} == changed
    rows = [json.loads(line) for line in graph.export(types=["Person"])]
    graph.load(rows, "overwrite")
    graph.maintenance.optimize()
    assert {change.id: change.columns for change in graph.diff(before, "main")} == changed, "nor when all is rewritten"


def test_going_back_before_a_property_was_dropped_tells_every_value_of_it(graph: Graph) -> None:
    """Of all entities, whether or not something else has touched them."""
    before = head(graph)
    graph.schema.apply(SCHEMA.replace("age: I32?", ""), confirm_drops=True)
    assert short(graph.diff(before, "main")) == []
    for _ in range(2):
        told = {change.id: change.after.properties for change in graph.diff("main", before) if change.after}
        assert told == {"ada": {"age": 36}, "bob": {"age": 40}}
        graph.load([{"type": "Person", "data": {"name": "ada", "v": [1.0, 0.0], "face": "base64:AAEC"}}], "merge")


def test_a_dropped_type_loses_its_entities(graph: Graph) -> None:
    graph.mutate('query q() { insert Place { title: "x" } }')
    before = head(graph)
    graph.schema.apply(SCHEMA.replace("node Place { title: String @key }", ""), confirm_drops=True)
    assert short(graph.diff(before, "main")) == [("delete", "Place", "x")]
    assert short(graph.diff("main", before)) == [("insert", "Place", "x")]


def test_a_branch_brings_what_it_changed_since_it_parted(graph: Graph) -> None:
    graph.branches.create("review")
    graph.mutate('query q() { update Person set { age: 41 } where name = "bob" }', branch="review")
    graph.mutate('query q() { insert Place { title: "main only" } }')
    assert short(graph.branches.diff("review")) == [("update", "Person", "bob")]
    assert short(graph.branches.diff("main", "review")) == [("insert", "Place", "main only")]
    assert short(graph.diff("main", "review")) == [("update", "Person", "bob"), ("delete", "Place", "main only")]


def test_what_is_the_same_is_not_read(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but rows of changed fragments is read, and no row of a state that is compared with itself."""
    before = head(graph)
    graph.mutate('query q() { insert Person { name: "dan" } }')
    read: list[int] = []
    original = TableHandle._take
    monkeypatch.setattr(
        TableHandle, "_take", lambda self, at, columns: (read.append(len(at)), original(self, at, columns))[1]
    )
    whole: list[str] = []
    reading = TableHandle.read_fragment_columns
    monkeypatch.setattr(
        TableHandle,
        "read_fragment_columns",
        lambda self, part, columns, **options: (whole.append(part.files[0]), reading(self, part, columns, **options))[
            1
        ],
    )
    assert len(graph.diff(before, "main", values="none")) == 1
    assert len(graph.diff("main", "main")) == 0
    assert sum(read) <= 1
    assert len(whole) <= 1


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (("main", "nowhere"), {}, CommitNotFoundError),
        (("main", 999), {}, CommitNotFoundError),
        (("main", "main"), {"types": ["Persn"]}, InputError),
        (("main", "main"), {"kinds": ["nodes"]}, InputError),
        (("main", "main"), {"ops": ["upsert"]}, InputError),
        (("main", "main"), {"values": "some"}, InputError),
    ],
)
def test_what_cannot_be_compared_is_refused(
    graph: Graph, arguments: tuple[Any, ...], options: dict[str, Any], error: type[GraphError]
) -> None:
    with pytest.raises(error):
        graph.diff(*arguments, **options)
    with pytest.raises(BranchNotFoundError):
        graph.branches.diff("nowhere")


def test_a_state_that_cleanup_took_is_named(graph: Graph) -> None:
    before = head(graph)
    for age in range(4):
        graph.mutate('query q($a: I32) { update Person set { age: $a } where name = "bob" }', {"a": age})
    graph.maintenance.cleanup(keep=1)
    graph.close()
    with pytest.raises(VersionReclaimedError):
        list(connect(graph.uri).diff(before, "main"))


def test_a_read_only_handle_can_compare(graph: Graph) -> None:
    before = head(graph)
    graph.mutate('query q() { insert Person { name: "dan" } }')
    (change,) = connect(graph.uri, read_only=True).diff(before, "main")
    assert isinstance(change, Change)
    assert change.id == "dan"
