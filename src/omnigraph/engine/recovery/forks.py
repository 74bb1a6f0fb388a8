"""Refs of tables that no branch publishes: what a deletion or a first write that was cut short has left.

Whether a ref is nobody's can change until the name of its branch is locked, so it is asked behind the lock.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial

from omnigraph.engine.coordination.branch_lock import BranchLock, locked_branch
from omnigraph.engine.coordination.context import RecoveryContext
from omnigraph.errors import GraphError
from omnigraph.failpoints import CLEANUP_FORK, maybe_fail

_log = logging.getLogger(__name__)


def children_first(parents: Mapping[str, str | None]) -> list[str]:
    """Refs in an order in which each can be deleted, given what each was created from."""

    def depth(name: str) -> int:
        parent = parents.get(name)
        return 0 if parent is None else 1 + depth(parent)

    return sorted(parents, key=lambda name: (-depth(name), name))


def descendants(parents: Mapping[str, str | None], branch: str) -> list[str]:
    """The refs that were created from a branch, or from one that was, children first."""

    def comes_from(name: str | None) -> bool:
        while name is not None and name != branch:
            name = parents.get(name)
        return name == branch

    return [name for name in children_first(parents) if name != branch and comes_from(name)]


def drop_fork(ctx: RecoveryContext, path: str, branch: str) -> None:
    """Delete a ref of a table that the caller knows to be nobody's, or its own.

    Branches made from one are deleted before it, so what is left of them in the table is nobody's either.
    """
    drop_orphans(ctx, path, descendants(ctx.store.branch_parents(path), branch))
    ctx.store.residual.delete_branch(path, branch)


def drop_orphans(
    ctx: RecoveryContext, path: str, names: Iterable[str], failures: list[str] | None = None
) -> tuple[str, ...]:
    """Delete those of the refs of a table that are nobody's; returns them.

    What fails is left to the next cleanup, and told to whoever gives `failures`.
    """
    removed = []
    for name in names:
        try:
            maybe_fail(CLEANUP_FORK)
            if locked_branch(ctx.intents, name, partial(_drop_orphan, ctx, path, name)):
                removed.append(name)
        except GraphError as exc:
            _log.warning("the unpublished ref %s of %s could not be removed: %s", name, path, exc)
            if failures is not None:
                failures.append(str(exc))
    return tuple(removed)


def _drop_orphan(ctx: RecoveryContext, path: str, name: str, lock: BranchLock) -> bool:
    """Delete the ref if it is nobody's; looked at behind the lock: a first writer may just have made it."""
    if not _is_orphan(ctx, path, name):
        return False
    lock.check()
    ctx.store.residual.delete_branch(path, name)
    return True


def _is_orphan(ctx: RecoveryContext, path: str, branch: str) -> bool:
    """True when no intent names the ref and no branch publishes it, as of now."""
    if any(
        effect.table_path == path and effect.table_branch == branch
        for intent in ctx.intents.pending()
        for effect in intent.effects
    ):
        return False
    published = [entry for snapshot in ctx.manifest.snapshots() for entry in snapshot.entries.values()]
    return not any(entry.path == path and entry.branch == branch for entry in published)
