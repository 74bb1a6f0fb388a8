"""One blob is read by type, id and property."""

from pathlib import Path

import pytest

import omnigraph
from omnigraph.errors import InputError, NotFoundError

SCHEMA = """
node Doc { code: String @key
           scan: Blob?
           note: String? }
node Cites { code: String @key }
edge Cites: Doc -> Doc { proof: Blob? }
"""
DATA = """
{"type": "Doc", "data": {"code": "a", "scan": "base64:AQIDBAU="}}
{"type": "Doc", "data": {"code": "none"}}
{"type": "Doc", "data": {"code": "empty", "scan": "base64:"}}
{"type": "Doc", "data": {"code": "away", "scan": "file:///archive/a.pdf"}}
{"edge": "Cites", "from": "a", "to": "none", "data": {"id": "c1", "proof": "base64:CQ=="}}
"""


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    graph = omnigraph.create(tmp_path / "g.omni", schema=SCHEMA, external_blobs=["file:///archive"])
    (tmp_path / "data.jsonl").write_text(DATA.lstrip())
    graph.load(tmp_path / "data.jsonl", mode="overwrite")
    return graph


def test_a_blob_is_its_bytes(graph: omnigraph.Graph) -> None:
    assert graph.read_blob("Doc", "a", "scan") == b"\x01\x02\x03\x04\x05"
    assert graph.stat_blob("Doc", "a", "scan").size == 5


def test_a_range_of_a_blob_is_cut_at_its_end(graph: omnigraph.Graph) -> None:
    assert graph.read_blob("Doc", "a", "scan", offset=1, length=2) == b"\x02\x03"
    assert graph.read_blob("Doc", "a", "scan", offset=3, length=99) == b"\x04\x05"
    for offset, length in ((5, None), (-1, None), (0, 0)):
        with pytest.raises(InputError):
            graph.read_blob("Doc", "a", "scan", offset=offset, length=length)


def test_an_empty_blob_is_not_a_null_one(graph: omnigraph.Graph) -> None:
    assert graph.read_blob("Doc", "empty", "scan") == b""
    with pytest.raises(NotFoundError, match="null"):
        graph.read_blob("Doc", "none", "scan")
    with pytest.raises(NotFoundError, match="no Doc 'x'"):
        graph.read_blob("Doc", "x", "scan")


def test_a_reference_is_described_but_not_followed(graph: omnigraph.Graph) -> None:
    info = graph.stat_blob("Doc", "away", "scan")
    assert (info.kind, info.uri, info.size) == ("external", "file:///archive/a.pdf", None)
    with pytest.raises(InputError, match=r"file:///archive/a\.pdf"):
        graph.read_blob("Doc", "away", "scan")


def test_a_name_of_a_node_and_an_edge_needs_to_be_told_apart(graph: omnigraph.Graph) -> None:
    with pytest.raises(InputError, match="say which"):
        graph.read_blob("Cites", "c1", "proof")
    assert graph.read_blob("Cites", "c1", "proof", entity="edge") == b"\x09"
    with pytest.raises(InputError, match="not a Blob"):
        graph.read_blob("Cites", "c1", "proof", entity="node")


def test_only_blobs_can_be_read_so(graph: omnigraph.Graph) -> None:
    for type_name, name in (("Doc", "note"), ("Doc", "id"), ("Nope", "scan")):
        with pytest.raises(InputError):
            graph.read_blob(type_name, "a", name)
    with pytest.raises(InputError, match="'node' or an 'edge'"):
        graph.read_blob("Doc", "a", "scan", entity="thing")


def test_a_blob_of_the_past_stays_readable(graph: omnigraph.Graph) -> None:
    then = graph.snapshot().version
    graph.mutate('query q($b: Blob) { insert Doc { code: "a", scan: $b } }', {"b": "base64:/w=="})
    assert graph.read_blob("Doc", "a", "scan") == b"\xff"
    assert graph.read_blob("Doc", "a", "scan", at=then)[:1] == b"\x01"
