"""`omnigraph.lint`: queries checked against a schema, without a graph."""

from pathlib import Path

import pytest

import omnigraph

SCHEMA = "node Person { name: String @key\n age: I32? }\n"
GOOD = "query adults() { match { $p: Person } return { $p.name } }\n"
BAD = "query ghosts() { match { $g: Ghost } return { $g.name } }\n"


def test_a_report_tells_each_query() -> None:
    report = omnigraph.lint(schema=SCHEMA, source=GOOD + BAD)
    assert isinstance(report, omnigraph.LintReport)
    assert not report.is_ok
    assert [(found.name, found.error is None) for found in report.results] == [("adults", True), ("ghosts", False)]
    assert report.to_json()["errors"] == 1
    assert report.query_path == "<text>"


def test_files_are_named_in_the_report(tmp_path: Path) -> None:
    (tmp_path / "s.pg").write_text(SCHEMA)
    (tmp_path / "q.gq").write_text(GOOD)
    report = omnigraph.lint(schema=tmp_path / "s.pg", source=str(tmp_path / "q.gq"))
    assert report.is_ok
    assert report.query_path == str(tmp_path / "q.gq")
    assert report.schema_source == {"kind": "file", "path": str(tmp_path / "s.pg")}


def test_a_schema_that_is_none_is_refused() -> None:
    with pytest.raises(omnigraph.ParseError):
        omnigraph.lint(schema="node {", source=GOOD)
    with pytest.raises(omnigraph.InputError):
        omnigraph.lint(schema=SCHEMA, source=Path("missing.gq"))
