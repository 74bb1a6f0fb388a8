"""Make reads fast again: compact small fragments and complete the declared indexes, as one commit.

The slow work is staged while others write. Then the tables are taken, one strict commit each, the compactions and index
builds follow, and one publish shows everything. Rows that were added meanwhile stay as they are, for the next run; had
others been changed, the work begins again. Content never changes, so a failure anywhere loses only the work.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from omnigraph.catalog.indexes import declared_indexes
from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.engine.commit.drift import find_drift
from omnigraph.engine.commit.kinds import OPTIMIZE
from omnigraph.engine.commit.path import commit_once
from omnigraph.engine.commit.request import CommitRequest, Requirements, Step, TableCommit
from omnigraph.engine.coordination.heartbeat import Heartbeat
from omnigraph.engine.coordination.mutex import Mutexes
from omnigraph.engine.manifest.records import TableEntry, with_message
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery.sweep import refuse_while_pending
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
from omnigraph.engine.write.context import GraphContext
from omnigraph.engine.write.settings import strip_main
from omnigraph.errors import ConflictError, GraphError, InputError, PublishContentionError
from omnigraph.ids import MAIN, CommitId, TableKey, check_actor, now_micros
from omnigraph.interrupts import holding, nothing

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


class _Work(Struct, frozen=True):
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


class _Author(Struct, frozen=True):
    """Who the commit is attributed to, and what it says."""

    actor: str | None
    properties: Mapping[str, str]


def optimize(context: GraphContext, *, actor: str | None = None, message: str | None = None) -> OptimizeReport:
    """Compact tables and complete indexes on main.

    Raises:
        RecoveryRequiredError: a write is unfinished.
        ConflictError: writers kept changing the tables; nothing was published.
    """
    author = _Author(check_actor(actor), with_message(message))
    if context.read_only:
        raise InputError("this graph was opened read-only; open it read-write to optimize it")
    for attempt in range(ATTEMPTS):
        refuse_while_pending(context.recovery, "optimize")
        try:
            strip_main(context, actor)
            heartbeat = Heartbeat.at(context.store.objects)
            return heartbeat.staging(lambda: _run(context, author))
        except PublishContentionError:
            raise
        except ConflictError:
            if attempt == ATTEMPTS - 1:
                raise
    raise ConflictError("the tables kept changing while they were optimized — retry")


def _run(context: GraphContext, author: _Author) -> OptimizeReport:
    began = now_micros()
    snapshot = context.manifest.snapshot(MAIN)
    drifted = {drift.entry.table_key: drift for drift in find_drift(context.recovery, MAIN, snapshot.entries.values())}
    keys = [key for key in snapshot.entries if key not in drifted and key in context.catalog.tables]
    works = _stage_all(context, snapshot, keys)
    reports = {work.entry.table_key: _report(work) for work in works}
    for key, drift in drifted.items():
        reports[key] = TableReport(
            key, skipped=DRIFTED, manifest_version=drift.entry.version, lance_head_version=drift.head
        )
    productive = [work for work in works if work.productive]
    commit_id = None
    if productive:
        mutexes, written = Mutexes.at(context.root), [(work.entry.table_key, None) for work in productive]
        commit_id, done = mutexes.hold(written, lambda: _take(context, author, snapshot, productive, began))
        reports.update(done)
    return OptimizeReport(tuple(reports[key] for key in sorted(reports)), commit_id)


def _stage_all(context: GraphContext, snapshot: Snapshot, keys: list[TableKey]) -> list[_Work]:
    """Stage side by side. Who interrupts is not made to wait for the tables that were begun; nothing comes of them."""
    pool = ThreadPoolExecutor(max_workers=CONCURRENCY)

    def stage() -> list[_Work]:
        try:
            return list(pool.map(lambda key: _stage(context, snapshot, key), keys))
        except GraphError:
            pool.shutdown(cancel_futures=True)
            raise

    return holding(nothing, stage, lambda: pool.shutdown(wait=False, cancel_futures=True))


def _stage(context: GraphContext, snapshot: Snapshot, key: TableKey) -> _Work:
    entry, entity = snapshot.entry(key), context.catalog.tables[key]
    # A handle of its own: while Lance builds an index it lets nobody else use the same one, not even to read.
    base = context.store.open(entry.path, branch=entry.branch, version=entry.version)
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
    context: GraphContext, author: _Author, staged_on: Snapshot, works: list[_Work], began: int
) -> tuple[CommitId, Mapping[TableKey, TableReport]]:
    """Commit what was staged, again while others are merely quicker to take a table: the slow work stays good."""
    for take in range(TAKES - 1):
        newest, current = _on_newest(context, staged_on, works)
        try:
            return _commit(context, author, newest, current, began)
        except PublishContentionError:
            raise
        except ConflictError:
            time.sleep(random.uniform(0, TAKE_PAUSE_SECONDS * (take + 1)))
    newest, current = _on_newest(context, staged_on, works)
    return _commit(context, author, newest, current, began)


def _on_newest(context: GraphContext, staged_on: Snapshot, works: list[_Work]) -> tuple[Snapshot, list[_Work]]:
    """The same work on the tables as they are now, where nothing but new rows has come since it was staged.

    Raises:
        ConflictError: rows that the work knows were changed, or the schema was.
    """
    newest = context.manifest.snapshot(MAIN)
    if newest.schema_hash != staged_on.schema_hash:
        raise ConflictError("the schema was changed while the tables were optimized — retry")
    return newest, [_rebased(work, newest) for work in works]


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
    context: GraphContext, author: _Author, newest: Snapshot, works: list[_Work], began: int
) -> tuple[CommitId, Mapping[TableKey, TableReport]]:
    """Carry out the work as one commit; before the first effect a conflict simply starts over."""
    indexed: dict[TableKey, tuple[str, ...]] = {}
    request = CommitRequest(
        OPTIMIZE,
        MAIN,
        newest,
        tuple(_table_commit(work, indexed) for work in works),
        requires=Requirements(staged_since=began),
        actor=author.actor,
        properties=author.properties,
    )
    committed = commit_once(context.recovery, request)
    return committed.commit_id, {
        key: dataclasses.replace(
            _done(work, committed.tables[key].head, committed.snapshot.version), indexes_built=indexed.get(key, ())
        )
        for work in works
        for key in [work.entry.table_key]
    }


def _table_commit(work: _Work, indexed: dict[TableKey, tuple[str, ...]]) -> TableCommit:
    """Take the table by a strict commit, then compact and index it; the columns are told to `indexed`."""
    steps: list[Step] = [stage_fence(work.base)]
    if work.compaction is not None:
        steps.append(partial(on_top, work.compaction))
    if work.has_gaps:
        steps.append(partial(_index, work, indexed))
    return TableCommit(work.entry, tuple(steps), work.entry.table_key, work.base)


def _index(work: _Work, indexed: dict[TableKey, tuple[str, ...]], head: TableHandle) -> StagedWrite | None:
    pending = {index.column for index in work.pending}
    gaps = [gap for gap in index_gaps(head, declared_indexes(work.entity)) if gap.spec.column not in pending]
    indexed[work.entry.table_key] = tuple(dict.fromkeys(gap.spec.column for gap in gaps))
    return work.indexes or stage_indexes(head, gaps)


def _done(work: _Work, head: TableHandle, manifest_version: int) -> TableReport:
    before, after = _ids(work.base.fragments()), _ids(head.fragments())
    return dataclasses.replace(
        _report(work),
        fragments_removed=len(before - after),
        fragments_added=len(after - before),
        committed=True,
        manifest_version=manifest_version,
        lance_head_version=head.version,
    )


def _ids(fragments: Iterable[Any]) -> set[int]:
    return {fragment.id for fragment in fragments}
