"""Undoing one commit by another: a merge in which the state before the commit meets what the branch is now.

The commit is what the two have parted from. What only the commit changed goes back; what was changed again since is a
conflict, of the same kinds and settled in the same ways as in any merge. *Theirs* is the state before the commit,
*ours* the branch. Undoing a merge undoes what it brought, because the state before it is that of its first parent.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from omnigraph.engine.commit.stale import StaleWrite
from omnigraph.engine.coordination.intent import WriterKind
from omnigraph.engine.manifest.lineage import merge_bases
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.merge.look import Looked
from omnigraph.engine.operations.merge.outcome import MergePlan, MergeResult, Outcome
from omnigraph.engine.operations.merge.resolutions import Resolutions
from omnigraph.engine.operations.merge.run import MergeRequest, Merging, result_of
from omnigraph.engine.write.context import GraphContext
from omnigraph.engine.write.transaction import WriteRequest
from omnigraph.engine.write.writer import ATTEMPTS, write
from omnigraph.errors import ConflictError, InputError, InternalError, PreconditionFailedError
from omnigraph.ids import MAIN, CommitId, parse_branch


class RevertRequest(Struct, frozen=True):
    """Which commit is to be undone where, and what counts where it was changed again since."""

    commit: str
    branch: str = MAIN
    strategy: str | None = None
    strategies: Mapping[str, str] = field(default_factory=dict)
    resolve: Resolutions | None = None
    expect_head: str | None = None
    actor: str | None = None
    message: str | None = None


def revert_commit(context: GraphContext, request: RevertRequest) -> MergeResult:
    """Undo a commit of a branch by a new one; without a commit where nothing of it is left to undo.

    Raises:
        MergeConflictError: what it changed was changed again since, or undoing it would break a rule; nothing changed.
        InputError: it is the first commit, or not in the history of the branch.
        CommitNotFoundError: there is no such commit.
        MergeBaseError, VersionReclaimedError: cleanup has removed its state, or the one before it.
        ConflictError: the schema was another one then, or others kept writing; nothing changed.
    """
    actor = context.admit("change", request.actor, branch=parse_branch(request.branch))
    reverting = _Reverting(context, request)
    wanted = WriteRequest(reverting.target, WriterKind.BRANCH_MERGE, actor, publishing=reverting.foretell)
    for _ in range(ATTEMPTS):
        try:
            written = write(context, wanted, reverting.gather)
        except (StaleWrite, PreconditionFailedError):
            reverting.check_target(context.manifest.snapshot(reverting.target))
            continue
        if written.committed is None:
            return MergeResult(written.value.looked.plan, Outcome.ALREADY_UP_TO_DATE, None, actor)
        return result_of(written.committed.snapshot, written.value.looked, actor)
    raise ConflictError(f"others keep writing to '{reverting.target}' — retry")


class _Reverting(Merging):
    """One revert: the state before a commit as theirs, the commit as the base."""

    def __init__(self, context: GraphContext, request: RevertRequest) -> None:
        history = context.manifest.history
        target = parse_branch(request.branch)
        self._commit = history.commit_at(request.commit, target)
        if self._commit.parent_commit_id is None:
            raise InputError(f"commit {self._commit.graph_commit_id} is the first one: there is nothing before it")
        before = history.whole_snapshot(history.find(self._commit.parent_commit_id))
        now = context.manifest.snapshot(target)
        if now.head is None:
            raise InternalError(f"'{target}' has no commit")
        undone = self._commit.graph_commit_id
        if merge_bases(context.manifest, now.head, undone, near=(now,)) != (undone,):
            raise InputError(f"commit {self._commit.graph_commit_id} is not in the history of '{target}'")
        states = (before, history.snapshot_of(self._commit), now)
        if len({context.catalog_of(state, past=True).schema_hash for state in states}) > 1:
            raise ConflictError(
                f"the schema was changed by commit {self._commit.graph_commit_id} or since: apply the schema you want,"
                " and change the entities by a mutation"
            )
        merging = MergeRequest(
            str(self._commit.parent_commit_id),
            target,
            request.strategy,
            request.strategies,
            request.resolve,
            expect_target=request.expect_head,
            actor=request.actor,
            message=request.message,
        )
        super().__init__(context, merging, theirs=before)
        self.refusal = f"commit {self._commit.graph_commit_id} cannot be undone on '{target}'"

    def _bases(self, ours: Snapshot) -> tuple[CommitId, ...]:
        return (self._commit.graph_commit_id,)

    def plan(self, ours: Snapshot) -> MergePlan:
        """The plan of these states; it is never a fast-forward, because it goes backward."""
        if self.theirs.head is None or ours.head is None:
            raise InternalError(f"'{self.target}' has no commit")
        return MergePlan(self.source, self.target, self.theirs.head, ours.head, self._bases(ours), Outcome.MERGED)

    def _properties(self, looked: Looked) -> dict[str, str]:
        found = super()._properties(looked)
        told = {name: value for name, value in found.items() if name not in ("merge.source", "merge.base")}
        return {"revert.commit": self._commit.graph_commit_id, **told}
