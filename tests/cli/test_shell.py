"""`omnigraph shell`: a script on standard input, and a prompt at a terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pexpect
import pytest
from tests.cli.program import PROGRAM, call

import omnigraph
from omnigraph.catalog.resolve import compile_schema
from omnigraph.cli.shell.completion import candidates
from omnigraph.cli.shell.run import COMMANDS
from omnigraph.cli.shell.statements import is_whole, read_statement
from omnigraph.errors import ParseError

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person { since: I32? }\n"
NAMES = "match { $p: Person } return { $p.name, $p.age } order { $p.name }"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "g.omni"
    with omnigraph.create(path, SCHEMA) as graph:
        graph.load([{"type": "Person", "data": {"name": "ann", "age": 30}}], mode="append")
    return path


def test_a_script_reads_writes_and_asks_for_what_there_is(root: Path) -> None:
    script = f"""
.format csv
insert Person {{ name: "bob" }};
insert Knows {{ from: "ann", to: "bob" }}

{NAMES};
match {{ $p: Person
         $p knows $q }}
return {{ $p.name as one, $q.name as other }}
limit 5

query older($least: I32?) {{
    match {{ $p: Person $p.age > 1 }} return {{ count($p) as n }}
}}
.branches
.schema
.quit
never read
"""
    done = call("shell", root, stdin=script)
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        "format csv",
        "changed main via shell: 1 nodes, 0 edges",
        "changed main via shell: 0 nodes, 1 edges",
        "p.name,p.age",
        "ann,30",
        "bob,null",
        "one,other",
        "ann,bob",
        "n",
        "1",
        "* main",
        *SCHEMA.splitlines(),
    ]


def test_a_script_ends_with_its_first_error_which_points_at_the_place(root: Path) -> None:
    done = call(
        "shell", root, stdin='insert Person { name: "bob" };\nmatch { $p: Person } return { $p.nme };\n.schema\n'
    )
    assert done.code != 0
    assert done.out.splitlines() == ["changed main via shell: 1 nodes, 0 edges"]
    assert "did you mean 'name'?" in done.err
    assert "^" in done.err
    wrong = call("shell", root, stdin=".colour red\n")
    assert (wrong.code, "there is no command '.colour'" in wrong.err) == (1, True)


def test_switches_and_branches(root: Path) -> None:
    with omnigraph.connect(root) as graph:
        graph.branches.create("review")
    script = (
        f'.branch review\n.timing\ninsert Person {{ name: "cid" }};\n.timing off\n.explain\n{NAMES};\n.explain off\n'
    )
    done = call("shell", root, stdin=script + ".branches\n.help\n.branch nowhere\n")
    assert done.out.splitlines()[:3] == ["branch review", "timing on", "changed review via shell: 1 nodes, 0 edges"]
    assert done.err.splitlines()[0].endswith(" ms")
    assert "explain on" in done.out
    assert "scan" in done.out
    assert "  main\n* review\n" in done.out
    assert all(command.usage in done.out for command in COMMANDS.values())
    assert "there is no branch 'nowhere'" in done.err
    with omnigraph.connect(root) as graph:
        assert len(graph.query(f"query q() {{ {NAMES} }}")) == 1


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", True),
        (".schema", True),
        ("match { $p: Person }", False),
        ("match { $p: Person } return { $p }", False),
        ("match { $p: Person } return { $p };", True),
        ("match { $p: Person\n;", False),
        ('insert Person { name: "a;', False),
        ("query q() {", False),
        ("query q() { match { $p: Person } return { $p } }", True),
        ("query q()", False),
        ("match { $p: Person }\n", True),
    ],
)
def test_a_statement_is_whole(text: str, whole: bool) -> None:
    assert is_whole(text) is whole


def test_a_bare_body_is_a_query_without_a_name() -> None:
    assert read_statement(f"{NAMES};").writes is False
    assert read_statement('delete Person where name = "a"').writes is True
    with pytest.raises(ParseError):
        read_statement("match { $p: Person }")


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        (".bra", [".branches", ".branch"]),
        ("mat", ["match", "matches", "match_text("]),
        ("match { $p: Per", ["Person"]),
        ("match { $p: Person $p.a", ["age"]),
        ("match { $p kno", ["knows"]),
        ("insert Person { na", ["name"]),
        ("match { $e.", ["age", "name", "since"]),
        ("match { $p: Person }\nreturn { co", ["contains", "coalesce(", "collect(", "concat(", "count("]),
    ],
)
def test_what_is_begun_is_completed(text: str, offered: list[str]) -> None:
    found = [name for name, _ in candidates(text, compile_schema(SCHEMA), tuple(COMMANDS))]
    assert sorted(found) == sorted(offered)


@pytest.mark.long
def test_the_prompt_completes_keeps_history_and_survives_errors(root: Path, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "OMNIGRAPH_HOME": str(tmp_path / "home"),
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }
    words = [str(PROGRAM), "shell", str(root), "--format", "csv"] if PROGRAM.exists() else []
    command, *arguments = words or [sys.executable, "-m", "omnigraph.cli.main", "shell", str(root), "--format", "csv"]
    child = pexpect.spawn(command, arguments, env=environment, encoding="utf-8", timeout=20, dimensions=(40, 160))
    child.expect("help lists the commands")
    child.expect("main>")
    child.send("help\r")
    child.expect("leave, as the end")
    child.expect("main>")
    child.send(".sch\t")
    child.expect("ema")  # Although the line above was a command, which has no ';'.
    child.send("\r")
    child.expect("node Person")
    child.expect("main>")
    child.send("match { $p: Pers\t")
    child.expect("on")
    child.send(" } return { $p.na\t")
    child.expect("me")
    child.send(" };\r")
    child.expect("ann")
    child.expect("main>")
    child.send("match { $p: Nobody } return { $p };\r")
    child.expect("error: ")
    child.expect("main>")
    child.send("match { $p: Person }\r")
    child.expect(r"\.\.\.>")
    child.send("return { count($p) as n };\r")
    child.expect("1")
    child.expect("main>")
    child.send("exit\r")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert "return { count($p) as n };" in (tmp_path / "home" / "shell_history").read_text()
