"""`schema apply` and `schema unlock`: another schema, from the command line."""

import json
from pathlib import Path

import pytest
from tests.cli.program import call

import omnigraph
from omnigraph.engine.recovery.schema_lock import acquire_lock

SCHEMA = "node Person { name: String @key\n fax: String? }\n"
DESIRED = "node Person { name: String @key\n age: I32? }\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "g.omni"
    omnigraph.create(path, schema=SCHEMA).close()
    (tmp_path / "next.pg").write_text(DESIRED)
    return path


def test_apply_tells_its_steps_and_the_version(root: Path, tmp_path: Path) -> None:
    done = call("schema", "apply", "--schema", tmp_path / "next.pg", root, "--as", "ana")
    assert done.code == 0
    assert done.out.splitlines() == [
        f"schema apply for {root}",
        "- add property 'Person.age' (I32?) on node 'Person'",
        "- drop property 'Person.fax' of node 'Person' (soft mode)",
        "applied: yes",
        "manifest_version: 3",
    ]
    assert "schema apply" in done.err
    assert call("schema", "show", root).out == DESIRED
    assert "actor=ana" in call("commit", "list", root).out
    again = call("schema", "apply", "--schema", tmp_path / "next.pg", root).out.splitlines()
    assert again[1:] == ["no schema changes", "applied: no", "manifest_version: 3"]


def test_the_json_has_the_fields_of_the_wire(root: Path, tmp_path: Path) -> None:
    words = ("schema", "apply", "--schema", tmp_path / "next.pg", "--allow-data-loss", "--json", root)
    body = json.loads(call(*words).out)
    assert list(body) == ["uri", "supported", "applied", "step_count", "manifest_version", "steps"]
    assert (body["supported"], body["applied"], body["step_count"]) == (True, True, 2)
    assert body["steps"][1]["mode"] == "hard"


def test_what_is_not_supported_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.pg").write_text(SCHEMA.replace("fax: String?", "fax: String?\n age: I32"))
    refused = call("schema", "apply", "--schema", tmp_path / "bad.pg", root)
    assert refused.code != 0
    assert "[OG-MF-103]" in refused.err
    omnigraph.connect(root).branches.create("review")
    beside = call("schema", "apply", "--schema", tmp_path / "next.pg", "--json", root)
    assert json.loads(beside.out)["code"] == "conflict"
    assert call("schema", "show", root).out == SCHEMA


def test_a_lock_is_removed_only_when_confirmed(root: Path, tmp_path: Path) -> None:
    acquire_lock(omnigraph.connect(root).context.recovery, None)
    words = ("schema", "apply", "--schema", tmp_path / "next.pg", root)
    assert "in progress" in call(*words).err
    assert "--confirm" in call("schema", "unlock", root).err
    assert call("schema", "unlock", "--confirm", root).out == "the schema lock is removed\n"
    assert json.loads(call("schema", "unlock", "--confirm", "--json", root).out)["unlocked"] is False
    assert call(*words).code == 0
