"""Make reads fast again: compact small fragments and complete the declared indexes, as one commit.

The slow work is staged while others write. Then the tables are taken, one strict commit each, the compactions and index
builds follow, and one publish shows everything. Rows that were added meanwhile stay as they are, for the next run; had
others been changed, the work begins again. Content never changes, so a failure anywhere loses only the work.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from omnigraph import failpoints
from omnigraph.catalog.indexes import declared_indexes
from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.engine.manifest.delta import Lineage, UpdateTable
from omnigraph.engine.manifest.records import TableEntry
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery import Effect, Intent, WriterKind, new_intent, roll_back
from omnigraph.engine.recovery.drift import find_drift
from omnigraph.engine.recovery.presence import Presence
from omnigraph.engine.recovery.sweep import refuse_while_pending
from omnigraph.engine.staging.context import GraphContext
from omnigraph.engine.staging.gates import Gates
from omnigraph.engine.staging.settings import strip_main
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.maintenance import (
    index_gaps,
    on_top,
    stage_compaction,
    stage_fence,
    stage_indexes,
    why_untrainable,
)
from omnigraph.engine.storage.staged import StagedWrite
from omnigraph.errors import ConflictError, GraphError, InputError, PublishContentionError, RecoveryRequiredError
from omnigraph.ids import MAIN, CommitId, TableKey, check_actor, now_micros

ATTEMPTS = 5
"""How often the slow work is begun."""
TAKES = 8
"""How often the tables are tried to be taken for one work."""
TAKE_PAUSE_SECONDS = 0.02
CONCURRENCY = 8
DRIFTED = "drift_needs_repair"


@dataclass(frozen=True)
class PendingIndex:
    """A declared index that cannot be built yet; reads do without it."""

    column: str
    reason: str


@dataclass(frozen=True)
class TableReport:
    """What was done to one table."""

    table_key: TableKey
    fragments_removed: int = 0
    fragments_added: int = 0
    committed: bool = False
    skipped: str | None = None
    manifest_version: int = 0
    lance_head_version: int = 0
    indexes_built: tuple[str, ...] = ()
    pending_indexes: tuple[PendingIndex, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The row of the command line's report."""
        row = dict(self.__dict__)
        row["pending_indexes"] = [dict(index.__dict__) for index in self.pending_indexes]
        return row


@dataclass(frozen=True)
class OptimizeReport:
    """What was done to every table, and the commit that shows it; None when there was nothing to do."""

    tables: tuple[TableReport, ...]
    commit_id: CommitId | None = None


@dataclass(frozen=True)
class _Work:
    """What one table needs, staged on its published version."""

    entry: TableEntry
    entity: NodeType | EdgeType
    base: TableHandle
    compaction: StagedWrite | None
    indexes: StagedWrite | None
    has_gaps: bool
    pending: tuple[PendingIndex, ...]

    @property
    def productive(self) -> bool:
        return self.compaction is not None or self.has_gaps

    @property
    def steps(self) -> int:
        return 1 + (self.compaction is not None) + self.has_gaps


def optimize(context: GraphContext, *, actor: str | None = None, concurrency: int = CONCURRENCY) -> OptimizeReport:
    """Compact tables and complete indexes on main.

    Raises:
        RecoveryRequiredError: a write is unfinished.
        ConflictError: writers kept changing the tables; nothing was published.
    """
    check_actor(actor)
    if context.read_only:
        raise InputError("this graph was opened read-only; open it read-write to optimize it")
    for attempt in range(ATTEMPTS):
        refuse_while_pending(context.recovery, "optimize")
        try:
            strip_main(context, actor)
            with Presence.at(context.store.objects).staging():
                return _run(context, actor, concurrency)
        except PublishContentionError:
            raise
        except ConflictError:
            if attempt == ATTEMPTS - 1:
                raise
    raise ConflictError("the tables kept changing while they were optimized — retry")


