"""`omnigraph branch` and `omnigraph blob`."""

import base64
import json
from pathlib import Path

import pytest
from tests.cli.program import call, spawn

import omnigraph

SCHEMA = "node Person { name: String @key  photo: Blob? }\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "g.omni"
    photo = "base64:" + base64.b64encode(bytes(range(256))).decode()
    with omnigraph.create(path, schema=SCHEMA) as graph:
        graph.load(
            [{"type": "Person", "data": {"name": "Ada", "photo": photo}}, {"type": "Person", "data": {"name": "B"}}]
        )
    return path


def test_a_branch_is_created_listed_written_and_deleted(root: Path) -> None:
    created = call("branch", "create", "review/one", root, "--as", "ana")
    assert created.out == "created branch review/one from main\n"
    assert created.err == f"omnigraph branch create → {root} (direct, local)\n"
    assert call("branch", "list", root).out == "main\nreview/one\n"
    add = ["mutate", "-e", 'query q() { insert Person { name: "C" } }', "--store", root, "--quiet"]
    assert call(*add, "--branch", "review/one").code == 0
    assert "node:Person" in call("snapshot", "--branch", "review/one", root).out
    assert "rows=3" in call("snapshot", "--branch", "review/one", root).out
    assert "rows=2" in call("snapshot", root).out
    deleted = json.loads(call("branch", "delete", "review/one", "--uri", root, "--json").out)
    assert deleted == {"uri": str(root), "name": "review/one", "actor_id": None}
    assert json.loads(call("branch", "list", "--json", root).out) == {"branches": ["main"]}


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["create", "main"], 3, "main"),
        (["create", "a..b"], 1, "a..b"),
        (["create", "new", "--from", "nope"], 1, "nope"),
        (["delete", "nope"], 1, "nope"),
        (["delete", "main"], 1, "main"),
    ],
)
def test_what_cannot_be_done_to_a_branch_is_said(root: Path, words: list[str], code: int, says: str) -> None:
    outcome = call("branch", *words, root, "--quiet")
    assert outcome.code == code
    assert outcome.err.startswith("error: ")
    assert says in outcome.err
    assert call("branch", "list", root).out == "main\n"


def test_a_load_can_make_its_branch(root: Path, tmp_path: Path) -> None:
    lines = '{"type":"Person","data":{"name":"D"}}\n'
    missing = call("load", "--data", "-", "--mode", "append", "--branch", "etl", root, stdin=lines)
    assert missing.code == 1
    assert "etl" in missing.err
    line = ["load", "--data", "-", "--mode", "append", "--branch", "etl", "--from", "main", "--json", root]
    body = json.loads(call(*line, stdin=lines).out)
    assert (body["branch"], body["base_branch"], body["branch_created"]) == ("etl", "main", True)
    again = json.loads(call(*line, stdin=lines.replace("D", "E")).out)
    assert (again["base_branch"], again["branch_created"]) == ("main", False)
    assert "rows=4" in call("snapshot", "--branch", "etl", root).out


def test_a_blob_is_read_whole_or_in_part(root: Path, tmp_path: Path) -> None:
    which = ["node", "Person", "Ada", "photo", root]
    assert call("blob", "stat", *which).out == "managed: 256 bytes\n"
    body = json.loads(call("blob", "stat", *which, "--json").out)
    assert body["selector"] == {"entity": "node", "type": "Person", "id": "Ada", "property": "photo"}
    assert (body["kind"], body["size"]) == ("managed", 256)
    assert call("blob", "get", *which, "--out", tmp_path / "photo").code == 0
    assert (tmp_path / "photo").read_bytes() == bytes(range(256))
    part = spawn("blob", "get", *which, "--offset", "65", "--length", "3")
    assert part.out == "ABC"


def test_a_file_becomes_a_blob_and_its_tag_changes(root: Path, tmp_path: Path) -> None:
    which = ["node", "Person", "Ada", "photo", root]
    before = json.loads(call("blob", "stat", *which, "--json").out)
    (tmp_path / "new").write_bytes(b"\0new\xff")
    put = json.loads(call("blob", "put", *which, "--in", tmp_path / "new", "-m", "a photo", "--json").out)
    assert put["affected_nodes"] == 1
    after = json.loads(call("blob", "stat", *which, "--json").out)
    assert (after["size"], after["target"]["branch"]) == (5, "main")
    assert after["etag"] != before["etag"]
    assert after["target"]["resolved_snapshot"] != before["target"]["resolved_snapshot"]
    past = before["target"]["resolved_snapshot"]
    assert json.loads(call("blob", "stat", *which, "--at", past, "--json").out)["etag"] == before["etag"]
    assert "a photo" in call("commit", "list", root).out
    assert call("blob", "get", *which, "--out", tmp_path / "back").code == 0
    assert (tmp_path / "back").read_bytes() == b"\0new\xff"


@pytest.mark.parametrize(
    ("which", "told"),
    [
        (["node", "Person", "Nobody", "photo"], "there is no node Person 'Nobody'"),
        (["node", "Person", "Ada", "name"], "name"),
        (["node", "Person} delete Person where true {", "Ada", "photo"], "is not a name of the schema"),
        (["node", "Nope", "Ada", "photo"], "Nope"),
    ],
)
def test_a_blob_that_cannot_be_stored_changes_nothing(root: Path, which: list[str], told: str, tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"new")
    before = call("commit", "list", root).out
    outcome = call("blob", "put", *which, root, "--in", tmp_path / "new")
    assert outcome.code == 1
    assert told in outcome.err
    assert call("blob", "put", "node", "Person", "Ada", "photo", root, "--in", tmp_path / "absent").code == 1
    assert call("commit", "list", root).out == before


@pytest.mark.parametrize(
    "which",
    [
        ["node", "Person", "Nobody", "photo"],
        ["node", "Person", "B", "photo"],
        ["node", "Person", "Ada", "name"],
        ["edge", "Person", "Ada", "photo"],
        ["node", "Nope", "Ada", "photo"],
    ],
)
def test_a_blob_that_is_not_there_is_said(root: Path, which: list[str], tmp_path: Path) -> None:
    outcome = call("blob", "get", *which, root, "--out", tmp_path / "photo")
    assert outcome.code == 1
    assert outcome.err.startswith("error: ")
    assert not (tmp_path / "photo").exists()
