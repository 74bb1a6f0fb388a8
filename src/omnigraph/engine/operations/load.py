"""Load data in this process: read and check everything, then write it as one commit.

The Spark pipeline loads what is too large for one process, with the same reader, the same checks and the same commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa

from omnigraph.catalog.defaults import at_moment
from omnigraph.catalog.model import Catalog
from omnigraph.catalog.partial import partial
from omnigraph.engine.commit.cancellation import Cancellation
from omnigraph.engine.coordination.heartbeat import Heartbeat
from omnigraph.engine.coordination.intent import WriterKind
from omnigraph.engine.ingest.inputs import LoadFeeds, LoadRows, LoadSource, read_input, streamed
from omnigraph.engine.ingest.spool import Spool
from omnigraph.engine.manifest.records import CommitWrite, with_message
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.outcomes import LoadMode, LoadResult
from omnigraph.engine.rules.validate import check_duplicate_ids, check_unique_input
from omnigraph.engine.values.defaults import this_moment
from omnigraph.engine.values.entities import Entity
from omnigraph.engine.write.attached import foretold
from omnigraph.engine.write.context import GraphContext
from omnigraph.engine.write.group import Joining, write_together
from omnigraph.engine.write.transaction import Transaction, WriteRequest, WrittenFragments
from omnigraph.engine.write.writer import write
from omnigraph.errors import InputError
from omnigraph.ids import MAIN, CommitId, TableKey, parse_branch

Watch: TypeAlias = Callable[[str, int], None]

TOGETHER_ROWS = 1_024
"""Up to so many rows a load may be published together with other writes."""


def load(
    context: GraphContext,
    source: LoadSource,
    *,
    mode: LoadMode | str,
    branch: str = MAIN,
    actor: str | None = None,
    message: str | None = None,
    base: Snapshot | None = None,
    if_commit: CommitId | None = None,
    cancellation: Cancellation | None = None,
    progress: Watch | None = None,
) -> LoadResult:
    """Load a source as one commit, or nothing at all.

    `base` is the snapshot the caller decided on, the newest one by default; `if_commit` makes the write conditional on
    the branch's head. `progress` hears the name of each phase
    and how many rows were read.

    Raises:
        ConstraintError: the data breaks a rule, or `update` met an id that does not exist; `violations` names up to
            twenty records.
        KeyConflictError: `append` met an id that exists.
        ConflictError: another write came in between.
        LimitError: it is larger than the limits of the graph allow.
        PolicyError: the actor may not change this branch.
    """
    mode = _mode(mode)
    name = parse_branch(branch)
    request = WriteRequest(
        name,
        WriterKind.LOAD,
        context.admit("change", actor, branch=name),
        if_commit,
        properties=with_message(message),
        cancellation=cancellation or Cancellation(),
        limits=context.limits,
    )
    snapshot = context.manifest.snapshot(request.branch)
    watched = _Watched(progress)
    catalog = reading_catalog(context.catalog, mode)
    feeds = source if isinstance(source, LoadFeeds) else streamed(source, catalog)
    # Records of an update are no rows yet, so they cannot be stored before the rest of each entity is known.
    spools = feeds is not None and not context.read_only and request.limits.bytes_max is None
    spools = spools and mode is not LoadMode.UPDATE

    def read(fragments: WrittenFragments) -> LoadRows:
        if feeds is not None and spools:
            return Spool(base or snapshot, request.branch, fragments).read(feeds, watched.count)
        return read_input(source if feeds is None else feeds, catalog, count=watched.count)

    if not spools:
        return _load(context, request, mode, read, base, watched)
    # What is read is stored as it comes, so the staging begins before the write does.
    heartbeat = Heartbeat.at(context.store.objects)
    return heartbeat.staging(lambda: _load(context, request, mode, read, base, watched))


def _load(
    context: GraphContext,
    request: WriteRequest,
    mode: LoadMode,
    read: Callable[[WrittenFragments], LoadRows],
    base: Snapshot | None,
    watched: _Watched,
) -> LoadResult:
    started = time.perf_counter()
    watched.enter("read")
    fragments = WrittenFragments()
    rows = read(fragments)
    watched.rows = sum(table.num_rows for table in rows.tables.values())
    request.cancellation.check()
    _check_input(context, rows, mode)
    keeps = mode is LoadMode.OVERWRITE
    tables = {
        key: context.external_blobs.admit(context.catalog.tables[key], table, keeps_references=keeps)
        for key, table in sorted(rows.tables.items())
    }
    parsed = time.perf_counter()
    watched.enter("write")

    hear = foretold()
    counts = {key: table.num_rows for key, table in sorted(rows.tables.items())}
    loaded = LoadResult(
        branch=request.branch,
        mode=mode.value,
        nodes={key.removeprefix("node:"): count for key, count in counts.items() if key.startswith("node:")},
        edges={key.removeprefix("edge:"): count for key, count in counts.items() if key.startswith("edge:")},
        actor_id=request.actor,
        engine="local",
    )

    def prepare(transaction: Transaction) -> Transaction:
        for key, table in tables.items():
            _put(transaction, context.catalog.tables[key], table, mode, ids_given=key in rows.with_ids)
        transaction.foretell(hear, lambda: loaded)
        return transaction

    if mode is LoadMode.OVERWRITE or sum(counts.values()) > TOGETHER_ROWS:
        written = write(context, request, prepare, base=base, fragments=fragments)
    else:
        joining = Joining(context, request, prepare, lambda _: _told(counts), fragments=fragments)
        written = write_together(joining, base=base)
    finished = time.perf_counter()
    return replace(
        loaded,
        commit_id=None if written.committed is None else written.committed.commit_id,
        seconds=finished - started,
        phases={"read": parsed - started, "write": finished - parsed},
        bytes_written=sum(each.staged.bytes_added for each in written.value.writes.values() if each.staged is not None),
    )


def _put(transaction: Transaction, entity: Entity, table: pa.Table, mode: LoadMode, *, ids_given: bool) -> None:
    """Bring the rows of one type into a write, as the mode says; their values were checked as they were read."""
    if mode is LoadMode.OVERWRITE:
        transaction.replace(entity, table)
    elif mode is LoadMode.UPDATE:
        transaction.patch(entity, table)
    elif mode is LoadMode.MERGE and ids_given:
        transaction.upsert(entity, table, ids_differ=bool(entity.key))
    else:
        transaction.insert(entity, table, ids_are_fresh=not ids_given)
    pending = transaction.pending(entity.table_key)
    if pending is not None:
        pending.values_checked = True


def reading_catalog(catalog: Catalog, mode: LoadMode | str) -> Catalog:
    """The schema as the records of a load are read by it: at one moment, and by its partial form for an update."""
    return partial(catalog) if mode == LoadMode.UPDATE else at_moment(catalog, this_moment())


def _told(counts: Mapping[TableKey, int]) -> CommitWrite:
    """The load as the commit of several writes lists it."""
    nodes = sum(count for key, count in counts.items() if key.startswith("node:"))
    return CommitWrite(
        name="load",
        nodes=nodes,
        edges=sum(counts.values()) - nodes,
        tables={str(key): count for key, count in counts.items()},
    )


class _Watched:
    """What a load tells about itself."""

    def __init__(self, watch: Watch | None) -> None:
        self._watch = watch
        self._phase = ""
        self.rows = 0

    def enter(self, phase: str) -> None:
        self._phase = phase
        self.count(0)

    def count(self, rows: int) -> None:
        self.rows += rows
        if self._watch is not None:
            self._watch(self._phase, self.rows)


def _mode(mode: LoadMode | str) -> LoadMode:
    try:
        return LoadMode(mode)
    except ValueError:
        raise InputError(f"a load mode is one of {', '.join(LoadMode)}, not '{mode}'") from None


def _check_input(context: GraphContext, rows: LoadRows, mode: LoadMode) -> None:
    """What the input must fulfil by itself, whatever is committed."""
    for key, table in sorted(rows.tables.items()):
        entity = context.catalog.tables[key]
        if key in rows.with_ids:
            check_duplicate_ids(entity, table, keep_last=mode is LoadMode.MERGE)
        check_unique_input(entity, table)
