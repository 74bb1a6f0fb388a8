"""Carry out what was decided about one intent: publish it, undo it, or record that it is settled.

Every visible step is a publish that demands the versions the decision was made on. If one of them moved meanwhile the
publish is refused, the world is read again and decided anew; so a decision never outlives the facts behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from msgspec import Struct

from omnigraph.engine.coordination.context import RecoveryContext
from omnigraph.engine.coordination.intent import Intent, WriterKind
from omnigraph.engine.manifest.delta import Change, Lineage, RegisterTable, SetSchema, TombstoneTable, UpdateTable
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery import audit
from omnigraph.engine.recovery.audit import AuditRow, TableOutcome
from omnigraph.engine.recovery.classify import TableState
from omnigraph.engine.recovery.decide import Action, Decision, RecoveryKind, decide
from omnigraph.engine.recovery.forks import drop_fork
from omnigraph.engine.recovery.observe import World, look, situation
from omnigraph.engine.schema.files import discard, promote, staged_record
from omnigraph.engine.storage.staged import stage_touch
from omnigraph.engine.storage.transactions import COMPENSATES, RESTORES
from omnigraph.errors import BranchNotFoundError, ConflictError, InternalError, RecoveryRequiredError
from omnigraph.failpoints import RECOVERY_BEFORE_FORWARD, RECOVERY_POST_RESTORE, RECOVERY_POST_ROLLBACK, maybe_fail
from omnigraph.ids import MAIN, RECOVERY_ACTOR, CommitId, TableKey, new_ulid, now_micros

_log = logging.getLogger(__name__)
_ATTEMPTS = 8


class Resolution(Struct, frozen=True):
    """What became of an intent; `outcome` is None while it is unresolved (deferred)."""

    action: Action
    outcome: RecoveryKind | None

    @property
    def settled(self) -> bool:
        """True when the intent may be removed."""
        return self.outcome is not None


def resolve(
    ctx: RecoveryContext, intent: Intent, *, sweeping: bool = False, may_restore: bool = False, supersede: bool = False
) -> Resolution:
    """Bring one write to its end. The caller holds the claim on it and removes the intent when settled.

    `supersede` also moves tables the write has not touched yet, for a writer that is silent but perhaps not dead: its
    late commits then find their base taken.

    Raises:
        InternalError: the tables contradict what is published, at a read-write open; the intent stays for review.
        RecoveryRequiredError: other writers kept the decision from being carried out.
    """
    for _ in range(_ATTEMPTS):
        world = look(ctx, intent)
        decision = decide(situation(intent, world, sweeping=sweeping, may_restore=may_restore))
        try:
            return _carry_out(ctx, intent, world, decision, supersede)
        except (ConflictError, BranchNotFoundError) as exc:
            _log.info("recovery of %s starts over: %s", intent.operation_id, exc)
    raise RecoveryRequiredError(
        f"the unfinished write {intent.operation_id} could not be resolved: other writers kept its tables moving"
        " — retry",
        operation_id=intent.operation_id,
    )


def _carry_out(ctx: RecoveryContext, intent: Intent, world: World, decision: Decision, supersede: bool) -> Resolution:
    if decision.action is Action.ABORT:
        states = ", ".join(f"{o.effect.table_key}: {s}" for o, s in zip(world.observations, world.states, strict=True))
        raise InternalError(
            f"the unfinished write {intent.operation_id} cannot be resolved ({states}); its sidecar was kept: run"
            " `omnigraph verify`, then review the tables"
        )
    if decision.outcome is None:
        _log.warning("the unfinished write %s needs a read-write open: %s", intent.operation_id, world.states)
        return Resolution(decision.action, None)
    commit_id: CommitId | None
    if decision.action is Action.ROLL_FORWARD:
        commit_id, tables = _roll_forward(ctx, intent, world)
    elif decision.action is Action.ROLL_BACK:
        commit_id, tables = _roll_back(ctx, intent, world, decision.outcome, supersede)
    else:
        commit_id, tables = None, _settled_tables(intent, world, decision.outcome)
    if intent.writer_kind is WriterKind.SCHEMA_APPLY:
        _settle_schema(ctx, intent, decision.outcome)
    _record(ctx, intent, world, decision.outcome, commit_id, tables)
    return Resolution(decision.action, decision.outcome)


# --- forward ---------------------------------------------------------------------------------------------------------


def _roll_forward(ctx: RecoveryContext, intent: Intent, world: World) -> tuple[CommitId, tuple[TableOutcome, ...]]:
    maybe_fail(RECOVERY_BEFORE_FORWARD)
    snapshot = _snapshot(world)
    changes: list[Change] = []
    expected: dict[TableKey, int] = dict(intent.read_set or {})
    disappearing = {gone.table_key for gone in intent.tombstones}
    for seen in world.observations:
        effect = seen.effect
        expected[effect.table_key] = effect.expected_version
        if effect.table_key not in disappearing:
            changes.append(_update(ctx, intent, effect.table_key, effect.table_path, effect.table_branch, seen.head))
    for adopted in intent.adoptions:
        changes.append(
            _update(ctx, intent, adopted.table_key, adopted.table_path, adopted.table_branch, adopted.version)
        )
        expected[adopted.table_key] = adopted.expected_version
    for new in intent.registrations:
        if new.table_key not in snapshot.entries:
            head = ctx.store.open(new.table_path, branch=new.table_branch).version
            changes.append(RegisterTable(new.table_key, new.table_path, new.incarnation))
            changes.append(_update(ctx, intent, new.table_key, new.table_path, new.table_branch, head))
            expected[new.table_key] = snapshot.state.current_version(new.table_key)
    for gone in intent.tombstones:
        if gone.table_key in snapshot.entries:
            changes.append(TombstoneTable(gone.table_key, gone.tombstone_version))
            expected.setdefault(gone.table_key, gone.tombstone_version - 1)
    if intent.writer_kind is WriterKind.SCHEMA_APPLY and (record := staged_record(ctx.store.objects)) is not None:
        changes.append(SetSchema(record))
    commit_id = intent.commit_id or CommitId(new_ulid())
    _publish(ctx, intent, changes, expected, commit_id, finishing=True)
    tables = tuple(TableOutcome(o.effect.table_key, o.effect.expected_version, o.head) for o in world.observations)
    return commit_id, tables


def _settle_schema(ctx: RecoveryContext, intent: Intent, outcome: RecoveryKind) -> None:
    """Let the schema files follow what became of the tables, and remove tables that nobody will ever see."""
    objects = ctx.store.objects
    if not ctx.intents.exists(intent.operation_id):
        return  # Others have settled it while this process stood still, and what is staged by now is theirs.
    if outcome is RecoveryKind.ROLLED_FORWARD:
        promote(objects)
        return
    discard(objects)
    registered = {location.path for location in ctx.manifest.snapshot().state.locations.values()}
    for created in intent.registrations:
        if created.table_path not in registered:
            objects.delete_prefix(created.table_path)


def _update(
    ctx: RecoveryContext, intent: Intent, key: TableKey, path: str, branch: str | None, version: int
) -> UpdateTable:
    """Publish exactly the version that was judged, whatever the head is by now."""
    rows = ctx.store.open(path, branch=branch, version=version).count_rows()
    return UpdateTable(key, version, branch, rows, intent.table_facts(branch))


# --- back ------------------------------------------------------------------------------------------------------------


def _roll_back(
    ctx: RecoveryContext, intent: Intent, world: World, outcome: RecoveryKind, supersede: bool
) -> tuple[CommitId | None, tuple[TableOutcome, ...]]:
    snapshot = _snapshot(world)
    changes: list[Change] = []
    expected: dict[TableKey, int] = {}
    for seen, state in zip(world.observations, world.states, strict=True):
        effect = seen.effect
        if effect.fork:
            _drop_fork(ctx, snapshot.branch, intent, effect.table_key)
            continue
        if state is TableState.NO_MOVEMENT:
            if not (supersede and seen.head == seen.pinned == effect.expected_version):
                continue
            base = ctx.store.open(effect.table_path, branch=effect.table_branch, version=seen.pinned)
            version = ctx.store.commit(base, stage_touch(base), intent.compensation(seen.pinned)).version
        elif state is TableState.COMPENSATED:
            version = seen.head
        else:
            properties = intent.compensation(seen.pinned)
            version = ctx.store.restore(effect.table_path, effect.table_branch, seen.pinned, properties).version
        changes.append(_update(ctx, intent, effect.table_key, effect.table_path, effect.table_branch, version))
        expected[effect.table_key] = seen.pinned
        maybe_fail(RECOVERY_POST_RESTORE)
    tables = _undone_tables(world) if outcome is RecoveryKind.ROLLED_BACK else _settled_tables(intent, world, outcome)
    if not changes:
        return None, tables
    commit_id = CommitId(new_ulid())
    _publish(ctx, intent, changes, expected, commit_id)
    maybe_fail(RECOVERY_POST_ROLLBACK)
    return commit_id, tables


def _drop_fork(ctx: RecoveryContext, branch: str, intent: Intent, table_key: TableKey) -> None:
    """Undo a fork by removing its ref, unless the branch publishes it: then it belongs to somebody else's write."""
    effect = intent.effect(table_key)
    if effect is None or effect.table_branch is None:
        return
    if any(
        other.operation_id != intent.operation_id and _forks(other, table_key, effect.table_branch)
        for other in ctx.intents.pending()
    ):
        return
    # Read after the intents: a write that has none by now has published its fork by now, and it shows here.
    entry = ctx.manifest.snapshot(branch).entries.get(table_key)
    if entry is not None and entry.branch == effect.table_branch:
        return
    drop_fork(ctx, effect.table_path, effect.table_branch)


