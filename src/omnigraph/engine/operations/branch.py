"""Branches: names that move on their own.

A branch of the manifest is the branch; creating one copies nothing, and tables get a line of their own with the first
write to them. So deleting the manifest's branch is the one step that counts, and table refs that are left behind are
nobody's: the first write under the same name replaces them, and cleanup removes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from omnigraph.catalog.suggestion import did_you_mean
from omnigraph.engine.coordination.branch_lock import BranchLock, keeping, locked_branch, tags_being_made
from omnigraph.engine.coordination.makers import gone, maker_of, record_gone, record_maker
from omnigraph.engine.coordination.mutex import Mutexes
from omnigraph.engine.coordination.schema_lock import refuse_while_locked
from omnigraph.engine.manifest.lineage import apart, bases_on
from omnigraph.engine.manifest.records import REQUEST, CommitRecord
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery import IntentStore, heal
from omnigraph.engine.storage import layout
from omnigraph.engine.write.attached import attached
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import (
    AlreadyExistsError,
    BranchNotFoundError,
    ConflictError,
    GraphError,
    InputError,
    NotFoundError,
)
from omnigraph.failpoints import (
    BRANCH_CREATE_AFTER_MANIFEST,
    BRANCH_CREATE_POST_NATIVE,
    BRANCH_DELETE_BEFORE_TABLES,
    BRANCH_DELETE_POST_NATIVE,
    BRANCH_DELETE_PRE_NATIVE,
    maybe_fail,
)
from omnigraph.ids import MAIN, BranchName, Moment, TableKey, overlaps, parse_branch, stored_branch

_log = logging.getLogger(__name__)
_BRANCHES = TableKey("__branches__")

T = TypeVar("T")


@dataclass(frozen=True)
class BranchInfo:
    """One branch: where it stands, where it was created, and how far it is from another one."""

    name: str
    head: CommitRecord
    created_from: str | None
    """The branch it was created from; None for main."""
    created_at_version: int | None
    compared_with: str
    ahead: int
    """Commits it has and the other one has not."""
    behind: int
    """Commits the other one has and it has not."""


def show_branch(context: GraphContext, name: str, *, into: str = MAIN) -> BranchInfo:
    """Where a branch stands, also in relation to another one.

    Raises:
        BranchNotFoundError: there is no such branch.
    """
    branch, other = parse_branch(name), parse_branch(into)
    history = context.manifest.history
    head = history.newest(branch)
    near = [context.manifest.snapshot(each) for each in (branch, other)]
    ahead, behind = apart(context.manifest, head.graph_commit_id, history.newest(other).graph_commit_id, near=near)
    point = context.store.fork_points(layout.MANIFEST).get(branch)
    parent, version = (None, None) if point is None else (point[0] or str(MAIN), point[1])
    return BranchInfo(branch, head, parent, version, other, ahead, behind)


def list_branches(context: GraphContext) -> list[str]:
    """Every branch, main first, the others by name."""
    return context.manifest.branches()


def create_branch(
    context: GraphContext, name: str, *, source: str = MAIN, at: Moment | None = None, actor: str | None = None
) -> Snapshot:
    """Create a branch at the newest state of another one, or at one of its past; nothing is copied. Returns its state.

    Raises:
        InputError: the name is not allowed, or this handle is read-only.
        AlreadyExistsError: there is a branch of this name.
        BranchNotFoundError: there is no source branch.
        PolicyError: the actor may not create it.
        CommitNotFoundError, VersionReclaimedError: there is no such moment, or it can no longer be read.
        ConflictError: the name and that of a branch contain each other, a schema change is in progress, or the schema
            was another one then.
    """
    branch, parent = parse_branch(name), parse_branch(source)
    context.admit("branch_create", actor, branch=parent, target_branch=branch)
    _refuse_read_only(context)
    heal(context.recovery)

    def create(lock: BranchLock) -> Snapshot:
        refuse_while_locked(context.recovery.intents, "creating a branch")
        _refuse_taken(context, branch, context.manifest.branches())
        origin = context.manifest.snapshot(parent) if at is None else _origin(context, parent, at)
        record_maker(context.store.objects, branch, attached().get(REQUEST))
        lock.check()
        failed_itself, is_own = True, False
        try:
            is_own = _create(context, branch, origin)
            failed_itself = False
            maybe_fail(BRANCH_CREATE_AFTER_MANIFEST)
            # Again, now that the branch is there: a schema change looks for branches after it has its lock.
            refuse_while_locked(context.recovery.intents, "creating a branch")
            # And should this process have stood still, the schema may be another by now, or the branch somebody else's.
            lock.check()
            return context.manifest.snapshot(branch)
        except BaseException as failure:
            # An interrupt says nothing about whether the branch is there, and nobody would look again.
            held = _is_held(lock)
            is_left = is_own or not isinstance(failure, GraphError) or (not failed_itself and held)
            # Without the lock it may have been made anew, or written on, by others.
            if is_left and (held or _is_untouched(context, branch, origin)):
                context.store.residual.delete_branch(layout.MANIFEST, branch)
            raise

    return _one_at_a_time(context, branch, create, locked_branch if at is None else keeping)


def made_for(context: GraphContext, name: str, request: str) -> bool:
    """Whether there is a branch of this name that was made for this request."""
    branch = parse_branch(name)
    return _is_taken(context, branch) and maker_of(context.store.objects, branch) == request


def was_made_for(context: GraphContext, name: str, request: str) -> bool:
    """Whether the branch of this name was made for this request, or there is none because others have deleted it."""
    branch = parse_branch(name)
    if _is_taken(context, branch):
        return maker_of(context.store.objects, branch) == request
    return gone(context.store.objects, request) is not None


def _is_taken(context: GraphContext, branch: BranchName) -> bool:
    return context.store.branch_identity(layout.MANIFEST, branch) is not None


def _origin(context: GraphContext, parent: BranchName, at: Moment) -> Snapshot:
    """A state of the past that a branch may begin at."""
    history = context.manifest.history
    commit = history.commit_at(at, parent)
    origin = history.whole_snapshot(commit)
    same_hash = context.catalog_of(origin, past=True).schema_hash == context.catalog.schema_hash
    if not same_hash or not _same_columns(origin, context.manifest.snapshot()):
        raise ConflictError(
            f"the schema has been changed since commit {commit.graph_commit_id}, and all branches share one schema:"
            " choose a newer commit"
        )
    return origin


def _same_columns(one: Snapshot, other: Snapshot) -> bool:
    """Whether the tables of two states of one schema are the same ones and have the same columns.

    What was dropped and added again has the name it had, and nothing else in common with what it was.
    """
    for key, entry in one.entries.items():
        found = other.entry(key)
        if (found.path, found.incarnation) != (entry.path, entry.incarnation):
            return False
        same = (found.branch, found.version) == (entry.branch, entry.version)
        if not same and one.open(key).first_numbers != other.open(key).first_numbers:
            return False
    return True


def delete_branch(
    context: GraphContext,
    name: str,
    *,
    force: bool = False,
    actor: str | None = None,
    identity: str | None = None,
    at: str | None = None,
) -> None:
    """Delete a branch, with what only it has; commits that others build on stay.

    With `force` also one at which others have parted, which can then no longer be merged with each other. `identity`
    is the branch that is meant, should another one have its name by now; `at` is the commit it must still stand at.

    Raises:
        InputError: it is main, or this handle is read-only.
        BranchNotFoundError: there is none of this name, or another one than is meant.
        PolicyError: the actor may not delete it.
        ConflictError: other branches were created from it or parted at it, a write on it is in flight, or it has moved.
    """
    branch = parse_branch(name)
    context.admit("branch_delete", actor, target_branch=branch)
    _refuse_read_only(context)
    if branch == MAIN:
        raise InputError("main cannot be deleted")
    heal(context.recovery)

    def delete(lock: BranchLock) -> None:
        refuse_while_locked(context.recovery.intents, "deleting a branch")
        found = context.store.branch_identity(layout.MANIFEST, branch) or ""
        if identity is not None and found != identity:
            raise BranchNotFoundError(f"the branch '{branch}' that was to be deleted is not there any more")
        last = _deletable(context, branch)
        if at is not None and last.head != at:
            raise ConflictError(f"'{branch}' has moved since it was looked at, and is not deleted")
        if not force:
            _refuse_only_base(context, branch)
        maybe_fail(BRANCH_DELETE_PRE_NATIVE)
        record_gone(context.store.objects, maker_of(context.store.objects, branch), {"branch": branch})
        # A merge elsewhere names commits of this branch as parents, and some may be in its own manifest only.
        context.manifest.history.project(branch)
        lock.check()
        _delete(context, branch)
        _reclaim(context, last, lock)

    _one_at_a_time(context, branch, delete)
    context.manifest.forget(branch)


def _one_at_a_time(
    context: GraphContext,
    branch: BranchName,
    body: Callable[[BranchLock], T],
    locked: Callable[[IntentStore, str, Callable[[BranchLock], T]], T] = locked_branch,
) -> T:
    """Refs have no compare-and-swap, so those who change them take turns."""
    mutexes, intents = Mutexes.at(context.root), context.recovery.intents
    return mutexes.hold([(_BRANCHES, None)], lambda: locked(intents, branch, body))


def _refuse_read_only(context: GraphContext) -> None:
    if context.read_only:
        raise InputError("this graph was opened read-only; open it read-write to change branches")


def _refuse_taken(context: GraphContext, branch: BranchName, existing: list[str]) -> None:
    if branch in existing:
        raise AlreadyExistsError(f"there is a branch '{branch}' already")
    if context.manifest.history.tags.find(branch) is not None:
        raise AlreadyExistsError(f"there is a tag '{branch}': a branch of that name would be hard to tell from it")
    for other in existing:
        if overlaps(branch, other):
            raise ConflictError(
                f"a branch '{branch}' would lie within the files of '{other}', or the other way round: choose a name"
                " that is no part of another"
            )


def _is_held(lock: BranchLock) -> bool:
    try:
        lock.check()
    except ConflictError:
        return False
    return True


def _is_untouched(context: GraphContext, branch: BranchName, origin: Snapshot) -> bool:
    """True for a branch that is there and still where it began."""
    context.manifest.forget(branch)
    try:
        return context.manifest.snapshot(branch).head == origin.head
    except GraphError:
        return False


def _create(context: GraphContext, branch: BranchName, origin: Snapshot) -> bool:
    """Make the ref; False when the answer does not say so, and only a ref that is there does."""
    source = stored_branch(origin.branch)
    try:
        context.store.residual.create_branch(layout.MANIFEST, branch, source=source, version=origin.version)
        maybe_fail(BRANCH_CREATE_POST_NATIVE)
    except GraphError:
        # Whether it took effect is not in the answer but in the refs.
        if context.store.branch_parents(layout.MANIFEST).get(branch, "") != source:
            raise
        return False
    return True


def _deletable(context: GraphContext, branch: BranchName) -> Snapshot:
    """The last state of a branch that nothing else needs."""
    parents = context.store.branch_parents(layout.MANIFEST)
    if branch not in parents:
        raise BranchNotFoundError(f"there is no branch '{branch}'{did_you_mean(branch, parents)}")
    children = sorted(name for name, parent in parents.items() if parent == branch)
    if children:
        raise ConflictError(f"'{branch}' cannot be deleted: '{children[0]}' was created from it; delete that first")
    if tags_being_made(context.recovery.intents):
        raise ConflictError(f"'{branch}' cannot be deleted while a tag is being made — retry")
    tagged = [tag.name for tag in context.manifest.history.tags.list() if tag.manifest_branch == branch]
    if tagged:
        raise ConflictError(
            f"'{branch}' cannot be deleted: the tag '{tagged[0]}' names a commit of it; delete that first"
        )
    # Only a branch that was created from this one, or from such a one, can read its tables, and there is none: a branch
    # with children is not deleted. So no other branch needs to be looked at.
    # Again, now that the lock keeps new writers away: what a dead one left is settled while its branch is there.
    heal(context.recovery)
    if any(intent.branch == branch for intent in context.recovery.intents.pending()):
        raise ConflictError(f"'{branch}' cannot be deleted while a write on it is in flight — retry")
    return context.manifest.snapshot(branch)


def _refuse_only_base(context: GraphContext, branch: BranchName) -> None:
    """Keep a branch of which a commit is what two others would be compared with."""
    for commit in bases_on(context.manifest, branch):
        if _is_there(context, context.manifest.history.find(commit)):
            raise ConflictError(
                f"'{branch}' cannot be deleted: other branches parted at its commit {commit}, and could not be merged"
                " with each other without it — merge them first, or delete it with force"
            )


def _is_there(context: GraphContext, commit: CommitRecord) -> bool:
    """False for a commit of an earlier branch of the same name, which was deleted with force."""
    try:
        context.manifest.history.snapshot_of(commit)
    except NotFoundError:
        return False
    return True


def _delete(context: GraphContext, branch: BranchName) -> None:
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
