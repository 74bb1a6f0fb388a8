"""Optimizing beside writers: rows that come meanwhile do not disturb it, and changed ones make it begin again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lance.query import MatchQuery

from omnigraph.engine.operations.verify import verify
from omnigraph.engine.storage import steps
from omnigraph.graph import Graph, connect, create
from omnigraph.ids import TableKey
from omnigraph.testing.children import run_child

SCHEMA = """
node Note { name: String @key
            text: String @index
            rank: I32? @index }
"""
NOTE = TableKey("node:Note")
ALL = "query q() { match { $n: Note } return { $n.name as name, $n.text as text, $n.rank as rank } order { $n.name } }"
RANKED = "query q($rank: I32) { match { $n: Note { rank: $rank } } return { $n.name as name } order { $n.name } }"
WORDS = "query q($w: String) { match { $n: Note  search($n.text, $w) } return { $n.name as name } order { $n.name } }"


def add_from(uri: str, number: int) -> None:
    add(connect(uri), number)


def add_elsewhere(uri: str, number: int) -> None:
    """Add a note by another process, for which mutexes of this one mean nothing."""
    assert run_child(add_from, uri, number) == 0


def add(graph: Graph, *numbers: int) -> None:
    for number in numbers:
        text = f'insert Note {{ name: "n{number:03d}", text: "word{number % 3} text", rank: {number} }}'
        graph.mutate(f"query q() {{ {text} }}")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = create(tmp_path / "graph", SCHEMA)
    add(graph, *range(6))
    return graph


class Meanwhile:
    """Another process writes each time this one has staged a part, as often as it is told to."""

    def __init__(self, step: str, do: Callable[[int], None], times: int) -> None:
        self._step, self._do, self._times = step, do, times
        self.met = 0

    def before(self, name: str, target: str) -> None:
        """Nothing happens before an operation."""

    def after(self, name: str, target: str) -> None:
        if name != self._step:
            return
        self.met += 1
        if self.met <= self._times:
            previous = steps.observe(None)
            self._do(self.met)
            steps.observe(previous)


@contextmanager
def meanwhile(observer: Meanwhile) -> Iterator[Meanwhile]:
    previous = steps.observe(observer)
    try:
        yield observer
    finally:
        steps.observe(previous)


def check(graph: Graph, expected: dict[str, tuple[str, int]]) -> None:
    """Rows, and what the indexes find of them, in this process and in one that has read nothing yet."""
    for handle in (graph, connect(graph.uri)):
        rows = list(handle.query(ALL))
        assert {row["name"]: (row["text"], row["rank"]) for row in rows} == expected
        assert len(rows) == len(expected)
        for rank in {rank for _, rank in expected.values()}:
            found = [row["name"] for row in handle.query(RANKED, {"rank": rank})]
            assert found == sorted(name for name, (_, other) in expected.items() if other == rank)
        for word in ("word0", "word1", "word2"):
            found = [row["name"] for row in handle.query(WORDS, {"w": word})]
            assert found == sorted(name for name, (text, _) in expected.items() if word in text)
    table = graph.snapshot().open(NOTE)
    for rank in range(10):
        ranked = table.scan(["name"], f"rank = {rank}")["name"].to_pylist()
        assert ranked == [name for name, (_, other) in expected.items() if other == rank]
    for word in ("word0", "word1", "word2", "zebra"):
        found = table.scan(["name"], full_text_query=MatchQuery(word, "text"))["name"].to_pylist()
        assert sorted(found) == sorted(name for name, (text, _) in expected.items() if word in text)
    assert verify(graph.context).clean


def notes(count: int) -> dict[str, tuple[str, int]]:
    return {f"n{number:03d}": (f"word{number % 3} text", number) for number in range(count)}


@pytest.mark.parametrize("step", ["compact", "build_index"])
def test_rows_that_come_while_a_table_is_optimized_do_not_disturb_it(step: str, graph: Graph, tmp_path: Path) -> None:
    if step == "build_index":
        # One fragment needs no compaction, so that the indexes are built before the table is taken.
        rows = [{"name": name, "text": text, "rank": rank} for name, (text, rank) in notes(6).items()]
        graph = create(tmp_path / "whole", SCHEMA)
        graph.load([{"type": "Note", "data": row} for row in rows])
    writer = connect(graph.uri)
    with meanwhile(Meanwhile(step, lambda met: add(writer, 5 + met), times=2)) as seen:
        report = graph.maintenance.optimize()
    assert report.commit_id is not None
    added = min(seen.met, 2)
    assert added, "nothing came meanwhile"
    check(graph, notes(6 + added))
    assert graph.maintenance.optimize().commit_id is not None
    check(graph, notes(6 + added))
    assert graph.maintenance.optimize().commit_id is None


def test_compaction_is_done_once_however_many_rows_come(graph: Graph) -> None:
    writer = connect(graph.uri)
    with meanwhile(Meanwhile("compact", lambda met: add(writer, 6), times=1)) as seen:
        assert graph.maintenance.optimize().commit_id is not None
    assert seen.met == 1
    assert len(graph.snapshot().open(NOTE).fragments()) == 2


@pytest.mark.parametrize("change", ["update", "delete", "schema"])
def test_rows_that_change_while_a_table_is_optimized_make_it_begin_again(graph: Graph, change: str) -> None:
    writer = connect(graph.uri)
    expected = notes(6)

    def do(met: int) -> None:
        if change == "update":
            writer.mutate('query q() { update Note set { text: "word1 zebra", rank: 77 } where name = "n003" }')
            expected["n003"] = ("word1 zebra", 77)
        elif change == "delete":
            writer.mutate('query q() { delete Note where name = "n003" }')
            del expected["n003"]
        else:
            writer.schema.apply(SCHEMA.replace("rank: I32? @index", "rank: I32? @index\n more: String?"))

    with meanwhile(Meanwhile("compact", do, times=1)) as seen:
        assert graph.maintenance.optimize().commit_id is not None
    assert seen.met == 2
    graph.refresh()
    check(graph, expected)
    assert len(graph.snapshot().open(NOTE).fragments()) == 1


@pytest.mark.long
def test_a_table_that_others_take_first_is_tried_again_without_compacting_anew(graph: Graph) -> None:
    """The writer comes between the last look at the tables and the commit that takes them."""
    compactions: list[int] = []
    arming = Meanwhile("write_text", lambda met: add_elsewhere(graph.uri, 5 + met), times=3)

    class Both:
        def before(self, name: str, target: str) -> None:
            compactions.extend([1] if name == "compact" else [])

        def after(self, name: str, target: str) -> None:
            if target.startswith("__recovery/"):
                arming.after(name, target)

    previous = steps.observe(Both())
    try:
        assert graph.maintenance.optimize().commit_id is not None
    finally:
        steps.observe(previous)
    assert arming.met > 3
    assert len(compactions) == 1
    check(graph, notes(9))


def test_a_fragment_that_one_of_two_segments_covers_is_rewritten(tmp_path: Path) -> None:
    """Two segments of one index: what the second covers becomes another fragment, and not the first one's."""
    graph = create(tmp_path / "segments", SCHEMA)
    expected = notes(20)
    rows = [{"name": name, "text": text, "rank": rank} for name, (text, rank) in expected.items()]
    for part in (rows[:10], rows[10:]):
        graph.load([{"type": "Note", "data": row} for row in part], mode="append")
        graph.maintenance.optimize()
    assert {len(index.fragment_ids) for index in graph.snapshot().open(NOTE).indexes()} == {1}
    for number in range(12, 18):
        graph.mutate(f'query q() {{ delete Note where name = "n{number:03d}" }}')
        del expected[f"n{number:03d}"]
    assert graph.maintenance.optimize().commit_id is not None
    table = graph.snapshot().open(NOTE)
    assert [fragment.deleted_rows for fragment in table.fragments()] == [0, 0]
    check(graph, expected)
    add(graph, 20, 21)
    graph.maintenance.optimize()
    check(graph, {**expected, "n020": ("word2 text", 20), "n021": ("word0 text", 21)})
