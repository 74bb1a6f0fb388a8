"""An interrupt, wherever it arrives, leaves as what it is and leaves nothing that anybody has to wait for.

CPython delivers it at the first step of a Python function, after a call of something written in C, and at a jump
backwards. `interrupt_at` raises one at the N-th of these places, for N = 1, 2, … until a run meets none. The mutexes
and turns stand even more: an exception at every single bytecode of taking and giving them, also where the interpreter
never looks for one.
"""

from __future__ import annotations

import _thread
import dis
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from lance import LanceDataset
from tests.crash.summary import INTERRUPTS

import omnigraph
from omnigraph import interrupts
from omnigraph.engine.commit import path
from omnigraph.engine.coordination import branch_lock, heartbeat, lease, lock, mutex, schema_lock
from omnigraph.engine.coordination import file_lock as turns
from omnigraph.engine.coordination import intents as sidecars
from omnigraph.engine.coordination.file_lock import TurnFiles, Turns
from omnigraph.engine.coordination.heartbeat import Heartbeat
from omnigraph.engine.coordination.intent import Effect, WriterKind, new_intent
from omnigraph.engine.coordination.mutex import Mutexes
from omnigraph.engine.coordination.owner import Liveness
from omnigraph.engine.storage import layout
from omnigraph.errors import ConflictError, GraphError
from omnigraph.ids import TableKey
from omnigraph.interrupts import uncut
from omnigraph.testing.children import run_child

KEYS = [(TableKey("node:A"), None), (TableKey("edge:B"), "review")]
MODULES = (interrupts, mutex, turns, sidecars, branch_lock, schema_lock, heartbeat, lease, lock, path)
FILES = frozenset(module.__file__ for module in MODULES)
SCHEMA = "node Person { name: String @key }\n"
_notes: list[Callable[[str], None]] = []


Record = Callable[[str, object], None]


class Interrupted(BaseException):
    """What somebody else raises in the middle of something."""


@dataclass
class Places:
    """Counts the places where an interrupt may arrive, and raises one at the chosen one."""

    at: int
    everywhere: bool
    files: frozenset[str | None] = FILES
    seen: int = 0

    @property
    def met(self) -> bool:
        return self.seen >= self.at

    def visit(self) -> None:
        self.seen += 1
        if self.seen == self.at:
            raise Interrupted

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename in self.files:
            self.visit()

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in self.files:
            return None
        frame.f_trace_opcodes = True
        # What belongs to no line is the interpreter putting away an exception that was handled.
        if event == "opcode" and ((self.everywhere and frame.f_lineno is not None) or _jumps_back(frame)):
            self.visit()
        return self.trace


def _jumps_back(frame: FrameType) -> bool:
    return dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith(("JUMP_BACKWARD", "POP_JUMP_BACKWARD"))


@contextmanager
def interrupt_at(number: int, *, everywhere: bool = False) -> Iterator[Places]:
    places = Places(number, everywhere)
    if not everywhere:
        sys.setprofile(places.profile)
    sys.settrace(places.trace)
    try:
        yield places
    finally:
        sys.settrace(None)
        sys.setprofile(None)


def interrupt_everywhere(act: Callable[[], object], check: Callable[[], None], *, everywhere: bool = False) -> int:
    """Interrupt `act` at every place in turn; `check` what holds after each. Returns how many places there were."""
    number = 0
    while True:
        number += 1
        kept: BaseException | None = None
        with interrupt_at(number, everywhere=everywhere) as places:
            try:
                act()
            except Interrupted as stopped:
                # As an interactive session does; at places where no interpreter looks, only what is forgotten is free.
                kept = None if everywhere else stopped
        if everywhere:
            gc.collect()
        if not places.met:
            _notes[0](f"{number - 1} places of {'every bytecode' if everywhere else 'delivery'}")
            return number - 1
        try:
            check()
        except (AssertionError, GraphError) as failure:
            raise AssertionError(f"interrupted at place {number}: {failure!r}") from (kept or failure)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def in_another_thread(act: Callable[[], object], seconds: float = 1.0) -> float:
    """Run it elsewhere, and say how long it took."""
    done: list[float] = []

    def run() -> None:
        began = time.monotonic()
        act()
        done.append(time.monotonic() - began)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert done, f"it did not come to its end within {seconds:g} s"
    return done[0]


