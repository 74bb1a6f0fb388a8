"""A merger that stands still between any two steps, is taken for dead, and goes on: it does no harm.

Meanwhile another machine opens the graph, which settles what the merger has left, writes to the tables it is about,
and removes every file that nothing refers to. The merge then lands once or not at all, and nothing of the other
machine is lost.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.amounts import EXHAUSTIVE
from tests.concurrency.elsewhere import settle_elsewhere
from tests.crash.standing import LEASE_SECONDS, Standing
from tests.crash.writes import MERGES, Merge, Mutation

from omnigraph.engine.coordination import lease as policy
from omnigraph.engine.coordination.heartbeat import Heartbeat
from omnigraph.engine.coordination.lease import Lease
from omnigraph.engine.recovery import audit
from omnigraph.engine.storage import steps
from omnigraph.errors import ConflictError, GraphError
from omnigraph.graph import Graph, connect
from omnigraph.testing.children import run_child
from omnigraph.testing.crash import Content, check_recovered, content_of, discard_graph, link_graph

WRITES = ("commit", "copy", "create_branch", "delete", "write_fragments", "write_text")
"""The steps of a merge that others can see; before the others nothing has changed since the one before."""
QUICK = "merge by two commits to a table"
NO_EFFECT = "merge a branch that has come back to where it was"
"""One publish, which leaves nothing that others could take over."""
PLACES_MIN = {NO_EFFECT: 1}

Wanted = Callable[[bool], Content]
"""What a graph holds in the end, by whether the merge has landed."""


@pytest.fixture(autouse=True)
def nobody_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps the leases of this process stands still with it."""
    monkeypatch.setattr(Lease, "renew_if_wanted", lambda lease: time.sleep(LEASE_SECONDS))


def next_write(graph: Graph, into: str) -> Mutation:
    """A write to the tables the merge changes, which is in conflict with nothing; on a branch it may be the first."""
    kinds = ("File",) if "node:File" in graph.context.catalog.tables else ("Company", "Person")
    text = " ".join(f'insert {kind} {{ name: "next" }}' for kind in kinds)
    if "Person" in kinds:
        text += ' insert WorksAt { from: "next", to: "next" } insert Knows { from: "next", to: "next" }'
    return Mutation(text, actor="act-next", branch=into)


def take_over(root: str, into: str, cleans: bool) -> None:
    """What another machine does, to which the silence of the merger is its end."""
    settle_elsewhere("far")
    policy.GRACE_SECONDS = 0.0
    graph = connect(root)
    next_write(graph, into).again(graph)
    if cleans:
        report = graph.maintenance.cleanup(keep=100)
        assert not report.failed, report


def merge_late(
    write: Merge, template: Path, root: str, at: int, names: tuple[str, ...] | None, wanted: Wanted, *, cleans: bool
) -> bool:
    """Merge, standing still before one step; False when there are not so many."""
    graph = connect(link_graph(template, root))
    graph.context.recovery.intents.lease_seconds = LEASE_SECONDS
    Heartbeat.at(graph.context.store.objects).lease.seconds = LEASE_SECONDS
    theirs = graph.snapshot(write.source).head
    met = []

    def meanwhile() -> None:
        met.append(run_child(take_over, root, write.into, cleans))

    standing = Standing(at, names, meanwhile)
    previous = steps.observe(standing)
    refused: GraphError | None = None
    try:
        write.again(graph)
    except ConflictError as conflict:
        refused = conflict  # The files it had staged are gone: nothing of it may be there.
    finally:
        steps.observe(previous)
    if not met:
        return False
    assert met == [0], "what happened elsewhere failed"
    assert refused is None or cleans, f"refused although nothing was in its way: {refused}"
    check_outcome(write, root, theirs, wanted(refused is None), landed=refused is None)
    return True


def contents(write: Merge, template: Path, scratch: Path) -> Wanted:
    """What there is in the end when nobody stands still, with the merge or without it."""

    @functools.cache
    def wanted(landed: bool) -> Content:
        graph = connect(link_graph(template, scratch / "wanted"))
        if landed:
            write.again(graph)
        next_write(graph, write.into).again(graph)
        found = content_of(graph)
        discard_graph(scratch / "wanted")
        return found

    return wanted


def check_outcome(write: Merge, root: str, theirs: str | None, wanted: Content, *, landed: bool) -> None:
    content = content_of(connect(root, read_only=True))
    assert content == wanted, "something was lost, or came twice"
    commits = [each for each in connect(root).history.list(write.into) if each.merged_parent_commit_id == theirs]
    assert len(commits) == int(landed), "the merge was recorded more than once, or not"
    check_recovered(root, (content,))
    # Whoever asks again gets it, once.
    graph = connect(root)
    write.again(graph)
    write.again(graph)
    assert len([c for c in graph.history.list(write.into) if c.merged_parent_commit_id == theirs]) == 1


def everywhere(
    write: Merge, template: Path, scratch: Path, names: tuple[str, ...] | None, *, cleans: bool | None = None
) -> tuple[int, int]:
    """The number of steps, and how often somebody else has undone or finished the merge.

    Whether the other machine cleans up takes turns from step to step unless it is said.
    """
    at, taken_over = 1, 0
    wanted = contents(write, template, scratch)
    before = len(audit.rows(connect(template, read_only=True).context.store))
    while merge_late(
        write, template, str(scratch / f"at-{at}"), at, names, wanted, cleans=at % 2 == 0 if cleans is None else cleans
    ):
        rows = audit.rows(connect(scratch / f"at-{at}", read_only=True).context.store)
        taken_over += any(row.writer_kind == "BranchMerge" for row in rows[before:])
        discard_graph(scratch / f"at-{at}")
        at += 1
    return at - 1, taken_over


@pytest.mark.long
def test_a_merger_that_stood_still_before_a_step_that_writes(to_merge: dict[str, Path], scratch: Path) -> None:
    places, taken_over = everywhere(MERGES[QUICK], to_merge[QUICK], scratch, WRITES, cleans=True)
    assert places > 12
    assert taken_over > 5


@EXHAUSTIVE
@pytest.mark.parametrize("name", [name for name in MERGES if name != QUICK])
def test_a_merger_of_any_kind_that_stood_still_before_a_step_that_writes(
    name: str, to_merge: dict[str, Path], scratch: Path
) -> None:
    places, taken_over = everywhere(MERGES[name], to_merge[name], scratch, WRITES)
    assert places >= PLACES_MIN.get(name, 8)
    assert taken_over > 2 or name == NO_EFFECT


@EXHAUSTIVE
def test_a_merger_that_stood_still_before_any_step(to_merge: dict[str, Path], scratch: Path) -> None:
    # Mergers differ in what they write; what they read, and what they may have read too early, is the same for all.
    places, taken_over = everywhere(MERGES[QUICK], to_merge[QUICK], scratch, None)
    assert places > 40
    assert taken_over > 5
