"""Files of earlier days load: spread objects, unknown fields, ids in another spelling; other faults stay faults."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph
from omnigraph.errors import ConstraintError, InputError

SCHEMA = """
node Berth { number: I64 @key  depth: F64? }
node Day { day: Date @key }
node Flag { up: Bool @key }
edge Next: Berth -> Berth
edge On: Berth -> Day
"""
OLD = b"""
{
  "type": "Berth",
  "colour": "red",
  "data": {"number": 7, "id": "007", "depth": 2.5, "owner": {"name": "x"}}
}
{"type": "Berth", "data": {"number": 8}} {"type": "Day", "data": {"day": "2026-01-02", "id": "20455"}}
{"edge": "next", "from": "007", "to": "8", "data": {"weight": 1}}
{"edge": "On", "from": "007", "to": "20455"}
{"type": "Flag", "data": {"up": true, "id": "TRUE"}}
"""


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    return omnigraph.create(tmp_path / "g", SCHEMA)


def test_an_old_file_loads_with_ids_and_ends_rewritten(graph: omnigraph.Graph, tmp_path: Path) -> None:
    with pytest.raises(ConstraintError):
        graph.load(OLD, mode="append", engine="local")
    (tmp_path / "old.jsonl").write_bytes(OLD)
    result = graph.load(tmp_path / "old.jsonl", mode="append", lenient=True)
    assert (result.nodes_loaded, result.edges_loaded) == (4, 2)
    snapshot = graph.snapshot()
    assert sorted(snapshot.open("node:Berth").scan(["id"])["id"].to_pylist()) == ["7", "8"]
    assert snapshot.open("edge:Next").scan(["src", "dst"]).to_pylist() == [{"src": "7", "dst": "8"}]
    (day,) = snapshot.open("node:Day").scan(["id"])["id"].to_pylist()
    assert snapshot.open("edge:On").scan(["src", "dst"]).to_pylist() == [{"src": "7", "dst": day}]
    assert snapshot.open("node:Flag").scan(["id"])["id"].to_pylist() == ["true"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"type": "Berth", "data": {"number": 7, "id": "eight"}}', "is not '7'"),
        (b'{"type": "Berth", "data": {"number": "seven"}}', "expected an integer"),
        (b'{"type": "Berth", "data": {"number": 1}}\n{"type": ', r"record 2 \(line 2\): not JSON"),
        (b"[1]", "a record is a JSON object"),
        (b'{"kind": "Berth"}', "either 'type' or 'edge'"),
        (b"\xff", "not valid UTF-8"),
    ],
)
def test_what_is_wrong_beyond_that_is_still_wrong(graph: omnigraph.Graph, content: bytes, complaint: str) -> None:
    version = graph.snapshot().version
    with pytest.raises(ConstraintError, match=complaint):
        graph.load(content, mode="append", lenient=True)
    assert graph.snapshot().version == version


def test_only_files_of_lines_are_read_leniently_and_not_on_spark(graph: omnigraph.Graph) -> None:
    with pytest.raises(InputError, match="lenient"):
        graph.load([{"type": "Berth", "data": {"number": 1}}], mode="append", lenient=True)
    with pytest.raises(InputError, match="lenient"):
        graph.load(OLD, mode="append", lenient=True, engine="spark")
    with pytest.raises(InputError, match="leave the type out"):
        graph.load(OLD, mode="overwrite", lenient=True, type="Berth")
