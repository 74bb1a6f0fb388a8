"""A graph with everything in it, made by a process that died while it wrote, and what to do to its files."""

from __future__ import annotations

import gc
import logging
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnigraph.engine.coordination.branch_lock import BranchLock, locked_branch
from omnigraph.engine.coordination.heartbeat import Heartbeat
from omnigraph.engine.coordination.intent import Effect, WriterKind, new_intent
from omnigraph.engine.manifest import publish
from omnigraph.engine.read.columns import nodes
from omnigraph.engine.schema import history as schema_history
from omnigraph.engine.storage.cache import SHARED
from omnigraph.engine.storage.staged import stage_changes
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import GraphError
from omnigraph.graph import Graph, connect, create
from omnigraph.ids import MAIN, TableKey

PERSON = TableKey("node:Person")
SCHEMA = """
node Person { name: String @key  age: I32? @index  bio: String? @index  taste: Vector(4)? @index  born: Date? }
node Visit { at: DateTime  place: String  note: String? @unique  @key(at, place) }
node Note { text: String }
edge Knows: Person -> Person { since: I32? }
edge Made: Person -> Visit @card(0..9)
"""
NEXT = SCHEMA + "node Place { name: String @key }\n"


def _person(number: int) -> dict[str, Any]:
    data = {"name": f"person {number}", "age": number, "bio": f"the queen of {number}", "taste": [number, 1, 2, 3]}
    return {"type": "Person", "data": {**data, "born": f"19{number:02d}-01-01"}}


def _visit(number: int) -> dict[str, Any]:
    at = f"2024-01-{number + 1:02d}T10:00:00Z"
    return {"type": "Visit", "data": {"at": at, "place": f"place {number}", "note": f"n{number}"}}


def build(root: Path) -> None:
    """Everything a graph can have: an index of each kind, branches, deletions, an earlier schema, archived commits,
    an unfinished write, the locks and the note of a process that is gone."""
    publish.COMMIT_WINDOW, publish.COMMITS_KEPT = 8, 4
    graph = create(root, SCHEMA)
    graph.load([_person(number) for number in range(12)] + [_visit(number) for number in range(6)], actor="ann")
    edges = [{"edge": "Knows", "from": f"person {n}", "to": f"person {n + 1}", "data": {"since": n}} for n in range(11)]
    graph.load([*edges, {"type": "Note", "data": {"text": "first"}}])
    visit = graph.snapshot().open("node:Visit").scan(["id"])["id"][0].as_py()
    graph.load([{"edge": "Made", "from": "person 1", "to": visit}])
    graph.schema.apply(NEXT, confirm_drops=True)
    for number in range(5):
        graph.mutate(f'query q() {{ insert Note {{ text: "n{number}" }} }}', actor="bob")
    graph.mutate('query q() { delete Person where name = "person 11" }')
    graph.maintenance.optimize()
    graph.branches.create("side")
    graph.load([_person(40)], branch="side")
    graph.mutate('query q() { update Person set { age: 99 } where name = "person 2" }', branch="side")
    graph.load([_person(50)])
    _die_writing(graph)


def _die_writing(graph: Graph) -> None:
    context = graph.context
    snapshot = context.manifest.snapshot(MAIN)
    entry = snapshot.entry(PERSON)
    intent = new_intent(WriterKind.MUTATION, None, (Effect.on(PERSON, entry.path, entry.version),), actor_id="cat")

    def die(_: BranchLock) -> None:
        armed = context.recovery.intents.arm(intent)
        base = snapshot.open(PERSON)
        row = base.scan().slice(0, 1)
        for name, value in (("id", "late"), ("name", "late")):
            row = row.set_column(row.schema.get_field_index(name), row.schema.field(name), [[value]])
        staged = stage_changes(base, new_rows=row)
        assert staged is not None
        context.store.commit(base, staged, armed.properties())
        context.recovery.intents.abandon(armed.operation_id)
        context.recovery.intents.claimed(armed.operation_id, lambda _: os._exit(9))

    Heartbeat.at(context.store.objects).staging(lambda: locked_branch(context.recovery.intents, "other", die))


