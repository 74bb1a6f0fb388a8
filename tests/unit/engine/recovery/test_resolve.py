"""What becomes of a write, by where it stopped and who left it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.engine.recovery.handwriter import COMPANY, PERSON, SCHEMA, HandWriter, names_in, reopen

from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.commit.drift import DriftKind, check, find_drift, undo_late
from omnigraph.engine.coordination.intent import Effect, WriterKind, new_intent
from omnigraph.engine.manifest.delta import Lineage, UpdateTable
from omnigraph.engine.recovery import RecoveryContext, audit, heal, roll_back, sweep, was_published
from omnigraph.engine.recovery.audit import AuditRow
from omnigraph.engine.recovery.decide import Action, RecoveryKind
from omnigraph.engine.schema.files import stage_files, staged_record
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.staged import stage_changes
from omnigraph.errors import ConflictError, DriftError, ExpectedVersionMismatchError, InternalError
from omnigraph.graph import Graph, connect
from omnigraph.ids import MAIN, RECOVERY_ACTOR, CommitId, TableKey, new_ulid, now_micros


def settled(ctx: RecoveryContext, writer: HandWriter) -> AuditRow:
    """The checks every resolved write must pass; returns its audit row."""
    assert ctx.intents.list() == []
    assert ctx.store.objects.list_dir("__recovery") == []
    snapshot = ctx.manifest.snapshot(MAIN)
    for entry in snapshot.entries.values():
        assert ctx.store.open(entry.path).version == entry.version, entry.table_key
    rows = [row for row in audit.rows(ctx.store) if row.operation_id == writer.intent.operation_id]
    assert len(rows) == 1
    commit = ctx.manifest.history.find(rows[0].commit_id)
    assert commit.actor_id == RECOVERY_ACTOR
    assert rows[0].actor == writer.intent.actor_id
    before = snapshot.version, len(audit.rows(ctx.store))
    assert heal(ctx) == sweep(ctx) == []
    assert (ctx.manifest.snapshot(MAIN).version, len(audit.rows(ctx.store))) == before
    return rows[0]


def test_a_write_that_died_before_its_first_effect_leaves_nothing(ctx: RecoveryContext) -> None:
    writer = HandWriter.arm(ctx, PERSON)
    writer.die()
    [resolution] = heal(ctx)
    assert (resolution.action, resolution.outcome) == (Action.ROLL_BACK, RecoveryKind.ROLLED_BACK)
    assert settled(ctx, writer).outcomes == ()
    assert names_in(ctx, PERSON) == []


def test_a_write_with_every_effect_applied_is_finished(ctx: RecoveryContext) -> None:
    writer = HandWriter.arm(ctx, COMPANY, PERSON)
    writer.apply(COMPANY, "acme")
    writer.apply(PERSON, "ann")
    writer.die()
    [resolution] = heal(ctx)
    assert (resolution.action, resolution.outcome) == (Action.ROLL_FORWARD, RecoveryKind.ROLLED_FORWARD)
    assert names_in(ctx, PERSON) == ["ann"]
    assert names_in(ctx, COMPANY) == ["acme"]
    row = settled(ctx, writer)
    assert row.commit_id == writer.intent.commit_id
    assert [(o.table_key, o.from_version, o.to_version) for o in row.outcomes] == [(COMPANY, 1, 2), (PERSON, 1, 2)]


def test_a_write_with_some_effects_applied_is_undone_in_the_living_process(ctx: RecoveryContext) -> None:
    writer = HandWriter.arm(ctx, COMPANY, PERSON)
    writer.apply(COMPANY, "acme")
    writer.die()
    [resolution] = heal(ctx)
    assert (resolution.action, resolution.outcome) == (Action.ROLL_BACK, RecoveryKind.ROLLED_BACK)
    assert names_in(ctx, COMPANY) == []
    row = settled(ctx, writer)
    assert [(o.table_key, o.from_version, o.to_version) for o in row.outcomes] == [(COMPANY, 2, 1)]
    again = HandWriter.arm(ctx, COMPANY)
    again.apply(COMPANY, "acme")
    again.publish()
    again.disarm()
    assert names_in(ctx, COMPANY) == ["acme"]


def test_a_write_published_but_not_disarmed_is_only_recorded(ctx: RecoveryContext) -> None:
    writer = HandWriter.arm(ctx, PERSON)
    writer.apply(PERSON, "ann")
    writer.publish()
    writer.die()
    [resolution] = heal(ctx)
    assert (resolution.action, resolution.outcome) == (Action.STALE, RecoveryKind.ROLLED_FORWARD)
    assert names_in(ctx, PERSON) == ["ann"]
    assert settled(ctx, writer).commit_id != writer.intent.commit_id
    assert was_published(ctx, writer.intent)


def test_a_dead_process_of_this_machine_is_taken_over_at_once(ctx: RecoveryContext) -> None:
    writer = HandWriter.arm(ctx, COMPANY, PERSON)
    writer.apply(COMPANY, "acme")
    writer.die_here_as_other_process()
    heal(ctx)
    assert settled(ctx, writer).kind is RecoveryKind.ROLLED_BACK


def test_a_living_writer_is_left_alone(ctx: RecoveryContext, graph: Graph) -> None:
    writer = HandWriter.arm(ctx, PERSON)
    writer.apply(PERSON, "ann")
    assert heal(ctx) == []
    assert reopen(graph).context.recovery.intents.list() == [writer.intent.operation_id]
    writer.publish()
    writer.disarm()
    assert names_in(ctx, PERSON) == ["ann"]
    assert audit.rows(ctx.store) == []


def test_a_leased_writer_elsewhere_is_left_alone_and_taken_over_when_silent(ctx: RecoveryContext) -> None:
    writer = HandWriter.arm(ctx, COMPANY, PERSON)
    writer.apply(COMPANY, "acme")
    writer.live_elsewhere()
    assert heal(ctx) == []
    writer.fall_silent_elsewhere()
    heal(ctx)
    assert settled(ctx, writer).kind is RecoveryKind.ROLLED_BACK


def test_a_silent_writers_late_effect_is_refused_on_every_table(ctx: RecoveryContext) -> None:
    writer = HandWriter.arm(ctx, COMPANY, PERSON)
    writer.apply(COMPANY, "acme")
    writer.fall_silent_elsewhere()
    heal(ctx)
    with pytest.raises(ConflictError):
        writer.apply(PERSON, "ann")
    with pytest.raises(ExpectedVersionMismatchError):
        writer.publish()
    assert settled(ctx, writer).kind is RecoveryKind.ROLLED_BACK
    assert names_in(ctx, PERSON) == names_in(ctx, COMPANY) == []


def test_a_silent_writers_late_publish_after_roll_forward_finds_its_own_commit(ctx: RecoveryContext) -> None:
    writer = HandWriter.arm(ctx, PERSON)
    writer.apply(PERSON, "ann")
    writer.fall_silent_elsewhere()
    heal(ctx)
    with pytest.raises(ExpectedVersionMismatchError):
        writer.publish()
    assert was_published(ctx, writer.intent)
    assert names_in(ctx, PERSON) == ["ann"]


def test_a_late_restore_is_drift_that_the_next_writer_takes_away(ctx: RecoveryContext) -> None:
    first = HandWriter.arm(ctx, PERSON)
    first.apply(PERSON, "ann")
    first.fall_silent_elsewhere()
    heal(ctx)
    # The silent writer comes back and undoes what recovery has finished for it.
    effect = first.intent.effects[0]
    ctx.store.restore(effect.table_path, None, effect.expected_version, first.intent.compensation(1))
    assert names_in(ctx, PERSON) == ["ann"]
    [drift] = find_drift(ctx, MAIN, ctx.manifest.snapshot(MAIN).entries.values())
    assert drift.kind is DriftKind.LATE
    resolution = undo_late(ctx, MAIN, drift)
    assert resolution is not None
    assert resolution.settled
    assert names_in(ctx, PERSON) == ["ann"]
    assert settled(ctx, first).kind is RecoveryKind.ROLLED_FORWARD


def test_a_writer_undoes_its_own_effects_when_its_publish_is_refused(ctx: RecoveryContext) -> None:
    writer = HandWriter.arm(ctx, PERSON, read_set={COMPANY: 1})
    writer.apply(PERSON, "ann")
    other = HandWriter.arm(ctx, COMPANY)
    other.apply(COMPANY, "acme")
    other.publish()
    other.disarm()
    with pytest.raises(ExpectedVersionMismatchError):
        writer.publish()
    resolution = roll_back(ctx, writer.intent)
    assert resolution is not None
    assert resolution.outcome is RecoveryKind.ROLLED_BACK
    assert not was_published(ctx, writer.intent)
    assert settled(ctx, writer).kind is RecoveryKind.ROLLED_BACK
    assert names_in(ctx, PERSON) == []


def test_a_write_whose_read_set_changed_is_never_finished(ctx: RecoveryContext) -> None:
    writer = HandWriter.arm(ctx, PERSON, read_set={COMPANY: 1})
    writer.apply(PERSON, "ann")
    other = HandWriter.arm(ctx, COMPANY)
    other.apply(COMPANY, "acme")
    other.publish()
    other.disarm()
    writer.die()
    heal(ctx)
    assert settled(ctx, writer).kind is RecoveryKind.ROLLED_BACK


def test_a_change_of_the_schema_does_not_undo_again_what_others_have_settled(ctx: RecoveryContext) -> None:
    intent = ctx.intents.arm(new_intent(WriterKind.SCHEMA_APPLY, None, ()))
    objects = ctx.intents.objects
    objects.delete(f"{layout.RECOVERY_DIR}/{intent.operation_id}.json")
    stage_files(objects, SCHEMA, compile_schema(SCHEMA))
    assert roll_back(ctx, intent) is None
    assert not ctx.intents.exists(intent.operation_id)
    assert staged_record(objects) is not None, "the next change has staged it"


def test_rolling_back_a_write_whose_publish_landed_reports_that_it_stands(ctx: RecoveryContext) -> None:
    writer = HandWriter.arm(ctx, PERSON)
    writer.apply(PERSON, "ann")
    writer.publish()
    resolution = roll_back(ctx, writer.intent)
    assert resolution is not None
    assert resolution.outcome is RecoveryKind.ROLLED_FORWARD
    assert names_in(ctx, PERSON) == ["ann"]
    settled(ctx, writer)


def test_an_intent_on_a_branch_that_is_gone_is_discarded(ctx: RecoveryContext) -> None:
    entry = ctx.manifest.snapshot(MAIN).entry(PERSON)
    effect = Effect.on(PERSON, entry.path, entry.version, branch="gone")
    intent = ctx.intents.arm(new_intent(WriterKind.MUTATION, "gone", (effect,), actor_id="act-bob"))
    ctx.intents.abandon(intent.operation_id)
    [resolution] = heal(ctx)
    assert resolution.action is Action.DISCARD
    [row] = audit.rows(ctx.store)
    assert row.kind is RecoveryKind.ORPHANED_BRANCH_DISCARDED
    assert ctx.manifest.history.find(row.commit_id).manifest_branch is None
    assert ctx.intents.list() == []


def test_two_intents_on_one_table_are_resolved_one_after_the_other(ctx: RecoveryContext) -> None:
    first = HandWriter.arm(ctx, PERSON)
    second = HandWriter.arm(ctx, COMPANY, PERSON)
    first.apply(PERSON, "ann")
    second.apply(COMPANY, "acme")
    with pytest.raises(ConflictError):
        second.apply(PERSON, "bob")
    first.die()
    second.die()
    heal(ctx)
    assert settled(ctx, first).kind is RecoveryKind.ROLLED_FORWARD
    assert settled(ctx, second).kind is RecoveryKind.ROLLED_BACK
    assert names_in(ctx, PERSON) == ["ann"]
    assert names_in(ctx, COMPANY) == []


@pytest.mark.parametrize("foreign_first", [False, True])
def test_recovery_never_restores_through_a_foreign_commit(ctx: RecoveryContext, foreign_first: bool) -> None:
    writer = HandWriter.arm(ctx, COMPANY, PERSON)

    def foreign() -> None:
        base = ctx.store.open(ctx.manifest.snapshot(MAIN).entry(PERSON).path)
        staged = stage_changes(base, new_rows=base.schema.empty_table().from_pydict({"id": ["x"], "name": ["x"]}))
        assert staged is not None
        ctx.store.commit(base, staged, {})

    if foreign_first:
        foreign()
        with pytest.raises(ConflictError):
            writer.apply(PERSON, "ann")
    else:
        writer.apply(PERSON, "ann")
        foreign()
    writer.die()
    resolutions = heal(ctx)
    if foreign_first:
        # Nothing of ours is on the table: the write ends, and the stranger's commit is left for `repair`.
        assert [resolution.outcome for resolution in resolutions] == [RecoveryKind.ROLLED_BACK]
        kind = DriftKind.FOREIGN
    else:
        assert [resolution.action for resolution in resolutions] == [Action.DEFER]
        kind = DriftKind.PENDING
    [drift] = find_drift(ctx, MAIN, [ctx.manifest.snapshot(MAIN).entry(PERSON)])
    assert drift.kind is kind


def test_the_drift_guard_says_what_to_do(ctx: RecoveryContext) -> None:
    def message() -> str:
        with pytest.raises(DriftError) as caught:
            check(ctx, MAIN, [ctx.manifest.snapshot(MAIN).entry(TableKey("node:Person"))])
        return str(caught.value)

    writer = HandWriter.arm(ctx, PERSON)
    writer.apply(PERSON, "ann")
    assert "another writer is committing to it" in message()
    writer.live_elsewhere()
    assert "another writer is committing to it" in message()
    writer.die_here_as_other_process()
    assert "a pending recovery sidecar requires rollback — reopen the graph read-write" in message()
    ctx.store.objects.delete(f"__recovery/{writer.intent.operation_id}.json")
    assert "run `omnigraph repair` before writing" in message()
    ctx.store.objects.write_text("__recovery/01BROKEN.json", "{")
    text = message()
    assert "could not be listed" in text
    assert "omnigraph repair" in text
    assert "reopen" in text


def test_an_intent_that_turns_up_again_long_afterwards_is_removed(ctx: RecoveryContext) -> None:
    writer = HandWriter.arm(ctx, COMPANY, PERSON)
    writer.apply(COMPANY, "acme")
    writer.fall_silent_elsewhere()
    heal(ctx)
    for number in range(3):
        again = HandWriter.arm(ctx, COMPANY, PERSON)
        again.apply(COMPANY, f"c{number}")
        again.apply(PERSON, f"p{number}")
        again.publish()
        again.disarm()
    for key in (COMPANY, PERSON):
        entry = ctx.manifest.snapshot(MAIN).entry(key)
        ctx.store.residual.cleanup_versions(entry.path, versions=range(1, entry.version))
    # The writer wakes up and marks its intent as aborted, which brings the file back.
    ctx.intents._rewrite(replace(writer.intent, aborted=True))
    heal(ctx)
    assert settled(ctx, writer).kind is RecoveryKind.ROLLED_BACK
    assert names_in(ctx, PERSON) == ["p0", "p1", "p2"]


def test_a_head_below_what_is_published_stops_writers_and_is_never_repaired_by_guessing(
    ctx: RecoveryContext, graph: Graph
) -> None:
    writer = HandWriter.arm(ctx, PERSON)
    ctx.manifest.publish(
        MAIN,
        [UpdateTable(PERSON, 7, None, 0)],
        lineage=Lineage(CommitId(new_ulid()), None, now_micros()),
    )
    writer.die()
    [resolution] = heal(ctx)
    assert resolution.action is Action.DEFER
    with pytest.raises(InternalError, match="InvariantViolation"):
        reopen(graph)
    assert ctx.intents.list() == [writer.intent.operation_id]
    entry = ctx.manifest.snapshot(MAIN).entry(PERSON)
    with pytest.raises(InternalError, match="below the published 7"):
        check(ctx, MAIN, [entry], {PERSON: ctx.store.open(entry.path).version})
    assert connect(graph.uri, read_only=True).snapshot().entry(PERSON).version == 7
