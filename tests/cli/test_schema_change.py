"""`schema apply` and `schema unlock`: another schema, from the command line."""

import json
from pathlib import Path

import pexpect
import pytest
from tests.cli.program import PROGRAM, call

import omnigraph
from omnigraph.engine.coordination.schema_lock import acquire_lock, new_lock, release_lock

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


def test_a_plan_names_the_branches_that_keep_it_from_being_applied(root: Path, tmp_path: Path) -> None:
    words = ("schema", "plan", "--schema", tmp_path / "next.pg", root)
    assert json.loads(call(*words, "--json").out)["other_branches"] == []
    with omnigraph.connect(root) as graph:
        graph.branches.create("review")
        graph.branches.create("draft")
    told = call(*words).out.splitlines()
    assert told[1:3] == ["supported: yes", "cannot be applied while there are other branches: draft, review"]
    assert json.loads(call(*words, "--json").out)["other_branches"] == ["draft", "review"]


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
    recovery = omnigraph.connect(root).context.recovery
    lock = new_lock(recovery, None)
    acquire_lock(recovery, lock)
    words = ("schema", "apply", "--schema", tmp_path / "next.pg", root)
    assert "in progress" in call(*words).err
    assert "--confirm" in call("schema", "unlock", root).err
    assert call("schema", "unlock", "--confirm", root).out == "the schema lock is removed\n"
    assert json.loads(call("schema", "unlock", "--confirm", "--json", root).out)["unlocked"] is False
    assert call(*words).code == 0
    release_lock(recovery, lock)  # The holder knows nothing of it, and goes on being one for this process.


def test_data_is_dropped_only_with_consent(root: Path, tmp_path: Path) -> None:
    with omnigraph.connect(root) as graph:
        graph.load([{"type": "Person", "data": {"name": f"p{i}", "fax": "1"}} for i in range(3)], mode="append")
    words = ("schema", "apply", "--schema", tmp_path / "next.pg", root)
    refused = call(*words)
    assert refused.code != 0
    assert "[OG-DS-104] node:Person.fax: dropping it takes the data of 3 rows" in refused.err
    assert "--yes" in refused.err
    plan = call("schema", "plan", "--schema", tmp_path / "next.pg", root)
    assert "- drop property 'Person.fax' of node 'Person' (soft mode): 3 rows" in plan.out.splitlines()
    assert "applied: yes" in call(*words, "--yes").out


def test_a_plan_shows_the_rows_that_break_a_rule(root: Path, tmp_path: Path) -> None:
    with omnigraph.connect(root) as graph:
        graph.load([{"type": "Person", "data": {"name": f"p{i:02}", "fax": "1"}} for i in range(30)], mode="append")
    (tmp_path / "strict.pg").write_text(SCHEMA.replace("fax: String?", 'fax: String? @unique @check(fax, "^[0-9]$")'))
    lines = call("schema", "plan", "--schema", tmp_path / "strict.pg", root).out.splitlines()
    assert lines[1] == "supported: no"
    assert lines[2] == "- add @check(fax, \"^[0-9]$\") on node 'Person'"
    assert lines[3].startswith("- unsupported: [OG-MF-107] node:Person: @unique(fax) is broken in 29 rows")
    assert lines[4] == "    p01: @unique violation: another Person already has (fax) = ('1')"
    assert (len(lines), lines[-1]) == (25, "    and 9 more")


@pytest.mark.long
def test_whoever_sits_at_a_terminal_is_asked(root: Path, tmp_path: Path) -> None:
    with omnigraph.connect(root) as graph:
        graph.load([{"type": "Person", "data": {"name": "ann", "fax": "1"}}], mode="append")
    words = ["schema", "apply", "--schema", str(tmp_path / "next.pg"), str(root)]
    child = pexpect.spawn(str(PROGRAM), words, encoding="utf-8", timeout=30)
    child.expect("drop property 'Person.fax' .*: 1 row")
    child.expect("Type 'yes' to continue")
    child.sendline("yes")
    child.expect("applied: yes")
    child.expect(pexpect.EOF)
