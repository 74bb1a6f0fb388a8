"""Wrong input is one clear sentence, the exit code of the contract, no traceback, and nothing half made on disk."""

import json
import shutil
from pathlib import Path

import lance
import pytest
from tests.cli.program import Outcome, call, spawn

import omnigraph

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person\n"


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "people.pg"
    path.write_text(SCHEMA)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "g.omni"
    omnigraph.create(path, schema=SCHEMA).close()
    return path


def refused(outcome: Outcome, code: int, says: str) -> None:
    """The shape of every refusal."""
    assert outcome.code == code, outcome
    assert "Traceback" not in outcome.out + outcome.err
    (line,) = [line for line in outcome.err.splitlines() if not line.startswith("omnigraph ")]
    assert line.startswith("error: ")
    assert says in line


def tree(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*")) if path.exists() else []


def test_a_wrong_choice_and_a_load_of_nothing(tmp_path: Path) -> None:
    wrong = call("load", "--mode", "upsert", tmp_path / "g.omni", "people.jsonl")
    assert wrong.err.startswith("error: Invalid value for '--mode': 'upsert' is not one of 'append', 'merge'")
    refused(call("load", "people.csv", "--type", "Person"), 1, "name the files behind the graph")


def test_an_unknown_schema_file(tmp_path: Path) -> None:
    refused(call("init", "--schema", tmp_path / "nope.pg", tmp_path / "g.omni"), 1, "no such file")
    assert not (tmp_path / "g.omni").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("node person { }", "1"),
        ("node A { s: enum(a, a) }", "a"),
        ("node A { }\nedge E: A -> Nope", "Nope"),
        ("node A { v: Vector(0) }", "Vector"),
        ("this is not a schema", "1"),
        ("node A { a: String", ""),
    ],
)
def test_a_malformed_schema(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "bad.pg").write_text(text)
    outcome = call("init", "--schema", tmp_path / "bad.pg", tmp_path / "deep" / "g.omni")
    assert outcome.code == 1
    assert outcome.err.startswith("error: ")
    assert says in outcome.err
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "deep").exists()


@pytest.mark.parametrize(
    "words", [["snapshot"], ["commit", "list"], ["schema", "show"], ["export"]], ids=lambda words: " ".join(words)
)
def test_a_root_without_a_graph(tmp_path: Path, words: list[str]) -> None:
    refused(call(*words, tmp_path / "nothing.omni"), 1, "there is no graph at")
    assert not (tmp_path / "nothing.omni").exists()
    (tmp_path / "folder").mkdir()
    refused(call(*words, tmp_path / "folder"), 1, "there is no graph at")
    assert tree(tmp_path / "folder") == []


@pytest.mark.long
def test_a_root_that_is_a_file(tmp_path: Path, schema: Path) -> None:
    (tmp_path / "file").write_text("x")
    outcome = call("init", "--schema", schema, tmp_path / "file")
    assert outcome.code == 1
    assert outcome.err.startswith("error: ")
    assert (tmp_path / "file").read_text() == "x"
    refused(call("snapshot", tmp_path / "file"), 1, "there is no graph at")


def test_a_root_that_cannot_be_written(tmp_path: Path, schema: Path) -> None:
    """Below a regular file nobody, not even the superuser, can create anything."""
    (tmp_path / "file").write_text("x")
    before = tree(tmp_path)
    outcome = call("init", "--schema", schema, tmp_path / "file" / "g.omni")
    assert outcome.code == 1
    assert outcome.err.startswith("error: ")
    assert "Traceback" not in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert tree(tmp_path) == before


def test_a_root_the_machine_forbids(schema: Path) -> None:
    """The process file system refuses new folders to everybody."""
    outcome = call("init", "--schema", schema, "/proc/omnigraph/g.omni")
    assert outcome.code == 1
    assert outcome.err.startswith("error: ")
    assert len(outcome.err.splitlines()) == 1


def test_a_used_root(root: Path, schema: Path) -> None:
    before = tree(root)
    refused(call("init", "--schema", schema, root), 3, "already initialized")
    refused(call("init", "--schema", schema, "--force", root), 3, "already initialized")
    assert tree(root) == before


@pytest.mark.parametrize("uri", ["ftp://host/g", "http://host/g", "https://host/g", " "])
def test_an_address_that_is_not_a_store(schema: Path, uri: str) -> None:
    assert call("init", "--schema", schema, uri).code == 1
    refused(call("snapshot", uri), 1, "")


def test_a_graph_of_a_newer_format(root: Path, schema: Path) -> None:
    dataset = lance.dataset(str(root / "__manifest"))
    dataset.update_schema_metadata({"omnigraph:internal_schema_version": "99"})
    before = tree(root)
    for words in (["snapshot"], ["commit", "list"], ["schema", "show"], ["export"]):
        refused(call(*words, root), 1, "upgrade")
    refused(call("mutate", "-e", 'query q() { insert Person { name: "x" } }', "--store", root), 1, "upgrade")
    assert tree(root) == before


def test_a_manifest_that_lost_its_data(root: Path) -> None:
    shutil.rmtree(root / "__manifest" / "data")
    outcome = call("snapshot", root)
    assert outcome.code == 1
    assert outcome.err.startswith("error: ")
    assert "Traceback" not in outcome.err


def test_a_schema_file_that_was_edited_by_hand(root: Path) -> None:
    (root / "_schema.pg").write_text(SCHEMA.replace("age: I32?", "age: I64?"))
    refused(call("snapshot", root), 3, "_schema.pg")


def test_an_unknown_commit(root: Path) -> None:
    refused(call("commit", "show", "01ARZ3NDEKTSV4RRFFQ69G5FAV", root), 1, "01ARZ3NDEKTSV4RRFFQ69G5FAV")


def test_an_unknown_branch(root: Path) -> None:
    refused(call("snapshot", "--branch", "nope", root), 1, "nope")
    refused(call("snapshot", "--branch", "a..b", root), 1, "a..b")


def test_nothing_addressed() -> None:
    refused(call("snapshot"), 1, "no graph addressed")
    refused(
        call("branch", "diff", "dev", "g.omni"), 1, "'g.omni' was taken as the branch B: write 'branch diff dev main"
    )


def test_with_json_the_refusal_is_also_an_object_on_standard_output(tmp_path: Path) -> None:
    outcome = call("snapshot", "--json", tmp_path / "nothing.omni")
    assert outcome.code == 1
    body = json.loads(outcome.out)
    assert body["code"] == "not_found"
    assert outcome.err == f"error: {body['error']}\n"


def test_a_broken_configuration_stops_the_command(operator_home: Path, root: Path) -> None:
    (operator_home / "config.yaml").write_text("defaults: [")
    refused(call("snapshot", root), 1, "config.yaml")


def test_a_reader_that_leaves_early_is_no_error_message(root: Path) -> None:
    """`omnigraph … | head` must not end in noise."""
    import subprocess

    from tests.cli.program import PROGRAM

    done = subprocess.run(
        f"'{PROGRAM}' --help | head -1", shell=True, capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr
    assert "error" not in done.stderr


def test_a_failing_process_exits_with_its_code(tmp_path: Path) -> None:
    outcome = spawn("snapshot", tmp_path / "nothing.omni")
    assert outcome.code == 1
    assert outcome.err.startswith("error: there is no graph at")
