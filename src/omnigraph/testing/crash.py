"""Crash a write at every storage operation it performs, and show that each crash leaves it whole or not at all.

A `Write` is data, so that it can travel to a child process. `baseline` runs it without faults; `crash_at` runs it with
one, in a fresh copy of a template graph, and then demands everything that must hold after recovery. The caller counts
N = 1, 2, … until a run meets no fault. `deaths` gives the graph as each possible death of the process would leave it,
for `check_death` to look at.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from omnigraph import failpoints
from omnigraph.engine.coordination.heartbeat import Heartbeat
from omnigraph.engine.coordination.mutex import Mutexes
from omnigraph.engine.coordination.owner import Liveness, this_process
from omnigraph.engine.operations.verify import verify
from omnigraph.engine.recovery import audit
from omnigraph.engine.recovery.decide import RecoveryKind
from omnigraph.engine.storage import layout, steps
from omnigraph.engine.storage.fragments import is_blob
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import GraphError
from omnigraph.graph import Graph, connect
from omnigraph.ids import RECOVERY_ACTOR, now_micros, stored_branch
from omnigraph.testing.children import CHILD_SECONDS_MAX, run_child
from omnigraph.testing.failpoints import CRASH_EXIT_CODE, FailpointPlan
from omnigraph.testing.faults import ChangesAndNext, Fault, FaultyStore, Step

Content = Mapping[str, tuple[str, ...]]
REPEAT_SECONDS_MAX = 4.0
"""Less than any lease, so that a write that waits for one is noticed, and more than any write here takes."""
_GENERATED = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b")


class Write(Protocol):
    """One write, as data."""

    def run(self, root: str) -> None:
        """Open the graph at this root and write."""

    def again(self, graph: Graph) -> None:
        """Write through a handle that is open already."""


class Baseline(Struct, frozen=True):
    """What a write does when nothing goes wrong: the content before, after, and after a second time.

    `repeats` is False when writing a second time is refused, e.g. because ids are taken. `audited` counts the
    recoveries that were recorded before.
    """

    before: Content
    once: Content
    twice: Content
    repeats: bool
    audited: int


class Case(Struct, frozen=True):
    """One crash: where it happened, and how the write ended for its caller."""

    fault: Fault
    number: int
    step: Step | None
    acknowledged: bool


def content_of(graph: Graph) -> Content:
    """Everything a reader sees on any branch, as sorted texts of rows, in which one generated id looks like another."""
    found: dict[str, tuple[str, ...]] = {}
    for branch in graph.context.manifest.branches():
        snapshot = graph.snapshot(branch)
        for key in snapshot.entries:
            handle = snapshot.open(key)
            rows = handle.scan().to_pylist()
            for column in (field.name for field in handle.schema if is_blob(field)):
                _read_blobs(graph, branch, key, column, rows)
            found[f"{branch}/{key}"] = tuple(sorted(_GENERATED.sub("ulid", repr(row)) for row in rows))
    return found


def _read_blobs(graph: Graph, branch: str, key: str, column: str, rows: list[dict[str, Any]]) -> None:
    """Put the bytes, as far as they tell one blob from another, where a table only says where they are."""
    kind, _, name = key.partition(":")
    for row in rows:
        if row[column] is not None:
            content = graph.read_blob(name, row["id"], column, branch, entity=kind)
            row[column] = (len(content), hashlib.sha256(content).hexdigest())


def copy_graph(template: str | Path, target: str | Path) -> str:
    """A graph of its own with the template's content."""
    shutil.copytree(template, target, copy_function=shutil.copyfile)
    return str(target)


_WRITTEN_ONCE = (".arrow", ".lance", ".manifest", ".txn")
"""How the names of files end that storage writes once, and removes, but never changes."""


def link_graph(template: str | Path, target: str | Path) -> str:
    """A graph with the template's content that shares the files with it which are never changed.

    It is made in a third of the time. What damages files on purpose needs a copy.
    """
    os.mkdir(target)
    with os.scandir(template) as found:
        for entry in found:
            place = os.path.join(target, entry.name)
            if entry.is_dir(follow_symlinks=False):
                link_graph(entry.path, place)
            elif entry.name.endswith(_WRITTEN_ONCE):
                os.link(entry.path, place)
            else:
                shutil.copyfile(entry.path, place)
    return str(target)


