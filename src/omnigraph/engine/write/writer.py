"""Writes as callers see them: prepare, commit, and again on a newer snapshot where that is allowed.

`write` heals what crashed writers left, runs `prepare` on a snapshot, and commits. An attempt that turns out stale
before it had any effect is repeated from the start, validation included; a strict change of a table that moved is
refused instead, because it was decided on what it read.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from msgspec import Struct

from omnigraph import failpoints
from omnigraph.engine.commit.path import Committed
from omnigraph.engine.commit.stale import StaleWrite
from omnigraph.engine.coordination.heartbeat import Heartbeat
from omnigraph.engine.coordination.mutex import Mutexes, MutexKey
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery import RecoveryContext, heal
from omnigraph.engine.write.commit import commit_transaction
from omnigraph.engine.write.context import GraphContext
from omnigraph.engine.write.settings import strip
from omnigraph.engine.write.staging import Staging
from omnigraph.engine.write.transaction import Transaction, WriteRequest, WrittenFragments
from omnigraph.errors import (
    ConflictError,
    ExecutionError,
    GraphError,
    MergeBaseError,
    PreconditionFailedError,
    VersionReclaimedError,
)
from omnigraph.ids import TableKey, stored_branch
from omnigraph.interrupts import holding, nothing

logger = logging.getLogger(__name__)

ATTEMPTS = 5
WRITE_SECONDS = 120.0
_BACKOFF_SECONDS = 0.002

T = TypeVar("T")
V = TypeVar("V")


class Written(Struct, Generic[T], frozen=True):
    """What `prepare` returned, and the commit it became; `committed` is None when nothing had to change."""

    value: T
    committed: Committed | None


def write(
    context: GraphContext,
    request: WriteRequest,
    prepare: Callable[[Transaction], T],
    *,
    base: Snapshot | None = None,
    tables: Iterable[TableKey] = (),
    fragments: WrittenFragments | None = None,
) -> Written[T]:
    """Run one write to its end.

    `prepare` gathers changes in the transaction it is given and may be called again with another one. `base` is the
    snapshot the caller has read, if it wants strict changes judged against that. `tables`, when known beforehand, lets
    a lenient write wait for its turn before it prepares instead of after. `fragments` are those the caller has written
    already, within a staging of its own.

    Raises:
        ConflictError: the write lost against others; nothing changed.
        ConstraintError: it would break a rule of the schema; nothing changed.
        RecoveryRequiredError: it is unfinished; the next write or open of the graph resolves it.
    """
    if context.read_only:
        raise ExecutionError("this graph was opened read-only and cannot be written")
    recovery = context.recovery
    heal(recovery)
    attempts = _Attempts(context, recovery, request, base, fragments)
    heartbeat = Heartbeat.at(context.store.objects)
    return heartbeat.staging(lambda: holding(nothing, lambda: attempts.run(prepare, tables), attempts.release))


class _Attempts:
    """The attempts of one write; from the second on it keeps its mutexes, so that its own process cannot starve it."""

    def __init__(
        self,
        context: GraphContext,
        recovery: RecoveryContext,
        request: WriteRequest,
        base: Snapshot | None,
        fragments: WrittenFragments | None,
    ) -> None:
        self._context, self._recovery, self._request, self._base = context, recovery, request, base
        self._mutexes = Mutexes.at(context.root)
        self._held = self._mutexes.holder()
        self._strict: dict[TableKey, int] = {}
        self._involved: list[TableKey] = []
        self._fragments = fragments or WrittenFragments()
        self._deadline = time.monotonic() + WRITE_SECONDS

    def run(self, prepare: Callable[[Transaction], T], tables: Iterable[TableKey]) -> Written[T]:
        self._queue_up(tables)
        counted = 0
        while True:
            try:
                return self._attempt_on_living(prepare)
            except StaleWrite as stale:
                counted += stale.counts
                if counted >= ATTEMPTS or time.monotonic() > self._deadline:
                    raise stale.conflict from stale
                self._base = None
                time.sleep(random.uniform(0, _BACKOFF_SECONDS * 2**counted))
                # Waiting for every table involved, the read ones too, makes the next attempt likely to be the last.
                self._take_mutexes(_mutex_keys(self._involved, self._request.branch))

    def _attempt_on_living(self, prepare: Callable[[Transaction], T]) -> Written[T]:
        """One attempt; when what it reads was removed under it, by cleanup or with its branch, it is merely stale."""
        try:
            return self._attempt(prepare)
        except VersionReclaimedError as gone:
            if self._base is not None or isinstance(gone, MergeBaseError):
                raise  # The caller has decided on what it read, and that is gone.
            raise StaleWrite(gone) from gone

    def release(self) -> None:
        self._held.release()

    def _attempt(self, prepare: Callable[[Transaction], T]) -> Written[T]:
        request = self._request
        request.cancellation.check()
        snapshot = self._base or self._context.manifest.snapshot(request.branch)
        if request.if_commit is not None and snapshot.head != request.if_commit:
            raise PreconditionFailedError(expected=request.if_commit, actual=snapshot.head)
        if snapshot.schema_hash not in (None, self._context.catalog.schema_hash):
            raise ConflictError("the schema has been changed since this write was prepared — retry")
        fold = self._context.folds.fold
        transaction = Transaction(self._context.catalog, snapshot, request, self._fragments, fold)
        value = self._working(lambda: prepare(transaction))
        request.cancellation.check()
        transaction.settle()
        staging = transaction.staging()
        committed = holding(staging.begin, lambda: self._carry_out(transaction, staging), staging.discard)
        if committed is not None:
            self._offer_folds(committed, transaction)
        return Written(value, committed)

    def _carry_out(self, transaction: Transaction, staging: Staging) -> Committed | None:
        """Judge and commit; None when there is nothing to commit."""
        self._judge(transaction, staging)
        if not transaction.writes:
            return None
        failpoints.maybe_fail(failpoints.MUTATION_POST_STAGE)
        self._take_mutexes(_mutex_keys(transaction.writes, self._request.branch))
        return commit_transaction(self._recovery, transaction, self._deadline)

    def _judge(self, transaction: Transaction, staging: Staging) -> None:
        """Refuse what must not be written, and see to the files of the rest."""
        transaction.check()
        self._involved = list(transaction.expected)
        if self._base is not None:
            transaction.hold_strict(self._strict)
        self._strip_settings(transaction)
        transaction.hold_strict(self._strict)
        self._working(staging.finish)
        transaction.leave_unchanged()

    def _working(self, work: Callable[[], V]) -> V:
        """The deadline bounds waiting for others; a large load or merge may work for as long as it takes."""
        began = time.monotonic()
        done = work()
        self._deadline += time.monotonic() - began
        return done

    def _offer_folds(self, committed: Committed, transaction: Transaction) -> None:
        """Have what many small writes left behind folded before the next one."""
        try:
            for key in transaction.writes:
                self._context.folds.offer(self._context.store.objects, committed.tables[key].head)
        except (GraphError, RuntimeError) as exc:
            # The write is acknowledged; a thread that cannot be started is no reason to say otherwise.
            logger.info("small fragments are not folded yet: %s", exc)

    def _strip_settings(self, transaction: Transaction) -> None:
        """Before the first commit to a table of which another program wants versions removed, undo that and repeat."""
        branch = self._request.branch
        written = transaction.writes.values()
        found = sorted(write.table_key for write in written if write.base is not None and write.base.removal_settings)
        if found:
            self._take_mutexes(_mutex_keys(transaction.writes, branch))
            strip(self._recovery, branch, found, self._request.actor)
            raise StaleWrite(ConflictError("the tables were changed by their upkeep — retry"), counts=False)

    def _queue_up(self, tables: Iterable[TableKey]) -> None:
        """When others of this process are at the tables, preparing now would only be repeated."""
        keys = _mutex_keys(tables, self._request.branch)
        if keys and self._mutexes.busy(keys):
            self._take_mutexes(keys)

    def _take_mutexes(self, keys: list[MutexKey]) -> None:
        if not self._held.covers(keys):
            self._held.take(keys, timeout_seconds=max(0.0, self._deadline - time.monotonic()))


def _mutex_keys(tables: Iterable[TableKey], branch: str) -> list[MutexKey]:
    return [(key, stored_branch(branch)) for key in tables]
