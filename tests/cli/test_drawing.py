"""`draw` and `schema show --format svg`: pictures on standard output and in files."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.cli.program import call

import omnigraph

SCHEMA = "node Person { name: String @key  nick: String? }\nedge Knows: Person -> Person\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("drawing") / "g.omni"
    with omnigraph.create(path, schema=SCHEMA) as graph:
        graph.load([{"name": f"p{number}", "nick": f"n{number}"} for number in range(9)], type="Person")
        graph.load([{"from": "p0", "to": f"p{number}"} for number in range(1, 9)], type="Knows")
    return path


def texts(svg: str) -> set[str]:
    return {each.text or "" for each in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")}


def test_a_picture_goes_to_standard_output(root: Path) -> None:
    done = call("draw", root, "--node", "Person:p3", "--label", "Person=nick")
    assert done.code == 0
    assert {"n3", "n0"} <= texts(done.out)
    assert "n4" not in texts(done.out)
    query = "query q($n: String) { match { $p: Person { name: $n } } return { $p.name } }"
    done = call("draw", root, "-e", query, "--params", '{"n": "p5"}', "--hops", "0")
    assert "p5" in texts(done.out)
    assert "p0" not in texts(done.out)
    assert {f"p{number}" for number in range(9)} <= texts(call("draw", root).out)


def test_a_picture_is_written_to_a_file_and_what_is_left_out_is_told(root: Path, tmp_path: Path) -> None:
    done = call("draw", root, "--node", "Person:p0", "--nodes-max", "4", "--out", tmp_path / "part.html")
    assert done.out == ""
    assert done.err.splitlines()[-2:] == [
        f"drew 4 nodes to {tmp_path / 'part.html'}",
        "not drawn: 5 more Person along Knows →",
    ]
    assert (tmp_path / "part.html").read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--node", "p0"], "--node is written as TYPE:ID"),
        (["--label", "Person"], "--label is written as TYPE=PROPERTY"),
        (["--node", "Person:p0", "-e", "query q() { match { $p: Person } return { $p.id } }"], "two ways to say"),
        (["--branch", "main", "--at", "x"], "mutually exclusive"),
        (["--out", "part.png"], ".svg or .html"),
        (["--nodes-max", "9999"], "between 1 and 500"),
    ],
)
def test_what_makes_no_picture_is_refused(root: Path, words: list[str], says: str) -> None:
    done = call("draw", root, *words)
    assert done.code == 1
    assert says in done.err


def test_a_schema_is_a_diagram(root: Path) -> None:
    assert {"Person", "name", "Knows"} <= texts(call("schema", "show", root, "--format", "svg").out)
    assert call("schema", "show", root, "--format", "text").out == SCHEMA
    assert "mutually exclusive" in call("schema", "show", root, "--format", "svg", "--json").err
