"""What a transaction becomes: a request to commit, and what is kept for whoever comes next."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from omnigraph.catalog import wide
from omnigraph.engine.commit.kinds import KINDS
from omnigraph.engine.commit.path import Committed, commit
from omnigraph.engine.commit.request import Applied, CommitRequest, Requirements, Stage, Step, TableCommit
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery import RecoveryContext
from omnigraph.engine.storage.columns import ColumnCache
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.staged import StagedWrite
from omnigraph.engine.write.staging import TableWrite
from omnigraph.engine.write.transaction import Transaction
from omnigraph.errors import GraphError, InternalError
from omnigraph.ids import TableKey

logger = logging.getLogger(__name__)


def commit_transaction(recovery: RecoveryContext, transaction: Transaction, deadline: float) -> Committed:
    """Make a staged transaction visible. The caller holds the mutexes of every table it writes.

    Raises:
        As `commit`.
    """
    return commit(recovery, request_of(recovery, transaction, deadline))


def request_of(recovery: RecoveryContext, transaction: Transaction, deadline: float) -> CommitRequest:
    """A staged transaction as a value."""
    wanted = transaction.request
    return CommitRequest(
        KINDS[wanted.kind],
        wanted.branch,
        transaction.snapshot,
        tuple(_table_commit(write) for _, write in sorted(transaction.writes.items())),
        tuple(transaction.pointers),
        requires=Requirements(
            read_set=transaction.read_set,
            strict=frozenset(transaction.strict_tables),
            head=wanted.if_commit,
            staged_since=transaction.began,
            deadline=deadline,
            check=wanted.check,
        ),
        actor=wanted.actor,
        merged_parent=wanted.merged_parent,
        properties=wanted.properties,
        cancellation=wanted.cancellation,
        listener=lambda applied: _listen(recovery, transaction, applied),
    )


def _table_commit(write: TableWrite) -> TableCommit:
    if write.forks:
        # Its rows are staged where the branch's own line of the table will be.
        steps: tuple[Step, ...] = (write.stage,) if write.then is None else (write.stage, _later(write.then))
        return TableCommit(write.entry, steps, write.table_key, forks=True)
    first = write.coming or write.staged
    if first is None:
        raise InternalError(f"the change of '{write.table_key}' was not staged")
    then = None if write.then is None else write.then()
    steps = (first,) if then is None else (first, then)
    return TableCommit(write.entry, steps, write.table_key, write.base, staged_elsewhere=write.staged_elsewhere)


def _later(then: Callable[[], Stage | None]) -> Stage:
    """A second commit of which nobody knows whether there is one before the first is staged."""

    def stage(head: TableHandle) -> StagedWrite | None:
        found = then()
        return None if found is None else found(head)

    return stage


# --- for whoever comes next ------------------------------------------------------------------------------------------


def _listen(
    recovery: RecoveryContext, transaction: Transaction, applied: Mapping[TableKey, Applied]
) -> Callable[[Snapshot], None]:
    """Let whoever read the state before get ready for the next, and keep what would otherwise be read from storage."""
    transaction.request.publishing()
    settle = recovery.listener.publishing(transaction.snapshot, {key: each.head for key, each in applied.items()})

    def published(snapshot: Snapshot) -> None:
        for key, each in applied.items():
            _remember(recovery, transaction.writes[key], each, snapshot.entry(key).e_tag)
        settle(snapshot)

    return published


def _remember(recovery: RecoveryContext, write: TableWrite, applied: Applied, tag: str | None) -> None:
    recovery.store.remember(applied.head, tag=tag)
    try:
        _remember_ids(write, applied)
    except GraphError as exc:
        # The write is acknowledged, whatever becomes of a convenience for the next one.
        logger.warning("the ids just written to '%s' will be read again: %s", write.table_key, exc)


def _remember_ids(write: TableWrite, applied: Applied) -> None:
    """Keep the ids just written, which the next write would otherwise read back from disk."""
    head = applied.head
    if write.rows is None or "src" in head.schema.names:
        return
    files = {name.rpartition("/")[2] for staged in applied.staged for name in staged.files}
    written = [fragment for fragment in head.fragments() if fragment.files[0] in files]
    rows = write.rows.rows
    if len(written) == 1 and written[0].physical_rows == rows.num_rows:
        ids = wide.one_array(rows.column("id"))
        ColumnCache.shared().keep(written[0], head.field_ids["id"], ids)
