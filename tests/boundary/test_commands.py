"""No command line ends in a traceback or in a code that is not documented, and a refused one changes nothing.

The commands and their options are taken from the parser itself: one without an example fails the first test. Each runs
with its example, in which one value or two are replaced by texts it is not meant to have.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.boundary.test_boundary import READ, SCHEMA, WRITE, root, sandbox, template
from tests.cli.program import Outcome, call

import omnigraph
from omnigraph.cli.main import VERBS, build_application

__all__ = ["root", "sandbox", "template"]

TEXTS = [
    *("", " ", "-", "--", "--json", "-1", "0", "1", "9" * 30, "1.5", "nan", "\0", "a\0b", "\ud800", "é", "x" * 3_000),
    *(
        "nonsense",
        "main",
        "main/../x",
        "x=y",
        "=",
        "Person.name=x",
        "Person=null",
        "Nobody=x",
        "actor=",
        "since=x",
    ),
    *("stdin", "null", "nowhere/x", ".", "x.gq", "x.pg", "~", "s3://", "x://y"),
    *("9999999d", "99999999999999999999w", "7d", "-7d", "{}", "[]", "{", '{"n": 1}', '{"n": NaN}', "[" * 3_000),
    *("query q() {", "node", "2026-99-99", "9999-12-31T23:59:59Z", "0001-01-01", "01K3Z9", "manifest:main:v9", "spark"),
]
TRIED = 8
"""Of these texts each parameter meets so many, others in each command."""
PAIRS = 15
CODES = {0, 1, 2, 3, 4, 5}
ENDLESS = {"changes follow"}
"""Commands that wait for what comes; what this one is given is looked at as `changes poll` looks at it."""
UNFOUND = ("verify", "lint", "repair", "cleanup")
"""Commands that answer with a report, and with 1 when it is not good."""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command of the real parser by its words."""

    def below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        if getattr(command, "commands", None):
            for name, inner in command.commands.items():
                yield from below(inner, (*words, name))
        else:
            yield " ".join(words), command

    yield from below(typer.main.get_command(build_application(VERBS)), ())


ASK_A_SERVER = ("graphs list", "alias")
"""Commands that need a server, which the tests of the command line give them."""

COMMANDS = {words: command for words, command in commands() if words not in ASK_A_SERVER}


def examples(root: Path, folder: Path) -> dict[str, dict[str, str]]:
    """The values of a command that works, by parameter; flags that are not named stay away."""
    graph, store = {"uri": str(root)}, {"store": str(root)}
    program, schema, lines = folder / "q.gq", folder / "s.pg", folder / "data.jsonl"
    program.write_text(READ)
    schema.write_text(SCHEMA)
    lines.write_text('{"type":"Person","data":{"name":"zoe"}}\n')
    policy, cases = folder / "policy.yaml", folder / "cases.yaml"
    policy.write_text("version: 1\ngroups: {t: [a]}\nrules: [{id: r, allow: {actors: {group: t}, actions: [read]}}]\n")
    cases.write_text("version: 1\ncases: [{id: c, actor: a, action: read, expect: allow}]\n")
    commit = str(omnigraph.connect(root).history.list()[0].graph_commit_id)
    blob = {"entity": "node", "type_name": "Person", "entity_id": "ana", "property_name": "photo", **graph}
    return {
        "version": {},
        "serve": {**store, "bind": "127.0.0.1:0", "unauthenticated": "", "check": ""},
        "init": {"uri": str(folder / "new"), "schema": str(schema)},
        "load": {**graph, "mode": "merge", "data": str(lines), "engine": "local"},
        "query": {**store, "inline": READ, "params": '{"n": "ana"}'},
        "mutate": {**store, "inline": WRITE, "params": '{"n": "ana", "a": 5}'},
        "explain": {**store, "inline": READ, "params": '{"n": "ana"}'},
        "draw": {**graph, "nodes": "Person:ana", "hops": "1", "edges": "Knows", "labels": "Person=age", "most": "9"},
        "lint": {**graph, "query": str(program)},
        "shell": store,
        "export": graph,
        "snapshot": graph,
        "verify": graph,
        "optimize": graph,
        "cleanup": {**graph, "keep": "50"},
        "repair": graph,
        "branch create": {"name": "review", **graph},
        "branch list": graph,
        "branch show": {"name": "main", **graph},
        "branch diff": {"source": "review", **store},
        "branch merge": {"source": "review", **store},
        "branch conflicts": {"source": "review", **store},
        "branch delete": {"name": "review", **graph},
        "commit list": graph,
        "commit show": {"commit_id": commit, **graph},
        "commit changes": {"commit_id": commit, **graph},
        "commit revert": {"commit_id": commit, **graph, "strategy": "ours"},
        "tag create": {"name": "v1", **graph},
        "tag list": graph,
        "tag delete": {"name": "v1", **graph},
        "changes poll": graph,
        "changes follow": {**graph, "idle": "1"},
        "changes baseline": {**graph, "out": str(folder / "base.jsonl")},
        "blob get": {**blob, "out": str(folder / "photo")},
        "blob put": {**blob, "given": str(schema)},
        "blob stat": blob,
        "schema show": graph,
        "schema get": graph,
        "schema plan": {**graph, "schema": str(schema)},
        "schema apply": {**graph, "schema": str(schema)},
        "schema unlock": graph,
        "recovery list": graph,
        "login": {"name": "prod", "token": "t"},
        "logout": {"name": "prod"},
        "profile list": {},
        "profile show": {},
        "policy validate": {"file": str(policy)},
        "policy test": {"file": str(policy), "tests": str(cases)},
        "policy explain": {"file": str(policy), "actor": "a", "action": "read", "branch": "main"},
    }


