"""A merge from its names to its commit.

Planning reads the states and writes nothing. The commit goes the way of every write: what the plan gives the target is
checked against all rules together with the conflicts of rows, staged, and committed with two parents. A target that
moves meanwhile is planned again.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from msgspec import Struct, field
from msgspec.structs import replace

from omnigraph import failpoints
from omnigraph.engine.commit.fence import BranchFence
from omnigraph.engine.commit.kinds import MERGE
from omnigraph.engine.commit.path import commit
from omnigraph.engine.commit.request import CommitRequest, Requirements, TablePointer
from omnigraph.engine.commit.stale import StaleWrite
from omnigraph.engine.coordination.intent import WriterKind
from omnigraph.engine.manifest.lineage import merge_bases
from omnigraph.engine.manifest.records import with_message
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.merge.conflicts import MergeConflict, parse_token
from omnigraph.engine.operations.merge.engines import EngineQuestion
from omnigraph.engine.operations.merge.look import Looked, Question, fast_forward, three_way, type_merges
from omnigraph.engine.operations.merge.outcome import CONFLICTS_SHOWN, MergePlan, MergeResult, Outcome, TypeMerge
from omnigraph.engine.operations.merge.plan import Strategy
from omnigraph.engine.operations.merge.progress import Listener, Watch
from omnigraph.engine.operations.merge.resolutions import Resolutions, Resolving
from omnigraph.engine.operations.merge.stage import How, Move
from omnigraph.engine.operations.merge.writing import Writing
from omnigraph.engine.write.attached import attached, foretold
from omnigraph.engine.write.committed import SnapshotView
from omnigraph.engine.write.context import GraphContext
from omnigraph.engine.write.rows import WriteKind
from omnigraph.engine.write.transaction import Transaction, WriteRequest
from omnigraph.engine.write.writer import ATTEMPTS, write
from omnigraph.errors import (
    ConflictError,
    InputError,
    InternalError,
    MergeConflictError,
    PreconditionFailedError,
)
from omnigraph.ids import MAIN, CommitId, TableKey, parse_branch


class MergeRequest(Struct, frozen=True):
    """What is to be merged into what, and what counts where the two disagree."""

    source: str
    into: str
    strategy: str | None = None
    strategies: Mapping[str, str] = field(default_factory=dict)
    resolve: Resolutions | None = None
    expect_source: str | None = None
    expect_target: str | None = None
    base: str | None = None
    actor: str | None = None
    message: str | None = None
    progress: Listener | None = None
    """Hears how far the merge is."""
    engine: EngineQuestion = field(default_factory=EngineQuestion)


class Gathered(Struct, frozen=True):
    """A merge that is ready to be staged: the state it was planned on, the plan, and what the commit records of it."""

    base: Snapshot
    looked: Looked
    properties: dict[str, str]
    pointers: tuple[TablePointer, ...]


class _AlreadyThere(Exception):
    """The target has everything of the source by now; never leaves this module."""


def merge_branch(context: GraphContext, request: MergeRequest) -> MergeResult:
    """Bring what one branch has changed into another one, as one commit, or nothing at all.

    Raises:
        MergeConflictError: both have changed the same thing, or together they would break a rule; nothing changed.
        PreconditionFailedError: a branch is not at the commit that was expected; nothing changed.
        BranchNotFoundError: there is no such branch.
        PolicyError: the actor may not merge into the target.
        MergeBaseError: the state in which they parted can no longer be read.
        ConflictError: others kept writing to the target; nothing changed.
    """
    names = {"branch": parse_branch(request.source), "target_branch": parse_branch(request.into)}
    actor = context.admit("branch_merge", request.actor, **names)
    merging = Merging(context, request)
    wanted = WriteRequest(
        merging.target,
        WriterKind.BRANCH_MERGE,
        actor,
        merged_parent=merging.theirs.head,
        check=merging.check_armed,
        publishing=merging.foretell,
    )
    for _ in range(ATTEMPTS):
        try:
            written = write(context, wanted, merging.gather)
            gathered = written.value
            if written.committed is not None:
                return result_of(written.committed.snapshot, gathered.looked, actor)
            merging.foretell()
            return result_of(_publish_alone(context, wanted, gathered), gathered.looked, actor)
        except _AlreadyThere:
            ours = context.manifest.snapshot(merging.target)
            return MergeResult(merging.plan(ours), Outcome.ALREADY_UP_TO_DATE, None, actor)
        except (StaleWrite, PreconditionFailedError):
            # The target moved under a merge that demands its head; what it has now is planned again.
            merging.check_target(context.manifest.snapshot(merging.target))
    raise ConflictError(f"others keep writing to '{merging.target}' — retry")


def plan_merge(context: GraphContext, request: MergeRequest) -> MergePlan:
    """What a merge would do, conflicts included; reads only.

    Raises:
        As `merge_branch`, but for conflicts, which are part of the plan.
    """
    looked = _look(context, request)
    return dataclasses.replace(
        looked.plan,
        types=type_merges(looked),
        conflicts=tuple(islice(looked.conflicts(), CONFLICTS_SHOWN)),
        conflicts_total=looked.total,
        conflicts_by_kind=looked.by_kind(),
    )


def find_conflicts(context: GraphContext, request: MergeRequest, after: str | None = None) -> Iterator[MergeConflict]:
    """Every conflict of a merge by table, id and kind, read as they are asked for; `after` goes on behind a token.

    Raises:
        InputError: `after` is no token.
    """
    place = None if after is None else parse_token(after)
    return _look(context, request).conflicts(place)


def _look(context: GraphContext, request: MergeRequest) -> Looked:
    merging = Merging(context, request)
    ours = context.manifest.snapshot(merging.target)
    try:
        looked = merging.look(SnapshotView(ours), exact=True)
    except _AlreadyThere:
        return Looked(merging.plan(ours))
    for key, move in looked.moves.items():
        move.foresee(ours.open(key))
    return looked


def _publish_alone(context: GraphContext, request: WriteRequest, gathered: Gathered) -> Snapshot:
    """Record a merge that changes no table: its commit is all there is to it, and one publish makes it visible."""
    alone = CommitRequest(
        MERGE,
        request.branch,
        gathered.base,
        requires=Requirements(head=gathered.looked.plan.target_commit),
        actor=request.actor,
        merged_parent=request.merged_parent,
        properties={**attached(), **gathered.properties},
        pointers=gathered.pointers,
    )
    return commit(context.recovery, alone).snapshot


def result_of(snapshot: Snapshot, looked: Looked, actor: str | None) -> MergeResult:
    """What a merge did, from the state it left."""
    head = snapshot.head
    if head is None:
        raise InternalError(f"the merge into '{looked.plan.target}' left no commit")
    plan = dataclasses.replace(looked.plan, types=type_merges(looked))
    return MergeResult(plan, plan.outcome, head, actor)


class Merging:
    """One merge: the source as it was when it was asked for, and whatever the target is at the moment."""

    def __init__(self, context: GraphContext, request: MergeRequest, *, theirs: Snapshot | None = None) -> None:
        self._context, self._request = context, request
        self._watch = Watch(request.progress)
        self.source, self.target = parse_branch(request.source), parse_branch(request.into)
        self.refusal = f"'{self.source}' cannot be merged into '{self.target}'"
        if self.source == self.target:
            raise InputError(f"'{self.source}' cannot be merged into itself")
        self._strategy = _strategy(request.strategy)
        self._strategies = {_table(context, name): _strategy(each) for name, each in request.strategies.items()}
        self._fence = None if theirs is not None else BranchFence.at(context.recovery, self.source)
        self.theirs = theirs or context.manifest.snapshot(self.source)
        self._hear = foretold()
        self._looked: Looked | None = None
        _expect(request.expect_source, self.theirs)
        self._resolving()

    def _resolving(self) -> Resolving:
        return Resolving(self._request.resolve, self._context.catalog)

    def check_source(self) -> None:
        """Refuse to bring the work of a branch that is gone: its files may be gone as well.

        Raises:
            ConflictError: it was deleted, or another one has its name.
        """
        try:
            if self._fence is not None:
                self._fence.check_same()
        except ConflictError as gone:
            raise ConflictError(f"{self.refusal}: it was deleted or created anew meanwhile; nothing changed") from gone

    def check_armed(self) -> None:
        """What is asked once nothing but others can be in the way: that the source is still there."""
        self._watch.committing()
        self.check_source()

    def foretell(self) -> None:
        """Let whoever asked for the merge hear what it will report, now that only its commit is missing."""
        if self._hear is not None and self._looked is not None:
            plan = dataclasses.replace(self._looked.plan, types=type_merges(self._looked))
            self._hear(MergeResult(plan, plan.outcome, None, self._request.actor))

    def check_target(self, ours: Snapshot) -> None:
        """Refuse another target than the one that was looked at."""
        _expect(self._request.expect_target, ours)

    def _bases(self, ours: Snapshot) -> tuple[CommitId, ...]:
        """Where the two have parted, or the base that was asked for."""
        if self.theirs.head is None or ours.head is None:
            raise InternalError(f"'{self.source}' or '{self.target}' has no commit")
        found = merge_bases(self._context.manifest, self.theirs.head, ours.head, near=(self.theirs, ours))
        if self._request.base is None or found == (self.theirs.head,):
            return found
        base = self._context.manifest.history.commit_at(self._request.base).graph_commit_id
        for name, head in ((self.source, self.theirs.head), (self.target, ours.head)):
            # What only one side has would count as deleted by the other.
            if merge_bases(self._context.manifest, base, head, near=(self.theirs, ours)) != (base,):
                raise InputError(
                    f"commit {base} is not in the history of '{name}': a base is a commit that both branches come from"
                )
        return (base,)

    def plan(self, ours: Snapshot) -> MergePlan:
        """The plan of these states, without what it does to tables."""
        bases = self._bases(ours)
        if self.theirs.head is None or ours.head is None:
            raise InternalError(f"'{self.source}' or '{self.target}' has no commit")
        outcome = Outcome.MERGED
        if bases == (self.theirs.head,):
            outcome = Outcome.ALREADY_UP_TO_DATE
        elif bases == (ours.head,):
            outcome = Outcome.FAST_FORWARD
        return MergePlan(self.source, self.target, self.theirs.head, ours.head, bases, outcome)

    def look(self, view: SnapshotView, *, exact: bool) -> Looked:
        """What the target would get, and what is in conflict."""
        ours = view.snapshot
        self.check_target(ours)
        plan = self.plan(ours)
        if plan.outcome is Outcome.ALREADY_UP_TO_DATE:
            raise _AlreadyThere
        resolving = self._resolving()
        if plan.outcome is Outcome.FAST_FORWARD and not exact and not resolving.given:
            plan = dataclasses.replace(plan, engine_reason="a fast-forward takes files over and reads no row")
            found = fast_forward(plan, self.theirs, ours, self._context.catalog)
            if found is not None:
                return found
        question = Question(self._strategy, self._strategies, resolving, exact, self._request.engine, self._watch)
        looked = three_way(self._context, plan, self.theirs, view, question)
        tables = looked.tables.values()
        resolved: dict[str, int] = {}
        for table in tables:
            for how, number in table.resolved.items():
                resolved[how] = resolved.get(how, 0) + number
        shown = [(t.key.partition(":")[2], *pair) for t in tables for pair in t.parallel]
        looked.plan = dataclasses.replace(
            looked.plan,
            resolved=resolved,
            parallel_edges=sum(table.parallel_edges for table in tables),
            parallel=tuple(sorted(shown)[:CONFLICTS_SHOWN]),
            convergent_edges=sum(table.convergent_edges for table in tables),
        )
        return looked

    def gather(self, transaction: Transaction) -> Gathered:
        """Put into a transaction what its snapshot gets.

        Raises:
            MergeConflictError: what is in conflict.
        """
        self.check_source()
        looked = self.look(transaction.view, exact=False)
        if looked.total:
            raise self._refused(looked)
        # A plan is only right while everything it has looked at stays as it is.
        transaction.depend_on({*looked.tables, *looked.moves})
        store, fold = self._context.store, self._context.folds.fold
        for key, move in looked.moves.items():
            pointer = self._pointer(transaction.snapshot, key, move)
            if pointer is not None:
                move.how = How.POINTER
                transaction.point(pointer)
            else:
                move.watch = self._watch
                if looked.crew is not None:
                    move.elsewhere = Writing(looked.crew)
                transaction.stage_with(key, WriteKind.MERGE, partial(move.stage, store, fold), move.then)
        properties = self._properties(looked)
        forward = looked.plan.outcome is Outcome.FAST_FORWARD
        # The state of the source obeys all rules; that of the target with it only if nothing else has been written.
        head = looked.plan.target_commit if forward else None
        transaction.request = replace(transaction.request, properties=properties, if_commit=head)
        self._looked = looked
        failpoints.maybe_fail(failpoints.MERGE_POST_VALIDATION)
        return Gathered(transaction.snapshot, looked, properties, tuple(transaction.pointers))

    def _pointer(self, ours: Snapshot, key: TableKey, move: Move) -> TablePointer | None:
        """How a branch that has no line of a table of its own gets what main has: by showing a newer version of it."""
        mine, other = ours.entry(key), self.theirs.entry(key)
        inherits = self.target != MAIN and mine.branch is None and other.branch is None
        if not move.mirrored or not inherits or other.version <= mine.version:
            return None
        return TablePointer(mine, other.version, None, other.row_count, other.metadata)

    def _properties(self, looked: Looked) -> dict[str, str]:
        """What the commit tells of the merge."""
        request = self._request
        found: dict[str, str] = {"merge.source": self.source, "merge.base": ",".join(looked.plan.base_commits)}
        if request.base is not None:
            found["merge.base_given"] = "true"
        if request.strategy is not None:
            found["merge.strategy"] = request.strategy
        if request.strategies:
            found["merge.strategies"] = json.dumps(dict(sorted(request.strategies.items())))
        if looked.plan.resolved:
            found["merge.resolved"] = json.dumps(dict(sorted(looked.plan.resolved.items())))
        digest = self._resolving().digest()
        if digest is not None:
            found["merge.resolutions"] = digest
        counts = _counts_by_name(type_merges(looked))
        if counts:
            found["merge.counts"] = json.dumps(counts)
        return with_message(request.message, found)

    def _refused(self, looked: Looked) -> MergeConflictError:
        shown = list(islice(looked.conflicts(), CONFLICTS_SHOWN))
        kinds = looked.by_kind()
        by_kind = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        return MergeConflictError(
            f"{self.refusal}: {by_kind}; the first is:"
            f" {shown[0].message} — nothing changed; choose a strategy or resolve them",
            conflicts=[conflict.to_json() for conflict in shown],
            total=looked.total,
            by_kind=kinds,
        )


def _counts_by_name(types: Sequence[TypeMerge]) -> dict[str, list[int]]:
    """What each type gets; the kind is told where a node type and an edge type have one name."""
    names = [each.name for each in types]
    told = [each.name if names.count(each.name) == 1 else f"{each.kind}:{each.name}" for each in types]
    return dict(zip(told, ([each.inserted, each.updated, each.deleted] for each in types), strict=True))


def _expect(wanted: str | None, state: Snapshot) -> None:
    if wanted is not None and state.head != wanted:
        raise PreconditionFailedError(expected=CommitId(wanted), actual=state.head)


def _strategy(name: str | None) -> Strategy | None:
    if name is None:
        return None
    if name not in tuple(Strategy):
        raise InputError(f"a strategy is one of {', '.join(Strategy)}, not '{name}'")
    return Strategy(name)


def _table(context: GraphContext, name: str) -> TableKey:
    """A type by its name, or by `node:<name>` or `edge:<name>` where both kinds have it."""
    found = [key for key, entity in context.catalog.tables.items() if name in (key, entity.name)]
    if len(found) != 1:
        known = ", ".join(sorted(context.catalog.tables))
        raise InputError(f"a strategy is given for '{name}', which is not one type: the types are {known}")
    return found[0]
