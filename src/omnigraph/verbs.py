"""The grouped verbs of a graph: `graph.branches`, `graph.history`, `graph.schema`, `graph.maintenance`.

Loaded when the first of the groups is asked for, because most programs only load, ask and change.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from omnigraph.catalog.migration import MigrationPlan, plan_migration
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.manifest.records import CommitRecord
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.branch import create_branch, delete_branch, list_branches
from omnigraph.engine.operations.cleanup import CleanupReport, cleanup
from omnigraph.engine.operations.migrate import SchemaApplyResult, apply_schema
from omnigraph.engine.operations.optimize import OptimizeReport, optimize
from omnigraph.engine.operations.repair import RepairReport, repair
from omnigraph.engine.operations.texts import read_schema
from omnigraph.engine.operations.verify import VerifyReport, verify
from omnigraph.engine.recovery import Intent
from omnigraph.engine.recovery.schema_lock import force_unlock
from omnigraph.engine.staging.context import GraphContext
from omnigraph.errors import InputError
from omnigraph.ids import MAIN, parse_branch


class Opened(Protocol):
    """The graph the verbs belong to."""

    @property
    def context(self) -> GraphContext:
        """What operations work with."""


class BranchVerbs:
    """The branches of a graph."""

    def __init__(self, graph: Opened) -> None:
        self._graph = graph

    def list(self) -> list[str]:
        """Every branch, main first, the others by name."""
        return list_branches(self._graph.context)

    def create(self, name: str, from_: str = MAIN, *, actor: str | None = None) -> Snapshot:
        """Create a branch at the newest state of another one; nothing is copied. Returns its state.

        Raises:
            AlreadyExistsError: there is a branch of this name.
            BranchNotFoundError: there is no branch to create it from.
            ConflictError: its name and that of another branch contain each other, or the schema is being changed.
        """
        return create_branch(self._graph.context, name, source=from_, actor=actor)

    def delete(self, name: str, *, actor: str | None = None) -> None:
        """Delete a branch, with what only it has.

        Raises:
            BranchNotFoundError: there is none of this name.
            ConflictError: another branch builds on it, or a write on it is in flight.
        """
        delete_branch(self._graph.context, name, actor=actor)


class HistoryVerbs:
    """The commits of a graph."""

    def __init__(self, graph: Opened) -> None:
        self._graph = graph

    def list(self, branch: str = MAIN, limit: int | None = None, actor: str | None = None) -> list[CommitRecord]:
        """The commits of a branch, newest first; `actor` keeps only that actor's."""
        history = self._graph.context.manifest.history
        if actor is None:
            return history.list(parse_branch(branch), limit=limit)
        found = [commit for commit in history.list(parse_branch(branch)) if commit.actor_id == actor]
        return found if limit is None else found[:limit]

    def show(self, commit_id: str) -> CommitRecord:
        """One commit.

        Raises:
            CommitNotFoundError: there is none of this id.
        """
        return self._graph.context.manifest.history.find(commit_id)


class SchemaVerbs:
    """The accepted schema of a graph."""

    def __init__(self, graph: Opened) -> None:
        self._graph = graph

    @property
    def source(self) -> str:
        """The accepted schema as it was written."""
        return self._graph.context.schema_source

    def plan(self, desired: str | os.PathLike[str], *, allow_data_loss: bool = False) -> MigrationPlan:
        """The steps from the accepted schema to another one, and whether all of them are supported; writes nothing."""
        catalog = compile_schema(read_schema(desired))
        return plan_migration(self._graph.context.catalog, catalog, allow_data_loss=allow_data_loss)

    def apply(
        self, desired: str | os.PathLike[str], allow_data_loss: bool = False, actor: str | None = None
    ) -> SchemaApplyResult:
        """Accept another schema, as text or as the path of a `.pg` file; rows stay as they are.

        Drops are soft: earlier commits keep the data. With `allow_data_loss` the older versions of what was dropped
        are removed at once, for good.

        Raises:
            ParseError, SchemaError: it is not valid, or a step of the plan is not supported; nothing changed.
            ConflictError: there are other branches, or others kept changing the graph; nothing changed.
        """
        return apply_schema(self._graph.context, read_schema(desired), allow_data_loss=allow_data_loss, actor=actor)

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

    def optimize(self, *, actor: str | None = None) -> OptimizeReport:
        """Compact tables and complete the declared indexes, as one commit; content never changes."""
        return optimize(self._graph.context, actor=actor)

    def cleanup(self, *, keep_versions: int | None = None, older_than: timedelta | None = None) -> CleanupReport:
        """Remove old versions for good; what any branch publishes stays. Given both bounds, a version must exceed both.

        Raises:
            InputError: neither bound is given.
            RecoveryRequiredError: a write is unfinished.
        """
        return cleanup(self._graph.context, keep_versions=keep_versions, older_than=older_than)

    def repair(self, *, confirm: bool = False, force: bool = False, discard: bool = False) -> RepairReport:
        """Show, and with `confirm` settle, tables that another program changed behind the graph's back."""
        return repair(self._graph.context, confirm=confirm, force=force, discard=discard)

    def verify(self) -> VerifyReport:
        """Walk the whole graph and report every inconsistency; reads only."""
        return verify(self._graph.context)

    def unfinished(self) -> Sequence[Intent]:
        """The writes in flight or cut short at this moment, oldest first."""
        return self._graph.context.recovery.intents.pending()
