"""The past by every name it has: ids whole and shortened, times, versions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.manifest.references import Spelling, micros, spelling, told
from omnigraph.errors import CommitNotFoundError, InputError, PreconditionFailedError

ADD = "query q($n: String) { insert Person { name: $n } }"
COUNT = "query q() { match { $p: Person } return { count($p) as n } }"


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    made = omnigraph.create(tmp_path / "g.omni", "node Person { name: String @key }")
    for name in ("ann", "bob", "cleo"):
        made.mutate(ADD, {"n": name}, actor=name)
    return made


def count(graph: omnigraph.Graph, at: object) -> int:
    return int(graph.query(COUNT, at=at).to_pylist()[0]["n"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0123", Spelling.VERSION),
        ("01M7", Spelling.COMMIT),
        ("01m7kcjxqxcxhs664r9hmbqz6k", Spelling.COMMIT),
        ("01M7KCJXQXCXHS664R9HMBQZ6KX", Spelling.NAME),
        ("81M7", Spelling.NAME),
        ("01I7", Spelling.NAME),
        ("beta", Spelling.NAME),
        ("v1.0", Spelling.NAME),
        ("2026-02-14", Spelling.TIME),
        ("2026-02-14T10:00:00+02:00", Spelling.TIME),
        ("manifest:main:v7", Spelling.SNAPSHOT),
    ],
)
def test_how_a_name_is_written_says_what_it_is(text: str, wanted: Spelling) -> None:
    assert spelling(text) is wanted


def test_times_are_utc_unless_they_say_otherwise() -> None:
    noon = micros("2026-02-14T12:00:00Z")
    assert noon == micros("2026-02-14T12:00:00") == micros("2026-02-14 13:00:00+01:00")
    assert noon == micros(datetime(2026, 2, 14, 12)) == micros(datetime(2026, 2, 14, 12, tzinfo=UTC))
    assert told(noon) == "2026-02-14T12:00:00Z"
    assert micros("2026-02-14") == noon - 12 * 3_600_000_000
    for wrong in ("2026-99-99", "soon", ""):
        with pytest.raises(InputError):
            micros(wrong)
    assert micros(datetime.min) < 0
    with pytest.raises(InputError, match="compared"):
        micros(datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))))


def test_a_commit_is_found_by_the_beginning_of_its_id(graph: omnigraph.Graph) -> None:
    newest, *older = graph.history.list()
    short = next(
        newest.graph_commit_id[:length]
        for length in range(4, 27)
        if not any(each.graph_commit_id.startswith(newest.graph_commit_id[:length]) for each in older)
    )
    assert graph.history.show(short) == graph.history.show(short.lower()) == newest
    assert count(graph, short) == 3
    assert graph.diff(older[0].graph_commit_id, short).inserted == 1
    assert graph.history.changes(short).inserted == 1
    with pytest.raises(CommitNotFoundError):
        graph.history.show("7ZZZZZ")


def test_a_beginning_that_several_have_names_them(graph: omnigraph.Graph) -> None:
    with pytest.raises(InputError) as refused:
        graph.query(COUNT, at=graph.history.list()[0].graph_commit_id[:4])
    assert refused.value.code == "ambiguous_commit"
    assert all(commit.graph_commit_id in refused.value.message for commit in graph.history.list())


def test_shortened_ids_are_conditions_too(graph: omnigraph.Graph) -> None:
    head = graph.history.list(limit=1)[0].graph_commit_id
    graph.mutate(ADD, {"n": "dan"}, if_commit=head[:20])
    with pytest.raises(PreconditionFailedError):
        graph.mutate(ADD, {"n": "eve"}, if_commit=head[:20])
    with pytest.raises(PreconditionFailedError):
        graph.mutate(ADD, {"n": "eve"}, if_commit="nonsense")


def test_a_commit_that_left_the_manifest_is_found_by_its_beginning(graph: omnigraph.Graph) -> None:
    old = graph.history.list()[1]
    for number in range(70):
        graph.mutate(ADD, {"n": f"p{number}"})
    assert old.graph_commit_id not in graph.snapshot().state.commits
    assert graph.history.show(old.graph_commit_id[:22]) == old


def test_a_time_reads_what_was_newest_then(graph: omnigraph.Graph) -> None:
    commits = graph.history.list()
    for age, commit in enumerate(commits):
        assert count(graph, told(commit.created_at)) == 3 - age
        assert count(graph, datetime.fromtimestamp(0, UTC) + timedelta(microseconds=commit.created_at)) == 3 - age
    assert count(graph, datetime.now(UTC) + timedelta(days=1)) == 3
    with pytest.raises(CommitNotFoundError, match="its first commit was made at"):
        count(graph, "2001-01-01")


def test_a_time_on_a_branch_is_that_of_its_own_past(graph: omnigraph.Graph) -> None:
    parted = graph.history.list(limit=1)[0]
    graph.branches.create("review")
    graph.mutate(ADD, {"n": "dan"}, branch="review")
    graph.mutate(ADD, {"n": "eve"})
    graph.mutate(ADD, {"n": "fay"})
    dan = graph.history.list("review", limit=1)[0]
    seen = graph.query(COUNT, branch="review", at=told(dan.created_at)).to_pylist()
    assert seen == [{"n": 4}]
    assert graph.query(COUNT, branch="review", at=told(parted.created_at)).to_pylist() == [{"n": 3}]
    assert graph.query(COUNT, at=told(dan.created_at)).to_pylist() == [{"n": 3}]


def test_the_history_is_listed_by_actor_and_time(graph: omnigraph.Graph) -> None:
    commits = graph.history.list()
    assert [commit.actor_id for commit in graph.history.list(actor="bob")] == ["bob"]
    assert graph.history.list(since=told(commits[1].created_at)) == commits[:2]
    assert graph.history.list(until=told(commits[1].created_at)) == commits[1:]
    assert graph.history.list(since=told(commits[2].created_at), until=told(commits[1].created_at)) == commits[1:3]
    assert graph.history.list(since=datetime.now(UTC) + timedelta(days=1)) == []


def test_a_merge_is_listed_before_what_it_brought(graph: omnigraph.Graph) -> None:
    graph.branches.create("review")
    for name in ("dan", "eve"):
        graph.mutate(ADD, {"n": name}, branch="review", actor=name)
    graph.mutate(ADD, {"n": "fay"}, actor="fay")
    graph.branches.merge("review", actor="max")
    actors = [commit.actor_id for commit in graph.history.list()]
    assert actors == ["max", "fay", "eve", "dan", "cleo", "bob", "ann", None]
    for limit in range(9):
        assert [commit.actor_id for commit in graph.history.list(limit=limit)] == actors[:limit]
    assert [commit.actor_id for commit in graph.context.manifest.history.line()] == ["max", "fay", *actors[4:]]
