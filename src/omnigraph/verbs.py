"""The verbs of a graph in their groups: `graph.branches`, `history`, `tags`, `schema` and `maintenance`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from omnigraph.boundary import heard, leaving, text, verb
from omnigraph.catalog.migration import MigrationPlan
from omnigraph.choices import Engine, MergeStrategy, ToldValues
from omnigraph.drawing.schema import schema_svg
from omnigraph.engine.changes import Diff
from omnigraph.engine.coordination.schema_lock import force_unlock
from omnigraph.engine.manifest.listed import Commits
from omnigraph.engine.manifest.records import CommitRecord
from omnigraph.engine.manifest.references import micros
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.manifest.tags import Tag
from omnigraph.engine.operations.branch import (
    BranchInfo,
    create_branch,
    delete_branch,
    list_branches,
    show_branch,
)
from omnigraph.engine.operations.cleanup import CleanupPlan, CleanupReport, cleanup, plan_cleanup
from omnigraph.engine.operations.differences import (
    branch_changes,
    commit_changes,
    told_values,
    wanted_changes,
)
from omnigraph.engine.operations.merge import (
    MergeConflict,
    MergePlan,
    MergeResult,
    find_conflicts,
    merge_branch,
    plan_merge,
)
from omnigraph.engine.operations.merge.engines import EngineQuestion, MergeEngine
from omnigraph.engine.operations.merge.resolutions import Resolutions
from omnigraph.engine.operations.merge.run import MergeRequest
from omnigraph.engine.operations.migrate import SchemaApplyResult, apply_schema, plan_schema
from omnigraph.engine.operations.optimize import OptimizeReport, optimize
from omnigraph.engine.operations.repair import RepairReport, repair
from omnigraph.engine.operations.tag import create_tag, delete_tag, list_tags
from omnigraph.engine.operations.texts import read_schema
from omnigraph.engine.operations.verify import VerifyReport, verify
from omnigraph.engine.recovery import Intent
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import GraphError, InputError
from omnigraph.ids import MAIN, Moment, parse_branch


class Opened(Protocol):
    """The graph the verbs belong to."""

    @property
    def context(self) -> GraphContext:
        """What operations work with."""


def _whole_id(context: GraphContext, commit: str | None) -> str | None:
    """The whole id of a commit that was perhaps named in short."""
    return None if commit is None else context.manifest.history.whole_id(commit)


class BranchVerbs:
    """The branches of a graph; `bulk` is what merges that are too large for this process run on."""

    def __init__(self, graph: Opened, bulk: MergeEngine | None = None) -> None:
        self._graph, self._bulk = graph, bulk

    @verb()
    def list(self) -> list[str]:
        """Every branch, main first, the others by name."""
        return list_branches(self._graph.context)

    @verb()
    def create(self, name: str, from_: str = MAIN, *, at: Moment | None = None, actor: str | None = None) -> Snapshot:
        """Create a branch at the newest state of another one; nothing is copied. Returns its state.

        `at` begins it at an earlier moment of that branch instead, or at any commit or tag.

        Raises:
            AlreadyExistsError: there is a branch of this name.
            BranchNotFoundError: there is no branch to create it from.
            CommitNotFoundError, VersionReclaimedError: there is no such moment, or it can no longer be read.
            ConflictError: its name and that of another branch contain each other, the schema is being changed, or it
                was another one then.
        """
        return create_branch(self._graph.context, name, source=from_, at=at, actor=actor)

    @verb()
    def show(self, name: str, into: str = MAIN) -> BranchInfo:
        """Where a branch stands: its newest commit, where it was created, how many commits it is ahead and behind.

        Raises:
            BranchNotFoundError: there is no such branch.
        """
        return show_branch(self._graph.context, name, into=into)

    @verb()
    def delete(self, name: str, *, force: bool = False, actor: str | None = None) -> None:
        """Delete a branch, with what only it has.

        With `force` also one at which two others have parted, which can then no longer be merged with each other.

        Raises:
            BranchNotFoundError: there is none of this name.
            ConflictError: another branch builds on it, or a write on it is in flight.
        """
        delete_branch(self._graph.context, name, force=force, actor=actor)

    @verb(source=text)
    def diff(
        self,
        source: str,
        into: str = MAIN,
        *,
        types: Sequence[str] = (),
        kinds: Sequence[str] = (),
        ops: Sequence[str] = (),
        values: ToldValues = "changed",
    ) -> Diff:
        """What a branch would bring into another one: its changes since the two parted.

        `graph.diff` compares their newest states instead. The filters and `values` are those of `graph.diff`.

        Raises:
            BranchNotFoundError: there is no such branch.
            VersionReclaimedError: cleanup has removed the state in which they parted.
        """
        wanted = wanted_changes(types, kinds, ops)
        return branch_changes(self._graph.context, source, into, wanted, told_values(values))

    @verb(source=text)
    def plan_merge(
        self,
        source: str,
        into: str = MAIN,
        *,
        strategy: MergeStrategy | None = None,
        strategies: Mapping[str, str] | None = None,
        resolve: Resolutions | None = None,
        base: str | None = None,
        engine: Engine = "auto",
    ) -> MergePlan:
        """What `merge` would do with these arguments, type by type, and what is in conflict; reads only."""
        asked = EngineQuestion(engine, self._bulk)
        wanted = MergeRequest(source, into, strategy, strategies or {}, resolve, base=base, engine=asked)
        return plan_merge(self._graph.context, wanted)

    @verb(source=text)
    def conflicts(
        self,
        source: str,
        into: str = MAIN,
        *,
        strategy: MergeStrategy | None = None,
        strategies: Mapping[str, str] | None = None,
        base: str | None = None,
        after: str | None = None,
    ) -> Iterator[MergeConflict]:
        """Everything that keeps a branch from being merged, by type and id; each tells what the three states have.

        They are read as they are asked for, so that any number of them can be gone through. `after`, the `token` of a
        conflict, goes on behind it.
        """
        wanted = MergeRequest(source, into, strategy, strategies or {}, base=base)
        return leaving(find_conflicts(self._graph.context, wanted, after))

    @verb(source=text)
    def merge(
        self,
        source: str,
        into: str = MAIN,
        *,
        strategy: MergeStrategy | None = None,
        strategies: Mapping[str, str] | None = None,
        resolve: Resolutions | None = None,
        expect_source: str | None = None,
        expect_target: str | None = None,
        base: str | None = None,
        delete_branch: bool = False,
        actor: str | None = None,
        message: str | None = None,
        progress: Callable[[Any], None] | None = None,
        engine: Engine = "auto",
    ) -> MergeResult:
        """Bring what one branch has changed into another one, as one commit with two parents, or nothing at all.

        Where both have changed one entity differently, `strategy` says what counts: `ours` (the target), `theirs` (the
        source), or `fields`, which takes both where they changed different properties; `strategies` says it by type.
        `resolve` decides single conflicts: a function from a conflict to `"ours"`, `"theirs"`, `"base"`,
        `{"set": {…}}` or None, or lines as `conflicts` lists them with a `take`. `expect_source` and `expect_target`
        make sure that what is merged is what was reviewed. `delete_branch` removes the source afterwards. `progress`
        hears how far a large merge is. `engine` is `local`, `spark`, or `auto`, which decides by how many rows either
        side has touched; the result is the same, and a fast-forward needs neither.

        Raises:
            MergeConflictError: something stays in conflict; nothing changed.
            PreconditionFailedError: a branch is not at the expected commit; nothing changed.
        """
        context = self._graph.context
        expect_source, expect_target = (_whole_id(context, wanted) for wanted in (expect_source, expect_target))
        hears = None if progress is None else heard(progress)
        asked = EngineQuestion(engine, self._bulk)
        decisions = (strategy, strategies or {}, resolve)
        wanted = MergeRequest(
            source, into, *decisions, expect_source, expect_target, base, actor, message, hears, asked
        )
        result = merge_branch(context, wanted)
        return _without_source(context, source, result, actor) if delete_branch else result


def _without_source(context: GraphContext, source: str, result: MergeResult, actor: str | None) -> MergeResult:
    """Delete the branch that was merged, unless it has moved since: what was written to it then is nowhere else."""
    try:
        delete_branch(context, source, actor=actor, at=result.plan.source_commit)
    except GraphError as exc:
        return replace(result, branch_delete_error=str(exc))
    return replace(result, branch_deleted=True)


class HistoryVerbs:
    """The commits of a graph."""

    def __init__(self, graph: Opened) -> None:
        self._graph = graph

    @verb()
    def list(
        self,
        branch: str = MAIN,
        limit: int | None = None,
        actor: str | None = None,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> Commits:
        """The commits of a branch, newest first; what is read grows with what is listed, not with the history.

        `actor` keeps only that actor's, `since` and `until` only those of a time (a `datetime`, or ISO 8601). It is a
        list that shows itself as a table.
        """
        found = self._graph.context.manifest.history.list(
            parse_branch(branch),
            limit=limit,
            actor=actor,
            since=None if since is None else micros(since),
            until=None if until is None else micros(until),
        )
        return Commits(found)

    @verb()
    def show(self, commit_id: str) -> CommitRecord:
        """One commit, by whatever names it: its id, which may be shortened, a time of main, or a version.

        Raises:
            CommitNotFoundError: there is none of this name.
        """
        return self._graph.context.manifest.history.commit_at(commit_id)

    @verb()
    def changes(
        self,
        commit_id: str,
        *,
        types: Sequence[str] = (),
        kinds: Sequence[str] = (),
        ops: Sequence[str] = (),
        values: ToldValues = "changed",
    ) -> Diff:
        """What one commit changed, entity by entity; the filters and `values` are those of `graph.diff`.

        Raises:
            CommitNotFoundError: there is none of this id.
            ChangesUnavailableError: it is the first commit, or it changed the schema.
            VersionReclaimedError: cleanup has removed what it would be compared with.
        """
        wanted = wanted_changes(types, kinds, ops)
        return commit_changes(self._graph.context, commit_id, wanted, told_values(values))


class TagVerbs:
    """The tags of a graph: names that stay with one commit, wherever `at=` is taken."""

    def __init__(self, graph: Opened) -> None:
        self._graph = graph

    @verb()
    def list(self) -> list[Tag]:
        """Every tag, by name."""
        return list_tags(self._graph.context)

    @verb()
    def create(
        self,
        name: str,
        at: Moment | None = None,
        branch: str = MAIN,
        *,
        actor: str | None = None,
        message: str | None = None,
    ) -> Tag:
        """Name a commit: the newest of a branch, or one of its past. Its state is kept from `cleanup` meanwhile.

        Raises:
            AlreadyExistsError: there is a tag or a branch of this name.
            CommitNotFoundError, VersionReclaimedError: there is no such moment, or it can no longer be read.
            ConflictError: a cleanup is running.
        """
        return create_tag(self._graph.context, name, at=at, branch=branch, actor=actor, message=message)

    @verb()
    def delete(self, name: str, *, actor: str | None = None) -> None:
        """Remove a tag; what only it kept is for the next cleanup.

        Raises:
            NotFoundError: there is none of this name.
        """
        delete_tag(self._graph.context, name, actor=actor)


class SchemaVerbs:
    """The accepted schema of a graph; a notebook shows its types as a diagram."""

    def __init__(self, graph: Opened) -> None:
        self._graph = graph

    @verb()
    def to_svg(self) -> str:
        """The types as a diagram, an SVG document: node types with their properties, edge types as arrows."""
        return schema_svg(self._graph.context.catalog)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def __repr__(self) -> str:
        try:
            return self.source
        except GraphError as exc:  # A prompt shows this; an error there would hide what it was asked for.
            return f"<the schema cannot be read: {exc}>"

    @property
    @verb()
    def source(self) -> str:
        """The accepted schema as it was written."""
        return self._graph.context.schema_source

    @verb()
    def plan(self, desired: str | os.PathLike[str], *, allow_data_loss: bool = False) -> MigrationPlan:
        """The steps from the accepted schema to another one, and whether all of them are supported; writes nothing.

        The plan also says how many rows a drop concerns, which rows break a new rule, and in `other_branches` which
        branches have to be deleted before it can be applied.
        """
        return plan_schema(self._graph.context, read_schema(desired), allow_data_loss=allow_data_loss)

    @verb()
    def apply(
        self,
        desired: str | os.PathLike[str],
        allow_data_loss: bool = False,
        actor: str | None = None,
        message: str | None = None,
        *,
        confirm_drops: bool = False,
    ) -> SchemaApplyResult:
        """Accept another schema, as text or as the path of a `.pg` file, as one commit.

        Rows stay as they are, except for numbers that are widened and defaults that are filled in. A type or property
        that holds data is dropped only with `confirm_drops`, which keeps the data in earlier commits, or with
        `allow_data_loss`, which removes the older versions of what was dropped at once, for good.

        Raises:
            ParseError, SchemaError: it is not valid, or a step of the plan is not supported; nothing changed.
            ConflictError: there are other branches, or others kept changing the graph; nothing changed.
        """
        return apply_schema(
            self._graph.context,
            read_schema(desired),
            allow_data_loss=allow_data_loss,
            confirm_drops=confirm_drops,
            actor=actor,
            message=message,
        )

    @verb()
    def unlock(self) -> bool:
        """Remove the lock of a schema change that nobody is making any more; False when there was none."""
        context = self._graph.context
        if context.read_only:
            raise InputError("this graph was opened read-only; open it read-write to remove its schema lock")
        return force_unlock(context.recovery)


class MaintenanceVerbs:
    """Keeping a graph fast, small and sound."""

    def __init__(self, graph: Opened) -> None:
        self._graph = graph

    @verb()
    def optimize(self, *, actor: str | None = None, message: str | None = None) -> OptimizeReport:
        """Compact tables and complete the declared indexes, as one commit; content never changes."""
        return optimize(self._graph.context, actor=actor, message=message)

    @verb()
    def cleanup(self, *, keep: int | None = None, older_than: timedelta | None = None) -> CleanupReport:
        """Remove old versions for good: all but the newest `keep`, all that are `older_than` a span; given both, beyond
        both. What any branch publishes or a tag names stays; `plan_cleanup` tells before what would go.

        Raises:
            InputError: neither bound is given.
            RecoveryRequiredError: a write is unfinished.
        """
        return cleanup(self._graph.context, keep_versions=keep, older_than=older_than)

    @verb()
    def plan_cleanup(self, *, keep: int | None = None, older_than: timedelta | None = None) -> CleanupPlan:
        """What `cleanup` with these bounds would remove, table by table; reads only."""
        return plan_cleanup(self._graph.context, keep_versions=keep, older_than=older_than)

    @verb()
    def repair(
        self, *, confirm: bool = False, force: bool = False, discard: bool = False, message: str | None = None
    ) -> RepairReport:
        """Show, and with `confirm` settle, tables that another program changed behind the graph's back."""
        return repair(self._graph.context, confirm=confirm, force=force, discard=discard, message=message)

    @verb()
    def verify(self) -> VerifyReport:
        """Walk the whole graph and report every inconsistency; reads only."""
        return verify(self._graph.context)

    @verb()
    def unfinished(self) -> Sequence[Intent]:
        """The writes in flight or cut short at this moment, oldest first."""
        return self._graph.context.recovery.intents.pending()
