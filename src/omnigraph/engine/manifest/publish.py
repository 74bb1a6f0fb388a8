"""The publish: one compare-and-swap that makes a commit visible.

`__manifest` is small, so a publish rewrites it whole, on the condition that nobody published since it was read. That
makes the swap true for the entire graph state of a branch: rows written, tables only read, the head and the lineage
all hold or nothing happens. Losing the race is cheap: the state is read again, expectations are checked again, and
after a bounded number of rounds the caller is told.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence

from omnigraph import failpoints
from omnigraph.engine.manifest import records
from omnigraph.engine.manifest.delta import Change, Lineage
from omnigraph.engine.manifest.history import History
from omnigraph.engine.manifest.records import CommitRecord
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.manifest.state import ManifestState, apply_changes, decode, without_commits
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.staged import stage_overwrite
from omnigraph.engine.storage.tables import OPERATION_ID, TableStore
from omnigraph.errors import (
    BranchNotFoundError,
    CommitNotFoundError,
    ConflictError,
    ExpectedVersionMismatchError,
    FormatError,
    GraphError,
    InternalError,
    PublishContentionError,
    ReadSetChangedError,
    StorageError,
)
from omnigraph.ids import MAIN, SCHEMA_LOCK_BRANCH, CommitId, TableKey, stored_branch

logger = logging.getLogger(__name__)

RETRY_BUDGET = 5
COMMIT_WINDOW = 64
"""Commits the manifest holds before older ones move to the commit table."""
COMMITS_KEPT = 32


class Manifest:
    """Reads and publishes the states of one graph. Safe to share between threads."""

    def __init__(self, store: TableStore) -> None:
        self.store = store
        self.history = History(self)
        self._cache: dict[str, tuple[TableHandle, ManifestState]] = {}
        self._lock = threading.Lock()

    # --- reading ---------------------------------------------------------------------------------------------------

    def branches(self) -> list[str]:
        """Every public branch, main first."""
        named = [name for name in self.store.table_branches(layout.MANIFEST) if name != SCHEMA_LOCK_BRANCH]
        return [MAIN, *named]

    def snapshot(self, branch: str = MAIN, *, version: int | None = None) -> Snapshot:
        """The newest state of a branch, or an earlier version of it.

        The newest costs one probe when nothing was published since the last look.

        Raises:
            BranchNotFoundError: there is no such branch.
            CommitNotFoundError: there is no such version.
        """
        if version is None:
            return Snapshot(self._newest(branch)[1], self.store)
        with self._lock:
            cached = self._cache.get(branch)
        if cached is not None and cached[1].version == version:
            return Snapshot(cached[1], self.store)
        try:
            handle = self.store.open(layout.MANIFEST, branch=stored_branch(branch), version=version)
        except StorageError as exc:
            if exc.kind != "not_found":
                raise
            raise CommitNotFoundError(f"branch '{branch}' has no version {version}") from exc
        return Snapshot(_decode(handle, branch), self.store)

    def _newest(self, branch: str) -> tuple[TableHandle, ManifestState]:
        with self._lock:
            cached = self._cache.get(branch)
        if cached is not None and branch == MAIN:
            head = self.store.head_version(layout.MANIFEST, known=cached[0].version)
            if head == cached[0].version:
                return cached
        return self._read_newest(branch)

    def _read_newest(self, branch: str) -> tuple[TableHandle, ManifestState]:
        try:
            handle = self.store.open(layout.MANIFEST, branch=stored_branch(branch))
        except StorageError as exc:
            if branch != MAIN and exc.kind in ("not_found", "unknown") and branch not in self.branches():
                raise BranchNotFoundError(f"there is no branch '{branch}'") from exc
            raise
        found = (handle, _decode(handle, branch))
        self._remember(branch, found)
        return found

    def _remember(self, branch: str, found: tuple[TableHandle, ManifestState]) -> None:
        with self._lock:
            known = self._cache.get(branch)
            # A branch deleted and created again may come back at a lower version, so only main must grow.
            if known is None or branch != MAIN or known[0].version <= found[0].version:
                self._cache[branch] = found

    def forget(self) -> None:
        """Drop what is cached; the next read starts from storage."""
        with self._lock:
            self._cache.clear()

    # --- publishing ------------------------------------------------------------------------------------------------

    def publish(
        self,
        branch: str,
        changes: Sequence[Change],
        *,
        lineage: Lineage,
        expected: Mapping[TableKey, int] | None = None,
        expected_head: CommitId | None = None,
        operation_id: str | None = None,
    ) -> Snapshot:
        """Make changes visible as one commit, if every expectation holds at that moment.

        `expected` names table versions the caller saw, of tables it wrote and of tables it only read.

        Raises:
            ExpectedVersionMismatchError: a table is at another version; nothing was published.
            ReadSetChangedError: the head is not `expected_head`; nothing was published.
            PublishContentionError: other publishers won every race of the budget; nothing was published.
        """
        for attempt in range(RETRY_BUDGET + 1):
            failpoints.maybe_fail(failpoints.PUBLISH_LOAD_CONTENTION)
            handle, state = self._newest(branch)
            check_expectations(state, expected or {}, expected_head)
            failpoints.maybe_fail(failpoints.PUBLISH_AFTER_PRECHECK)
            state = self._make_room(state)
            commit = CommitRecord(
                lineage.commit_id,
                stored_branch(branch),
                handle.version + 1,
                state.head,
                lineage.merged_parent,
                lineage.actor_id,
                lineage.created_at,
                lineage.properties,
            )
            after = apply_changes(state, changes, commit)
            staged = stage_overwrite(handle, records.to_table(after.rows()))
            try:
                committed = self.store.commit(
                    handle, staged, {OPERATION_ID: operation_id} if operation_id is not None else {}
                )
            except ConflictError:
                logger.debug("publish on %s lost race %d of %d", branch, attempt + 1, RETRY_BUDGET + 1)
                continue
            if committed.version != after.version:
                raise InternalError(f"the publish became version {committed.version}, not {after.version}")
            self._remember(branch, (committed, after))
            return Snapshot(after, self.store)
        raise PublishContentionError(
            f"other writers kept publishing on branch '{branch}' ({RETRY_BUDGET + 1} attempts) — retry"
        )

    def _make_room(self, state: ManifestState) -> ManifestState:
        """Move the older half of a full commit window to the commit table; on any trouble simply keep it."""
        if len(state.commits) < COMMIT_WINDOW:
            return state
        ordered = sorted(state.commits.values(), key=lambda commit: commit.order)
        older = ordered[: len(ordered) - COMMITS_KEPT]
        try:
            archived = self.history.archive(older)
        except GraphError as exc:
            logger.warning("commits stay in the manifest for now, the commit table cannot be written: %s", exc)
            return state
        return without_commits(state, archived)


def check_expectations(state: ManifestState, expected: Mapping[TableKey, int], expected_head: CommitId | None) -> None:
    """Refuse unless every table is at the version the caller saw, in key order so that the answer is deterministic."""
    for key in sorted(expected):
        actual = state.current_version(key)
        if actual != expected[key]:
            raise ExpectedVersionMismatchError(table_key=key, expected=expected[key], actual=actual)
    if expected_head is not None and state.head != expected_head:
        raise ReadSetChangedError(member=f"head of {state.branch}", expected=expected_head, actual=state.head)


def _decode(handle: TableHandle, branch: str) -> ManifestState:
    stamp = records.read_stamp(handle.schema)
    if stamp < records.INTERNAL_SCHEMA_VERSION:
        raise FormatError(
            f"this graph has format {stamp}; open it read-write once with a release that migrates it to"
            f" {records.INTERNAL_SCHEMA_VERSION}"
        )
    return decode(handle.scan().to_pylist(), branch=branch, version=handle.version)
