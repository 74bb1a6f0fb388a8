"""Messages, times and shortened ids: the history as the command line has it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.cli.program import call

import omnigraph

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "g.omni"
    omnigraph.create(path, schema=SCHEMA).close()
    return path


def add(root: Path, name: str, *words: str) -> None:
    text = f'query q() {{ insert Person {{ name: "{name}" }} }}'
    done = call("mutate", "--store", root, "-e", text, "--quiet", *words)
    assert done.code == 0, done


def test_a_message_is_given_with_m_and_listed_by_its_first_line(root: Path) -> None:
    add(root, "ann", "-m", "ann joins\n\nat last", "--as", "ana")
    newest, first = call("commit", "list", root).out.splitlines()
    assert re.search(r" branch=main version=\d+ at=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ actor=ana  ann joins$", newest)
    assert " version=1 at=" in first
    when = re.search(r"at=(\S+)", first)
    assert when is not None
    assert first in call("commit", "list", root, "--since", when[1]).out
    assert call("commit", "list", root, "--until", "2020-01-01").out == ""
    body = json.loads(call("commit", "list", "--json", root).out)["commits"]
    assert [commit["message"] for commit in body] == ["ann joins\n\nat last", None]
    refused = call("mutate", "--store", root, "-e", 'query q() { insert Person { name: "b" } }', "-m", " ")
    assert refused.code == 1
    assert "error: " in refused.err


def test_one_commit_is_shown_with_its_time_as_other_commands_take_it(root: Path) -> None:
    call("branch", "create", "b", root)
    add(root, "ann", "--branch", "b")
    call("branch", "merge", "b", "--store", root)
    newest = call("commit", "list", root).out.splitlines()[0]
    commit, _, _, at, *_ = newest.split()
    shown = call("commit", "show", commit, root).out.splitlines()
    assert f"created_at: {at.removeprefix('at=')}" in shown
    assert "manifest_branch: null" in shown
    (properties,) = (json.loads(line.removeprefix("properties: ")) for line in shown if line.startswith("properties: "))
    assert properties["merge.source"] == "b"


def test_the_feed_on_the_command_line(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "base.jsonl"
    add(root, "ann")
    made = json.loads(call("changes", "baseline", "--out", out, root, "--json").out)
    assert made["entities"] == 1
    cursor = made["baseline"]["resume_cursor"]
    add(root, "bob", "-m", "bob joins", "--as", "ana")
    shown = call("changes", "poll", "--cursor", cursor, root).out.splitlines()
    assert re.fullmatch(r"commit \w{26} at \S+ by ana  bob joins", shown[0])
    assert shown[1:4] == ["  + Person bob", "      name: bob", "caught up"]
    body = json.loads(call("changes", "poll", "--cursor", cursor, root, "--json").out)
    assert [change["id"] for change in body["blocks"][0]["changes"]] == ["bob"]
    assert shown[4] == f"cursor: {body['cursor']}"
    followed = call("changes", "follow", "--start", "beginning", "--idle", "1", "--json", root).out.splitlines()
    assert [sorted(json.loads(line)) for line in followed] == [["cause", "changes"], ["cause", "changes"], ["cursor"]]
    refused = call("changes", "poll", "--cursor", "nonsense", root, "--json")
    assert (refused.code, json.loads(refused.out)["code"]) == (1, "bad_request")


def test_what_ends_a_feed_is_a_line_of_it(root: Path) -> None:
    """Whoever reads line by line reads the last one too."""
    add(root, "ann")
    call("schema", "apply", "--store", root, "--schema", _with_a_nickname(root))
    followed = call("changes", "follow", "--start", "beginning", "--json", root)
    *told, last = map(json.loads, followed.out.splitlines())
    assert (followed.code, [sorted(each) for each in told]) == (1, [["cause", "changes"], ["cursor"]])
    assert "changed the schema" in last["error"]


def _with_a_nickname(root: Path) -> Path:
    file = root.parent / "with-nick.pg"
    file.write_text(
        call("schema", "show", "--store", root).out.replace("name: String @key", "name: String @key nick: String?")
    )
    return file


def test_a_commit_is_told_in_pages(root: Path, tmp_path: Path) -> None:
    lines = tmp_path / "people.jsonl"
    lines.write_text("".join(f'{{"type":"Person","data":{{"name":"p{number}"}}}}\n' for number in range(5)))
    assert call("load", "--mode", "append", "--data", lines, root, "--quiet").code == 0
    commit = json.loads(call("commit", "list", "--limit", "1", "--json", root).out)["commits"][0]["graph_commit_id"]
    heard, words = [], ["commit", "changes", commit[:20], str(root), "--json", "--limit", "2"]
    page = json.loads(call(*words).out)
    while "next_page_token" in page:
        heard += page["changes"]
        page = json.loads(call(*words, "--page-token", page["next_page_token"]).out)
    assert [change["id"] for change in [*heard, *page["changes"]]] == [f"p{number}" for number in range(5)]


def test_tags_and_branches_at_a_moment(root: Path) -> None:
    add(root, "ann")
    made = json.loads(call("tag", "create", "v1", root, "--json", "-m", "first", "--quiet").out)
    add(root, "bob")
    listed = call("tag", "list", root).out
    assert "v1" in listed
    assert made["graph_commit_id"] in listed
    counted = call(
        "query",
        "--store",
        root,
        "-e",
        "query q() { match { $p: Person } return { count($p) as n } }",
        "--snapshot",
        "v1",
        "--format",
        "csv",
    ).out
    assert counted.split() == ["n", "1"]
    assert call("branch", "create", "old", root, "--at", "v1", "--quiet").out.startswith(
        "created branch old from main at"
    )
    shown = call("branch", "show", "old", root).out.splitlines()
    assert shown[0] == "branch old"
    assert shown[-1] == "0 commits ahead of main, 1 behind"
    assert call("tag", "create", "v1", root, "--quiet").code == 3
    assert call("tag", "delete", "v1", root, "--quiet").out == "deleted tag v1\n"
    assert call("tag", "list", root).out == ""


def test_a_commit_is_undone_and_a_conflict_ends_with_three(root: Path) -> None:
    add(root, "ann")
    commit = json.loads(call("commit", "list", "--limit", "1", "--json", root).out)["commits"][0]["graph_commit_id"]
    grown = 'query q() { update Person set { age: 3 } where name = "ann" }'
    assert call("mutate", "--store", root, "-e", grown, "--quiet").code == 0
    refused = call("commit", "revert", commit, root, "--quiet")
    assert refused.code == 3
    assert "cannot be undone on 'main'" in refused.err
    done = call("commit", "revert", commit[:22], root, "--strategy", "theirs", "-m", "not yet", "--quiet")
    assert done.out.startswith("undone on main by commit ")
    assert "not yet" in call("commit", "list", "--limit", "1", root).out
    again = call("commit", "revert", commit, root, "--strategy", "theirs", "--quiet")
    assert again.out == "nothing of it is left to undo on main, no commit\n"
