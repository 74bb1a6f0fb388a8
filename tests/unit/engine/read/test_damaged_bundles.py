"""Whatever happens to derived files, every answer is the one that is given without them."""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnigraph.engine.read.cache import persist
from omnigraph.engine.read.columns import nodes as nodes_module
from omnigraph.engine.read.graph import segments
from omnigraph.engine.read.text import search
from omnigraph.engine.read.vector import nearest
from omnigraph.engine.storage.cache import SHARED
from omnigraph.graph import connect, create

SCHEMA = """
node Person { name: String @key  age: I32  bio: String @index  taste: Vector(24) }
edge Knows: Person -> Person { since: I32 }
"""
QUESTIONS = {
    "out": "match { $a knows $b } return { $a.name, $b.name } order { $a.name, $b.name }",
    "in": 'match { $b: Person { name: "p7" } $a knows $b } return { $a.name } order { $a.name }',
    "both": 'match { $a: Person { name: "p3" } $a <knows> $b } return { $b.name } order { $b.name }',
    "far": 'match { $a: Person { name: "p5" } $a knows{1,3} $b } return { count($b) as n, max($b.age) as high }',
    "text": 'match { $p: Person search($p.bio, "queen") } return { $p.name } order { $p.name }',
    "rank": 'match { $p: Person } return { $p.name } order { bm25($p.bio, "king seven") desc, $p.name } limit 9',
    "near": "match { $p: Person } return { $p.name } order { nearest($p.taste, $q) } limit 7",
}
ROUNDS = 260


def _people(count: int, seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    words = ["queen", "king", "seven", "sea", "harbour", "night"]
    return [
        {
            "name": f"p{n}",
            "age": n % 90,
            "bio": " ".join(rng.choice(words, 4)),
            "taste": rng.standard_normal(24).round(3).tolist(),
        }
        for n in range(count)
    ]


def _load(graph: Any, people: list[dict[str, Any]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, len(people), (len(people) * 3, 2)).tolist()
    records = [{"type": "Person", "data": person} for person in people]
    records += [{"edge": "Knows", "from": f"p{a}", "to": f"p{b}", "data": {"since": a % 9}} for a, b in ends]
    graph.load(records, mode="overwrite")


def _forget() -> None:
    """What a fresh process knows of earlier ones: nothing."""
    SHARED.clear()
    nodes_module._DICTIONARIES.clear()
    gc.collect()


def _answers(root: Path, at: str | None = None) -> dict[str, Any]:
    _forget()
    graph = connect(root)
    query = (np.arange(24) / 10 - 1).tolist()
    found = {}
    for name, body in QUESTIONS.items():
        declared, params = ("$q: Vector(24)", {"q": query}) if name == "near" else ("", {})
        found[name] = graph.query(f"query {name}({declared}) {{ {body} }}", params, at=at).to_pylist()
    return found


@pytest.fixture
def small_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (persist, "EDGES_MIN", 1),
        (segments, "EDGES_MIN", 1),
        (persist, "TEXT_ROWS_MIN", 1),
        (search, "TEXT_ROWS_MIN", 1),
        (nearest, "SKETCHED_ROWS_MIN", 100),
        (nearest, "NARROWED_ROWS_MIN", 10),
    ):
        monkeypatch.setattr(module, name, value, raising=False)


Damage = Callable[[Path, random.Random, list[Path]], None]


def _flip(path: Path, rng: random.Random, _: list[Path]) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(content))


def _truncate(path: Path, rng: random.Random, _: list[Path]) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])


def _zero(path: Path, rng: random.Random, _: list[Path]) -> None:
    content = bytearray(path.read_bytes())
    start = rng.randrange(len(content))
    content[start : start + 4096] = bytes(len(content[start : start + 4096]))
    path.write_bytes(bytes(content))


def _append(path: Path, rng: random.Random, _: list[Path]) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randrange(1, 64)))


def _garbage(path: Path, rng: random.Random, _: list[Path]) -> None:
    path.write_bytes(rng.randbytes(path.stat().st_size))


def _remove(path: Path, rng: random.Random, _: list[Path]) -> None:
    path.unlink()


def _swap(path: Path, rng: random.Random, others: list[Path]) -> None:
    """Two files change places; of one name where there is another, which only the content tells apart."""
    alike = [other for other in others if other.name == path.name and other != path] or others
    other = rng.choice(alike)
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)


def _swap_folders(path: Path, rng: random.Random, others: list[Path]) -> None:
    """Two bundles change places: one of another kind, direction, version or table is not this one."""
    mine, theirs = path.parent, rng.choice(others).parent
    if mine != theirs:
        aside = mine.with_name(".aside")
        mine.rename(aside)
        theirs.rename(mine)
        aside.rename(theirs)


def _number(path: Path, rng: random.Random, _: list[Path]) -> None:
    """One number of a note is another; of an array, one value."""
    if path.suffix != ".json":
        _flip(path, rng, [])
        return
    text = path.read_text()
    places = [place for place, letter in enumerate(text) if letter.isdigit()]
    place = rng.choice(places)
    path.write_text(text[:place] + str((int(text[place]) + rng.randrange(1, 10)) % 10) + text[place + 1 :])


