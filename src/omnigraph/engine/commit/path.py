"""Arm, secure, apply, publish, disarm: the one function that makes a write visible.

Behind the mutexes of its tables a write is compared with the newest state, leaves its intent, commits each table in
ascending key order strictly at the version it was staged on, and publishes with an expectation for every table it wrote
or read. What becomes of the intent is decided here and nowhere else. What fails before the first effect leaves nothing;
what fails after it is undone by the writer itself, unless only the publish is missing, which recovery then supplies. An
interrupt is a failure like the others and goes on as what it is. Whatever happens, an intent that is neither removed
nor resolved is given up before the caller hears of it: no process that lives keeps one that nobody works on, because
every other writer would wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from msgspec import Struct

from omnigraph import failpoints
from omnigraph.engine.commit.ahead import Ahead
from omnigraph.engine.commit.fence import BranchFence, Watch, check_staged_files, check_taken_files
from omnigraph.engine.commit.forks import fork, secure_forks
from omnigraph.engine.commit.guard import guard
from omnigraph.engine.commit.request import (
    Applied,
    CommitRequest,
    TableCommit,
    changes_of,
    foreseen_changes,
    intent_of,
)
from omnigraph.engine.commit.stale import StaleWrite
from omnigraph.engine.coordination.branch_lock import refuse_while_branch_changes
from omnigraph.engine.coordination.intent import Intent
from omnigraph.engine.coordination.schema_lock import refuse_while_locked
from omnigraph.engine.manifest.delta import Lineage
from omnigraph.engine.manifest.listener import nobody_waits
from omnigraph.engine.manifest.publish import Prepared, unprepared
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery import RecoveryContext, roll_back, was_published
from omnigraph.engine.recovery.decide import RecoveryKind
from omnigraph.engine.schema.files import promote, stage_files
from omnigraph.engine.schema.history import keep_texts
from omnigraph.engine.storage.staged import StagedWrite
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    GraphError,
    InternalError,
    LateCommitError,
    PublishContentionError,
    RecoveryRequiredError,
    StorageError,
)
from omnigraph.ids import CommitId, TableKey, new_ulid, now_micros
from omnigraph.interrupts import holding, nothing

PUBLISH_WAIT_SECONDS = 20.0
"""How long publishes of others may win before this one gives up its finished work."""


class Committed(Struct, frozen=True):
    """A published write: the state that shows it, its commit, and what each table it committed to has become."""

    snapshot: Snapshot
    commit_id: CommitId
    tables: Mapping[TableKey, Applied]


def commit(context: RecoveryContext, request: CommitRequest) -> Committed:
    """Make a write visible. The caller holds the mutexes of every table it writes.

    Raises:
        StaleWrite: its base is outdated; nothing is left of this attempt.
        ExpectedVersionMismatchError: a table that must not have changed did.
        PreconditionFailedError: the branch is not at the commit demanded.
        DriftError: a table holds commits that are not published and not ours to undo.
        ConflictError: a schema or the branch is being changed, or staged files are gone; nothing is left.
        RecoveryRequiredError: the write is unfinished; the next write or open resolves it.
    """
    # Before the newest state is read: what is found to be the same then, is the same on the same branch.
    fence = BranchFence.at(context, request.branch)
    path = _Path(context, request, fence)
    if request.has_effects:
        if request.kind.guarded:
            guard(context, request)
        request.cancellation.check()
        stop(request.kind.stops.before_arm)
    try:
        return path.walk() if request.has_effects else path.publish_alone()
    except ConflictError as refused:
        if not path.secured:
            raise
        raise StaleWrite(refused) from refused


def commit_once(context: RecoveryContext, request: CommitRequest) -> Committed:
    """`commit` for writers that do not prepare again: what is outdated is the conflict it is.

    Raises:
        ConflictError: others were faster; nothing is left of this attempt.
        RecoveryRequiredError: the write is unfinished; the next write or open resolves it.
    """
    try:
        return commit(context, request)
    except StaleWrite as stale:
        raise stale.conflict from stale


def stop(failpoint: str | None) -> None:
    """Let a test stop here, if this kind of writer has a name for it."""
    if failpoint is not None:
        failpoints.maybe_fail(failpoint)


class _Path:
    """One walk. `secured` once nothing but others can be in its way, `begun` once there may be an effect."""

    def __init__(self, context: RecoveryContext, request: CommitRequest, fence: BranchFence) -> None:
        self._context, self._request, self._fence = context, request, fence
        self._kind = request.kind
        self.secured = self.begun = False

    def walk(self) -> Committed:
        """Arm, secure, apply, publish, disarm."""
        intent = intent_of(self._request)
        abandon = self._context.intents.abandon
        committed, settle = holding(nothing, lambda: self._walk(intent), lambda: abandon(intent.operation_id))
        settle(committed.snapshot)
        return committed

    def publish_alone(self) -> Committed:
        """Make visible what needs no effect: one publish, which a crash leaves done or not begun."""
        self.secured = True
        lineage = self._lineage(CommitId(new_ulid()))
        return Committed(self._swap(lineage, None, {}, self._fence.check_same, unprepared), lineage.commit_id, {})

    def _walk(self, planned: Intent) -> tuple[Committed, Callable[[Snapshot], None]]:
        if planned.commit_id is None:
            raise InternalError("an intent without a commit id cannot be published")
        intents = self._context.intents
        intent = intents.arm(planned)
        try:
            # Looked for after the intent is there: who changes the schema or a branch looks for intents after locking.
            if self._request.schema is None:
                refuse_while_locked(intents, "writing")
            refuse_while_branch_changes(intents, intent.branch)
            self._secure(intent)
            lineage = self._lineage(planned.commit_id)
            prepared = self._prepare(intent, lineage)
        except BaseException:
            intents.disarm(intent.operation_id)
            raise
        try:
            applied = self._apply(intent)
            snapshot, settle = self._publish(intent, lineage, applied, prepared)
        finally:
            prepared()  # Nobody goes on writing when the caller has heard how it ended.
        intents.disarm(intent.operation_id)
        return Committed(snapshot, planned.commit_id, applied), settle

    def _lineage(self, commit_id: CommitId) -> Lineage:
        request = self._request
        return Lineage(commit_id, request.actor, now_micros(), request.merged_parent, dict(request.properties))

    def _prepare(self, intent: Intent, lineage: Lineage) -> Callable[[], Prepared | None]:
        """Begin to write the manifest that will show this write, where it is known what that will say."""
        changes = foreseen_changes(self._request, intent)
        if changes is None:
            return unprepared
        return Ahead(lambda: self._context.manifest.prepare(self._request.branch, changes, lineage)).result

    def _secure(self, intent: Intent) -> None:
        """Make sure that what this write rests on is there, now that the intent keeps others from taking it.

        That is the branch it has seen, and its files: those that other threads still write are waited for, because from
        here on it has effects.
        """
        try:
            self._fence.check_same()
        except ConflictError as refused:
            raise StaleWrite(refused) from refused
        self._request = self._request.arrived()
        self._request.requires.check()
        check_staged_files(self._context.store, self._request)
        for table in self._request.tables:
            check_taken_files(self._context, table, table.staged)
        secure_forks(self._context, self._request, intent)
        self.secured = True

    # --- effects ---------------------------------------------------------------------------------------------------

    def _apply(self, intent: Intent) -> dict[TableKey, Applied]:
        try:
            self._create()
            applied = {table.table_key: self._apply_table(table, intent) for table in self._request.ordered}
            self._make_ready(intent, applied)
            return applied
        except BaseException as failure:
            if isinstance(failure, ConflictError) and not self.begun:
                # The refused commit did nothing. Without an effect before it there is nothing to undo either.
                self._context.intents.disarm(intent.operation_id)
                raise
            settled = isinstance(failure, StorageError) and self._is_settled(intent)
            self._undo(intent, failure)
            if settled:
                # What it was working on is gone, or there already, because others have undone it.
                raise ConflictError(
                    f"the {self._kind.name} {intent.operation_id} was settled by another process, because this one"
                    f" stood still ({failure}) — retry"
                ) from failure
            raise

    def _is_settled(self, intent: Intent) -> bool:
        """True when others have taken this writer for dead and are done with its write."""
        try:
            return not self._context.intents.exists(intent.operation_id)
        except GraphError:
            return False  # Storage fails altogether; that is what the caller hears then.

    def _create(self) -> None:
        """Create the tables that are new; they are nobody's until the publish shows them."""
        store, places = self._context.store, {each.table_key: each for each in self._request.registrations}
        for new in sorted(self._request.creates, key=lambda new: new.table_key):
            self.begun = True
            path = places[new.table_key].table_path
            if store.exists(path):
                # Left by an attempt that never published it, unless this process stood still and others did.
                self._check_lock()
                store.objects.delete_prefix(path)
            handle = store.create(path, new.schema)
            if handle.version != 1:
                raise InternalError(f"a new table of '{new.table_key}' began at version {handle.version}")

    def _check_lock(self) -> None:
        """Refuse to go on with a change of the schema that others have taken for dead.

        Raises:
            ConflictError: its lock is gone.
        """
        schema = self._request.schema
        if schema is not None and not schema.lock.is_held:
            raise ConflictError("schema apply lost its lock; nothing was published — retry")

    def _apply_table(self, table: TableCommit, intent: Intent) -> Applied:
        """Every commit to one table, each on the version that the one before has made."""
        self._fence.check_owned(intent)
        head = table.base
        if head is None:
            self.begun = True
            head = fork(self._context, self._request, table, lambda: self._fence.check_owned(intent))
        done: list[StagedWrite] = []
        for number, each in enumerate(table.steps):
            staged = each if isinstance(each, StagedWrite) else each(head)
            if staged is None:
                if not self._kind.skips:
                    raise InternalError(f"step {number + 1} of the change of '{table.table_key}' was not staged")
                continue
            if not isinstance(each, StagedWrite):
                check_taken_files(self._context, table, [staged])
            if done:
                stop(self._kind.stops.between_commits)
            # What is not refused when another commit came first counts before it is done.
            self.begun = self.begun or not staged.strict
            try:
                head = self._context.store.commit(head, staged, intent.properties(len(done) + 1))
            except LateCommitError:
                self.begun = True
                raise
            self.begun = True
            done.append(staged)
        if not done:
            raise InternalError(f"the change of '{table.table_key}' was not staged")
        stop(self._kind.stops.after_table)
        return Applied(head, tuple(done))

    def _make_ready(self, intent: Intent, applied: Mapping[TableKey, Applied]) -> None:
        """What has to be stored when every table is there and before the publish, so that others may finish it."""
        schema, objects = self._request.schema, self._context.store.objects
        self._check_lock()
        stop(self._kind.stops.before_ready)
        if self._kind.confirmed:
            # It is finished by others only once its own record says which versions it has reached.
            self._context.intents.confirm(intent, {key: each.head.version for key, each in applied.items()})
        if schema is not None:
            self.begun = True
            keep_texts(
                objects,
                self._request.base.state,
                accepted=schema.accepted_text,
                desired=schema.desired_text,
                desired_hash=schema.target.schema_hash,
            )
            stage_files(objects, schema.desired_text, schema.target)

    # --- visibility ------------------------------------------------------------------------------------------------

    def _publish(
        self,
        intent: Intent,
        lineage: Lineage,
        applied: Mapping[TableKey, Applied],
        prepared: Callable[[], Prepared | None],
    ) -> tuple[Snapshot, Callable[[Snapshot], None]]:
        settle = self._request.listener(applied)
        try:
            stop(self._kind.stops.before_publish)
            snapshot = self._swap(lineage, intent, applied, lambda: self._fence.check_owned(intent), prepared)
            stop(self._kind.stops.after_publish)
            if self._request.schema is not None and self._context.intents.exists(intent.operation_id):
                self._promote(intent)
            return snapshot, settle
        except BranchNotFoundError as gone:
            # Deleted while this process stood still, once its write was settled; nothing is left to publish it on.
            self._undo(intent, gone)
            raise
        except ConflictError as refused:
            failpoints.maybe_fail(failpoints.PUBLISH_REJECTED)
            if self._undo(intent, refused):
                # Others have published it, and may have changed what they like since: what this process made of its
                # tables need not be what the newest state shows.
                return self._context.manifest.snapshot(self._request.branch), nobody_waits
            if self._kind.refused is None:
                raise
            raise ConflictError(self._kind.refused.format(refused=refused)) from refused
        except GraphError as failure:
            # Every effect is there, only the publish is in doubt. Whoever comes next finishes it.
            self._context.intents.abandon(intent.operation_id)
            raise RecoveryRequiredError(
                f"the {self._kind.name} {intent.operation_id} took effect but could not be published ({failure}) — the"
                " next write or open of the graph finishes it",
                operation_id=intent.operation_id,
            ) from failure

    def _promote(self, intent: Intent) -> None:
        """Put the files of the published schema in place, unless others are doing so or have done it."""
        try:
            promote(self._context.store.objects)
        except StorageError:
            if not self._is_settled(intent):
                raise

    def _swap(
        self,
        lineage: Lineage,
        intent: Intent | None,
        applied: Mapping[TableKey, Applied],
        fence: Callable[[], None],
        prepared: Callable[[], Prepared | None],
    ) -> Snapshot:
        """Publish; losing races against unrelated writers is no reason to undo finished work."""
        request = self._request
        reached = {key: each.reached for key, each in applied.items()}
        changes, expected = changes_of(request, intent, reached), request.expected
        owner = lineage.commit_id if intent is None else intent.operation_id
        limit = time.monotonic() + PUBLISH_WAIT_SECONDS
        watch = Watch(fence, self._context.intents.lease_seconds)
        while True:
            try:
                published = self._context.manifest.publish(
                    request.branch,
                    changes,
                    lineage=lineage,
                    expected=expected,
                    expected_head=request.requires.head,
                    operation_id=owner,
                    fence=watch,
                    prepared=prepared,
                )
            except PublishContentionError:
                if time.monotonic() > limit:
                    raise
                continue
            if watch.stood_still:
                self._fence.take_back_elsewhere(published, owner)
            return published

    def _undo(self, intent: Intent, failure: BaseException) -> bool:
        """Undo this write's effects; True when it turns out to be published after all.

        Raises:
            RecoveryRequiredError: undoing was not possible now; recovery will do it.
        """
        intents = self._context.intents
        resolution = roll_back(self._context, intent)
        if resolution is not None and resolution.settled:
            return resolution.outcome is RecoveryKind.ROLLED_FORWARD
        if not isinstance(failure, GraphError):
            return False  # The caller goes on with what has stopped it, which is no error of ours, and gives it up.
        if resolution is None and not intents.exists(intent.operation_id):
            # Somebody who took this writer for dead has resolved it; the history says how.
            return was_published(self._context, intent)
        intents.abandon(intent.operation_id)
        raise RecoveryRequiredError(
            f"the {self._kind.name} {intent.operation_id} failed ({failure}) and could not be undone yet — the next"
            " write or open of the graph does that",
            operation_id=intent.operation_id,
        ) from failure
