"""Crash a write at every storage operation it performs, and show that each crash leaves it whole or not at all.

A `Write` is data, so that it can travel to a child process that is killed in the middle of it. `baseline` runs it
without faults; `crash_at` runs it with one, in a fresh copy of a template graph, and then demands everything that must
hold after recovery. The caller counts N = 1, 2, … until a run meets no fault.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from omnigraph import failpoints
from omnigraph.engine.operations.verify import verify
from omnigraph.engine.recovery import audit
from omnigraph.engine.recovery.decide import RecoveryKind
from omnigraph.engine.storage import layout
from omnigraph.errors import GraphError
from omnigraph.graph import Graph, connect
from omnigraph.ids import RECOVERY_ACTOR, stored_branch
from omnigraph.testing.children import CHILD_SECONDS_MAX, run_child
from omnigraph.testing.failpoints import CRASH_EXIT_CODE, FailpointPlan
from omnigraph.testing.faults import Fault, FaultyStore, Step

Content = Mapping[str, tuple[str, ...]]
_GENERATED = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b")


class Write(Protocol):
    """One write, as data."""

    def run(self, root: str) -> None:
        """Open the graph at this root and write."""

    def again(self, graph: Graph) -> None:
        """Write through a handle that is open already."""


@dataclass(frozen=True)
class Baseline:
    """What a write does when nothing goes wrong: the content before, after, and after a second time.

    `repeats` is False when writing a second time is refused, e.g. because ids are taken. `audited` counts the
    recoveries that were recorded before.
    """

    before: Content
    once: Content
    twice: Content
    repeats: bool
    audited: int


@dataclass(frozen=True)
class Case:
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
            rows = snapshot.open(key).scan().to_pylist()
            found[f"{branch}/{key}"] = tuple(sorted(_GENERATED.sub("ulid", repr(row)) for row in rows))
    return found


def copy_graph(template: str | Path, target: str | Path) -> str:
    """A graph of its own with the template's content."""
    shutil.copytree(template, target, copy_function=shutil.copyfile)
    return str(target)


def baseline(write: Write, template: str | Path, scratch: Path) -> Baseline:
    """Run a write twice without faults."""
    root = copy_graph(template, scratch / "baseline")
    untouched = connect(root, read_only=True)
    before, audited = content_of(untouched), len(audit.rows(untouched.context.store))
    write.run(root)
    once = content_of(connect(root, read_only=True))
    repeats = _repeat(write, connect(root))
    twice = content_of(connect(root, read_only=True))
    shutil.rmtree(root)
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
    open_heals: bool = True,
) -> Case | None:
    """Run a write with a fault at its N-th storage operation, and check everything; None when it met no fault.

    `open_heals` is False for writes that only their repetition completes, like a repair.
    """
    root = copy_graph(template, scratch / f"{fault.replace(' ', '-')}-{number}")
    try:
        case = _killed(write, root, fault, number) if fault.kills else _failed(write, root, fault, number)
        if case is None:
            return None
        if fault.kills and open_heals:
            seen = check_recovered(root, (base.before, base.once), audited_before=base.audited)
            done = seen == base.once
        else:
            # The next write on the same process heals whatever the failed one left.
            done = case.acknowledged
        seen = _check_repeat(write, base, root, certain=done, certainly_not=fault.kills and open_heals and not done)
        check_recovered(root, (seen,), audited_before=base.audited)
        return case
    except AssertionError as exc:
        raise AssertionError(f"{fault} operation {number}: {exc}") from exc
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _check_repeat(write: Write, base: Baseline, root: str, *, certain: bool, certainly_not: bool) -> Content:
    """Write again: the result tells whether the first one counted, and that must fit what its caller was told."""
    repeated = _repeat(write, connect(root))
    content = content_of(connect(root, read_only=True))
    counted = content == base.twice and repeated == base.repeats
    fresh = content == base.once and repeated
    assert counted or fresh, "writing again gave neither the state of one write nor of two"
    ambiguous = base.once == base.twice and base.repeats
    if not ambiguous:
        assert not (certain and not counted), "an acknowledged write was lost"
        assert not (certainly_not and not fresh), "a write that was not visible was counted"
    return content


def _failed(write: Write, root: str, fault: Fault, number: int) -> Case | None:
    with FaultyStore(fault, number) as store:
        try:
            write.run(root)
            acknowledged = True
        except GraphError:
            acknowledged = False
    return Case(fault, number, store.step, acknowledged) if store.met else None


def _killed(write: Write, root: str, fault: Fault, number: int) -> Case | None:
    code = run_child(_child, write, root, fault.value, number)
    if code == CRASH_EXIT_CODE:
        return Case(fault, number, None, False)
    assert code == 0, f"the child ended with {code}"
    return None


def _child(write: Write, root: str, fault: str, number: int) -> None:
    with FaultyStore(Fault(fault), number) as store:
        write.run(root)
    assert not store.met, "the process outlived the operation that should have ended it"


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
    content = content_of(graph)
    graph.close()
    again = connect(root)
    assert (again.snapshot().version, len(audit.rows(store))) == (version, rows), "a second open changed something"
    assert content_of(again) == content
    assert content in allowed, f"the content is neither before nor after the write: {content}"
    return content


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
