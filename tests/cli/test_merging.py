"""`branch merge` and `branch conflicts`: what people and programs see of a merge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.program import call

from omnigraph.graph import Graph, create


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = create(
        tmp_path / "graph", "node Person { name: String @key  age: I32?  city: String? }\nedge Knows: Person -> Person"
    )
    made.mutate('query q() { insert Person { name: "ada", age: 36 } insert Person { name: "bob" } }')
    made.branches.create("review")
    made.mutate('query q() { update Person set { age: 37 } where name = "ada" }', branch="review")
    return made


def disagree(graph: Graph) -> None:
    graph.mutate('query q() { update Person set { age: 38 } where name = "ada" }')


def test_a_merge_says_what_it_did(graph: Graph) -> None:
    dry = call("branch", "merge", "review", "--dry-run", "--store", graph.uri)
    assert dry.out.splitlines()[0] == "merging review into main would be: fast_forward"
    done = call("branch", "merge", "review", "--store", graph.uri, "--as", "ana", "--delete-branch")
    first, *table, commit, deleted = done.out.splitlines()
    assert (done.code, first, deleted) == (0, "merged review into main: fast_forward", "deleted branch review")
    assert table[-1] == "Person | node | 0 | 1 | 0 | mirrored"
    assert graph.history.show(commit.removeprefix("commit ")).actor_id == "ana"
    assert call("branch", "list", graph.uri).out == "main\n"


def test_conflicts_are_shown_side_by_side_and_change_nothing(graph: Graph) -> None:
    disagree(graph)
    before = graph.snapshot().head
    foretold = call("branch", "merge", "review", "--dry-run", "--store", graph.uri)
    assert foretold.out.splitlines()[0] == "merging review into main would be: refused"
    refused = call("branch", "merge", "review", "--store", graph.uri)
    assert refused.code == 3
    assert refused.out.splitlines() == [
        "divergent_update node:Person ada: both branches changed Person 'ada', with other values for age",
        "           | base | ours | theirs",
        "    -------+------+------+-------",
        "    * age  | 36   | 38   | 37",
        "      city | null | null | null",
        "      name | ada  | ada  | ada",
    ]
    assert "nothing changed" in refused.err
    as_json = call("branch", "merge", "review", "--store", graph.uri, "--json")
    (conflict,) = json.loads(as_json.out)["merge_conflicts"]
    assert (conflict["table_key"], conflict["row_id"], conflict["kind"]) == ("node:Person", "ada", "divergent_update")
    assert graph.snapshot().head == before


def test_what_was_on_no_branch_before_is_not_called_deleted(graph: Graph) -> None:
    parted = str(graph.snapshot().head)
    for branch, age in (("main", 1), ("review", 2)):
        graph.load([{"type": "Person", "data": {"name": "cleo", "age": age}}], "append", branch=branch)
    listed = call("branch", "conflicts", "review", "--store", graph.uri, "--base", parted[:20])
    assert listed.out.splitlines()[3] == "    * age  | (none) | 1    | 2"
    refused = call("branch", "conflicts", "review", "--store", graph.uri, "--base", str(graph.snapshot().head))
    assert (refused.code, "that both branches come from" in refused.err) == (1, True)


def test_a_large_merge_says_how_far_it_is(graph: Graph) -> None:
    graph.load([{"type": "Person", "data": {"name": f"p{n}", "age": n}} for n in range(40)], "append", branch="review")
    graph.load([{"type": "Person", "data": {"name": "p3", "age": 4}}], "merge", branch="review")
    graph.load([{"type": "Person", "data": {"name": "p4", "age": 9}}], "merge")
    seen: list[Any] = []
    # One row of the branch's file stays what main has, so that the others are written anew.
    result = graph.branches.merge("review", strategy="ours", progress=seen.append)
    phases = [news.phase for news in seen]
    assert phases == sorted(phases, key=["compare", "write", "commit"].index)
    assert phases[-1] == "commit"
    written = [news for news in seen if news.phase == "write"]
    assert written[-1].rows == sum(found.rows_written for found in result.plan.types) > 0
    assert written[-1].fraction == 1.0


def test_a_file_of_resolutions_settles_conflicts(graph: Graph, tmp_path: Path) -> None:
    disagree(graph)
    listed = tmp_path / "conflicts.jsonl"
    written = call("branch", "conflicts", "review", "--store", graph.uri, "--out", listed, "--json")
    assert json.loads(written.out) == {"conflicts_written": 1, "out": str(listed)}
    (conflict,) = map(json.loads, listed.read_text().splitlines())
    listed.write_text(json.dumps({**conflict, "take": {"set": {"age": 40, "city": "London"}}}))
    done = call("branch", "merge", "review", "--store", graph.uri, "--resolve", listed, "--json")
    assert done.code == 0
    assert json.loads(done.out)["resolved"] == {"set": 1}
    ada = graph.query('query q() { match { $p: Person { name: "ada" } } return { $p.age as age, $p.city as city } }')
    assert ada.to_pylist() == [{"age": 40, "city": "London"}]


def test_a_decision_that_is_none_is_named_by_its_line(graph: Graph, tmp_path: Path) -> None:
    disagree(graph)
    listed = tmp_path / "conflicts.jsonl"
    call("branch", "conflicts", "review", "--store", graph.uri, "--out", listed)
    listed.write_text(f"\n{json.dumps({**json.loads(listed.read_text()), 'take': 'thiers'})}\n")
    done = call("branch", "merge", "review", "--store", graph.uri, "--resolve", listed)
    assert done.code == 1
    assert f"{listed}, line 2: a conflict is resolved by" in done.err


def test_a_file_of_resolutions_may_hold_any_text(graph: Graph, tmp_path: Path) -> None:
    """Other ends of lines than those of the file are part of a value."""
    change = "query q($city: String) { update Person set { city: $city } where name = $name }"
    for branch, city in (("main", "a\u2028b"), ("review", "c\x85d\x1c")):
        graph.mutate(change.replace("$name", '"ada"'), {"city": city}, branch=branch)
    listed = tmp_path / "conflicts.jsonl"
    call("branch", "conflicts", "review", "--store", graph.uri, "--out", listed)
    [line] = listed.read_bytes().splitlines()
    for end in (b"\n", b"\r\n"):
        listed.write_bytes(line[:-1] + b', "take": "theirs"}' + end)
        done = call("branch", "merge", "review", "--store", graph.uri, "--resolve", listed, "--dry-run", "--json")
        assert (done.code, done.err) == (0, "")
        assert json.loads(done.out)["resolved"] == {"theirs": 1}


def test_a_resolution_of_another_state_is_refused(graph: Graph, tmp_path: Path) -> None:
    disagree(graph)
    listed = tmp_path / "conflicts.jsonl"
    call("branch", "conflicts", "review", "--store", graph.uri, "--out", listed)
    (conflict,) = map(json.loads, listed.read_text().splitlines())
    listed.write_text(json.dumps({**conflict, "take": "theirs"}))
    graph.mutate('query q() { update Person set { age: 39 } where name = "ada" }')
    stale = call("branch", "merge", "review", "--store", graph.uri, "--resolve", listed, "--json")
    assert (stale.code, "another state" in stale.out) == (1, True)
    listed.write_text(json.dumps({**conflict, "row_id": "bob", "take": "theirs", "fingerprint": None}))
    other = call("branch", "merge", "review", "--store", graph.uri, "--resolve", listed, "--strategy", "ours")
    assert (other.code, "fits no conflict" in other.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("main",), 1, "into itself"),
        (("nowhere",), 1, "nowhere"),
        (("review", "--strategy", "mine"), 2, "'ours', 'theirs', 'fields'"),
        (("review", "--strategy-for", "Person"), 1, "Person=theirs"),
        (("review", "--strategy-for", "Persn=ours"), 1, "Persn"),
        (("review", "--expect-source", "01ABC"), 4, "01ABC"),
        (("review", "--expect-target", "01ABC"), 4, "01ABC"),
        (("review", "--resolve", "/nowhere.jsonl"), 1, "no such file"),
        (("review", "--base", "01ABC"), 1, "01ABC"),
    ],
)
def test_what_cannot_be_merged_is_one_sentence(graph: Graph, words: tuple[str, ...], code: int, says: str) -> None:
    before = graph.snapshot().head
    refused = call("branch", "merge", *words, "--store", graph.uri)
    assert (refused.code, says in refused.err, "Traceback" in refused.err) == (code, True, False)
    assert graph.snapshot().head == before