def discard_graph(root: str | Path) -> None:
    """Remove a graph, and what this process keeps for it: thousands are made here, and hardly one is closed."""
    place = os.path.realpath(root)
    shutil.rmtree(root, ignore_errors=True)
    Heartbeat.leave(place)
    TableStore.close_root(place)


def baseline(write: Write, template: str | Path, scratch: Path) -> Baseline:
    """Run a write twice without faults."""
    root = copy_graph(template, scratch / "baseline")
    untouched = connect(root, read_only=True)
    before, audited = content_of(untouched), len(audit.rows(untouched.context.store))
    write.run(root)
    once = content_of(connect(root, read_only=True))
    repeats = _repeat(write, connect(root))
    twice = content_of(connect(root, read_only=True))
    discard_graph(root)
    return Baseline(before, once, twice, repeats, audited)


def _repeat(write: Write, graph: Graph) -> bool:
    try:
        write.again(graph)
    except GraphError:
        return False
    return True


def crash_at(
    write: Write,
    base: Baseline,
    template: str | Path,
    scratch: Path,
    fault: Fault,
    number: int,
    *,
    opening: bool = False,
    sparse: bool = False,
) -> Case | None:
    """Run a write with a fault at its N-th storage operation, and check everything; None when it met no fault.

    Faults that come after an operation count only those that change something, `sparse` ones before an operation those
    and the next of each. The process lives on; see `deaths` for faults that end it. `opening` says that the graph is
    opened under the fault; otherwise the write goes through a handle that was open before, and that goes on to be used
    after an interrupt.
    """
    assert not fault.kills, "it would end this process"
    root = link_graph(template, scratch / f"{fault.replace(' ', '-')}-{number}")
    try:
        graph = None if opening else connect(root)
        counted = changes if fault.follows else ChangesAndNext() if sparse else None
        case = _failed(write, root, FaultyStore(fault, number, only=counted), graph)
        if case is None:
            return None
        if fault.interrupts:
            check_nobody_waits(root)
        # The next write on the same process heals whatever the failed one left. After an interrupt the same handle
        # goes on, or a new one does.
        follower = graph if graph is not None and fault.interrupts and number % 2 else connect(root)
        _check_repeat(write, base, follower, certain=case.acknowledged, certainly_not=False)
        return case
    except AssertionError as exc:
        raise AssertionError(f"{fault} operation {number}: {exc}") from exc
    finally:
        discard_graph(root)


def _check_repeat(write: Write, base: Baseline, graph: Graph, *, certain: bool, certainly_not: bool) -> None:
    """Write again: the result tells whether the first one counted, and that must fit what its caller was told.

    Everything that holds after recovery must hold after it.
    """
    began = time.monotonic()
    repeated = _repeat(write, graph)
    assert time.monotonic() - began < REPEAT_SECONDS_MAX, "the next write had to wait"
    content = check_recovered(graph.uri, (base.once, base.twice), audited_before=base.audited)
    counted = content == base.twice and repeated == base.repeats
    fresh = content == base.once and repeated
    assert counted or fresh, "writing again gave neither the state of one write nor of two"
    ambiguous = base.once == base.twice and base.repeats
    if not ambiguous:
        assert not (certain and not counted), "an acknowledged write was lost"
        assert not (certainly_not and not fresh), "a write that was not visible was counted"


def changes(step: Step) -> bool:
    """True for an operation that does more than look; as a function, because a test may send it to a process."""
    return step.changes


def _failed(write: Write, root: str, store: FaultyStore, graph: Graph | None) -> Case | None:
    acknowledged = interrupted = False
    wrapped: GraphError | None = None
    with store:
        try:
            write.run(root) if graph is None else write.again(graph)
            acknowledged = True
        except GraphError as exc:
            wrapped = exc
        except KeyboardInterrupt:
            interrupted = True
    wanted = store.fault.interrupts and store.met
    assert interrupted == wanted, f"the interrupt of {store.step} was lost: {wrapped!r}"
    return Case(store.fault, store.at, store.step, acknowledged) if store.met else None


# --- the death of the process ---------------------------------------------------------------------------------------


