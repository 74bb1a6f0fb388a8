"""Branches: names that move on their own.

A branch of the manifest is the branch; creating one copies nothing, and tables get a line of their own with the first
write to them. So deleting the manifest's branch is the one step that counts, and table refs that are left behind are
nobody's: the first write under the same name replaces them, and cleanup removes them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery import heal
from omnigraph.engine.recovery.branch_lock import BranchLock, locked_branch
from omnigraph.engine.recovery.schema_lock import refuse_while_locked
from omnigraph.engine.staging.context import GraphContext
from omnigraph.engine.staging.gates import Gates
from omnigraph.engine.storage import layout
from omnigraph.errors import AlreadyExistsError, BranchNotFoundError, ConflictError, GraphError, InputError
from omnigraph.failpoints import (
    BRANCH_CREATE_AFTER_MANIFEST,
    BRANCH_CREATE_POST_NATIVE,
    BRANCH_DELETE_BEFORE_TABLES,
    BRANCH_DELETE_POST_NATIVE,
    BRANCH_DELETE_PRE_NATIVE,
    maybe_fail,
)
from omnigraph.ids import MAIN, BranchName, TableKey, check_actor, overlaps, parse_branch, stored_branch

_log = logging.getLogger(__name__)
_GATE = TableKey("__branches__")


def list_branches(context: GraphContext) -> list[str]:
    """Every branch, main first, the others by name."""
    return context.manifest.branches()


def create_branch(context: GraphContext, name: str, *, source: str = MAIN, actor: str | None = None) -> Snapshot:
    """Create a branch at the newest state of another one; nothing is copied. Returns its state.

    Raises:
        InputError: the name is not allowed, or this handle is read-only.
        AlreadyExistsError: there is a branch of this name.
        BranchNotFoundError: there is no source branch.
        ConflictError: the name and that of a branch contain each other, or a schema change is in progress.
    """
    branch, parent = parse_branch(name), parse_branch(source)
    check_actor(actor)
    _refuse_read_only(context)
    heal(context.recovery)
    with _one_at_a_time(context), locked_branch(context.recovery.intents, branch):
        refuse_while_locked(context.recovery.intents, "creating a branch")
        _refuse_taken(branch, context.manifest.branches())
        origin = context.manifest.snapshot(parent)
        _create(context, branch, origin)
        try:
            maybe_fail(BRANCH_CREATE_AFTER_MANIFEST)
            # Again, now that the branch is there: a schema change looks for branches after it has its lock.
            refuse_while_locked(context.recovery.intents, "creating a branch")
            return context.manifest.snapshot(branch)
        except GraphError:
            context.store.residual.delete_branch(layout.MANIFEST, branch)
            raise


def delete_branch(context: GraphContext, name: str, *, actor: str | None = None) -> None:
    """Delete a branch, with what only it has; commits that others build on stay.

    Raises:
        InputError: it is main, or this handle is read-only.
        BranchNotFoundError: there is none of this name.
        ConflictError: other branches were created from it or read its tables, or a write on it is in flight.
    """
    branch = parse_branch(name)
    check_actor(actor)
    _refuse_read_only(context)
    if branch == MAIN:
        raise InputError("main cannot be deleted")
    heal(context.recovery)
    with _one_at_a_time(context), locked_branch(context.recovery.intents, branch) as lock:
        refuse_while_locked(context.recovery.intents, "deleting a branch")
        gone = _deletable(context, branch)
        maybe_fail(BRANCH_DELETE_PRE_NATIVE)
        lock.check()
        _delete(context, branch)
        _reclaim(context, gone, lock)
    context.manifest.forget()


@contextmanager
def _one_at_a_time(context: GraphContext) -> Iterator[None]:
    """Refs have no compare-and-swap, so those who change them take turns."""
    with Gates.at(context.root).acquire([(_GATE, None)]):
        yield


def _refuse_read_only(context: GraphContext) -> None:
    if context.read_only:
        raise InputError("this graph was opened read-only; open it read-write to change branches")


def _refuse_taken(branch: BranchName, existing: list[str]) -> None:
    if branch in existing:
        raise AlreadyExistsError(f"there is a branch '{branch}' already")
    for other in existing:
        if overlaps(branch, other):
            raise ConflictError(
                f"a branch '{branch}' would lie within the files of '{other}', or the other way round: choose a name"
                " that is no part of another"
            )


def _create(context: GraphContext, branch: BranchName, origin: Snapshot) -> None:
    source = stored_branch(origin.branch)
    try:
        context.store.residual.create_branch(layout.MANIFEST, branch, source=source, version=origin.version)
        maybe_fail(BRANCH_CREATE_POST_NATIVE)
    except GraphError:
        # Whether it took effect is not in the answer but in the refs.
        if context.store.branch_parents(layout.MANIFEST).get(branch, "") != source:
            raise


def _deletable(context: GraphContext, branch: BranchName) -> Snapshot:
    """The last state of a branch that nothing else needs."""
    parents = context.store.branch_parents(layout.MANIFEST)
    if branch not in parents:
        raise BranchNotFoundError(f"there is no branch '{branch}'")
    children = sorted(name for name, parent in parents.items() if parent == branch)
    if children:
        raise ConflictError(f"'{branch}' cannot be deleted: '{children[0]}' was created from it; delete that first")
    for other in context.manifest.snapshots():
        for entry in other.entries.values() if other.branch != branch else ():
            if entry.branch == branch:
                raise ConflictError(f"'{branch}' cannot be deleted: '{other.branch}' reads its {entry.table_key}")
    # Again, now that the lock keeps new writers away: what a dead one left is settled while its branch is there.
    heal(context.recovery)
    if any(intent.branch == branch for intent in context.recovery.intents.pending()):
        raise ConflictError(f"'{branch}' cannot be deleted while a write on it is in flight — retry")
    return context.manifest.snapshot(branch)


def _delete(context: GraphContext, branch: BranchName) -> None:
    # A merge elsewhere names commits of this branch as parents, and some may be in its own manifest only.
    context.manifest.history.project(branch)
    try:
        context.store.residual.delete_branch(layout.MANIFEST, branch)
        maybe_fail(BRANCH_DELETE_POST_NATIVE)
    except GraphError:
        if branch in context.store.table_branches(layout.MANIFEST):
            raise


def _reclaim(context: GraphContext, gone: Snapshot, lock: BranchLock) -> None:
    """Remove the refs of the tables the branch had written; what fails here is removed later."""
    for entry in gone.entries.values():
        if entry.branch != gone.branch:
            continue
        try:
            maybe_fail(BRANCH_DELETE_BEFORE_TABLES)
            lock.check()
            context.store.residual.delete_branch(entry.path, gone.branch)
        except GraphError as exc:
            _log.warning("the ref %s of %s is left to cleanup: %s", gone.branch, entry.path, exc)
