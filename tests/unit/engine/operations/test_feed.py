"""The feed delivers every commit once, in order, from any cursor of its own, and says why when it cannot."""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import omnigraph
from omnigraph.engine.changes import cursors, kept
from omnigraph.engine.changes.cursors import Place, decode, encode
from omnigraph.engine.operations import forget
from omnigraph.engine.operations.feed import CHANGES_MAX, ChangePage
from omnigraph.engine.storage import steps
from omnigraph.errors import (
    ChangeCursorError,
    ChangeFeedGapError,
    ChangesUnavailableError,
    ExecutionError,
    InputError,
    LimitError,
)
from omnigraph.ids import CommitId

SCHEMA = "node Person { name: String @key  age: I32? }\nnode City { name: String @key }\nedge Knows: Person -> Person"
ADD = "query q($n: String) { insert Person { name: $n } }"


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    return omnigraph.create(tmp_path / "g.omni", SCHEMA)


def add(graph: omnigraph.Graph, *names: str, branch: str = "main") -> None:
    for name in names:
        graph.mutate(ADD, {"n": name}, branch=branch, actor=name, message=f"{name} comes")


def load(graph: omnigraph.Graph, *names: str) -> None:
    graph.load([{"type": "Person", "data": {"name": name}} for name in names], engine="local")


def ids(page: ChangePage) -> list[list[str]]:
    return [[change.id for change in block.changes] for block in page.blocks]


def test_a_poll_tells_commits_oldest_first_and_ends_in_a_cursor(graph: omnigraph.Graph) -> None:
    now = graph.changes.poll()
    assert (now.blocks, now.caught_up) == ((), True)
    add(graph, "ann", "bob")
    page = graph.changes.poll(now.cursor)
    assert ids(page) == [["ann"], ["bob"]]
    assert page.caught_up
    cause = page.blocks[0].cause
    assert (cause.actor_id, cause.message, cause.authored_branch) == ("ann", "ann comes", "main")
    assert page == graph.changes.poll(start="beginning") == graph.changes.poll(now.cursor)
    assert ids(graph.changes.poll(start=f"after:{cause.graph_commit_id[:22]}")) == [["bob"]]
    assert graph.changes.poll(page.cursor).blocks == ()
    body = page.to_json()
    assert set(body) == {"blocks", "cursor", "caught_up"}
    assert set(body["blocks"][0]["cause"]) == {
        *("graph_commit_id", "parent_commit_id", "authored_branch", "actor_id", "authored_at", "message"),
    }
    assert body["blocks"][0]["changes"][0]["op"] == "insert"


def test_a_large_commit_comes_in_pages_and_its_cursor_last(graph: omnigraph.Graph) -> None:
    names = [f"p{number:02d}" for number in range(25)]
    load(graph, *names)
    add(graph, "zoe")
    heard, page = [], graph.changes.poll(start="beginning", limit=10)
    while page.next_page_token is not None:
        assert page.cursor is None
        assert "cursor" not in page.to_json()
        heard += ids(page)[0]
        page = graph.changes.poll(page_token=page.next_page_token, limit=10)
    heard += ids(page)[0]
    assert heard == names
    assert page.cursor is not None
    assert ids(page)[1:] == [["zoe"]]
    small = graph.changes.poll(start="beginning", limit_bytes=1)
    assert ids(small) == [["p00"]], "one change is told however large it is"
    few = graph.changes.poll(start="beginning", limit_commits=1)
    assert (len(few.blocks), few.caught_up) == (1, False)
    assert ids(graph.changes.poll(few.cursor)) == [["zoe"]]


