"""Read the world an intent is judged against: branch, published versions, heads and who moved them."""

from __future__ import annotations

from msgspec import Struct

from omnigraph.engine.coordination.context import RecoveryContext
from omnigraph.engine.coordination.intent import Effect, Intent, WriterKind
from omnigraph.engine.manifest.publish import Manifest
from omnigraph.engine.manifest.records import CommitRecord
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery.classify import Observation, TableState, classify, was_undone
from omnigraph.engine.recovery.decide import Situation
from omnigraph.engine.schema.files import is_ready
from omnigraph.engine.storage.transactions import OPERATION_ID, TransactionInfo
from omnigraph.errors import BranchNotFoundError, StorageError
from omnigraph.ids import MAIN, CommitId

_UNDOING_COMMITS_MAX = 8


class World(Struct, frozen=True):
    """What was seen of an intent's branch and tables; `snapshot` is None when the branch is gone."""

    snapshot: Snapshot | None
    observations: tuple[Observation, ...]
    states: tuple[TableState, ...]
    commit: CommitRecord | None
    schema_ready: bool = True

    def moved(self) -> list[tuple[Observation, TableState]]:
        """The effects whose tables lie above their published versions, by this operation."""
        pairs = zip(self.observations, self.states, strict=True)
        return [(seen, state) for seen, state in pairs if state is not TableState.NO_MOVEMENT]


def find_commit(manifest: Manifest, branch: str, commit_id: CommitId | None) -> CommitRecord | None:
    """The commit of this id if it was ever published, on any branch."""
    if commit_id is None:
        return None
    recent = manifest.snapshot(branch).state.commits
    return recent[commit_id] if commit_id in recent else manifest.history.look_up(commit_id)


def look(ctx: RecoveryContext, intent: Intent) -> World:
    """Read everything a decision about an intent depends on, afresh."""
    branch = intent.branch or MAIN
    try:
        # Heads before the snapshot would be older than it, and a write published in between would look like a loss.
        snapshot = ctx.manifest.snapshot(branch)
    except BranchNotFoundError:
        return World(None, (), (), None)
    observations = tuple(_observe(ctx, snapshot, intent, effect) for effect in intent.effects)
    states = tuple(
        classify(seen, intent.writer_kind, intent.schema_version, intent.operation_id) for seen in observations
    )
    commit = find_commit(ctx.manifest, branch, intent.commit_id) if intent.by_identity else None
    ready = intent.writer_kind is not WriterKind.SCHEMA_APPLY or is_ready(ctx.store.objects, intent.target_schema_hash)
    return World(snapshot, observations, states, commit, ready)


def _pinned(snapshot: Snapshot, effect: Effect) -> int:
    """The version that is published of an effect's table, under whatever name, or at which it disappeared."""
    entry = snapshot.entries.get(effect.table_key)
    if entry is None:
        entry = next((other for other in snapshot.entries.values() if other.path == effect.table_path), None)
    return snapshot.state.current_version(effect.table_key) if entry is None else entry.version


def _observe(ctx: RecoveryContext, snapshot: Snapshot, intent: Intent, effect: Effect) -> Observation:
    pinned = _pinned(snapshot, effect)
    if effect.table_key not in snapshot.entries and not ctx.store.exists(effect.table_path):
        # Dropped for good: there is nothing left that could have moved.
        return Observation(effect, pinned, pinned)
    if effect.table_branch is not None and effect.table_branch not in ctx.store.table_branches(effect.table_path):
        # A fork that was not made; or the branch was made anew since, and its tables are those of another one.
        return Observation(effect, pinned, pinned)
    head = ctx.store.open(effect.table_path, branch=effect.table_branch).version
    if effect.fork and head < pinned:
        # Not what this write made at the inherited version, but what an earlier branch of that name has left.
        return Observation(effect, pinned, pinned)
    if not intent.by_identity:
        return Observation(effect, head, pinned)
    drift = ctx.store.transactions(effect.table_path, effect.table_branch, after=pinned, upto=head)
    commits = [*_published_commits(ctx, effect, pinned), *drift]
    others = {
        owner for commit in drift if (owner := commit.properties.get(OPERATION_ID)) not in (None, intent.operation_id)
    }
    # Listed after the heads were read: an operation that has no intent by then is resolved, or nobody's.
    kin = others.difference(ctx.intents.list()) if others else others
    return Observation(effect, head, pinned, commits, frozenset(str(owner) for owner in kin))


def _published_commits(ctx: RecoveryContext, effect: Effect, pinned: int) -> list[TransactionInfo]:
    """What was published right above the version an effect started from.

    While a write is unpublished nobody else commits to its tables, so whatever undid it follows it at once. An intent
    that turns up again long after its write was settled may find these versions cleaned up; its audit row then tells.
    """
    upto = min(pinned, effect.expected_version + effect.steps + _UNDOING_COMMITS_MAX)
    try:
        return ctx.store.transactions(effect.table_path, effect.table_branch, after=effect.expected_version, upto=upto)
    except StorageError as exc:
        if exc.kind != "not_found":
            raise
        return []


def situation(intent: Intent, world: World, *, sweeping: bool, may_restore: bool) -> Situation:
    """The facts of a decision, from what was seen."""
    snapshot = world.snapshot
    if snapshot is None:
        return Situation((), branch_exists=False, sweeping=sweeping)
    read_set_holds = intent.expected_head in (None, snapshot.head) and all(
        snapshot.state.current_version(key) == version for key, version in (intent.read_set or {}).items()
    )
    return Situation(
        states=world.states,
        advanced=any(seen.pinned > seen.effect.expected_version for seen in world.observations),
        published=(world.commit is not None) if intent.by_identity else None,
        undone=any(was_undone(seen, intent.operation_id) for seen in world.observations),
        aborted=intent.aborted,
        read_set_holds=read_set_holds,
        schema_ready=world.schema_ready,
        sweeping=sweeping,
        may_restore=may_restore,
    )
