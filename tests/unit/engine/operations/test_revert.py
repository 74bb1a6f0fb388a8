"""A revert undoes one commit and nothing else, or says what stands in the way."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import omnigraph
from omnigraph.errors import ConflictError, InputError, MergeConflictError, PreconditionFailedError

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
ADD = "query q($n: String, $a: I32) { insert Person { name: $n, age: $a } }"
SET = "query q($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
DROP = "query q($n: String) { delete Person where name = $n }"


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    made = omnigraph.create(tmp_path / "g.omni", SCHEMA)
    for number, name in enumerate(("ann", "bob", "cleo")):
        made.mutate(ADD, {"n": name, "a": number})
    return made


def people(graph: omnigraph.Graph) -> dict[str, int]:
    found = graph.query("query q() { match { $p: Person } return { $p.name as name, $p.age as age } }")
    return {row["name"]: row["age"] for row in found}


def head(graph: omnigraph.Graph) -> str:
    return str(graph.history.list(limit=1)[0].graph_commit_id)


def test_each_kind_of_change_is_undone_beside_what_came_later(graph: omnigraph.Graph) -> None:
    before = people(graph)
    done = []
    for text, values in ((ADD, {"n": "dan", "a": 9}), (SET, {"n": "ann", "a": 50}), (DROP, {"n": "bob"})):
        graph.mutate(text, values)
        done.append(head(graph))
    graph.mutate(SET, {"n": "cleo", "a": 70})
    for commit in done:
        result = graph.revert(commit[:22], actor="ana", message="no")
        newest = graph.history.list(limit=1)[0]
        assert (result.commit_id, newest.actor_id, newest.message) == (newest.graph_commit_id, "ana", "no")
        assert newest.facts["revert.commit"] == commit
        assert newest.merged_parent_commit_id is None
    assert people(graph) == {**before, "cleo": 70}
    assert graph.maintenance.verify().clean
    # A revert is a commit like any other, and can be undone as well; it goes back, so it is no fast-forward.
    assert str(graph.revert(head(graph)).outcome) == "merged"
    assert people(graph) == {"ann": 0, "cleo": 70}


def test_what_is_undone_already_makes_no_commit(graph: omnigraph.Graph) -> None:
    graph.mutate(SET, {"n": "ann", "a": 50})
    commit = head(graph)
    graph.revert(commit)
    newest = head(graph)
    assert graph.revert(commit).commit_id is None
    assert head(graph) == newest


def test_what_was_changed_again_is_a_conflict(graph: omnigraph.Graph) -> None:
    graph.mutate(SET, {"n": "ann", "a": 50})
    commit = head(graph)
    graph.mutate(SET, {"n": "ann", "a": 60})
    newest = head(graph)
    with pytest.raises(MergeConflictError, match="cannot be undone on 'main': 1 divergent_update") as refused:
        graph.revert(commit)
    assert refused.value.conflicts[0]["row_id"] == "ann"
    assert head(graph) == newest
    graph.revert(commit, strategy="theirs")
    assert people(graph)["ann"] == 0
    graph.mutate(SET, {"n": "ann", "a": 60})
    graph.revert(commit, resolve=lambda conflict: {"set": {"age": 61}})
    assert people(graph)["ann"] == 61


def test_undoing_a_node_that_has_edges_since_is_a_conflict(graph: omnigraph.Graph) -> None:
    graph.mutate(ADD, {"n": "dan", "a": 1})
    commit = head(graph)
    graph.mutate('query q() { insert Knows { from: "ann", to: "dan" } }')
    with pytest.raises(MergeConflictError, match="orphan_edge"):
        graph.revert(commit)
    assert "dan" in people(graph)


def test_undoing_a_merge_undoes_what_it_brought(graph: omnigraph.Graph) -> None:
    graph.branches.create("side")
    graph.mutate(ADD, {"n": "dan", "a": 1}, branch="side")
    graph.mutate(DROP, {"n": "bob"}, branch="side")
    graph.mutate(SET, {"n": "ann", "a": 5})
    before = people(graph)
    merged = graph.branches.merge("side").commit_id
    assert merged is not None
    assert people(graph) != before
    graph.revert(merged)
    assert people(graph) == before
    assert graph.maintenance.verify().clean


def test_what_cannot_be_undone_is_refused_and_nothing_changes(graph: omnigraph.Graph) -> None:
    newest, first = head(graph), graph.history.list()[-1].graph_commit_id
    graph.branches.create("side")
    graph.mutate(ADD, {"n": "dan", "a": 1}, branch="side")
    elsewhere = str(graph.history.list("side", limit=1)[0].graph_commit_id)
    with pytest.raises(InputError, match="is the first one"):
        graph.revert(first)
    with pytest.raises(InputError, match="not in the history"):
        graph.revert(elsewhere)
    with pytest.raises(PreconditionFailedError):
        graph.revert(newest, expect_head=first)
    assert graph.revert(elsewhere, "side").commit_id is not None
    graph.branches.delete("side")
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  mail: String?"))
    with pytest.raises(ConflictError, match="schema was changed"):
        graph.revert(newest)
    assert people(graph) == {"ann": 0, "bob": 1, "cleo": 2}


def test_random_commits_are_undone_one_after_the_other_to_where_it_began(graph: omnigraph.Graph) -> None:
    chance, began, done = random.Random(3), people(graph), []
    for number in range(12):
        name = chance.choice(["ann", "bob", "cleo", "dan", "eve"])
        known = people(graph)
        text, values = (ADD, {"n": name, "a": number}) if name not in known else (SET, {"n": name, "a": 100 + number})
        if name in known and chance.random() < 0.3:
            text, values = DROP, {"n": name}
        graph.mutate(text, values)
        done.append(head(graph))
    graph.maintenance.optimize()
    for commit in reversed(done):
        graph.revert(commit)
    assert people(graph) == began
    assert graph.maintenance.verify().clean


def test_a_property_that_was_dropped_and_added_again_does_not_get_its_old_values_back(graph: omnigraph.Graph) -> None:
    graph.mutate(SET, {"n": "ann", "a": 50})
    commit = head(graph)
    graph.schema.apply(SCHEMA.replace("  age: I32?", ""), confirm_drops=True)
    graph.schema.apply(SCHEMA)
    with pytest.raises(ConflictError, match="'node:Person' was dropped and another has its name"):
        graph.revert(commit)
    assert people(graph) == dict.fromkeys(("ann", "bob", "cleo"))
    graph.mutate(SET, {"n": "ann", "a": 60})
    graph.revert(head(graph))
    assert people(graph) == dict.fromkeys(("ann", "bob", "cleo"))


def test_a_type_that_was_dropped_and_added_again_is_another_one(graph: omnigraph.Graph) -> None:
    graph.schema.apply(SCHEMA + "\nnode Pet { name: String @key }")
    graph.mutate('query q() { insert Pet { name: "rex" } }')
    commit = head(graph)
    graph.schema.apply(SCHEMA, confirm_drops=True)
    graph.schema.apply(SCHEMA + "\nnode Pet { name: String @key }")
    with pytest.raises(ConflictError, match="the type of 'node:Pet' was dropped and another has its name"):
        graph.revert(commit)
