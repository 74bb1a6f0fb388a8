"""A process that stands still between any two steps of anything it can do, is taken for dead, and goes on.

Meanwhile another machine settles what it has left and does something that is in its way. Whatever was acknowledged is
there, once; what was refused left nothing, and was refused with an error that says what to do; and nobody waits, or
trips, afterwards.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.amounts import EXHAUSTIVE, EXHAUSTIVE_FIRST
from tests.concurrency.elsewhere import settle_elsewhere
from tests.crash.standing import LEASE_SECONDS, WRITES, Standing
from tests.crash.writes import (
    LOADS,
    MUTATIONS,
    ON_A_BRANCH,
    SCHEMA,
    SCHEMAS,
    ApplySchema,
    CreateBranch,
    DeleteBranch,
    Merge,
    Mutation,
    Optimize,
    Revert,
)

from omnigraph.engine.coordination import lease as policy
from omnigraph.engine.coordination.heartbeat import Heartbeat
from omnigraph.engine.coordination.lease import LEASE_SECONDS as USUAL_LEASE_SECONDS
from omnigraph.engine.coordination.lease import Lease
from omnigraph.engine.storage import steps
from omnigraph.errors import AlreadyExistsError, ConflictError, GraphError, NotFoundError, RecoveryRequiredError
from omnigraph.graph import Graph, connect
from omnigraph.testing.children import run_child
from omnigraph.testing.crash import (
    REPEAT_SECONDS_MAX,
    Content,
    Write,
    check_recovered,
    content_of,
    copy_graph,
    discard_graph,
    link_graph,
)


@dataclass(frozen=True)
class Several:
    """One thing after the other; none of them does nothing."""

    writes: tuple[Write, ...] = ()

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        for write in self.writes:
            write.again(graph)


@dataclass(frozen=True)
class Cleanup:
    """Old versions, and what nobody knows, are removed."""

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        report = graph.maintenance.cleanup(keep=1)
        assert not report.failed or "retry" in str(report), report


@dataclass(frozen=True)
class Tag:
    """A name for the newest state."""

    name: str = "kept"

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        graph.tags.create(self.name)


@dataclass(frozen=True)
class Untag:
    """The end of such a name."""

    name: str = "kept"

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        graph.tags.delete(self.name)


EVERY_STEP = "apply a schema with steps of every kind"
NOTHING = Several()
NOTE = Mutation('insert Note { text: "other" }')
ROWS = 'insert Company { name: "other" } insert Person { name: "other" } insert WorksAt { from: "other", to: "other" }'
MORE = ROWS.replace("other", "another")
REMOVED = Several((Mutation(ROWS), Mutation(MORE), Cleanup()))
"""The versions that a late commit would be compared with are gone."""
ON_REVIEW = Mutation(ROWS, branch="review")
ANEW = Several((DeleteBranch(), CreateBranch("review"), Mutation('insert Company { name: "anew" }', branch="review")))
EXTRA = ApplySchema(SCHEMA + "node Extra { name: String @key }\n")
INSERT = MUTATIONS["insert nodes and an edge"]
FIRST, DELETE = ON_A_BRANCH["first write on a branch"], ON_A_BRANCH["first delete on a branch"]
INTO_BRANCH = Merge("main", "review", "ours")


@pytest.fixture(autouse=True)
def nobody_renews(monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps the leases of this process stands still with it."""
    monkeypatch.setattr(Lease, "renew_if_wanted", lambda lease: time.sleep(LEASE_SECONDS))


@pytest.fixture(scope="session")
def templates(seeded: Path, branched: Path, diverged: Path, to_merge: dict[str, Path], memory: Path) -> dict[str, Path]:
    """Graphs by what is to be done to them."""
    tagged, merged = memory / "tagged", to_merge["revert a merge"]
    connect(link_graph(seeded, tagged)).tags.create("kept")
    parted = memory / "parted-alone"
    Mutation('delete Person where name = "bob"', branch="review").run(copy_graph(diverged, parted))
    Mutation('update Person set { age: 32 } where name = "ann"').run(str(parted))
    Mutation('insert Note { text: "main" } insert Company { name: "globex" }').run(str(parted))
    named = {"seeded": seeded, "branched": branched, "diverged": diverged, "tagged": tagged}
    return {**named, "merged": merged, "parted": parted}