def _forks(intent: Intent, table_key: TableKey, branch: str) -> bool:
    effect = intent.effect(table_key)
    return effect is not None and effect.fork and effect.table_branch == branch


def _undone_tables(world: World) -> tuple[TableOutcome, ...]:
    return tuple(TableOutcome(seen.effect.table_key, seen.head, seen.pinned) for seen, _ in world.moved())


# --- the record ------------------------------------------------------------------------------------------------------


def _settled_tables(intent: Intent, world: World, outcome: RecoveryKind) -> tuple[TableOutcome, ...]:
    """What an earlier pass, or the writer itself, did to the tables."""
    if outcome is RecoveryKind.ROLLED_FORWARD:
        return tuple(
            TableOutcome(seen.effect.table_key, seen.effect.expected_version, seen.pinned)
            for seen in world.observations
        )
    found = []
    for seen in world.observations:
        undone = [c for c in seen.commits if c.properties.get(COMPENSATES) == intent.operation_id]
        if undone:
            target = int(undone[0].properties.get(RESTORES, seen.effect.expected_version))
            found.append(TableOutcome(seen.effect.table_key, undone[0].version - 1, target))
    return tuple(found)


def _record(
    ctx: RecoveryContext,
    intent: Intent,
    world: World,
    outcome: RecoveryKind,
    commit_id: CommitId | None,
    tables: tuple[TableOutcome, ...],
) -> None:
    if audit.find(ctx.store, intent.operation_id) is not None:
        return
    if commit_id is None and world.commit is not None and world.commit.actor_id == RECOVERY_ACTOR:
        # An earlier pass published this write and died before it could record that.
        commit_id = world.commit.graph_commit_id
    if commit_id is None:
        commit_id = CommitId(new_ulid())
        _publish(ctx, intent, [], {}, commit_id, on_main=world.snapshot is None)
    audit.record(
        ctx.store,
        AuditRow(
            operation_id=intent.operation_id,
            kind=outcome,
            commit_id=commit_id,
            actor=intent.actor_id,
            writer_kind=intent.writer_kind.value,
            outcomes=tables,
            created_at=now_micros(),
        ),
    )


def _publish(
    ctx: RecoveryContext,
    intent: Intent,
    changes: list[Change],
    expected: Mapping[TableKey, int],
    commit_id: CommitId,
    *,
    finishing: bool = False,
    on_main: bool = False,
) -> None:
    merged_parent = intent.merge_source_commit_id if finishing else None
    properties = {**(intent.commit_properties if finishing else {}), "operation_id": intent.operation_id}
    ctx.manifest.publish(
        MAIN if on_main else intent.branch or MAIN,
        changes,
        expected=expected,
        expected_head=intent.expected_head if finishing else None,
        lineage=Lineage(commit_id, RECOVERY_ACTOR, now_micros(), merged_parent, properties),
        operation_id=intent.operation_id,
    )


def _snapshot(world: World) -> Snapshot:
    if world.snapshot is None:
        raise InternalError("a write on a branch that is gone is discarded, not resolved")
    return world.snapshot