def test_a_page_that_is_not_kept_is_found_again(graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    load(graph, *(f"p{number}" for number in range(9)))
    page = graph.changes.poll(start="beginning", limit=4)
    again = omnigraph.connect(graph.uri).changes.poll(page_token=page.next_page_token, limit=4)
    assert again == graph.changes.poll(page_token=page.next_page_token, limit=4)
    monkeypatch.setattr(kept, "KEPT", 1)
    graph.changes.poll(start="beginning", limit=2, types=["Person"], ops=["insert"])
    assert ids(graph.changes.poll(page_token=page.next_page_token, limit=4)) == ids(again)


def test_filters_leave_out_changes_but_no_commit(graph: omnigraph.Graph) -> None:
    add(graph, "ann", "bob")
    graph.mutate('query q() { insert City { name: "Bern" } }')
    graph.mutate('query q() { insert Knows { from: "ann", to: "bob" } }')
    graph.mutate('query q() { delete Person where name = "bob" }')
    assert ids(graph.changes.poll(start="beginning", types=["City"])) == [[], [], ["Bern"], [], []]
    assert [len(block) for block in ids(graph.changes.poll(start="beginning", kinds=["edge"]))] == [0, 0, 0, 1, 1]
    deleted = graph.changes.poll(start="beginning", ops=["delete"]).blocks[-1].changes
    assert [(change.kind, change.op) for change in deleted] == [("node", "delete"), ("edge", "delete")]
    with pytest.raises(InputError, match="no type 'Town'"):
        graph.changes.poll(types=["Town"])


def test_a_merge_is_one_block_and_an_optimize_an_empty_one(graph: omnigraph.Graph) -> None:
    add(graph, "ann")
    graph.branches.create("side")
    add(graph, "bob", "cleo", branch="side")
    add(graph, "dan")
    graph.branches.merge("side")
    graph.maintenance.optimize()
    page = graph.changes.poll(start="beginning")
    assert ids(page) == [["ann"], ["dan"], ["bob", "cleo"], []]
    assert page.blocks[2].cause.merged_parent_commit_id == graph.history.list("side", limit=1)[0].graph_commit_id
    assert ids(graph.changes.poll(start="beginning", branch="side")) == [["ann"], ["bob"], ["cleo"]]
    merged = graph.history.list("side", limit=1)[0].graph_commit_id
    with pytest.raises(InputError, match="only merged into it"):
        graph.changes.poll(start=f"after:{merged}")


def test_a_cursor_is_good_for_its_graph_branch_and_filters_only(graph: omnigraph.Graph, tmp_path: Path) -> None:
    add(graph, "ann")
    graph.branches.create("side")
    mine = graph.changes.poll(start="beginning")
    side = graph.changes.poll(start="beginning", branch="side").cursor
    other = omnigraph.create(tmp_path / "other.omni", SCHEMA)
    for wrong in (
        lambda: other.changes.poll(mine.cursor),
        lambda: graph.changes.poll(mine.cursor, branch="side"),
        lambda: graph.changes.poll(side),
        lambda: graph.changes.poll(mine.cursor, ops=["insert"]),
        lambda: graph.changes.poll(page_token=mine.cursor),
        lambda: graph.changes.poll(mine.cursor[:-2]),
        lambda: graph.changes.poll("x"),
        lambda: graph.changes.poll("é"),
        lambda: graph.changes.poll("A" * 5_000),
    ):
        with pytest.raises(ChangeCursorError, match="change cursor rejected"):
            wrong()
    load(graph, *(f"p{number}" for number in range(5)))
    token = graph.changes.poll(mine.cursor, limit=2).next_page_token
    with pytest.raises(ChangeCursorError, match="page token, not a cursor"):
        graph.changes.poll(token)
    with pytest.raises(InputError, match="give one of them"):
        graph.changes.poll(mine.cursor, start="now")

    # A branch of the same name is another branch, even where it begins at the same commit.
    graph.branches.delete("side")
    graph.branches.create("side", at=graph.history.list()[-2].graph_commit_id)
    with pytest.raises(ChangeCursorError, match="another has its name"):
        graph.changes.poll(side, branch="side")


def test_a_cursor_survives_its_text(graph: omnigraph.Graph) -> None:
    place = Place("g" * 26, "b" * 255, "m" * 16, "f" * 16, CommitId("c" * 26), 2**40, CommitId("d" * 26))
    assert decode(encode(place)) == place
    assert len(encode(place)) <= cursors.TEXT_BYTES_MAX


@pytest.mark.parametrize(
    "changed", [{"offset": -1}, {"offset": 2**70}, {"commit": 5}, {"commit": None}, {"within": [1]}]
)
def test_a_cursor_that_somebody_made_up_is_refused(graph: omnigraph.Graph, changed: dict[str, Any]) -> None:
    load(graph, "ann", "bob")
    token = graph.changes.poll(start="beginning", limit=1).next_page_token
    assert token is not None
    with pytest.raises(ChangeCursorError, match="none of ours"):
        graph.changes.poll(page_token=encode(replace(decode(token), **changed)))


def test_pages_of_any_size_are_not_given(graph: omnigraph.Graph) -> None:
    with pytest.raises(LimitError):
        graph.changes.poll(limit=CHANGES_MAX + 1)
    with pytest.raises(LimitError):
        graph.changes.poll(limit_bytes=1 << 30)
    with pytest.raises(LimitError):
        graph.changes.poll(limit_commits=513)
    for wrong in ("soon", "after:", "after:nowhere", ""):
        with pytest.raises((InputError, LookupError)):
            graph.changes.poll(start=wrong)
    assert isinstance(graph.changes.poll(limit=CHANGES_MAX), ChangePage)


def test_a_type_that_was_renamed_is_followed_up_to_the_change(graph: omnigraph.Graph) -> None:
    behind = graph.changes.poll(types=["Person"]).cursor
    add(graph, "ann")
    humans = SCHEMA.replace("node Person", 'node Human @rename_from("Person")')
    graph.schema.apply(humans.replace("Person -> Person", "Human -> Human"))
    page = graph.changes.poll(behind, types=["Person"])
    assert (ids(page), page.caught_up) == ([["ann"]], False)
    with pytest.raises(ChangesUnavailableError) as boundary:
        graph.changes.poll(page.cursor, types=["Person"])
    with pytest.raises(InputError, match="there is no type 'Person'"):
        graph.changes.poll(start=f"after:{boundary.value.graph_commit_id}", types=["Person"])


def test_a_type_that_came_later_has_no_changes_before(graph: omnigraph.Graph) -> None:
    add(graph, "ann")
    graph.schema.apply(f"{SCHEMA}\nnode Pet {{ name: String @key }}")
    page = graph.changes.poll(start="beginning", types=["Pet"])
    assert (ids(page), page.caught_up) == ([[]], False)
    with pytest.raises(ChangesUnavailableError):
        graph.changes.poll(page.cursor, types=["Pet"])


def test_a_baseline_of_a_type_that_is_not_there_is_refused(graph: omnigraph.Graph, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no type 'Persno'"):
        graph.changes.baseline(tmp_path / "out.jsonl", types=["Persno"])
    assert not (tmp_path / "out.jsonl").exists()


def test_a_change_of_schema_ends_a_page_and_is_named(graph: omnigraph.Graph) -> None:
    add(graph, "ann")
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  mail: String?"))
    add(graph, "bob")
    page = graph.changes.poll(start="beginning")
    assert (ids(page), page.caught_up) == ([["ann"]], False)
    with pytest.raises(ChangesUnavailableError) as refused:
        graph.changes.poll(page.cursor)
    assert refused.value.reason == "schema_boundary"
    boundary = refused.value.graph_commit_id
    assert boundary == graph.history.list()[1].graph_commit_id
    assert ids(graph.changes.poll(start=f"after:{boundary}")) == [["bob"]]


def test_what_cleanup_took_is_a_gap(graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(forget, "YOUNG", timedelta(0))
    cursor = graph.changes.poll(start="beginning").cursor
    add(graph, "ann", "bob", "cleo")
    graph.maintenance.optimize()
    graph.maintenance.cleanup(keep=1)
    reader = omnigraph.connect(graph.uri)
    with pytest.raises(ChangeFeedGapError) as gap:
        reader.changes.poll(cursor)
    assert gap.value.first_unreadable_commit_id == graph.history.list()[-2].graph_commit_id
    assert gap.value.facts()["change_feed_gap"]["cursor"] == cursor
    made = reader.changes.baseline(tmp_path / "base.jsonl")
    assert (made.entities, made.snapshot_commit_id) == (3, graph.history.list()[0].graph_commit_id)
    add(graph, "dan")
    assert ids(reader.changes.poll(made.resume_cursor)) == [["dan"]]


def test_a_baseline_ends_with_its_cursor_and_takes_filters(graph: omnigraph.Graph, tmp_path: Path) -> None:
    add(graph, "ann", "bob")
    graph.mutate('query q() { insert Knows { from: "ann", to: "bob" } }')
    out = tmp_path / "base.jsonl"
    made = graph.changes.baseline(out, kinds=["edge"])
    *lines, last = out.read_text().splitlines()
    assert [json.loads(line)["edge"] for line in lines] == ["Knows"]
    assert json.loads(last) == {"baseline": made.to_json()["baseline"]}
    graph.mutate('query q() { delete Knows where from = "ann" }')
    page = graph.changes.poll(made.resume_cursor, kinds=["edge"])
    assert [change.op for change in page.blocks[0].changes] == ["delete"]
    early = graph.changes.baseline(out, at=graph.history.list()[-2].graph_commit_id)
    assert early.entities == 1
    assert len(graph.changes.poll(early.resume_cursor).blocks) == 3


def test_one_commit_is_told_in_pages(graph: omnigraph.Graph) -> None:
    load(graph, *(f"p{number}" for number in range(7)))
    commit = graph.history.list()[0].graph_commit_id
    page = graph.changes.of(commit, limit=3)
    heard = [change.id for change in page.changes]
    while page.next_page_token is not None:
        page = graph.changes.of(commit, limit=3, page_token=page.next_page_token)
        heard += [change.id for change in page.changes]
    assert heard == [change.id for change in graph.history.changes(commit)]
    assert page.cause.graph_commit_id == commit
    token = graph.changes.of(commit, limit=3).next_page_token
    add(graph, "zoe")
    with pytest.raises(ChangeCursorError, match="another commit"):
        graph.changes.of(graph.history.list()[0].graph_commit_id, page_token=token)
    with pytest.raises(ChangesUnavailableError):
        graph.changes.of(graph.history.list()[-1].graph_commit_id)


def test_following_waits_for_what_comes_and_ends_when_the_graph_is_closed(graph: omnigraph.Graph) -> None:
    reader = omnigraph.connect(graph.uri)
    pages = reader.changes.follow(poll_seconds=0.05)
    add(graph, "ann")  # after follow was called, before anything was asked for
    assert ids(next(pages)) == [["ann"]]
    threading.Timer(0.1, add, (graph, "bob")).start()
    assert ids(next(pages)) == [["bob"]]
    threading.Timer(0.1, reader.close).start()
    assert list(pages) == []
    with pytest.raises(ExecutionError):
        reader.changes.follow()


def test_following_ends_after_silence_if_asked_to(graph: omnigraph.Graph) -> None:
    add(graph, "ann")
    began = time.monotonic()
    heard = list(graph.changes.follow(start="beginning", idle_seconds=0.2, poll_seconds=0.05))
    assert [ids(page) for page in heard] == [[["ann"]]]
    assert 0.2 <= time.monotonic() - began < 5
    with pytest.raises(ChangeCursorError):
        graph.changes.follow("x")


class Counted:
    """Counts what is asked of storage."""

    def __init__(self) -> None:
        self.count = 0

    def before(self, name: str, target: str) -> None:
        self.count += 1

    def after(self, name: str, target: str) -> None:
        """Nothing happens after an operation."""


@pytest.mark.long
def test_the_feed_of_small_commits_costs_the_same_whatever_the_size_of_the_graph_and_its_history(
    tmp_path: Path,
) -> None:
    counts = []
    for rows, commits in ((10, 0), (20_000, 0), (10, 150)):
        graph = omnigraph.create(tmp_path / f"g{rows}-{commits}.omni", SCHEMA)
        load(graph, *(f"p{number}" for number in range(rows)))
        add(graph, *(f"before{number}" for number in range(commits)))
        cursor = graph.changes.poll().cursor
        add(graph, *(f"q{number}" for number in range(5)))
        reader = omnigraph.connect(graph.uri, read_only=True)
        reader.changes.poll(cursor)  # opens what is opened once
        counted = Counted()
        previous = steps.observe(counted)
        try:
            assert len(reader.changes.poll(cursor).blocks) == 5
        finally:
            steps.observe(previous)
        counts.append(counted.count)
    assert max(counts) <= min(counts) + 2, counts


def test_an_optimize_is_told_without_reading_rows(graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    add(graph, *(f"p{number}" for number in range(12)))
    cursor = graph.changes.poll().cursor
    graph.maintenance.optimize()
    reader = omnigraph.connect(graph.uri, read_only=True)
    monkeypatch.setattr("omnigraph.engine.changes.delta._whole", lambda *_: pytest.fail("rows were looked at"))
    assert ids(reader.changes.poll(cursor)) == [[]]


@pytest.mark.long
def test_an_old_cursor_of_a_long_history_goes_on_right_after_it(graph: omnigraph.Graph) -> None:
    add(graph, *(f"p{number:03d}" for number in range(90)))
    page = graph.changes.poll(start="beginning", limit_commits=10)
    assert ids(page) == [[f"p{number:03d}"] for number in range(10)]
    heard = []
    for each in islice(graph.changes.follow(page.cursor, idle_seconds=0.1, limit=7), 50):
        heard += ids(each)
    assert heard == [[f"p{number:03d}"] for number in range(10, 90)]