class Late:
    """One write that stands still, and what happens meanwhile."""

    def __init__(self, write: Write, other: Write, template: Path, scratch: Path) -> None:
        self.write, self.other, self._template, self._scratch = write, other, template, scratch

    @functools.cache  # noqa: B019  # lives as long as one test
    def wanted(self, landed: bool, done: bool) -> list[Content]:
        """What there may be in the end, by whether the write was acknowledged and the other one done."""
        orders: list[tuple[Write, ...]] = [(self.other,)] if done else [()]
        if landed:
            orders = [(self.write, self.other), (self.other, self.write)] if done else [(self.write,)]
        return [found for order in orders if (found := self._after(order)) is not None]

    def _after(self, order: tuple[Write, ...]) -> Content | None:
        root = self._scratch / "wanted"
        graph = connect(link_graph(self._template, root))
        try:
            for write in order:
                write.again(graph)
            return content_of(connect(root, read_only=True))
        except GraphError:
            return None  # What the one does is refused after the other.
        finally:
            discard_graph(root)

    def at(self, number: int, names: tuple[str, ...] | None) -> str | None:
        """Stand still before one step of these names; what was done there, or None when there are not so many."""
        root = str(self._scratch / f"at-{number}")
        graph = connect(link_graph(self._template, root))
        _lease(graph, LEASE_SECONDS)
        answer = Path(f"{root}.answer")
        codes: list[int | None] = []
        standing = Standing(number, names, lambda: codes.append(run_child(_elsewhere, root, self.other, answer)))
        previous = steps.observe(standing)
        refused: GraphError | None = None
        try:
            self.write.again(graph)
        except (ConflictError, RecoveryRequiredError, NotFoundError, AlreadyExistsError) as exc:
            refused = exc
        finally:
            steps.observe(previous)
        try:
            if not codes:
                return None
            assert codes == [0], "what happened elsewhere failed"
            told = answer.read_text(encoding="utf-8")
            _lease(graph, USUAL_LEASE_SECONDS)
            self._check(root, refused, told)
            return f"{standing.met}: {refused!r}, elsewhere {told}"
        except AssertionError as exc:
            raise AssertionError(f"{number}, before {standing.met} ({refused!r}): {exc}") from exc
        finally:
            discard_graph(root)

    def _check(self, root: str, refused: GraphError | None, told: str) -> None:
        began = time.monotonic()
        graph = connect(root)
        content = content_of(graph)
        done = told == "done"
        allowed = self.wanted(refused is None, done)
        if isinstance(refused, RecoveryRequiredError):
            allowed = [*self.wanted(True, done), *allowed]
        assert content in allowed, f"lost, doubled or half there: {content}, elsewhere {told}"
        # A table that came too late is nobody's until this.
        assert not graph.maintenance.cleanup(keep=100).failed
        check_recovered(root, (content,))
        for branch in graph.context.manifest.branches():
            Mutation('insert Person { name: "next" }', branch=branch).again(graph)
        assert time.monotonic() - began < REPEAT_SECONDS_MAX, "the next write had to wait"
        check_recovered(root, (content_of(graph),))

    def everywhere(self, names: tuple[str, ...] | None = WRITES, *, every: int = 1) -> int:
        """Stand still before each step of these names in turn, or before one of so many; how many were met."""
        met = 0
        while self.at(1 + met * every, names) is not None:
            met += 1
        return met


def _lease(graph: Graph, seconds: float) -> None:
    graph.context.recovery.intents.lease_seconds = seconds
    Heartbeat.at(graph.context.store.objects).lease.seconds = seconds


def _elsewhere(root: str, other: Write, answer: Path) -> None:
    """What another machine does, to which the silence of this one is its end."""
    settle_elsewhere("far")
    policy.GRACE_SECONDS = 0.0
    try:
        other.again(connect(root))
        told = "done"
    except GraphError as refused:
        told = f"{type(refused).__name__}: {refused}"
    answer.write_text(told, encoding="utf-8")


