"""Readers of one graph that must agree, in this process and in others.

A child process takes commands over a pipe for as long as it lives: it writes, it answers questions with all it has
derived so far, or it forgets everything first and answers as a process does that has just begun.
"""

from __future__ import annotations

import gc
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from tests.property.differential.questions import Question, Rows, comparable
from tests.property.differential.world import Step, perform

from omnigraph.engine.read.cache import derived
from omnigraph.engine.read.columns import nodes
from omnigraph.engine.storage import written
from omnigraph.engine.storage.cache import SHARED
from omnigraph.engine.storage.columns import ColumnCache
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import GraphError
from omnigraph.graph import Graph, connect
from omnigraph.plan.check import clear_cache
from omnigraph.testing.children import child_process
from omnigraph.testing.thresholds import lower_thresholds

Found = Rows | str
"""The rows of an answer, or the error that came instead."""


def ask(graph: Graph, questions: Sequence[Question]) -> list[Found]:
    """The answers of a graph."""
    return [_ask(graph, question) for question in questions]


def _ask(graph: Graph, question: Question) -> Found:
    try:
        result = graph.query(question.text, question.params, branch=question.branch, at=question.at)
        return comparable((tuple(row.values()) for row in result.to_pylist()), question.ordered)
    except GraphError as exc:
        return f"{type(exc).__name__}: {exc}"


def ask_together(graph: Graph, questions: Sequence[Question], threads: int) -> list[list[Found]]:
    """The answers that several threads get, each asking all questions, beginning at another one."""
    answers: list[list[Found]] = [[] for _ in range(threads)]
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            turned = [*questions[number:], *questions[:number]]
            found = ask(graph, turned)
            back = len(questions) - number % max(len(questions), 1)
            answers[number] = [*found[back:], *found[:back]]
        except BaseException as exc:
            failures.append(exc)
            raise

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise failures[0]
    return answers


def forget_everything() -> None:
    """Leave this process with nothing derived, as a new one is; only what is on disk stays."""
    SHARED.clear()
    TableStore._shared.clear()
    nodes._DICTIONARIES.clear()
    derived._VERIFIED.clear()
    ColumnCache._shared = None
    written.WRITTEN._files.clear()
    clear_cache()


def forget_some(rng: Any) -> None:
    """Drop some of what is cached, as a full cache does."""
    for key in list(SHARED._entries):
        if rng.random() < 0.5:
            with SHARED._lock:
                SHARED._drop(key)


class Child:
    """Another process with this graph."""

    def __init__(self, root: str, *, lowered: bool) -> None:
        self._pipe, theirs = Pipe()
        self._process = child_process(_serve, theirs, root, lowered)
        self._process.start()
        theirs.close()

    def perform(self, step: Step) -> None:
        """Carry a step out over there.

        Raises:
            RuntimeError: it failed there.
        """
        self.begin(step)()

    def begin(self, step: Step) -> Callable[[], object]:
        """Have a step carried out over there; what is returned waits for its end."""
        self._pipe.send(("perform", step))
        return self._received

    def begin_asking(self, questions: Sequence[Question], *, cold: bool) -> Callable[[], list[Found]]:
        """Ask over there; what is returned waits for the answers."""
        self._pipe.send(("ask", (list(questions), cold)))
        return self._received

    def ask(self, questions: Sequence[Question], *, cold: bool = False) -> list[Found]:
        """The answers of that process; a cold one forgets everything first."""
        return self.begin_asking(questions, cold=cold)()

    def close(self) -> None:
        """End the process."""
        self._pipe.send(("stop", None))
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()

    def _received(self) -> Any:
        if not self._pipe.poll(120):
            raise RuntimeError("the other process does not answer")
        failed, found = self._pipe.recv()
        if failed:
            raise RuntimeError(f"in the other process: {found}")
        return found


def _serve(pipe: Connection, root: str, lowered: bool) -> None:
    if lowered:
        lower_thresholds()
    gc.freeze()  # What the server of processes has imported is no garbage, and is not to be looked at each time.
    graph: Graph | None = None
    while True:
        verb, given = pipe.recv()
        if verb == "stop":
            return
        try:
            if verb == "ask" and given[1]:
                graph = None
                gc.collect()
                forget_everything()
            if graph is None:
                graph = connect(root)
            found = perform(graph, given) if verb == "perform" else ask(graph, given[0])
            pipe.send((False, found))
        except BaseException:
            # Whoever asked fails with this, and nobody needs this process any more.
            pipe.send((True, traceback.format_exc()))
            raise