def _run(context: GraphContext, actor: str | None, concurrency: int) -> OptimizeReport:
    began = now_micros()
    snapshot = context.manifest.snapshot(MAIN)
    drifted = {drift.entry.table_key: drift for drift in find_drift(context.recovery, MAIN, snapshot.entries.values())}
    keys = [key for key in snapshot.entries if key not in drifted and key in context.catalog.tables]
    with ThreadPoolExecutor(max_workers=max(1, concurrency)) as pool:
        works = list(pool.map(lambda key: _stage(context, snapshot, key), keys))
    reports = {work.entry.table_key: _report(work) for work in works}
    for key, drift in drifted.items():
        reports[key] = TableReport(
            key, skipped=DRIFTED, manifest_version=drift.entry.version, lance_head_version=drift.head
        )
    productive = [work for work in works if work.productive]
    commit_id = None
    if productive:
        with Gates.at(context.root).acquire((work.entry.table_key, None) for work in productive):
            commit_id, done = _take(context, actor, snapshot, productive, began)
        reports.update(done)
    return OptimizeReport(tuple(reports[key] for key in sorted(reports)), commit_id)


def _stage(context: GraphContext, snapshot: Snapshot, key: TableKey) -> _Work:
    entry, entity = snapshot.entry(key), context.catalog.tables[key]
    base = snapshot.open(key)
    compaction = stage_compaction(base)
    gaps = index_gaps(base, declared_indexes(entity))
    blocked = {gap.spec.column: reason for gap in gaps if (reason := why_untrainable(base, gap.spec)) is not None}
    buildable = [gap for gap in gaps if gap.spec.column not in blocked]
    return _Work(
        entry,
        entity,
        base,
        compaction,
        # After a compaction the fragments to be indexed are others, so the build has to wait for it.
        None if compaction is not None else stage_indexes(base, buildable),
        bool(buildable) or compaction is not None,
        tuple(PendingIndex(column, reason) for column, reason in blocked.items()),
    )


def _take(
    context: GraphContext, actor: str | None, staged_on: Snapshot, works: list[_Work], began: int
) -> tuple[CommitId, Mapping[TableKey, TableReport]]:
    """Commit what was staged, again while others are merely quicker to take a table: the slow work stays good."""
    for take in range(TAKES - 1):
        current = _on_newest(context, staged_on, works)
        try:
            return _commit(context, actor, current, began)
        except PublishContentionError:
            raise
        except ConflictError:
            time.sleep(random.uniform(0, TAKE_PAUSE_SECONDS * (take + 1)))
    return _commit(context, actor, _on_newest(context, staged_on, works), began)


def _on_newest(context: GraphContext, staged_on: Snapshot, works: list[_Work]) -> list[_Work]:
    """The same work on the tables as they are now, where nothing but new rows has come since it was staged.

    Raises:
        ConflictError: rows that the work knows were changed, or the schema was.
    """
    newest = context.manifest.snapshot(MAIN)
    if newest.schema_hash != staged_on.schema_hash:
        raise ConflictError("the schema was changed while the tables were optimized — retry")
    return [_rebased(work, newest) for work in works]


def _rebased(work: _Work, newest: Snapshot) -> _Work:
    entry = newest.entries.get(work.entry.table_key)
    if entry == work.entry:
        return work
    base = None if entry is None or entry.path != work.entry.path else newest.open(entry.table_key)
    if entry is None or base is None or not _only_grew(work.base, base):
        raise ConflictError(f"'{work.entry.table_key}' was changed while it was optimized — retry")
    return replace(work, entry=entry, base=base)


def _only_grew(before: TableHandle, after: TableHandle) -> bool:
    """Whether every fragment is still there with the rows it had, and the indexes are the same."""
    return set(after.fragments()).issuperset(before.fragments()) and set(after.indexes()) == set(before.indexes())


def _report(work: _Work) -> TableReport:
    version = work.entry.version
    return TableReport(
        work.entry.table_key,
        manifest_version=version,
        lance_head_version=version,
        pending_indexes=work.pending,
    )


