"""The publish: one compare-and-swap that makes a commit visible.

`__manifest` is small, so a publish rewrites it whole, on the condition that nobody published since it was read. That
makes the swap true for the entire graph state of a branch: rows written, tables only read, the head and the lineage
all hold or nothing happens. Losing the race is cheap: the state is read again, expectations are checked again, and
after a bounded number of rounds the caller is told.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from omnigraph import failpoints
from omnigraph.catalog.suggestion import did_you_mean
from omnigraph.engine.manifest import records
from omnigraph.engine.manifest.delta import Change, Lineage
from omnigraph.engine.manifest.history import History
from omnigraph.engine.manifest.migrations import migrate
from omnigraph.engine.manifest.records import CommitRecord
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.manifest.state import ManifestState, apply_changes, decode, without_commits
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.staged import StagedWrite, stage_overwrite
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.storage.transactions import OPERATION_ID
from omnigraph.engine.storage.translate import is_missing
from omnigraph.errors import (
    BranchNotFoundError,
    CommitNotFoundError,
    ConflictError,
    ExpectedVersionMismatchError,
    GraphError,
    InternalError,
    LateCommitError,
    PublishContentionError,
    ReadSetChangedError,
    StorageError,
    VersionReclaimedError,
)
from omnigraph.ids import MAIN, SCHEMA_LOCK_BRANCH, CommitId, TableKey, stored_branch

logger = logging.getLogger(__name__)

RETRY_BUDGET = 5
COMMIT_WINDOW = 64
"""Commits the manifest holds before older ones move to the commit table."""
COMMITS_KEPT = 32
ARCHIVE_EVERY = 8
"""Commits between two tries when the commit table cannot be written, so that trouble there slows few publishes."""
BRANCH_STATES = 1024
"""Branches whose newest state is kept in memory; others may delete them, and nobody says so."""
PAST_STATES = 32
"""Earlier states kept in memory, for those who ask several questions about one moment of the past."""
PROBE_SECONDS = 60.0
"""How long after a full look the newest version is found by probing the next number.