def line(command: str, values: dict[str, str]) -> list[str]:
    """The words of a command with these values."""
    words, positional = command.split(), []
    for parameter in COMMANDS[command].params:
        if parameter.name not in values:
            continue
        if parameter.param_type_name == "argument":
            positional.append(values[parameter.name])
        elif parameter.is_flag:
            words.append(parameter.opts[0])
        else:
            words += [parameter.opts[0], values[parameter.name]]
    return [*words, *positional]


def misses(command: str, words: list[str], done: Outcome) -> str | None:
    """What is wrong with how a command ended."""
    shown = f"{' '.join(words)!a}"[:300]
    if done.code not in CODES:
        return f"{shown} ended with {done.code}"
    if "Traceback" in done.err + done.out or "unexpected" in done.err:
        return f"{shown}: {done.err[-300:]}"
    reports = command.split()[0] in UNFOUND
    if done.code and not reports and not re.search(r"^error: .", done.err, re.MULTILINE):
        return f"{shown} says nothing: {done.err!r}"
    literal = words.index("--") if "--" in words else len(words) - 1
    if done.code not in (0, 2) and "--json" in words[:literal] and not reports:
        body = json.loads(done.out)
        if not body.get("error"):
            return f"{shown} answers no JSON: {done.out!r}"
    return None


@pytest.mark.long
def test_every_command_has_an_example_that_works(root: Path, tmp_path: Path, sandbox: Path) -> None:
    given = examples(root, tmp_path)
    assert set(given) == set(COMMANDS)
    for command, values in given.items():
        done = call(*line(command, values), stdin="")
        wanted = 1 if command == "schema unlock" else 0
        assert done.code == wanted, (command, done)


@pytest.mark.long
@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - ENDLESS))
def test_whatever_a_value_is_a_command_ends_as_documented(
    root: Path, tmp_path: Path, sandbox: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    values = examples(root, tmp_path)[command]
    for device in ("null", "stdin"):
        (sandbox / device).symlink_to(f"/dev/{device}")
    reader = omnigraph.connect(root, read_only=True)
    wrong: list[str] = []

    def attempt(changed: dict[str, str]) -> None:
        before = reader.snapshot().version
        words = line(command, {**values, **changed})
        done = call(*words, stdin="")
        missed = misses(command, words, done)
        if missed is None and done.code and reader.snapshot().version != before:
            missed = f"{words!a} failed and changed the graph"
        if missed is not None:
            wrong.append(missed)

    chance = random.Random(command)
    names = [parameter.name for parameter in COMMANDS[command].params]
    for name in names:
        flagged = next(p for p in COMMANDS[command].params if p.name == name)
        for text in ["x"] if getattr(flagged, "is_flag", False) else chance.sample(TEXTS, TRIED):
            attempt({name: text, **({"as_json": ""} if "as_json" in names and len(text) % 2 else {})})
    for _ in range(PAIRS if len(names) > 1 else 0):
        one, other = chance.sample(names, 2)
        attempt({one: chance.choice(TEXTS), other: chance.choice(TEXTS)})
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:30])
    if command not in ("schema apply", "commit revert"):
        assert len(omnigraph.connect(root).query(READ, {"n": "ana"})) == 1