def _commit(
    context: GraphContext, actor: str | None, works: list[_Work], began: int
) -> tuple[CommitId, Mapping[TableKey, TableReport]]:
    """Arm, apply, publish, disarm; before the first effect a conflict simply starts over."""
    effects = tuple(
        Effect.on(work.entry.table_key, work.entry.path, work.entry.version, steps=work.steps) for work in works
    )
    intent = context.recovery.intents.arm(new_intent(WriterKind.OPTIMIZE, None, effects, actor_id=actor))
    if not Presence.at(context.store.objects).covers(began):
        context.recovery.intents.disarm(intent.operation_id)
        raise ConflictError("this process stood still, and what it had staged may have been reclaimed — retry")
    heads: dict[TableKey, TableHandle] = {}
    built: dict[TableKey, tuple[str, ...]] = {}
    try:
        for work in sorted(works, key=lambda work: work.entry.table_key):
            built[work.entry.table_key] = _apply(context, intent, work, heads)
    except ConflictError:
        _give_up(context, intent, bool(heads))
        raise
    except GraphError:
        _give_up(context, intent, True)
        raise
    changes = [
        UpdateTable(work.entry.table_key, heads[work.entry.table_key].version, None, work.entry.row_count)
        for work in works
    ]
    commit_id = intent.commit_id
    assert commit_id is not None  # minted by new_intent
    try:
        failpoints.maybe_fail(failpoints.OPTIMIZE_POST_EFFECTS)
        published = context.manifest.publish(
            MAIN,
            changes,
            expected={work.entry.table_key: work.entry.version for work in works},
            lineage=Lineage(commit_id, actor, now_micros()),
            operation_id=intent.operation_id,
        )
    except ConflictError:
        _give_up(context, intent, True)
        raise
    except GraphError as failure:
        # Every effect is there, only the publish is in doubt. Whoever comes next finishes it.
        context.recovery.intents.abandon(intent.operation_id)
        raise RecoveryRequiredError(
            f"the tables were optimized but not published ({failure}) — the next write or open of the graph does that",
            operation_id=intent.operation_id,
        ) from failure
    context.recovery.intents.disarm(intent.operation_id)
    return commit_id, {
        key: replace(_done(work, heads[key], published.version), indexes_built=built[key])
        for work in works
        for key in [work.entry.table_key]
    }


def _apply(context: GraphContext, intent: Intent, work: _Work, heads: dict[TableKey, TableHandle]) -> tuple[str, ...]:
    """Commit one table's work and return the columns it indexed.

    Each head it reaches is noted, so that a failure in between is known to need undoing.
    """
    key = work.entry.table_key
    step = 1
    heads[key] = context.store.commit(work.base, stage_fence(work.base), intent.properties(step))
    if work.compaction is not None:
        step += 1
        heads[key] = context.store.commit(heads[key], on_top(work.compaction, heads[key]), intent.properties(step))
    if not work.has_gaps:
        return ()
    gaps = [
        gap
        for gap in index_gaps(heads[key], declared_indexes(work.entity))
        if gap.spec.column not in {index.column for index in work.pending}
    ]
    staged = work.indexes or stage_indexes(heads[key], gaps)
    if staged is not None:
        heads[key] = context.store.commit(heads[key], staged, intent.properties(step + 1))
    return tuple(gap.spec.column for gap in gaps)


def _give_up(context: GraphContext, intent: Intent, had_effects: bool) -> None:
    if had_effects:
        roll_back(context.recovery, intent)
    else:
        context.recovery.intents.disarm(intent.operation_id)


def _done(work: _Work, head: TableHandle, manifest_version: int) -> TableReport:
    before, after = _ids(work.base.fragments()), _ids(head.fragments())
    return replace(
        _report(work),
        fragments_removed=len(before - after),
        fragments_added=len(after - before),
        committed=True,
        manifest_version=manifest_version,
        lance_head_version=head.version,
    )


def _ids(fragments: Iterable[Any]) -> set[int]:
    return {fragment.id for fragment in fragments}
