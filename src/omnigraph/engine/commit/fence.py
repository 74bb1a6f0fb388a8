"""What a write rests on must still be there once its intent is armed: its branch, and the files it has staged.

A branch that is deleted and created anew under its name counts its versions from where it starts, so the number a
strict commit demands may exist in both. A writer on a branch therefore knows which one it has seen, looks again once
its intent keeps others from deleting it, and looks for its intent before every effect: should it have stood still for
longer than its lease, somebody may have settled its write, and the branch may be another by now.

Files that nothing refers to are reclaimed by `cleanup`. While this process has left a note without a gap since it began
to stage, nobody does that; otherwise, and for files that other processes have staged, each of them is looked for. So is
a file of an earlier state that a merge or a revert takes over where it is: nothing has kept the version that had it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from omnigraph.engine.commit.request import CommitRequest, TableCommit
from omnigraph.engine.coordination.branch_lock import CLEANING, is_cleaned
from omnigraph.engine.coordination.heartbeat import Heartbeat
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery import Intent, RecoveryContext
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.lance_internals.files import branch_location
from omnigraph.engine.storage.staged import StagedWrite
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.storage.transactions import OPERATION_ID
from omnigraph.errors import ConflictError
from omnigraph.ids import now_micros, stored_branch


class Watch:
    """A fence that knows when it was last asked: whoever then stood still may have passed it too early."""

    def __init__(self, fence: Callable[[], None], lease_seconds: float) -> None:
        self._fence, self._lease = fence, int(lease_seconds * 1_000_000)
        self._asked = now_micros()

    def __call__(self) -> None:
        """Ask, and raise what the fence raises."""
        self._asked = now_micros()
        self._fence()

    @property
    def stood_still(self) -> bool:
        """True when it was last asked so long ago that others may have taken over since; costs one look at a clock."""
        return now_micros() - self._asked >= self._lease


class BranchFence(Struct, frozen=True):
    """The branch as it was seen before the newest snapshot of it was read; main needs no fence and has none."""

    recovery: RecoveryContext
    branch: str | None
    mark: object

    @classmethod
    def at(cls, recovery: RecoveryContext, branch: str) -> BranchFence:
        """Remember which branch has this name now."""
        stored = stored_branch(branch)
        return cls(recovery, stored, _mark(recovery, stored))

    def check_same(self) -> None:
        """Refuse to go on when the branch was deleted, or made anew.

        Raises:
            ConflictError: it was.
        """
        if self.branch is not None and _mark(self.recovery, self.branch) != self.mark:
            raise ConflictError(f"the branch '{self.branch}' was deleted or created anew meanwhile — retry")

    def check_owned(self, intent: Intent) -> None:
        """Refuse an effect of a write that others have settled while this process stood still.

        Raises:
            ConflictError: they have, or are about to.
        """
        if self.branch is None:
            return
        if not self.recovery.intents.exists(intent.operation_id):
            raise ConflictError(f"the write {intent.operation_id} was settled by another process meanwhile — retry")
        self.check_same()

    def take_back_elsewhere(self, published: Snapshot, owner: str) -> None:
        """Undo a publish of `owner` that has landed on another branch than it was made for, which has its name now.

        Its number was free there as well. What it has replaced is the version before.

        Raises:
            ConflictError: it has, or the branch is gone; the publish counts for nothing.
        """
        try:
            self.check_same()
        except ConflictError:
            if _mark(self.recovery, self.branch) is not None:
                store = self.recovery.store
                store.close()  # What is kept in memory is of the branch that is gone, under the same numbers.
                # One that landed in time went with its own branch, and that number is the work of others here.
                if self._maker(published.version) == owner:
                    store.restore(layout.MANIFEST, self.branch, published.version - 1, {})
            self.recovery.manifest.forget(published.branch)
            raise

    def _maker(self, version: int) -> str | None:
        """Who has published a version of the branch that has this name now, where there is such a version."""
        store = self.recovery.store
        if store.open(layout.MANIFEST, branch=self.branch).version < version:
            return None
        [made] = store.transactions(layout.MANIFEST, self.branch, after=version - 1, upto=version)
        return made.properties.get(OPERATION_ID)


def check_staged_files(store: TableStore, request: CommitRequest) -> None:
    """Refuse to commit files that were reclaimed while nobody could know whose they are.

    Raises:
        ConflictError: one is missing, or may be.
    """
    since = request.requires.staged_since
    covered = since is None or Heartbeat.at(store.objects).covers(since)
    if not covered and not request.kind.lists_files:
        raise ConflictError("this process stood still, and what it had staged may have been reclaimed — retry")
    for table in request.tables:
        for staged in table.staged:
            if not covered or table.staged_elsewhere or staged.has_older_files:
                _look_for_files(store, table, staged)


def check_taken_files(recovery: RecoveryContext, table: TableCommit, staged: Iterable[StagedWrite]) -> None:
    """Refuse to commit files of an earlier state, or of another line, that cleanup has removed or may be about to.

    Asked behind the intent: a cleanup that begins from here on is refused, because a write is unfinished.

    Raises:
        ConflictError: one is missing, or may be soon.
    """
    taken = [file for each in staged for file in each.taken]
    if taken and is_cleaned(recovery.intents):
        raise ConflictError(CLEANING)
    for file in taken:
        if not recovery.store.objects.has(file):
            raise ConflictError(
                f"a file of '{table.table_key}' was removed by a cleanup before it could be taken over — run this again"
            )


def _look_for_files(store: TableStore, table: TableCommit, staged: StagedWrite) -> None:
    if table.base is None:
        return
    place = branch_location(table.base.path, table.base.branch)
    for folder in sorted({name.rpartition("/")[0] for name in staged.files}):
        wanted = {name.rpartition("/")[2] for name in staged.files if name.rpartition("/")[0] == folder}
        missing = wanted.difference(store.objects.list_dir(f"{place}/{folder}"))
        if missing:
            raise ConflictError(
                f"{len(missing)} files staged for '{table.table_key}' were reclaimed before they could be committed"
                " — run this again"
            )


def _mark(recovery: RecoveryContext, branch: str | None) -> object:
    return None if branch is None else recovery.store.branch_mark(layout.MANIFEST, branch)
