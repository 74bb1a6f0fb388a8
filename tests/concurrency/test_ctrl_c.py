"""Ctrl-C in an interactive session, at any moment of any verb: the session goes on, and so does everybody else.

The session is a real process with a real signal. It stays alive after each interrupt, with its handle and the last
exception, while this process writes at once: nothing waits for a lease.
"""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.amounts import EXHAUSTIVE

import omnigraph

SCHEMA = "node Person { name: String @key age: I32? @index text: String? }\nedge Knows: Person -> Person\n"
ROWS = 5_000
WRITE_SECONDS_MAX = 4.0
"""Less than the shortest lease and the time a turn is waited for."""
ANSWER_SECONDS_MAX = 30.0
SWALLOWED_SECONDS = 5.0
VERBS = ("mutate", "load", "optimize", "schema", "branch", "cleanup", "query")

SESSION = """
import itertools, json, sys
import omnigraph
import pyarrow

# pyarrow looks for pandas at the first conversion of a process, and takes whatever stops that look for "not there".
pyarrow.array([1]).to_pandas()
graph = omnigraph.connect(sys.argv[1])
numbers = itertools.count()
kept = []

def mutate():
    for number in range(40):
        graph.mutate("query q($n: String) { insert Person { name: $n } insert Knows { from: $n, to: $n } }",
                     {"n": f"m{next(numbers)}"})

def load():
    rows = "".join(json.dumps({"type": "Person", "data": {"name": f"n{n}", "age": n % 90, "text": "some words " * 20}})
                   + "\\n" for n in range(int(sys.argv[2])))
    graph.load(rows.encode(), mode="merge")

def optimize():
    graph.maintenance.optimize()

def schema():
    for name in graph.branches.list()[1:]:
        graph.branches.delete(name)
    source = graph.schema.source
    graph.schema.apply(source.replace(" fax: String?", "") if "fax" in source
                       else source.replace("text: String?", "text: String? fax: String?"), confirm_drops=True)

def branch():
    for number in range(8):
        name = f"b{next(numbers)}"
        graph.branches.create(name)
        graph.mutate("query q() { insert Person { name: \\"on a branch\\" } }", branch=name)
        graph.branches.delete(name)

def cleanup():
    graph.maintenance.cleanup(keep=1)

def query():
    for name in range(6):
        omnigraph.connect(sys.argv[1]).snapshot().open("node:Person").scan()
        graph.query("query q() { match { $p: Person } return { $p.age, count($p) as n } }")

def say(text):
    sys.stdout.write(text + "\\n")  # whole, while `print` may be interrupted before the end of its line
    sys.stdout.flush()

say("ready")
while True:
    try:
        line = sys.stdin.readline().strip()
        if not line:
            break
        say("began")
        try:
            globals()[line]()
            said = "done"
        except KeyboardInterrupt as stopped:
            kept.append(stopped)  # as sys.last_value does
            said = "interrupted"
        except omnigraph.ConflictError as exc:
            said = f"conflict: {exc}"
        except BaseException as exc:
            said = f"failed: {type(exc).__name__}: {exc}"
        say(said)
    except KeyboardInterrupt:
        say("interrupted")
"""


