"""`verify` sees every kind of damage; `repair` and `cleanup` touch only what they may."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path

import pytest
from tests.unit.engine.recovery.handwriter import COMPANY, PERSON, SCHEMA, WORKS_AT, HandWriter, names_in

from omnigraph.catalog.indexes import declared_indexes
from omnigraph.engine.manifest.delta import Lineage, UpdateTable
from omnigraph.engine.operations.cleanup import cleanup, removable
from omnigraph.engine.operations.optimize import optimize
from omnigraph.engine.operations.repair import Classification, RepairAction, repair
from omnigraph.engine.operations.verify import verify
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.maintenance import index_gaps
from omnigraph.engine.storage.staged import stage_changes, stage_touch
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import DriftError, InputError, RecoveryRequiredError, StorageError
from omnigraph.graph import create
from omnigraph.ids import FORCED_REPAIR_ACTOR, MAIN, REPAIR_ACTOR, CommitId, TableKey, new_ulid, now_micros
from omnigraph.testing.failpoints import configured

SWEEP = import_module("omnigraph.engine.recovery.sweep")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SWEEP, "IN_FLIGHT_WAIT_SECONDS", 0.05)


@pytest.fixture
def context(tmp_path: Path) -> GraphContext:
    return create(tmp_path / "graph", SCHEMA).context


def write(context: GraphContext, key: TableKey, *names: str) -> None:
    writer = HandWriter.arm(context.recovery, key)
    writer.apply(key, *names)
    writer.publish()
    writer.disarm()


def foreign(context: GraphContext, key: TableKey, *names: str) -> None:
    """Another program appends rows and tells nobody."""
    base = context.store.open(context.manifest.snapshot().entry(key).path)
    columns = {field.name: list(names) for field in base.schema}
    staged = stage_changes(base, new_rows=base.schema.empty_table().from_pydict(columns))
    assert staged is not None
    context.store.commit(base, staged, {})


def publish_head(context: GraphContext, key: TableKey, rows: int | None = None) -> None:
    entry = context.manifest.snapshot().entry(key)
    head = context.store.open(entry.path)
    context.manifest.publish(
        MAIN,
        [UpdateTable(key, head.version, None, head.count_rows() if rows is None else rows)],
        lineage=Lineage(CommitId(new_ulid()), None, now_micros()),
    )


def test_a_healthy_graph_verifies_clean(context: GraphContext) -> None:
    write(context, PERSON, "ann", "bob")
    report = verify(context)
    assert report.problems == report.notes == []
    assert (report.tables, report.rows, report.commits) == (3, 2, 2)


def _duplicate(context: GraphContext) -> None:
    foreign(context, PERSON, "ann", "ann")
    publish_head(context, PERSON)


def _dangling(context: GraphContext) -> None:
    foreign(context, WORKS_AT, "nobody")
    publish_head(context, WORKS_AT)


def _row_count(context: GraphContext) -> None:
    foreign(context, PERSON, "ann")
    publish_head(context, PERSON, rows=7)


def _drift(context: GraphContext) -> None:
    foreign(context, PERSON, "ann")


def _dead_intent(context: GraphContext) -> None:
    HandWriter.arm(context.recovery, PERSON).die()


def _corrupt_intent(context: GraphContext) -> None:
    context.store.objects.write_text("__recovery/01X.json", "{")


def _orphan_table(context: GraphContext) -> None:
    path = context.manifest.snapshot().entry(PERSON).path
    context.store.create("nodes/0000000000000000", context.store.open(path).schema)


def _orphan_fork(context: GraphContext) -> None:
    entry = context.manifest.snapshot().entry(PERSON)
    context.store.residual.create_branch(entry.path, "gone", source=None, version=entry.version)


def _staging_file(context: GraphContext) -> None:
    context.store.objects.write_text("_schema.pg.staging", "")


def _lost_version(context: GraphContext) -> None:
    write(context, PERSON, "ann")
    entry = context.manifest.snapshot().entry(PERSON)
    touched = context.store.open(entry.path)
    context.store.commit(touched, stage_touch(touched), {})
    context.store.residual.cleanup_versions(entry.path, versions=[entry.version])
    context.store.forget()


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (_duplicate, "duplicate-id"),
        (_dangling, "dangling-edge"),
        (_row_count, "row-count"),
        (_drift, "drift"),
        (_dead_intent, "intent"),
        (_corrupt_intent, "intent"),
        (_orphan_table, "orphan-table"),
        (_orphan_fork, "orphan-fork"),
        (_staging_file, "staging-file"),
        (_lost_version, "version"),
    ],
)
def test_verify_reports_damage(context: GraphContext, damage: Callable[[GraphContext], None], code: str) -> None:
    damage(context)
    report = verify(context)
    # A ref that no branch publishes harms nobody and goes with the next cleanup; everything else needs somebody.
    findings = report.notes if code == "orphan-fork" else report.problems
    assert code in [finding.code for finding in findings]


def test_a_writer_in_flight_is_a_note(context: GraphContext) -> None:
    writer = HandWriter.arm(context.recovery, PERSON)
    writer.apply(PERSON, "ann")
    report = verify(context)
    assert report.clean
    assert [note.code for note in report.notes] == ["intent", "drift"]
    writer.publish()
    writer.disarm()


# --- repair ----------------------------------------------------------------------------------------------------------


def test_repair_previews_and_refuses_rows_nobody_vouches_for(context: GraphContext) -> None:
    foreign(context, PERSON, "ann")
    before = context.manifest.snapshot().version
    by_key = {table.table_key: table for table in repair(context).tables}
    assert by_key[PERSON].classification is Classification.SUSPICIOUS
    assert by_key[PERSON].action is RepairAction.PREVIEW
    assert by_key[COMPANY].action is RepairAction.NO_OP
    report = repair(context, confirm=True)
    assert report.refused
    assert context.manifest.snapshot().version == before


def test_repair_publishes_by_force_and_discards_on_demand(context: GraphContext) -> None:
    foreign(context, PERSON, "ann")
    report = repair(context, confirm=True, force=True)
    assert names_in(context.recovery, PERSON) == ["ann"]
    assert report.commit_id is not None
    assert context.manifest.history.find(report.commit_id).actor_id == FORCED_REPAIR_ACTOR
    foreign(context, PERSON, "bob")
    repair(context, confirm=True, discard=True)
    assert names_in(context.recovery, PERSON) == ["ann"]
    assert verify(context).clean


def test_repair_publishes_maintenance_without_force(context: GraphContext) -> None:
    for name in ("ann", "bob", "cid"):
        write(context, PERSON, name)
    entry = context.manifest.snapshot().entry(PERSON)
    handle = context.store.open(entry.path)
    handle.dataset.optimize.compact_files()
    report = repair(context, confirm=True)
    row = next(table for table in report.tables if table.table_key == PERSON)
    assert (row.classification, row.action) == (Classification.VERIFIED_MAINTENANCE, RepairAction.HEALED)
    assert report.commit_id is not None
    assert context.manifest.history.find(report.commit_id).actor_id == REPAIR_ACTOR
    assert verify(context).clean


@pytest.mark.parametrize(
    "flags", [{"force": True}, {"discard": True}, {"confirm": True, "force": True, "discard": True}]
)
def test_repair_refuses_contradicting_flags(context: GraphContext, flags: dict[str, bool]) -> None:
    with pytest.raises(InputError):
        repair(context, **flags)


def test_maintenance_refuses_to_run_beside_an_unfinished_write(context: GraphContext) -> None:
    writer = HandWriter.arm(context.recovery, PERSON)
    for operation in (lambda: repair(context), lambda: cleanup(context, keep_versions=1)):
        with pytest.raises(RecoveryRequiredError, match=writer.intent.operation_id):
            operation()
    writer.disarm()


def test_maintenance_waits_for_a_writer_that_is_about_to_finish(
    context: GraphContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SWEEP, "IN_FLIGHT_WAIT_SECONDS", 10.0)
    writer = HandWriter.arm(context.recovery, PERSON)
    threading.Timer(0.1, writer.disarm).start()
    assert repair(context).commit_id is None
    assert context.recovery.intents.list() == []


# --- cleanup ---------------------------------------------------------------------------------------------------------


def test_cleanup_keeps_what_it_is_told_and_what_is_published(context: GraphContext) -> None:
    for name in ("ann", "bob", "cid", "dan"):
        write(context, PERSON, name)
    report = cleanup(context, keep_versions=2)
    path = context.manifest.snapshot().entry(PERSON).path
    assert context.store.versions(path) == [4, 5]
    assert not report.failed
    assert next(row for row in report.tables if row.table_key == PERSON).old_versions_removed == 3
    assert names_in(context.recovery, PERSON) == ["ann", "bob", "cid", "dan"]
    assert verify(context).clean
    write(context, PERSON, "eve")


def test_cleanup_never_removes_what_a_lazy_branch_reads(context: GraphContext) -> None:
    write(context, PERSON, "ann")
    context.store.residual.create_branch(
        "__manifest", "review", source=None, version=context.manifest.snapshot().version
    )
    for name in ("bob", "cid"):
        write(context, PERSON, name)
    cleanup(context, keep_versions=1)
    assert context.manifest.snapshot("review").open(PERSON).scan(["id"])["id"].to_pylist() == ["ann"]


def test_cleanup_removes_refs_that_no_branch_publishes(context: GraphContext) -> None:
    _orphan_fork(context)
    report = cleanup(context, older_than=timedelta(days=1))
    assert next(row for row in report.tables if row.table_key == PERSON).forks_removed == ("gone",)
    assert verify(context).clean


def test_a_ref_that_cannot_be_removed_is_removed_by_the_next_run(context: GraphContext) -> None:
    _orphan_fork(context)
    with configured("cleanup.reconcile_fork=1*return"):
        report = cleanup(context, older_than=timedelta(days=1))
    assert report.failed
    assert next(row for row in report.tables if row.table_key == PERSON).forks_removed == ()
    assert not cleanup(context, older_than=timedelta(days=1)).failed
    assert verify(context).clean


def test_cleanup_refuses_without_a_bound_and_on_drift(context: GraphContext) -> None:
    with pytest.raises(InputError):
        cleanup(context)
    with pytest.raises(InputError):
        cleanup(context, keep_versions=0)
    foreign(context, PERSON, "ann")
    with pytest.raises(DriftError):
        cleanup(context, keep_versions=1)


def test_one_tables_failure_does_not_stop_the_others(context: GraphContext) -> None:
    for name in ("ann", "bob"):
        write(context, PERSON, name)
    with configured("cleanup.table_gc=1*return"):
        report = cleanup(context, keep_versions=1)
    assert [row.table_key for row in report.tables if row.error] == [WORKS_AT]
    assert next(row for row in report.tables if row.table_key == PERSON).old_versions_removed == 2


def test_an_unreadable_branch_stops_cleanup_before_anything_is_removed(context: GraphContext) -> None:
    for name in ("ann", "bob"):
        write(context, PERSON, name)
    with configured("cleanup.resolve_branch_snapshot=return"), pytest.raises(StorageError):
        cleanup(context, keep_versions=1)
    assert context.store.versions(context.manifest.snapshot().entry(PERSON).path) == [1, 2, 3]


def test_an_intent_that_appears_late_stops_cleanup(context: GraphContext) -> None:
    write(context, PERSON, "ann")
    armed: list[HandWriter] = []

    def arm(name: str) -> None:
        if name == "cleanup.post_recovery_check_pre_gates":
            armed.append(HandWriter.arm(context.recovery, PERSON))

    from omnigraph import failpoints

    previous = failpoints.install(arm)
    try:
        with pytest.raises(RecoveryRequiredError):
            cleanup(context, keep_versions=1)
    finally:
        failpoints.install(previous)
    armed[0].disarm()
    assert context.store.versions(context.manifest.snapshot().entry(PERSON).path) == [1, 2]


def test_which_versions_may_go() -> None:
    now = datetime(2026, 1, 10, tzinfo=UTC)
    times = {version: datetime(2026, 1, version, tzinfo=UTC) for version in (1, 2, 3, 5, 8)}
    assert removable(times, [8], 1, None, now) == [1, 2, 3, 5]
    assert removable(times, [8], 3, None, now) == [1, 2]
    assert removable(times, [8, 3], 1, None, now) == [1, 2]
    assert removable(times, [8], None, timedelta(days=7), now) == [1, 2, 3]
    assert removable(times, [8], 4, timedelta(days=7), now) == [1]
    assert removable(times, [], 1, None, now) == []


def test_cleanup_keeps_what_a_tag_names(context: GraphContext) -> None:
    for name in ("a", "b", "c", "d", "e"):
        write(context, PERSON, name)
    path = context.manifest.snapshot().entry(PERSON).path
    old = context.manifest.snapshot(MAIN, version=context.manifest.snapshot().version - 2)
    context.store.open(layout.MANIFEST).dataset.tags.create("release", old.version)
    context.store.open(path).dataset.tags.create("mine", 2)
    cleanup(context, keep_versions=1)
    kept = context.store.versions(path)
    assert kept == [2, old.entry(PERSON).version, context.manifest.snapshot().entry(PERSON).version]
    assert sorted(old.open(PERSON).scan(["id"])["id"].to_pylist()) == ["a", "b", "c"]
    context.store.open(layout.MANIFEST).dataset.tags.delete("release")
    context.store.open(path).dataset.tags.delete("mine")
    cleanup(context, keep_versions=1)
    assert context.store.versions(path) == kept[-1:]


def test_optimizing_again_and_again_keeps_ids_and_versions_of_every_row(context: GraphContext) -> None:
    versions = ["id", "_row_created_at_version", "_row_last_updated_at_version"]

    def identities() -> list[dict[str, object]]:
        rows = context.manifest.snapshot().open(PERSON).scan(versions, with_row_id=True)
        return sorted(rows.to_pylist(), key=lambda row: str(row["id"]))

    for round_number in range(3):
        for number in range(6):
            write(context, PERSON, f"p{round_number}-{number}")
        before = identities()
        report = optimize(context)
        done = next(table for table in report.tables if table.table_key == PERSON)
        assert done.committed
        assert done.fragments_removed
        assert identities() == before, "rows that an index covered are no exception"
    handle = context.manifest.snapshot().open(PERSON)
    assert not index_gaps(handle, declared_indexes(context.catalog.tables[PERSON]))
    assert verify(context).clean


def test_optimize_says_what_it_indexed_and_what_cannot_be(tmp_path: Path) -> None:
    graph = create(
        tmp_path / "g",
        "node A { k: String @key  title: String @index  none: Vector(2)? @index  far: Vector(2)? @index"
        "  v: Vector(2)? @index }",
    )
    rows = [{"k": str(i), "title": "x", "far": [1e30, 1.0], "v": [float(i), 1.0]} for i in range(5)]
    graph.load([{"type": "A", "data": row} for row in rows])
    report = graph.maintenance.optimize()
    table = report.tables[0]
    assert report.commit_id is not None
    assert sorted(table.indexes_built) == ["id", "k", "title", "v"], "each once, also the key, which has two indexes"
    waiting = {index.column: index.reason for index in table.pending_indexes}
    assert waiting.keys() == {"none", "far"}
    assert "no vectors" in waiting["none"]
    assert "too large" in waiting["far"]
    assert graph.maintenance.optimize().commit_id is None
