"""Load data in this process: read and check everything, then write it as one commit.

The Spark pipeline loads what is too large for one process, with the same reader, the same checks and the same commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.outcomes import LoadMode, LoadResult
from omnigraph.engine.recovery.intent import WriterKind
from omnigraph.engine.staging.cancellation import Cancellation
from omnigraph.engine.staging.context import GraphContext
from omnigraph.engine.staging.inputs import LoadRows, LoadSource, read_input
from omnigraph.engine.staging.transaction import Transaction, WriteLimits, WriteRequest
from omnigraph.engine.staging.validate import check_duplicate_ids, check_unique_input
from omnigraph.engine.staging.writer import write
from omnigraph.errors import InputError
from omnigraph.ids import MAIN, check_actor, parse_branch

Watch: TypeAlias = Callable[[str, int], None]


def load(
    context: GraphContext,
    source: LoadSource,
    *,
    mode: LoadMode | str,
    branch: str = MAIN,
    actor: str | None = None,
    base: Snapshot | None = None,
    cancellation: Cancellation | None = None,
    limits: WriteLimits | None = None,
    progress: Watch | None = None,
) -> LoadResult:
    """Load a source as one commit, or nothing at all.

    `base` is the snapshot the caller decided on, the newest one by default. `progress` hears the name of each phase
    and how many rows were read.

    Raises:
        ConstraintError: the data breaks a rule; `violations` names up to twenty records.
        KeyConflictError: `append` met an id that exists.
        ConflictError: another write came in between.
        LimitError: it is larger than `limits` allow.
    """
    mode = _mode(mode)
    request = WriteRequest(
        parse_branch(branch),
        WriterKind.LOAD,
        check_actor(actor),
        cancellation=cancellation or Cancellation(),
        limits=limits or WriteLimits(),
    )
    context.manifest.snapshot(request.branch)
    started = time.perf_counter()
    watched = _Watched(progress)
    watched.enter("read")
    rows = read_input(source, context.catalog, count=watched.count)
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

    def prepare(transaction: Transaction) -> None:
        for key, table in tables.items():
            entity = context.catalog.tables[key]
            if mode is LoadMode.OVERWRITE:
                transaction.replace(entity, table)
            elif mode is LoadMode.MERGE and key in rows.with_ids:
                transaction.upsert(entity, table, ids_differ=bool(getattr(entity, "key", ())))
            else:
                transaction.insert(entity, table, ids_are_fresh=key not in rows.with_ids)
            pending = transaction.pending(key)
            if pending is not None:
                pending.values_checked = True

    written = write(context, request, prepare, base=base)
    finished = time.perf_counter()
    counts = {key: table.num_rows for key, table in sorted(rows.tables.items())}
    return LoadResult(
        branch=request.branch,
        mode=mode,
        nodes={key.removeprefix("node:"): count for key, count in counts.items() if key.startswith("node:")},
        edges={key.removeprefix("edge:"): count for key, count in counts.items() if key.startswith("edge:")},
        commit_id=None if written.committed is None else written.committed.commit_id,
        actor_id=request.actor,
        engine="local",
        seconds=finished - started,
        phases={"read": parsed - started, "write": finished - parsed},
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