DAMAGES: dict[str, Damage] = {
    "flip": _flip,
    "truncate": _truncate,
    "zero": _zero,
    "append": _append,
    "garbage": _garbage,
    "remove": _remove,
    "swap": _swap,
    "swap folders": _swap_folders,
    "number": _number,
}


def _restore(pristine: Path, cache: Path) -> list[Path]:
    shutil.rmtree(cache, ignore_errors=True)
    shutil.copytree(pristine, cache)
    return sorted(path for path in cache.rglob("*") if path.is_file())


@pytest.mark.long
@pytest.mark.usefixtures("small_thresholds")
def test_every_answer_is_right_whatever_happens_to_derived_files(tmp_path: Path) -> None:
    root = tmp_path / "graph"
    graph = create(root, SCHEMA)
    _load(graph, _people(300, 1), 1)
    earlier = graph.snapshot().state.head
    _answers(root)
    _load(graph, _people(320, 2)[::-1], 2)
    right, before = _answers(root), _answers(root, at=earlier)
    assert right != before
    cache, pristine = root / "_cache", tmp_path / "pristine"
    shutil.copytree(cache, pristine)
    kinds = {path.parent.name.rpartition("-")[0].rstrip("0123456789") for path in pristine.rglob("facts.json")}
    assert kinds >= {"dictionary", "segment", "text", "sketch"}
    assert {"basis.npy", "facts.json"} <= {path.name for path in pristine.rglob("*")}
    shutil.rmtree(cache)
    assert (_answers(root), _answers(root, at=earlier)) == (right, before)
    wrong = []
    for number in range(ROUNDS):
        rng = random.Random(number)
        files = _restore(pristine, cache)
        times = {path: path.stat() for path in files}
        kind = rng.choice(sorted(DAMAGES))
        chosen = rng.choice(files)
        DAMAGES[kind](chosen, rng, files)
        for path, found in times.items():
            if path.exists():
                os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
        place = f"{number}: {kind} of {chosen.relative_to(cache)}"
        print(place)  # shown with the failure when an answer cannot even be given
        if (_answers(root), _answers(root, at=earlier) if number % 4 == 0 else before) != (right, before):
            wrong.append(place)
    assert wrong == []


@pytest.mark.usefixtures("small_thresholds")
def test_what_an_earlier_release_left_is_not_believed(tmp_path: Path) -> None:
    root = tmp_path / "graph"
    _load(create(root, SCHEMA), _people(200, 1), 1)
    right = _answers(root)
    for facts in (root / "_cache").rglob("facts.json"):
        note = json.loads(facts.read_text())
        facts.write_text(json.dumps({**note, "format": 2, "boot": "x"}))
        for array in facts.parent.glob("*.npy"):
            content = bytearray(array.read_bytes())
            content[-1] ^= 1
            array.write_bytes(bytes(content))
    assert _answers(root) == right


@pytest.mark.usefixtures("small_thresholds")
def test_a_bundle_that_is_refused_is_named_in_the_log_and_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "graph"
    _load(create(root, SCHEMA), _people(200, 1), 1)
    right = _answers(root)
    (basis,) = (root / "_cache").rglob("basis.npy")
    _flip(basis, random.Random(0), [])
    assert _answers(root) == right
    assert [record.getMessage() for record in caplog.records if str(basis.parent) in record.getMessage()]
    (anew,) = (root / "_cache").rglob("basis.npy")
    assert anew != basis
    caplog.clear()
    assert _answers(root) == right
    assert not caplog.records


# --- two processes that go on from one state --------------------------------------------------------------------------

_WORKER = """
import json, sys
from omnigraph.engine.read.cache import persist
from omnigraph.engine.read.graph import segments
persist.EDGES_MIN = segments.EDGES_MIN = 1
segments.OVERLAY_MIN = 0
from omnigraph.graph import connect
graph = connect(sys.argv[1])
for line in sys.stdin:
    print(json.dumps(graph.query("query q() { " + sys.argv[2] + " }", at=json.loads(line)).to_pylist()), flush=True)
"""


class _Process:
    """A process that answers one question about the states it is told."""

    def __init__(self, root: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(root), QUESTIONS["out"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, at: str | None = None) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(at) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate(timeout=60)


@pytest.mark.long
def test_processes_that_number_new_nodes_differently_do_not_read_each_others_segments(tmp_path: Path) -> None:
    root = tmp_path / "graph"
    graph = create(root, SCHEMA)
    people = _people(60, 1)
    _load(graph, people[:20], 1)
    first = _Process(root)
    first.ask()
    first.end()
    one, other = _Process(root), _Process(root)
    one.ask()
    other.ask()
    _load(graph, people, 2)
    then = graph.snapshot().state.head
    right = one.ask()
    _load(graph, people[::-1], 3)
    newest = other.ask()
    one.end()
    other.end()
    later = _Process(root)
    assert later.ask(then) == right
    assert later.ask() == newest
    later.end()
    shutil.rmtree(root / "_cache")
    plain = _Process(root)
    assert plain.ask(then) == right
    assert plain.ask() == newest
    plain.end()
