"""`branch diff` and `commit changes`: what people and programs see of differences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.program import call

from omnigraph.graph import Graph, create


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = create(
        tmp_path / "graph", "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person { since: I32? }"
    )
    made.mutate('query q() { insert Person { name: "ada", age: 36 } insert Person { name: "bob" } }')
    made.branches.create("review")
    made.mutate('query q() { update Person set { age: 37 } where name = "ada" }', branch="review")
    made.mutate('query q() { insert Knows { from: "ada", to: "bob", since: 1840 } }', branch="review")
    made.mutate('query q() { delete Person where name = "bob" }')
    return made


def test_a_branch_shows_what_it_would_bring(graph: Graph) -> None:
    shown = call("branch", "diff", "review", "--store", graph.uri)
    assert shown.code == 0
    head, *changes = shown.out.split("\n\n")
    assert head == (
        "type   | kind | + | ~ | -\n-------+------+---+---+--\nPerson | node | 0 | 1 | 0\nKnows  | edge | 1 | 0 | 0"
    )
    lines = "\n\n".join(changes).splitlines()
    assert lines[:2] == ["~ Person ada", "    age: 36 -> 37"]
    assert lines[2].startswith("+ Knows ")
    assert lines[2].endswith(" ada -> bob")
    assert lines[3] == "    since: 1840"


def test_two_way_compares_the_newest_states(graph: Graph) -> None:
    shown = call("branch", "diff", "review", "main", "--two-way", "--store", graph.uri, "--json")
    found = json.loads(shown.out)
    assert found["stats"] == {"inserted": 2, "updated": 1, "deleted": 0, "types_affected": ["Person", "Knows"]}
    assert [change["op"] for change in found["changes"]] == ["update", "insert", "insert"]


def test_counts_alone_and_a_limit(graph: Graph) -> None:
    assert len(call("branch", "diff", "review", "--stat", "--store", graph.uri).out.splitlines()) == 4
    cut = call("branch", "diff", "review", "--limit", "1", "--store", graph.uri).out.splitlines()
    assert cut[-1] == "… 1 more; --limit shows more of them, --json all"


def test_a_commit_shows_its_changes(graph: Graph) -> None:
    newest = graph.history.list(limit=1)[0].graph_commit_id
    shown = call("commit", "changes", newest, "--store", graph.uri, "--type", "Person")
    assert (shown.code, shown.out.splitlines()[-1]) == (0, "    name: bob")
    assert "- Person bob" in shown.out
    none = call("commit", "changes", newest, "--store", graph.uri, "--op", "insert")
    assert none.out == "no entity differs\n"


def test_the_first_commit_has_nothing_before_it(graph: Graph) -> None:
    first = graph.history.list()[-1].graph_commit_id
    refused = call("commit", "changes", first, "--store", graph.uri, "--json")
    assert refused.code == 1
    assert json.loads(refused.out)["change_diff_refusal"]["reason"] == "parentless_commit"
    unknown = call("branch", "diff", "nowhere", "--store", graph.uri)
    assert unknown.code == 1
    assert "nowhere" in unknown.err