class Session:
    """An interactive session that does what it is told, one line each."""

    def __init__(self, root: str, script: Path) -> None:
        script.write_text(SESSION)
        self._errors = script.with_suffix(".err")
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(script), root, str(ROWS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        assert self._line() == "ready"

    def seconds_of(self, verb: str) -> float:
        """How long it takes to do something that nobody interrupts, here and now."""
        self._begin(verb)
        began = time.monotonic()
        assert self._line() == "done"
        return time.monotonic() - began

    def interrupt(self, verb: str, after_seconds: float) -> str:
        """Let it do something, press Ctrl-C, and return what became of it."""
        self._begin(verb)
        time.sleep(after_seconds)
        self.process.send_signal(signal.SIGINT)
        said = self._line()
        if said == "done":
            # The signal came too late for the verb, and found the session waiting for the next one; or it came while
            # the interpreter ran a finalizer, which reports what it raises and goes on.
            try:
                assert self._lines.get(timeout=SWALLOWED_SECONDS) == "interrupted"
            except queue.Empty:
                assert "Exception ignored" in self._errors.read_text(), f"an interrupt of {verb} was lost"
        return said

    def _begin(self, verb: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{verb}\n")
        self.process.stdin.flush()
        assert self._line() == "began"

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line.strip())
        self._lines.put("")

    def _line(self) -> str:
        return self._lines.get(timeout=ANSWER_SECONDS_MAX)

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(20)


@pytest.fixture
def root(tmp_path: Path) -> str:
    graph = omnigraph.create(tmp_path / "g", SCHEMA)
    rows = (json.dumps({"type": "Person", "data": {"name": f"n{n}", "age": n % 90}}) for n in range(ROWS))
    graph.load("\n".join(rows).encode(), mode="append")
    return graph.uri


@pytest.fixture
def session(root: str, tmp_path: Path) -> Iterator[Session]:
    session = Session(root, tmp_path / "session.py")
    yield session
    session.close()


def press(session: Session, root: str, rounds: int, seed: int) -> Counter[str]:
    draw, seen, mine = random.Random(seed), Counter[str](), omnigraph.connect(root)
    usual = {verb: max(session.seconds_of(verb) for _ in range(2)) for verb in VERBS}
    for number in range(rounds):
        verb = VERBS[number % len(VERBS)]
        said = session.interrupt(verb, usual[verb] * draw.random())
        assert said == "interrupted" or said == "done" or said.startswith("conflict"), f"{verb}: {said}"
        seen[said.partition(":")[0]] += 1
        began = time.monotonic()
        at_once(lambda: mine.mutate("query q($n: String) { insert Person { name: $n } }", {"n": f"mine {number}"}))  # noqa: B023
        assert time.monotonic() - began < WRITE_SECONDS_MAX, f"after {verb} was {said} the next write had to wait"
    assert mine.maintenance.verify().clean
    names = mine.query("query q() { match { $p: Person } return { $p.name } }").to_pylist()
    assert len([row for row in names if str(row["p.name"]).startswith("mine ")]) == rounds, (
        "an acknowledged write is lost"
    )
    return seen


def at_once(write: Callable[[], object]) -> None:
    """A write that recovery has outdated, by finishing a change of the schema, is simply repeated."""
    try:
        write()
    except omnigraph.ConflictError:
        write()


@pytest.mark.long
def test_a_session_that_is_interrupted_leaves_nobody_waiting(
    session: Session, root: str, record_property: Callable[[str, object], None]
) -> None:
    seen = press(session, root, 42, seed=5)
    record_property("interrupts", f"Ctrl-C in a session {sum(seen.values())}, of which {dict(seen)}")
    assert seen["interrupted"] > 20


@EXHAUSTIVE
@pytest.mark.parametrize("seed", range(2))
def test_many_sessions_that_are_interrupted_leave_nobody_waiting(session: Session, root: str, seed: int) -> None:
    assert press(session, root, 70, seed=seed)["interrupted"] > 25


@pytest.mark.long
def test_a_command_that_is_interrupted_says_so_in_one_line(root: str, tmp_path: Path) -> None:
    data = tmp_path / "people.jsonl"
    data.write_text("".join(json.dumps({"type": "Person", "data": {"name": f"x{n}"}}) + "\n" for n in range(400_000)))
    command = [
        sys.executable,
        "-c",
        "from omnigraph.cli.main import main; main()",
        "load",
        "--data",
        str(data),
        "--mode",
        "merge",
        root,
    ]
    interrupted = 0
    for delay in (0.8, 1.2, 1.6, 2.0, 3.0, 4.0):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        if process.returncode == 130:
            interrupted += 1
            *before, last = said.splitlines()
            assert last == "error: interrupted"
            assert all(line.startswith("omnigraph load") for line in before), said
        else:
            assert process.returncode in (0, -signal.SIGINT), said  # done, or not even started
    assert interrupted
    omnigraph.connect(root).mutate('query q() { insert Person { name: "mine" } }')