@pytest.fixture(autouse=True)
def counted(request: pytest.FixtureRequest, record_property: Record) -> None:
    """Say how many places were visited; what was there before is not looked through at each of them."""
    gc.collect()
    gc.freeze()
    _notes[:] = [lambda found: record_property(INTERRUPTS, f"{found}, {request.node.name}")]


@pytest.fixture
def files(tmp_path: Path) -> TurnFiles:
    return TurnFiles(str(tmp_path / "turns"))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("everywhere", [False, True])
def test_mutexes_and_turns_are_free_after_an_interrupt_at_any_step(files: TurnFiles, everywhere: bool) -> None:
    found = Mutexes(Turns("/graph", files))
    found.hold(KEYS, lambda: None)
    opened = descriptors()

    def check() -> None:
        assert not Turns("/graph", files).busy(KEYS), "another process would wait for its turn"
        in_another_thread(lambda: found.hold(KEYS, lambda: None))
        assert not found._line
        assert descriptors() == opened, "a descriptor is lost"

    count = interrupt_everywhere(lambda: found.hold(KEYS, lambda: None), check, everywhere=everywhere)
    assert count > (500 if everywhere else 60)


def test_waiting_for_a_mutex_can_be_interrupted_at_any_step() -> None:
    found = Mutexes()
    done = threading.Event()

    def holder() -> None:
        found.hold(KEYS, done.wait)

    thread = threading.Thread(target=holder)
    thread.start()
    while not found.busy(KEYS):
        time.sleep(0.001)

    def wait() -> None:
        with pytest.raises(ConflictError):
            found.hold(KEYS, lambda: None, timeout_seconds=0.03)

    def check() -> None:
        assert len(found._standing()) == 1, "somebody who was interrupted still stands in the line"

    try:
        assert interrupt_everywhere(wait, check) > 40
    finally:
        done.set()
        thread.join()


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    graph = omnigraph.create(tmp_path / "g", SCHEMA)
    graph.mutate('query q() { insert Person { name: "ann" } }')
    return graph


def check_nothing_blocks(graph: omnigraph.Graph) -> None:
    intents, objects = graph.context.recovery.intents, graph.context.store.objects
    left = [name for name in objects.list_dir(layout.RECOVERY_DIR) if not name.endswith(".json")]
    assert not left, left
    assert not objects.has(layout.SCHEMA_LOCK)
    for intent in intents.pending():
        assert intent.owner is not None
        assert intent.owner.lease_until == 0, "others would wait for its lease"
        assert intents.liveness(intent) is not Liveness.LIVE
    assert not Heartbeat.at(objects).stagings
    assert not sidecars._LOCKS
    assert not sidecars._LIVE._at_work


def test_the_lock_of_a_branch_is_free_after_an_interrupt_at_any_step(graph: omnigraph.Graph) -> None:
    intents = graph.context.recovery.intents
    count = interrupt_everywhere(
        lambda: branch_lock.locked_branch(intents, "review", lambda lock: lock.check()),
        lambda: check_nothing_blocks(graph),
    )
    assert count > 20


def test_the_lock_of_the_schema_is_free_after_an_interrupt_at_any_step(graph: omnigraph.Graph) -> None:
    recovery = graph.context.recovery
    count = interrupt_everywhere(
        lambda: schema_lock.locked_schema(recovery, None, lambda lock: None), lambda: check_nothing_blocks(graph)
    )
    assert count > 15


