"""`omnigraph lint`."""

import json
from pathlib import Path

import pytest
from tests.cli.program import call

import omnigraph

SCHEMA = "node Person { name: String @key  age: I32?  city: String? }\nedge Knows: Person -> Person\n"
GOOD = "query adults($age: I32) { match { $p: Person $p.age >= $age } return { $p.name } }\n"
BAD = "query broken_edge() { match { $p: Person $p likes $q } return { $p.name } }\n"
WRITE = "query rename($name: String) { update Person set { age: 3 } where name = $name }\n"


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "people.pg"
    path.write_text(SCHEMA)
    return path


def test_a_good_file_is_ok_and_exits_with_0(tmp_path: Path, schema: Path) -> None:
    (tmp_path / "q.gq").write_text(GOOD)
    outcome = call("lint", "--query", tmp_path / "q.gq", "--schema", schema)
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        f"{tmp_path / 'q.gq'}: 1 queries, 0 errors, 0 warnings",
        "  ok      adults",
    ]


def test_a_bad_query_is_named_and_exits_with_1(tmp_path: Path, schema: Path) -> None:
    (tmp_path / "q.gq").write_text(GOOD + BAD)
    outcome = call("lint", "--query", tmp_path / "q.gq", "--schema", schema)
    assert outcome.code == 1
    assert "  ok      adults" in outcome.out
    assert "  error   broken_edge: T4" in outcome.out


def test_json_is_the_report(tmp_path: Path, schema: Path) -> None:
    (tmp_path / "q.gq").write_text(WRITE)
    outcome = call("lint", "--query", tmp_path / "q.gq", "--schema", schema, "--json")
    report = json.loads(outcome.out)
    assert outcome.code == 0
    assert report["status"] == "ok"
    assert report["schema_source"] == {"kind": "file", "path": str(schema)}
    assert report["query_path"] == str(tmp_path / "q.gq")
    assert [finding["code"] for finding in report["findings"]] == ["L201"]


def test_a_folder_is_linted_whole(tmp_path: Path, schema: Path) -> None:
    folder = tmp_path / "queries"
    folder.mkdir()
    (folder / "a.gq").write_text(GOOD)
    (folder / "b.gq").write_text("query broken(")
    outcome = call("lint", "--query", folder, "--schema", schema, "--json")
    assert outcome.code == 1
    summary = json.loads(outcome.out)
    assert (summary["status"], summary["errors"], summary["queries_processed"]) == ("error", 1, 1)
    assert [report["status"] for report in summary["reports"]] == ["ok", "error"]
    assert summary["reports"][1]["findings"][0]["code"] == "Q000"


def test_without_a_schema_file_the_graph_is_asked(tmp_path: Path) -> None:
    omnigraph.create(tmp_path / "g.omni", schema=SCHEMA).close()
    outcome = call("lint", "--query", "-", tmp_path / "g.omni", "--json", stdin=GOOD)
    assert outcome.code == 0
    assert json.loads(outcome.out)["schema_source"] == {"kind": "graph", "uri": str(tmp_path / "g.omni")}


def test_a_schema_and_a_graph_exclude_each_other(tmp_path: Path, schema: Path) -> None:
    (tmp_path / "q.gq").write_text(GOOD)
    outcome = call("lint", "--query", tmp_path / "q.gq", "--schema", schema, tmp_path / "g.omni")
    assert outcome.code == 1
    assert "mutually exclusive" in outcome.err


def test_the_older_spellings_lint_too(tmp_path: Path, schema: Path) -> None:
    (tmp_path / "q.gq").write_text(GOOD)
    for words in (["check"], ["query", "lint"], ["query", "check"]):
        outcome = call(*words, "--query", tmp_path / "q.gq", "--schema", schema)
        assert outcome.code == 0
        assert outcome.err.startswith("warning: ")
