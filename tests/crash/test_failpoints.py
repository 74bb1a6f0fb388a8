"""The named windows of the crash matrix, each both ways: an error on a living handle, and the death of the process."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.crash.writes import (
    CHANGED,
    LOADS,
    MUTATIONS,
    ON_A_BRANCH,
    SCHEMA,
    WHOLE,
    Create,
    Load,
    Mutation,
    Open,
    Optimize,
)

from omnigraph import failpoints
from omnigraph.engine.operations.verify import verify
from omnigraph.engine.recovery import audit
from omnigraph.engine.recovery.audit import AuditRow
from omnigraph.engine.recovery.decide import RecoveryKind
from omnigraph.errors import (
    AlreadyExistsError,
    ConstraintError,
    ExpectedVersionMismatchError,
    GraphError,
    StorageError,
)
from omnigraph.graph import Graph, connect, create
from omnigraph.testing.crash import Write, baseline, check_recovered, content_of, copy_graph, crash_at_failpoint
from omnigraph.testing.failpoints import FailpointPlan, InjectedFailure, configured

MULTI = MUTATIONS["insert nodes and an edge"]
FORWARD, BACK = RecoveryKind.ROLLED_FORWARD, RecoveryKind.ROLLED_BACK


def audited(root: Path | str) -> list[AuditRow]:
    return audit.rows(connect(root, read_only=True).context.store)


# --- one write -------------------------------------------------------------------------------------------------------

ROWS: list[tuple[str, Write, str, bool, RecoveryKind | None]] = [
    # window, write, failpoint action prefix, the write counts afterwards, what the audit says
    (failpoints.MUTATION_POST_STAGE, MULTI, "", False, None),
    (failpoints.SIDECAR_WRITE, MULTI, "", False, None),
    (failpoints.SIDECAR_WRITE, LOADS["load append"], "", False, None),
    (failpoints.MUTATION_POST_TABLE_COMMIT, MULTI, "", False, BACK),
    (failpoints.MUTATION_POST_TABLE_COMMIT, MULTI, "1*off->", False, BACK),
    (failpoints.MUTATION_POST_TABLE_COMMIT, LOADS["load overwrite"], "", False, BACK),
    (failpoints.MUTATION_POST_FINALIZE, MULTI, "", True, FORWARD),
    (failpoints.MUTATION_POST_FINALIZE, MUTATIONS["delete a node and its edges"], "", True, FORWARD),
    (failpoints.MUTATION_POST_FINALIZE, LOADS["load append"], "", True, FORWARD),
    (failpoints.MUTATION_POST_FINALIZE, LOADS["load merge"], "", True, FORWARD),
    (failpoints.MUTATION_POST_FINALIZE, LOADS["load overwrite"], "", True, FORWARD),
    (failpoints.PUBLISH_LOAD_CONTENTION, MULTI, "", True, FORWARD),
    (failpoints.PUBLISH_AFTER_PRECHECK, MULTI, "", True, FORWARD),
    (failpoints.PUBLISH_AFTER_COMMIT, MULTI, "", True, FORWARD),
    (failpoints.OPTIMIZE_POST_EFFECTS, Optimize(), "", True, FORWARD),
]


@pytest.mark.parametrize(("name", "write", "prefix", "counts", "kind"), ROWS)
def test_a_failed_write_is_settled_by_the_next_one_on_the_same_handle(
    name: str, write: Write, prefix: str, counts: bool, kind: RecoveryKind | None, seeded: Path, scratch: Path
) -> None:
    base = baseline(write, seeded, scratch)
    root = copy_graph(seeded, scratch / "graph")
    graph = connect(root)
    with (
        configured(f"{name}={prefix}1*return") as plan,
        pytest.raises(GraphError, match=r"injected|unfinished|not pub"),
    ):
        write.again(graph)
    assert plan.hits(name)
    graph.mutate('query q() { insert Note { text: "next" } }')
    expected = dict(base.once if counts else base.before)
    expected["main/node:Note"] = tuple(sorted([*expected["main/node:Note"], "{'id': 'ulid', 'text': 'next'}"]))
    assert content_of(graph) == expected
    check_recovered(root, (expected,))
    assert [row.kind for row in audited(root)] == ([kind] if kind else [])


@pytest.mark.parametrize(("name", "write", "prefix", "counts", "kind"), ROWS)
def test_a_killed_write_is_settled_by_the_next_open(
    name: str, write: Write, prefix: str, counts: bool, kind: RecoveryKind | None, seeded: Path, scratch: Path
) -> None:
    base = baseline(write, seeded, scratch)
    root = copy_graph(seeded, scratch / "graph")
    assert crash_at_failpoint(write, root, f"{name}={prefix}1*exit")
    reader = connect(root, read_only=True)
    before = reader.context.store.objects.list_dir("__recovery")
    assert content_of(reader) in (base.before, base.once)
    assert reader.context.store.objects.list_dir("__recovery") == before, "a read-only open changes nothing"
    check_recovered(root, (base.once if counts else base.before,))
    if kind:
        [row] = audited(root)
        assert row.kind is kind
        assert row.actor == {"Load": "act-bob", "Mutation": "act-alice"}.get(row.writer_kind)
    if base.repeats or not counts:
        write.again(connect(root))


@pytest.mark.parametrize("name", [failpoints.MUTATION_PRE_FORK, failpoints.MUTATION_POST_FORK])
@pytest.mark.parametrize("dies", [False, True], ids=["return", "exit"])
def test_a_fork_without_a_commit_disappears(name: str, dies: bool, branched: Path, scratch: Path) -> None:
    write = ON_A_BRANCH["first write on a branch"]
    base = baseline(write, branched, scratch)
    root = copy_graph(branched, scratch / "graph")
    main = connect(root).snapshot().version
    if dies:
        assert crash_at_failpoint(write, root, f"{name}=1*exit")
    else:
        with configured(f"{name}=1*return"), pytest.raises(InjectedFailure):
            write.run(root)
    check_recovered(root, (base.before,))
    graph = connect(root)
    assert all(graph.context.store.table_branches(entry.path) == [] for entry in graph.snapshot().entries.values())
    assert graph.snapshot().version == main, "recovery on a branch moves nothing on main"
    write.again(graph)
    check_recovered(root, (base.once,))


# --- intents ---------------------------------------------------------------------------------------------------------


def test_a_sidecar_that_cannot_be_removed_is_consumed_by_the_next_write(seeded: Path, scratch: Path) -> None:
    graph = connect(copy_graph(seeded, scratch / "graph"))
    with configured(f"{failpoints.SIDECAR_DELETE}=1*return"):
        MULTI.again(graph)
    assert len(graph.context.store.objects.list_dir("__recovery")) == 1
    MUTATIONS["insert a keyless node"].again(graph)
    assert graph.context.store.objects.list_dir("__recovery") == []
    [row] = audited(graph.uri)
    assert row.kind is FORWARD
    assert len(row.outcomes) == 3


def test_a_folder_that_cannot_be_listed_stops_writers_and_opens_but_not_readers(seeded: Path, scratch: Path) -> None:
    root = copy_graph(seeded, scratch / "graph")
    graph = connect(root)
    with configured(f"{failpoints.SIDECAR_LIST}=return"):
        with pytest.raises(StorageError):
            MULTI.again(graph)
        with pytest.raises(StorageError):
            connect(root)
        assert connect(root, read_only=True).snapshot().entries
    MULTI.again(graph)
    assert audited(root) == []


# --- recovery itself -------------------------------------------------------------------------------------------------

RECOVERY_ROWS: list[tuple[str, str, RecoveryKind]] = [
    (failpoints.RECOVERY_AUDIT, "after all tables", FORWARD),
    (failpoints.RECOVERY_AUDIT, "after some tables", BACK),
    (failpoints.RECOVERY_AUDIT, "after the publish", FORWARD),
    (failpoints.RECOVERY_POST_ROLLBACK, "after some tables", BACK),
    (failpoints.RECOVERY_POST_RESTORE, "after some tables", BACK),
    (failpoints.RECOVERY_BEFORE_FORWARD, "after all tables", FORWARD),
    (failpoints.RECOVERY_POST_LIST, "after all tables", FORWARD),
    (failpoints.SIDECAR_LISTED, "after some tables", BACK),
    (failpoints.SIDECAR_DELETE, "after all tables", FORWARD),
    (failpoints.SIDECAR_DELETE, "after some tables", BACK),
]


@pytest.mark.parametrize(("name", "where", "kind"), RECOVERY_ROWS)
@pytest.mark.parametrize("dies", [False, True], ids=["return", "exit"])
def test_recovery_that_is_cut_short_is_continued(
    name: str, where: str, kind: RecoveryKind, dies: bool, interrupted: dict[str, Path], scratch: Path
) -> None:
    base = baseline(Open(), interrupted[where], scratch)
    root = copy_graph(interrupted[where], scratch / "graph")
    if dies:
        assert crash_at_failpoint(Open(), root, f"{name}=1*exit")
    else:
        with configured(f"{name}=1*return"), pytest.raises(InjectedFailure):
            connect(root)
    check_recovered(root, (base.once,))
    assert [row.kind for row in audited(root)] == [kind], "one row, and it says what happened first"


def test_a_restore_is_not_repeated(interrupted: dict[str, Path], scratch: Path) -> None:
    root = copy_graph(interrupted["after some tables"], scratch / "graph")
    with configured(f"{failpoints.RECOVERY_POST_RESTORE}=1*return"), pytest.raises(InjectedFailure):
        connect(root)
    [row] = audited(connect(root).uri)
    [outcome] = row.outcomes
    assert connect(root).snapshot().entry(outcome.table_key).version == outcome.to_version + 2


def test_a_discarded_intent_is_recorded_once(seeded: Path, scratch: Path) -> None:
    root = copy_graph(seeded, scratch / "graph")
    context = connect(root).context
    context.store.residual.create_branch("__manifest", "gone", source=None, version=context.manifest.snapshot().version)
    write = Mutation('insert Note { text: "lost" }', branch="gone")
    assert crash_at_failpoint(write, root, f"{failpoints.MUTATION_POST_FINALIZE}=exit")
    context.store.residual.delete_branch("__manifest", "gone")
    with configured(f"{failpoints.RECOVERY_DISCARD_AUDIT}=1*return"), pytest.raises(InjectedFailure):
        connect(root)
    graph = connect(root)
    assert [row.kind for row in audited(root)] == [RecoveryKind.ORPHANED_BRANCH_DISCARDED]
    assert graph.context.recovery.intents.list() == []
    notes = [note.code for note in verify(graph.context).notes]
    assert notes == ["orphan-fork"], "the ref is left for cleanup, which knows that no branch publishes it"
    graph.maintenance.cleanup(keep=10)
    assert verify(graph.context).notes == []


# --- two at a time ---------------------------------------------------------------------------------------------------


def meanwhile(
    plan: FailpointPlan, name: str, first: Callable[[], object], second: Callable[[], object]
) -> GraphError | None:
    """Run `first` until it pauses at a failpoint, run `second` to its end, let `first` go on; returns its error."""
    errors: list[GraphError] = []

    def run() -> None:
        try:
            first()
        except GraphError as exc:
            errors.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    assert plan.wait_until_reached(name)
    plan.set_aside(name)
    second()
    plan.release(name)
    thread.join(60)
    assert not thread.is_alive()
    return errors[0] if errors else None


@pytest.mark.parametrize(
    ("write", "refused"),
    [
        (MUTATIONS["insert a node"], False),
        (MUTATIONS["replace a node"], False),
        (LOADS["load merge"], False),
        (MUTATIONS["update nodes"], True),
        (MUTATIONS["delete a node and its edges"], True),
        (Load(CHANGED, "overwrite"), True),
    ],
)
def test_a_write_staged_before_another_one_repeats_or_is_refused(
    write: Write, refused: bool, seeded: Path, scratch: Path
) -> None:
    root = copy_graph(seeded, scratch / "graph")
    graph, other = connect(root), connect(root)
    with configured(f"{failpoints.MUTATION_POST_STAGE}=1*pause") as plan:
        error = meanwhile(
            plan,
            failpoints.MUTATION_POST_STAGE,
            lambda: write.again(graph),
            lambda: other.mutate('query q() { insert Person { name: "other" } }'),
        )
    assert isinstance(error, ExpectedVersionMismatchError) if refused else error is None
    assert "other" in str(content_of(graph)["main/node:Person"])
    check_recovered(root, (content_of(graph),))


LONE = Mutation('insert Person { name: "lone" }')
TO_LONE = Mutation('insert Knows { from: "ann", to: "lone" }')
WITHOUT_LONE = Mutation('delete Person where name = "lone"')


def test_a_publish_whose_expectations_broke_after_the_check_is_refused(seeded: Path, scratch: Path) -> None:
    root = copy_graph(seeded, scratch / "graph")
    LONE.run(root)
    graph, other = connect(root), connect(root)
    with configured(f"{failpoints.PUBLISH_AFTER_PRECHECK}=1*pause") as plan:
        error = meanwhile(
            plan, failpoints.PUBLISH_AFTER_PRECHECK, lambda: TO_LONE.again(graph), lambda: WITHOUT_LONE.again(other)
        )
    assert isinstance(error, ConstraintError), "the endpoint is gone, so the edge must not appear"
    assert "lone" not in str(content_of(graph))
    check_recovered(root, (content_of(graph),))


@pytest.mark.parametrize("dies", [False, True], ids=["return", "exit"])
def test_a_refused_publish_is_undone_and_never_finished(dies: bool, seeded: Path, scratch: Path) -> None:
    root = copy_graph(seeded, scratch / "graph")
    before = content_of(connect(root))
    LONE.run(root)
    if dies:
        assert crash_at_failpoint(Raced(TO_LONE), root, f"{failpoints.PUBLISH_REJECTED}=exit")
    else:
        with pytest.raises(ConstraintError):
            Raced(TO_LONE).run(root)
    check_recovered(root, (before,))
    assert [row.kind for row in audited(root)] == [BACK]


class Raced:
    """A write during whose publish somebody deletes what it was checked against."""

    def __init__(self, write: Mutation) -> None:
        self.write = write

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        inner = failpoints.install(None)
        done = False

        def plan(name: str) -> None:
            nonlocal done
            if name == failpoints.MUTATION_POST_FINALIZE and not done:
                done = True
                WITHOUT_LONE.run(graph.uri)
            elif inner is not None:
                inner(name)

        failpoints.install(plan)
        try:
            self.write.again(graph)
        finally:
            failpoints.install(inner)


def test_recovery_does_not_finish_what_its_writer_finished_meanwhile(seeded: Path, scratch: Path) -> None:
    root = copy_graph(seeded, scratch / "graph")
    graph, other = connect(root), connect(root)
    with configured(f"{failpoints.MUTATION_POST_FINALIZE}=1*pause") as plan:
        error = meanwhile(
            plan,
            failpoints.MUTATION_POST_FINALIZE,
            lambda: MULTI.again(graph),
            lambda: other.refresh(),
        )
    assert error is None
    assert audited(root) == []


@pytest.mark.parametrize("name", [failpoints.RECOVERY_POST_LIST, failpoints.SIDECAR_LISTED])
def test_a_writer_that_finishes_while_it_is_looked_at_is_skipped(name: str, seeded: Path, scratch: Path) -> None:
    graph = connect(copy_graph(seeded, scratch / "graph"))
    recovery = graph.context.recovery
    with configured(f"{failpoints.SIDECAR_DELETE}=1*return"):
        MULTI.again(graph)
    [operation_id] = recovery.intents.list()
    with configured(f"{name}=1*pause") as plan:
        error = meanwhile(plan, name, graph.refresh, lambda: recovery.intents.disarm(operation_id))
    assert error is None
    assert audited(graph.uri) == []


def test_recovery_converges_when_the_manifest_moves_under_it(interrupted: dict[str, Path], scratch: Path) -> None:
    root = copy_graph(interrupted["after all tables"], scratch / "graph")
    name = failpoints.RECOVERY_BEFORE_FORWARD
    reader = connect(root, read_only=True).context
    from omnigraph.engine.manifest.delta import Lineage
    from omnigraph.ids import CommitId, new_ulid, now_micros

    with configured(f"{name}=1*pause") as plan:
        error = meanwhile(
            plan,
            name,
            lambda: connect(root),
            lambda: reader.manifest.publish("main", [], lineage=Lineage(CommitId(new_ulid()), "other", now_micros())),
        )
    assert error is None
    assert [row.kind for row in audited(root)] == [FORWARD]
    assert "eve" in str(content_of(connect(root))["main/node:Person"])


# --- creating a graph ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [failpoints.INIT_AFTER_SCHEMA_WRITTEN, failpoints.INIT_AFTER_CONTRACT_WRITTEN])
def test_a_creation_that_fails_before_the_graph_exists_leaves_nothing(name: str, scratch: Path) -> None:
    root = scratch / "graph"
    with configured(f"{name}=1*return"), pytest.raises(InjectedFailure):
        create(root, SCHEMA)
    assert [path for path in root.rglob("*") if path.is_file()] == []
    assert create(root, SCHEMA).snapshot().entries
    shutil.rmtree(root)
    assert crash_at_failpoint(Create(), str(root), f"{name}=exit")
    with pytest.raises(AlreadyExistsError):
        create(root, SCHEMA)
    assert create(root, SCHEMA, force=True).snapshot().entries


@pytest.mark.parametrize(
    "name",
    [failpoints.INIT_MANIFEST_ACK_LOST, failpoints.INIT_POST_MANIFEST_CREATE, failpoints.INIT_AFTER_COORDINATOR],
)
@pytest.mark.parametrize("dies", [False, True], ids=["return", "exit"])
def test_a_creation_that_fails_after_the_graph_exists_is_completed(name: str, dies: bool, scratch: Path) -> None:
    root = scratch / "graph"
    if dies:
        assert crash_at_failpoint(Create(), str(root), f"{name}=exit")
    else:
        with configured(f"{name}=1*return"), pytest.raises(InjectedFailure):
            create(root, SCHEMA)
    graph = connect(root)
    Load(WHOLE.replace(b'"bob"', b'"ann"').splitlines()[1] + b"\n", "append").again(graph)
    assert verify(graph.context).clean
    assert not (root / "__init_claim.json").exists()
    with pytest.raises(AlreadyExistsError):
        create(root, SCHEMA, force=True)


# --- the projection --------------------------------------------------------------------------------------------------


def test_commits_are_complete_although_the_commit_table_cannot_be_written(
    seeded: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.engine.manifest.publish.COMMIT_WINDOW", 4)
    monkeypatch.setattr("omnigraph.engine.manifest.publish.COMMITS_KEPT", 2)
    monkeypatch.setattr("omnigraph.engine.manifest.publish.ARCHIVE_EVERY", 1)
    graph = connect(copy_graph(seeded, scratch / "graph"))
    with configured(f"{failpoints.PUBLISH_BEFORE_PROJECTION}=return") as plan:
        for _ in range(5):
            MUTATIONS["insert a keyless node"].again(graph)
        assert plan.hits(failpoints.PUBLISH_BEFORE_PROJECTION)
    assert len(graph.history.list()) == 8
    for _ in range(3):
        MUTATIONS["insert a keyless node"].again(graph)
    assert len(graph.history.list()) == 11
    assert len(graph.snapshot().state.commits) < 11
    assert verify(graph.context).clean