FOUND = {
    "a late commit whose successors are cleaned up": (INSERT, REMOVED, "seeded", 3, ("commit",)),
    "a late publish on a branch made anew": (DELETE, ANEW, "diverged", 4, ("commit",)),
    "a write that others finished on a branch made anew since": (FIRST, ANEW, "branched", 4, ("commit",)),
    "a late confirmation on a branch made anew": (INTO_BRANCH, ANEW, "parted", 3, ("write_text",)),
    "a branch that is created beside a change of the schema": (
        CreateBranch(),
        SCHEMAS[EVERY_STEP],
        "seeded",
        1,
        ("create_branch",),
    ),
    "a late table": (SCHEMAS[EVERY_STEP], NOTHING, "seeded", 1, ("create",)),
    "a late table that others have made": (SCHEMAS[EVERY_STEP], SCHEMAS[EVERY_STEP], "seeded", 1, ("create",)),
    "a change whose files others have put in place": (EXTRA, NOTHING, "seeded", 2, ("rename_text",)),
    "a first publish on a branch that is gone": (FIRST, DeleteBranch(), "branched", 3, ("create_branch",)),
}
"""Places where something went wrong once: what stands still, what happens meanwhile, where, before which step."""


@pytest.mark.parametrize("name", FOUND)
def test_a_process_that_stood_still_at_a_known_place(name: str, templates: dict[str, Path], scratch: Path) -> None:
    write, other, template, number, names = FOUND[name]
    told = Late(write, other, templates[template], scratch).at(number, names)
    assert told is not None
    assert told.endswith("elsewhere done"), told
    assert "RecoveryRequiredError" not in told, "what others have settled is not unfinished"


LOOPS = {
    "write, rows": (INSERT, Mutation(ROWS), "seeded"),
    "write, removal": (INSERT, REMOVED, "seeded"),
    "write, schema": (INSERT, SCHEMAS[EVERY_STEP], "seeded"),
    "write on a branch, the same": (FIRST, ON_REVIEW, "branched"),
    "write on a branch, its deletion": (FIRST, DeleteBranch(), "branched"),
    "write on a branch, another one": (FIRST, ANEW, "branched"),
    "delete on a branch, another one": (DELETE, ANEW, "diverged"),
    "merge into a branch, nothing": (INTO_BRANCH, NOTHING, "parted"),
    "merge into a branch, another one": (INTO_BRANCH, ANEW, "parted"),
    "optimize, rows": (Optimize(), Mutation(ROWS), "seeded"),
    "optimize, removal": (Optimize(), REMOVED, "seeded"),
    "cleanup, tag": (Cleanup(), Tag("meanwhile"), "diverged"),
    "cleanup, branch": (Cleanup(), CreateBranch(), "diverged"),
    "revert, removal": (Revert(), REMOVED, "merged"),
    "create a branch, the same": (CreateBranch(), CreateBranch(), "seeded"),
    "create a branch, schema": (CreateBranch(), SCHEMAS[EVERY_STEP], "seeded"),
    "delete a branch, a write": (DeleteBranch(), ON_REVIEW, "diverged"),
    "delete a branch, another one": (DeleteBranch(), ANEW, "diverged"),
    "tag, cleanup": (Tag("late"), Several((NOTE, Cleanup())), "tagged"),
    "untag, another one": (Untag(), Several((Untag(), Tag())), "tagged"),
    "schema, nothing": (SCHEMAS[EVERY_STEP], NOTHING, "seeded"),
    "schema, rows": (SCHEMAS[EVERY_STEP], Mutation(ROWS), "seeded"),
    "schema that adds, nothing": (EXTRA, NOTHING, "seeded"),
    "schema that adds, the same": (EXTRA, EXTRA, "seeded"),
    "load, removal": (LOADS["load overwrite"], REMOVED, "seeded"),
}
CHOSEN = ("write, removal", "write on a branch, another one", "schema that adds, nothing", "create a branch, schema")


ALIKE = 5
"""Optimize takes about 150 steps, whose order differs from run to run: many tables are worked on in the same way."""


def _mark(name: str) -> pytest.MarkDecorator:
    if name in CHOSEN:
        return pytest.mark.long
    return EXHAUSTIVE_FIRST if isinstance(LOOPS[name][0], Optimize) else EXHAUSTIVE


@pytest.mark.parametrize("name", [pytest.param(name, marks=_mark(name)) for name in LOOPS])
def test_a_process_that_stood_still_before_a_step_that_writes(
    name: str, templates: dict[str, Path], scratch: Path, thorough: bool
) -> None:
    write, other, template = LOOPS[name]
    every = ALIKE if isinstance(write, Optimize) and not thorough else 1
    assert Late(write, other, templates[template], scratch).everywhere(every=every) >= 3
