"""What notebooks and prompts show of a graph, its states, its history and its results."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph

SCHEMA = "node Person { name: String @key  age: I32? }\nnode Town { name: String @key }\nedge Knows: Person -> Person\n"
ALL = "query q() { match { $p: Person } return { $p.name as name } }"


class Cells(HTMLParser):
    """The texts of a table, row by row, and its caption."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.caption = ""
        self._tag = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._tag = tag
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._tag = ""

    def handle_data(self, data: str) -> None:
        if self._tag == "caption":
            self.caption += data
        elif self._tag in ("td", "th"):
            self.rows[-1][-1] += data


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    graph = omnigraph.create(tmp_path / "<g>.omni", schema=SCHEMA)
    table = pa.table({"name": [f"p{number:04d}" for number in range(1_250)]})
    graph.load({"Person": table}, actor="ana", message="people <b>came</b>")
    return graph


def test_a_graph_shows_what_it_holds_and_results_say_how_much_more_there_is(graph: omnigraph.Graph) -> None:
    shown = Cells(graph._repr_html_() or "")
    assert shown.rows[0] == ["kind", "type", "rows", "version"]
    assert [row[:3] for row in shown.rows[1:]] == [
        ["node", "Person", "1,250"],
        ["node", "Town", "0"],
        ["edge", "Knows", "0"],
    ]
    assert "<g>.omni · main at 0" in shown.caption
    assert "q: 1,250 rows, 1,240 more than shown" in graph.query(ALL)._repr_html_()
    assert repr(graph.query(ALL)).splitlines()[-1] == "… 1,240 more"
    one = graph.query('query q() { match { $p: Person { name: "p0001" } } return { $p.name as name } }')
    assert Cells(one._repr_html_()).caption == "q: 1 row"
    graph.close()
    assert graph._repr_html_() is None, "what is closed is still shown, by its name"


def test_a_snapshot_is_a_table(graph: omnigraph.Graph) -> None:
    state = graph.snapshot()
    lines = repr(state).splitlines()
    assert lines[0] == f"main at {state.head}, version {state.version}"
    assert lines[1].split() == ["kind", "type", "rows", "version"]
    assert lines[3].split() == ["node", "Person", "1,250", "2"]
    assert Cells(state._repr_html_()).rows[1] == ["node", "Person", "1,250", "2"]


def test_history_is_a_table_with_times_and_messages(graph: omnigraph.Graph) -> None:
    commits = graph.history.list()
    assert isinstance(commits, list)
    newest = commits[0]
    assert f"{newest.time:%Y-%m-%d %H:%M}" in repr(commits)
    assert newest.time.timestamp() == pytest.approx(newest.created_at / 1e6)
    cells = Cells(commits._repr_html_())
    assert cells.caption == "2 commits"
    assert cells.rows[1][1:] == [newest.graph_commit_id, "main", "ana", "people <b>came</b>"]
    assert commits == list(commits)
    for _ in range(3):
        commits += commits * 5
    assert repr(commits).splitlines()[-1] == f"… {len(commits) - 50:,} more"


def test_differences_and_merges_are_tables_of_counts(graph: omnigraph.Graph) -> None:
    graph.branches.create("b")
    graph.mutate('query q() { insert Town { name: "x" } update Person set { age: 1 } where true }', branch="b")
    counts = [["node", "Person", "0", "1,250", "0"], ["node", "Town", "1", "0", "0"]]
    difference = graph.branches.diff("b")
    assert Cells(difference._repr_html_()).rows == [["kind", "type", "+", "~", "-"], *counts]
    assert repr(difference).splitlines()[0] == f"from {difference.older.head} to {difference.newer.head}"
    assert repr(graph.branches.plan_merge("b")).splitlines()[0] == "merging b into main would be: fast_forward"
    graph.mutate('query q() { update Person set { age: 2 } where name = "p0001" }')
    refused = repr(graph.branches.plan_merge("b")).splitlines()
    assert (refused[0], refused[-1]) == ("merging b into main would be: refused", "in conflict: 1 divergent_update")
    merged = graph.branches.merge("b", strategy="ours")
    assert repr(merged).splitlines()[0] == f"merged b into main: merged, commit {merged.commit_id}"
    assert Cells(merged._repr_html_()).rows[2][:3] == ["node", "Town", "1"]


def test_an_explanation_is_a_table_with_its_facts(graph: omnigraph.Graph) -> None:
    found = graph.explain("query q() { match { $p: Person $p.age > 3 } return { $p.name } }", analyze=True)
    assert repr(found) == found.to_text()
    cells = Cells(found._repr_html_())
    assert cells.caption == "query q()"
    assert cells.rows[0] == ["operator", "detail", "why", "rows", "ms"]
    assert any(row[0].strip() == "filter" and "$p.age > 3" in row[1] for row in cells.rows)
    assert any(row[0].strip() == "scan" and row[3] for row in cells.rows[1:]), "with analyze, rows are told"


def test_a_prompt_shows_the_schema_as_it_was_written(graph: omnigraph.Graph) -> None:
    assert repr(graph.schema) == SCHEMA
    graph.close()
    assert "was closed" in repr(graph.schema)