def test_a_claim_is_given_back_after_an_interrupt_at_any_step(graph: omnigraph.Graph) -> None:
    intents = graph.context.recovery.intents
    effect = Effect.on(TableKey("node:Person"), "somewhere", 1)
    intent = intents.arm(new_intent(WriterKind.MUTATION, None, (effect,)))
    intents.abandon(intent.operation_id)
    count = interrupt_everywhere(
        lambda: intents.claimed(intent.operation_id, lambda claim: True), lambda: check_nothing_blocks(graph)
    )
    assert count > 30
    assert intents.claimed(intent.operation_id, lambda claim: True)
    intents.objects.delete(f"{layout.RECOVERY_DIR}/{intent.operation_id}.json")


def test_an_announcement_of_staging_ends_after_an_interrupt_at_any_step(graph: omnigraph.Graph) -> None:
    found = Heartbeat(graph.context.store.objects)

    def stage() -> None:
        found._until = 0
        found.staging(lambda: None)

    def check() -> None:
        assert not found.stagings
        assert in_another_thread(lambda: found.staging(lambda: None)) < 1

    assert interrupt_everywhere(stage, check) > 5


WRITES: dict[str, Callable[[omnigraph.Graph], object]] = {
    "mutate": lambda graph: graph.mutate('query q() { insert Person { name: "bob" } }'),
    "mutate a branch": lambda graph: graph.mutate('query q() { insert Person { name: "bob" } }', branch="review"),
    "optimize": lambda graph: graph.maintenance.optimize(),
    "apply a schema": lambda graph: graph.schema.apply(
        SCHEMA if "age" in graph.schema.source else SCHEMA.replace("}", " age: I32? }")
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", WRITES)
def test_a_write_leaves_nothing_that_blocks_after_an_interrupt_at_any_step_of_its_path(
    graph: omnigraph.Graph, name: str
) -> None:
    if "branch" in name:
        graph.branches.create("review")
    other = omnigraph.connect(graph.uri)
    probe = 'query q() { insert Person { name: "eve" } }'

    def check() -> None:
        check_nothing_blocks(graph)
        began = time.monotonic()
        try:
            other.mutate(probe)
        except ConflictError:
            other.mutate(probe)  # its recovery has just finished the change of the schema
        assert time.monotonic() - began < 3

    assert interrupt_everywhere(lambda: WRITES[name](graph), check) > 40
    assert graph.maintenance.verify().clean


def _write_elsewhere(root: str) -> None:
    began = time.monotonic()
    omnigraph.connect(root).mutate('query q() { insert Person { name: "elsewhere" } }')
    assert time.monotonic() - began < 4


@pytest.mark.long
def test_another_process_writes_at_once_while_the_interrupted_one_lives(graph: omnigraph.Graph) -> None:
    cases = 0
    for number in range(1, 1000, 9):
        kept: BaseException | None = None
        with interrupt_at(number) as places:
            try:
                graph.mutate('query q() { insert Person { name: "bob" } }')
            except Interrupted as stopped:
                kept = stopped
        if not places.met:
            break
        cases += 1
        assert run_child(_write_elsewhere, graph.uri) == 0, repr(kept)
    assert cases > 5
    assert graph.maintenance.verify().clean


def test_an_interrupt_waits_until_a_branch_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = omnigraph.create(tmp_path / "g", "node Person { name: String @key }")
    made, make = threading.Event(), LanceDataset.create_branch

    def slowly(dataset: LanceDataset, *args: Any) -> LanceDataset:
        threading.Thread(target=_thread.interrupt_main).start()
        for _ in range(30):
            time.sleep(0.01)
        found = make(dataset, *args)
        made.set()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(LanceDataset, "create_branch", slowly)
        with pytest.raises(KeyboardInterrupt):
            graph.branches.create("side")
    assert made.is_set(), "it was cut short"
    assert graph.branches.list() == ["main"], "a creation that is interrupted is taken back"
    graph.maintenance.cleanup(keep=1)
    graph.branches.create("side")
    assert graph.maintenance.verify().problems == []


def test_what_fails_uncut_fails_as_it_would() -> None:
    with pytest.raises(ZeroDivisionError):
        uncut(lambda: 1 // 0)