def built(folder: Path) -> tuple[Path, Path]:
    """The graph at the place where it is damaged, and an untouched copy of it."""
    root, pristine = folder / "graph", folder / "pristine"
    done = subprocess.run([sys.executable, __file__, str(root)], check=False, capture_output=True, text=True)
    assert done.returncode == 9, done.stderr
    shutil.copytree(root, pristine)
    return root, pristine


def reads(root: Path) -> dict[str, Any]:
    """Everything there is to read now, without writing anything."""
    graph = connect(root, read_only=True)
    found: dict[str, Any] = {}
    for branch in graph.branches.list():
        found[branch] = sorted(graph.export(branch=branch))
        found[f"{branch} history"] = [commit.graph_commit_id for commit in graph.history.list(branch)]
        for name, body in QUESTIONS.items():
            found[f"{branch} {name}"] = graph.query(f"query q() {{ {body} }}", branch=branch).to_pylist()
    return found


QUESTIONS = {
    "walk": "match { $a knows{1,2} $b } return { $a.name as a, $b.name as b } order { a, b }",
    "key": 'match { $p: Person { name: "person 7" } } return { $p.name, $p.age, $p.bio }',
    "range": "match { $p: Person $p.age > 5 } return { $p.name } order { $p.name }",
    "text": 'match { $p: Person search($p.bio, "queen") } return { $p.name } order { $p.name }',
}


def writes(root: Path) -> None:
    """Open the graph, settle what is unfinished, and write in every way."""
    graph = connect(root)
    graph.load([_person(60)])
    graph.mutate('query q() { update Person set { age: 3 } where name = "person 3" }')
    graph.mutate('query q() { delete Person where name = "person 4" }', branch="side")
    graph.branches.create("third")
    graph.branches.delete("third")
    graph.maintenance.optimize()


Damage = Callable[[Path, random.Random], None]


def _truncate(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))] if content else b"x")


def _flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes() or b"x")
    for _ in range(3):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(content))


def _garbage(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(max(path.stat().st_size, 16)))


def _empty(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def _delete(path: Path, rng: random.Random) -> None:
    path.unlink()


DAMAGES: dict[str, Damage] = {
    "flip": _flip,
    "truncate": _truncate,
    "delete": _delete,
    "garbage": _garbage,
    "empty": _empty,
}


@dataclass(frozen=True)
class Case:
    """A file of the graph and what happens to it."""

    root: Path
    pristine: Path
    file: Path
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind} of {self.file} ({self.seed})"


@dataclass(frozen=True)
class Outcome:
    """What a fresh process made of a damaged graph: what it reported, what it read, and what went wrong on the way."""

    case: Case
    findings: list[str]
    refused: str | None
    reads: dict[str, Any] | None
    untyped: list[str]


def freeze_heap() -> None:
    """Leave what a process has imported out of its searches for garbage: there are four in each case."""
    gc.collect()
    gc.freeze()


def _forget() -> None:
    """What a process that has just started knows: nothing of any file."""
    TableStore._shared.clear()
    SHARED.clear()
    nodes._DICTIONARIES.clear()
    schema_history._compiled.clear()
    gc.collect()


def examine(case: Case) -> Outcome:
    """Damage the graph, then verify, read and write it; everything but a `GraphError` is noted."""
    logging.disable(logging.CRITICAL)
    _forget()
    shutil.rmtree(case.root)
    shutil.copytree(case.pristine, case.root)
    if case.kind:
        DAMAGES[case.kind](case.root / case.file, random.Random(case.seed))
    untyped: list[str] = []

    def attempt(what: str, work: Callable[[], Any]) -> tuple[Any, str | None]:
        _forget()
        try:
            return work(), None
        except GraphError as exc:
            return None, f"{type(exc).__name__}: {exc}"
        except BaseException as exc:  # noqa: BLE001 - a panic is no Exception, and is what is looked for
            untyped.append(f"{what}: {type(exc).__name__}: {str(exc)[:300]}")
            return None, None

    report, refused = attempt("verify", lambda: connect(case.root, read_only=True).maintenance.verify())
    findings = [] if report is None else [f"{f.code} {f.subject}: {f.message}" for f in report.problems + report.notes]
    found, _ = attempt("read", lambda: reads(case.root))
    attempt("write", lambda: writes(case.root))
    return Outcome(case, findings, refused, found, untyped)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