A probe would stop at a gap left by a removal of old versions. Nothing this young is ever removed, so within this time
there is none; afterwards the versions are listed again.
"""


class _Seen(Struct, frozen=True):
    """The newest state of a branch, and when it was known to be that; `mark` tells which branch of that name."""

    handle: TableHandle
    snapshot: Snapshot
    at: float
    mark: object = None
    is_current: bool = True
    """False while the branch has an earlier format, which can be read and not be published on."""

    @property
    def state(self) -> ManifestState:
        """What the manifest says."""
        return self.snapshot.state


class Prepared(Struct, frozen=True):
    """A publish that lacks only its swap: the state it was made on, what it says, and the next state, staged."""

    base: TableHandle
    changes: Sequence[Change]
    lineage: Lineage
    after: ManifestState
    staged: StagedWrite

    def fits(self, base: TableHandle, changes: Sequence[Change], lineage: Lineage) -> bool:
        """Whether this is the publish that is to be made, and nobody has published since."""
        return self.base is base and self.changes == changes and self.lineage is lineage


def unprepared() -> None:
    """For publishes that nobody has prepared."""


class Manifest:
    """Reads and publishes the states of one graph. Safe to share between threads."""

    def __init__(self, store: TableStore) -> None:
        self.store = store
        self.history = History(self)
        self._cache: dict[str, _Seen] = {}
        self._past: dict[tuple[str, int, object], Snapshot] = {}
        self._generation = store.generation
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
            return self._newest(branch).snapshot
        self.leave_replaced()
        # A branch deleted and created again may have another state of the same number; its mark is another, too.
        key = (branch, version, self._mark(branch))
        with self._lock:
            cached = self._cache.get(branch)
            past = self._past.get(key)
        if cached is not None and cached.state.version == version and branch == MAIN:
            return cached.snapshot
        if past is None:
            past = self._read_past(branch, version, key[2])
            self._remember_past(key, past)
        return past

    def snapshots(self) -> list[Snapshot]:
        """The newest state of every branch, main first; a branch that is deleted meanwhile is not there."""
        found = []
        for branch in self.branches():
            try:
                found.append(self.snapshot(branch))
            except BranchNotFoundError:
                logger.debug("branch '%s' was deleted while all were read", branch)
        return found

    def _read_past(self, branch: str, version: int, mark: object) -> Snapshot:
        if branch != MAIN and mark is None:
            raise CommitNotFoundError(f"branch '{branch}' has no version {version}: there is no such branch")
        try:
            handle = self.store.open(layout.MANIFEST, branch=stored_branch(branch), version=version)
            return Snapshot(self.decode(handle, branch), self.store)
        except (StorageError, VersionReclaimedError) as exc:
            if not is_missing(exc):
                raise
            if branch == MAIN and 0 < version < self.snapshot(MAIN).version:
                raise VersionReclaimedError(
                    f"version {version} of the graph has been removed by cleanup — read a newer commit",
                    table_key=layout.MANIFEST,
                    version=version,
                ) from exc
            raise CommitNotFoundError(f"branch '{branch}' has no version {version}") from exc

    def _remember_past(self, key: tuple[str, int, object], snapshot: Snapshot) -> None:
        if key[0] != MAIN and key[2] is None:
            return
        with self._lock:
            if len(self._past) >= PAST_STATES:
                self._past.pop(next(iter(self._past)))
            self._past[key] = snapshot

    def leave_replaced(self) -> None:
        """Forget a graph that another was put in the place of; asking an object store takes a call, so seldom there."""
        if self.store.is_local:
            self._renew_if_replaced()

    def _renew_if_replaced(self) -> None:
        """Whoever finds out first renews the store for all, and the others see that it has another generation."""
        self.store.renew_if_replaced()
        if self._generation != self.store.generation:
            self._generation = self.store.generation
            self.forget()
            self.history.forget()

    def _newest(self, branch: str) -> _Seen:
        self.leave_replaced()
        with self._lock:
            cached = self._cache.get(branch)
        now = time.monotonic()
        if cached is not None and now - cached.at < PROBE_SECONDS and self._is_the_same(branch, cached):
            head = self.store.head_version(layout.MANIFEST, stored_branch(branch), known=cached.handle.version)
            if head == cached.handle.version:
                if now - cached.at < PROBE_SECONDS / 8:
                    # Young enough to be looked at again by a probe; writing down the hour can wait.
                    return cached
                seen = replace(cached, at=now)
                self._remember(branch, seen)
                return seen
        self._renew_if_replaced()
        return self._read_newest(branch)

    def _read_newest(self, branch: str) -> _Seen:
        while True:
            now, mark = time.monotonic(), self._mark(branch)
            if branch != MAIN and mark is None:
                raise BranchNotFoundError(f"there is no branch '{branch}'{did_you_mean(branch, self.branches())}")
            try:
                handle = self.store.open(layout.MANIFEST, branch=stored_branch(branch))
                snapshot = Snapshot(self.decode(handle, branch), self.store)
            except (StorageError, VersionReclaimedError):
                # Its ref goes before its files: whatever a deletion has disturbed, the mark is another by now.
                if self._mark(branch) == mark:
                    raise
                continue
            if self._mark(branch) == mark:
                if branch == MAIN:
                    self.store.anchor(layout.MANIFEST, handle.version)
                return self._read(branch, _Seen(handle, snapshot, now, mark, is_current(handle)))

    def _read(self, branch: str, seen: _Seen) -> _Seen:
        """Remember a state that was just read from storage."""
        with self._lock:
            known = self._cache.get(branch)
        if known is not None and known.mark == seen.mark and known.state == seen.state:
            # The same state, looked at again after a while: what readers have derived from it stays.
            seen = replace(seen, snapshot=known.snapshot)
        self._remember(branch, seen)
        return seen

    def _is_the_same(self, branch: str, cached: _Seen) -> bool:
        """Whether the branch is still the one that was cached, and not another that was given its name."""
        return branch == MAIN or (cached.mark is not None and self._mark(branch) == cached.mark)

    def identity(self, branch: str) -> str:
        """What a branch has for as long as it is there, and no other one of its name ever had; of main nothing."""
        stored = stored_branch(branch)
        if stored is None:
            return ""
        text = self.store.branch_identity(layout.MANIFEST, stored)
        if text is None:
            raise BranchNotFoundError(f"there is no branch '{branch}'")
        return text

    def _mark(self, branch: str) -> object:
        stored = stored_branch(branch)
        return None if stored is None else self.store.branch_mark(layout.MANIFEST, stored)

    def decode(self, handle: TableHandle, branch: str) -> ManifestState:
        """What a manifest says, of whatever format: of an early one the commit table tells the lineage."""
        state = decode(handle.scan().to_pylist(), branch=branch, version=handle.version)
        if records.read_stamp(handle.schema) >= records.LINEAGE_FROM:
            return state
        return self.history.with_lineage(state, window=COMMITS_KEPT)

    def _remember(self, branch: str, seen: _Seen) -> None:
        with self._lock:
            known = self._cache.get(branch)
            # A branch deleted and created again may come back at a lower version, so only main must grow.
            if known is None or branch != MAIN or known.handle.version <= seen.handle.version:
                self._cache[branch] = seen
            if len(self._cache) > BRANCH_STATES:
                for name in [name for name in self._cache if name not in (MAIN, branch)][:1]:
                    del self._cache[name]

    def forget(self, branch: str | None = None) -> None:
        """Drop what is cached, of one branch or of all; the next read starts from storage."""
        with self._lock:
            for name in [name for name in self._cache if branch in (None, name)]:
                del self._cache[name]
            for key in [key for key in self._past if branch in (None, key[0])]:
                del self._past[key]

    def make_current(self) -> None:
        """Bring main to today's format, which it usually has.

        Raises:
            FormatError: its format is newer than this release, or contradicts itself.
        """
        seen = self._newest(MAIN)
        if not seen.is_current:
            self._make_writable(MAIN)

    def _make_writable(self, branch: str) -> _Seen:
        """Bring a branch to today's format, and take off what would remove versions of it."""
        migrate(self, branch)
        self.store.without_removal(self.store.open(layout.MANIFEST, branch=stored_branch(branch)))
        return self._read_newest(branch)

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
        fence: Callable[[], None] | None = None,
        prepared: Callable[[], Prepared | None] = unprepared,
    ) -> Snapshot:
        """Make changes visible as one commit, if every expectation holds at that moment.

        `expected` names table versions the caller saw, of tables it wrote and of tables it only read. `fence` is asked
        before every try, and what it raises ends the publish. `prepared` may give what `prepare` has made; it is used
        if it is this very publish on the newest state, and otherwise made anew.

        Raises:
            ExpectedVersionMismatchError: a table is at another version; nothing was published.
            ReadSetChangedError: the head is not `expected_head`; nothing was published.
            PublishContentionError: other publishers won every race of the budget; nothing was published.
        """
        ready = prepared()  # Waited for before the newest state is looked at, which would not become newer meanwhile.
        for attempt in range(RETRY_BUDGET + 1):
            failpoints.maybe_fail(failpoints.PUBLISH_LOAD_CONTENTION)
            seen = self._newest(branch)
            if not seen.is_current or seen.handle.removal_settings:
                seen = self._make_writable(branch)
            landed = seen.state.commits.get(lineage.commit_id) if attempt else None
            if landed is not None:
                # An earlier round of this very publish took effect although its answer said otherwise.
                return self.snapshot(branch, version=landed.manifest_version)
            check_expectations(seen.state, expected or {}, expected_head)
            failpoints.maybe_fail(failpoints.PUBLISH_AFTER_PRECHECK)
            if ready is None or not ready.fits(seen.handle, changes, lineage):
                ready = self._prepared(seen, branch, changes, lineage)
            if fence is not None:
                fence()
            try:
                committed = self._swap(seen, ready, operation_id)
            except LateCommitError as late:
                # Excluded by removing no young state: it would have hidden what others have published.
                raise InternalError(f"the publish on '{branch}' landed behind others: {late}") from late
            except ConflictError:
                logger.debug("publish on %s lost race %d of %d", branch, attempt + 1, RETRY_BUDGET + 1)
                continue
            published = Snapshot(ready.after, self.store)
            self._remember(branch, _Seen(committed, published, time.monotonic(), seen.mark))
            if branch == MAIN and self.store.is_local:
                self.store.anchor(layout.MANIFEST, committed.version)
            return published
        raise PublishContentionError(
            f"other writers kept publishing on branch '{branch}' ({RETRY_BUDGET + 1} attempts) — retry"
        )

    def prepare(self, branch: str, changes: Sequence[Change], lineage: Lineage) -> Prepared | None:
        """Stage a publish before it is time for it, on the newest state that is known: the publish looks whether it is.

        None when nothing is known, or the branch has to be brought to today's format first. Nothing of it is visible,
        and whoever does not use it leaves a file that `cleanup` takes away.
        """
        with self._lock:
            seen = self._cache.get(branch)
        if seen is None or not seen.is_current or seen.handle.removal_settings:
            return None
        return self._prepared(seen, branch, changes, lineage)

    def _prepared(self, seen: _Seen, branch: str, changes: Sequence[Change], lineage: Lineage) -> Prepared:
        """The next state, staged on the one that was seen."""
        commit = _commit(branch, lineage, seen.handle.version + 1, seen.state.head)
        after = apply_changes(self._make_room(seen.state), changes, commit)
        staged = stage_overwrite(seen.handle, after.to_table(), read_soon=False, rows_removed=seen.state.row_count)
        return Prepared(seen.handle, changes, lineage, after, self.store.sync_staged(seen.handle, staged))

    def _swap(self, seen: _Seen, ready: Prepared, operation_id: str | None) -> TableHandle:
        """Replace the manifest by its next state, unless anybody else did so first."""
        if time.monotonic() - seen.at >= PROBE_SECONDS:
            # This process stood still; meanwhile the next number may have been used and removed again.
            raise ConflictError("the state to publish on is too old to be sure of")
        properties = {OPERATION_ID: operation_id} if operation_id is not None else {}
        committed = self.store.commit(seen.handle, ready.staged, properties)
        if committed.version != ready.after.version:
            raise InternalError(f"the publish became version {committed.version}, not {ready.after.version}")
        return committed

    def _make_room(self, state: ManifestState) -> ManifestState:
        """Move the older half of a full commit window to the commit table; on any trouble simply keep it."""
        excess = len(state.commits) - COMMIT_WINDOW
        if excess < 0 or excess % ARCHIVE_EVERY:
            return state
        ordered = sorted(state.commits.values(), key=lambda commit: commit.order)
        older = ordered[: len(ordered) - COMMITS_KEPT]
        try:
            failpoints.maybe_fail(failpoints.PUBLISH_BEFORE_PROJECTION)
            archived = self.history.archive(older)
        except GraphError as exc:
            logger.warning("commits stay in the manifest for now, the commit table cannot be written: %s", exc)
            return state
        return without_commits(state, archived)


def is_current(handle: TableHandle) -> bool:
    """True when a manifest has today's format.

    Raises:
        FormatError: it is newer than this release, or unreadable.
    """
    return records.read_stamp(handle.schema) == records.INTERNAL_SCHEMA_VERSION


def _commit(branch: str, lineage: Lineage, version: int, parent: CommitId | None) -> CommitRecord:
    return CommitRecord(
        lineage.commit_id,
        stored_branch(branch),
        version,
        parent,
        lineage.merged_parent,
        lineage.actor_id,
        lineage.created_at,
        lineage.properties,
    )


def check_expectations(state: ManifestState, expected: Mapping[TableKey, int], expected_head: CommitId | None) -> None:
    """Refuse unless every table is at the version the caller saw, in key order so that the answer is deterministic."""
    for key in sorted(expected):
        actual = state.current_version(key)
        if actual != expected[key]:
            raise ExpectedVersionMismatchError(table_key=key, expected=expected[key], actual=actual)
    if expected_head is not None and state.head != expected_head:
        raise ReadSetChangedError(member=f"head of {state.branch}", expected=expected_head, actual=state.head)