class Death(Struct, frozen=True):
    """The graph as the end of its process around one storage operation leaves it."""

    root: Path
    """The graph; the process that wrote it is gone."""
    moments: tuple[str, ...]
    """The moments at which the process would have left just this, like `after operation 7, put of …`."""


class _Photographer:
    """Copies a graph before and after each storage operation, where it differs from the last copy.

    Nothing of a process outlives it but what it has stored, so a copy is what a kill at that moment leaves, once the
    process is gone: its locks are released and its name is that of nobody.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self._folder = root, folder
        self._last = ""
        self._copies = self._operations = 0
        self._notes = (folder / _MOMENTS).open("a", encoding="utf-8")
        self._lock = threading.RLock()

    def before(self, name: str, target: str) -> None:
        """What an end before the operation leaves."""
        with self._lock:
            self._operations += 1
            self._take(f"before operation {self._operations}, {name} of {target}")

    def after(self, name: str, target: str) -> None:
        """What an end after the operation leaves."""
        with self._lock:
            self._take(f"after operation {self._operations}, {name} of {target}")

    def failed(self, name: str, target: str) -> None:
        """What an end after the operation leaves that failed by itself."""
        self.after(name, target)

    def _take(self, moment: str) -> None:
        for _ in range(_PHOTOGRAPHS_MAX):
            try:
                self._copy_if_new()
                break
            except OSError:  # another thread of the process has just removed a temporary file of its own
                continue
        else:
            raise AssertionError(f"files kept coming and going {moment}")
        self._notes.write(f"{self._copies}\t{moment}\n")
        self._notes.flush()

    def _copy_if_new(self) -> None:
        found = _fingerprint(self._root)
        if found == self._last:
            return
        target = self._folder / f"{self._copies + 1}"
        shutil.rmtree(target, ignore_errors=True)
        copy_graph(self._root, target)
        self._last, self._copies = found, self._copies + 1


_MOMENTS = "moments.tsv"
_PHOTOGRAPHS_MAX = 100


def _fingerprint(root: Path) -> str:
    """The names and contents of everything below a folder."""
    found = hashlib.blake2b()
    for folder, folders, files in os.walk(root):
        folders.sort()
        found.update(f"{folder}/\n".encode())
        for name in sorted(files):
            content = Path(folder, name).read_bytes()
            found.update(f"{name} {len(content)}\n".encode() + content)
    return found.hexdigest()


def deaths(write: Write, template: str | Path, scratch: Path) -> Iterator[Death]:
    """Every state in which the end of its process would leave a write, before or after any storage operation.

    The write runs once, to its end, in a process of its own. Each state is given once, and is the caller's to change;
    it is removed when the next one is asked for.
    """
    folder = scratch / "deaths"
    folder.mkdir()
    root = copy_graph(template, scratch / "dying")
    code = run_child(_child, write, root, str(folder))
    assert code == 0, f"the child ended with {code}"
    shutil.rmtree(root)
    moments: dict[str, list[str]] = {}
    for line in (folder / _MOMENTS).read_text(encoding="utf-8").splitlines():
        copy, _, moment = line.partition("\t")
        moments.setdefault(copy, []).append(moment)
    for copy, told in moments.items():
        # A branch of a table names the folder of the table it was made of, which is where the write found it.
        os.symlink(folder / copy, root)
        yield Death(folder / copy, tuple(told))
        os.unlink(root)
        discard_graph(folder / copy)
    shutil.rmtree(folder)


def check_death(write: Write, base: Baseline, death: Death, *, open_heals: bool = True) -> None:
    """Demand everything that must hold after the process died, and that the write can be made again.

    `open_heals` is False for writes that only their repetition completes, like a repair.
    """
    root = str(death.root)
    try:
        done = False
        if open_heals:
            done = check_recovered(root, (base.before, base.once), audited_before=base.audited) == base.once
        _check_repeat(write, base, connect(root), certain=done, certainly_not=open_heals and not done)
    except AssertionError as exc:
        raise AssertionError(f"killed {death.moments[0]}: {exc}") from exc


def _child(write: Write, root: str, folder: str) -> None:
    previous = steps.observe(_Photographer(Path(root), Path(folder)))
    try:
        write.run(root)
    finally:
        steps.observe(previous)


def crash_at_failpoint(write: Write, root: str, plan: str, *, timeout_seconds: float = CHILD_SECONDS_MAX) -> bool:
    """Run a write in a child process with failpoints configured; True when one of them ended it."""
    code = run_child(_child_with_failpoints, write, root, plan, timeout_seconds=timeout_seconds)
    return code == CRASH_EXIT_CODE


def _child_with_failpoints(write: Write, root: str, plan: str) -> None:
    failpoints.install(FailpointPlan(plan))
    write.run(root)


# --- what must hold after recovery -----------------------------------------------------------------------------------


def check_recovered(root: str, allowed: tuple[Content, ...], *, audited_before: int = 0) -> Content:
    """Open a graph read-write and demand everything that must hold after recovery; returns its content.

    No intent, claim or staging file is left; every published table is at its head; an operation has at most one audit
    row, and its commit is recovery's own; ids are unique, edges closed, constraints kept, the history linear (all by
    `verify`); the content is one of those allowed; and opening once more changes nothing.
    """
    graph = connect(root)
    store = graph.context.store
    assert store.objects.list_dir(layout.RECOVERY_DIR) == [], "something is left in the recovery folder"
    assert not any(store.objects.exists(f"{name}.staging") for name in layout.SCHEMA_FILES)
    for branch in graph.context.manifest.branches():
        for entry in graph.snapshot(branch).entries.values():
            # A branch that inherits a table from another one reads an older version of it on purpose.
            if entry.branch == stored_branch(branch):
                head = store.open(entry.path, branch=entry.branch).version
                assert head == entry.version, f"{entry.table_key} has drifted on {branch}"
    report = verify(graph.context)
    assert report.clean, report.problems
    version, rows = graph.snapshot().version, _check_audit(graph, audited_before)
    content, pinned = content_of(graph), _pinned(graph)
    graph.close()
    again = connect(root)
    assert (again.snapshot().version, len(audit.rows(store))) == (version, rows), "a second open changed something"
    # A version never changes, so what is pinned at the same versions need not be read again.
    assert _pinned(again) == pinned, "a second open moved a table"
    assert content in allowed, f"the content is neither before nor after the write: {content}"
    return content


def _pinned(graph: Graph) -> dict[str, list[object]]:
    """The tables of every branch and the versions they are read at."""
    return {branch: list(graph.snapshot(branch).entries.values()) for branch in graph.context.manifest.branches()}


def check_nobody_waits(root: str) -> None:
    """Demand that a process which lives on after an interrupt keeps nothing that others would wait for.

    No claim and no lock is left, an intent is given up at once and not when its lease runs out, and neither a mutex of
    this process nor a turn of this machine is taken.
    """
    context = connect(root, read_only=True).context
    intents, objects = context.recovery.intents, context.store.objects
    left = [name for name in objects.list_dir(layout.RECOVERY_DIR) if not name.endswith(".json")]
    assert not left, f"others have to wait for {left}"
    assert not objects.has(layout.SCHEMA_LOCK), "the schema stays locked"
    for intent in intents.pending():
        owner = intent.owner
        mine = owner is not None and owner.same_process(this_process())
        assert not (owner and mine and owner.lease_until > now_micros()), "an intent stays alive"
        assert intents.liveness(intent) is not Liveness.LIVE, "this process believes to be at work"
    branches = [stored_branch(name) for name in context.manifest.branches()]
    keys = [(key, branch) for key in context.catalog.tables for branch in branches]
    assert not Mutexes.at(context.root).busy(keys), "a mutex or a turn stays taken"


def _check_audit(graph: Graph, audited_before: int) -> int:
    """The number of rows, none of which says what cannot be."""
    rows = audit.rows(graph.context.store)
    operations = [row.operation_id for row in rows]
    assert len(set(operations)) == len(operations), "an operation was recorded twice"
    for row in rows[audited_before:]:
        commit = graph.history.show(row.commit_id)
        assert commit.actor_id == RECOVERY_ACTOR, f"the commit of {row.operation_id} is {commit.actor_id}'s"
        for outcome in row.outcomes:
            forward = row.kind is RecoveryKind.ROLLED_FORWARD
            assert forward or outcome.from_version > outcome.to_version, outcome
    return len(rows)
