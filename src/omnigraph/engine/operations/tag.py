"""Making, listing and removing tags.

A tag keeps the state of its commit from `cleanup`. The two meet as branches do: whoever makes a tag says so first and
then looks for a cleanup, and a cleanup says so first and then waits for those who make names; so either the cleanup
sees the tag, or the tag is made after it, of what it has left.
"""

from __future__ import annotations

from dataclasses import asdict

from omnigraph.engine.coordination.branch_lock import (
    TAG,
    BranchLock,
    keeping,
    locked_branch,
    refuse_while_branch_changes,
)
from omnigraph.engine.coordination.makers import gone, record_gone
from omnigraph.engine.manifest.records import REQUEST
from omnigraph.engine.manifest.tags import Tag, parse_tag
from omnigraph.engine.recovery import heal
from omnigraph.engine.write.attached import attached
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import AlreadyExistsError, InputError, NotFoundError
from omnigraph.failpoints import TAG_BEFORE_PUT, maybe_fail
from omnigraph.ids import MAIN, Moment, check_message, now_micros, parse_branch


def create_tag(
    context: GraphContext,
    name: str,
    *,
    at: Moment | None = None,
    branch: str = MAIN,
    actor: str | None = None,
    message: str | None = None,
) -> Tag:
    """Name a commit, and keep its state from cleanup for as long as the tag is there.

    Raises:
        InputError: the name could be taken for something else, or this handle is read-only.
        AlreadyExistsError: there is a tag or a branch of this name.
        CommitNotFoundError: nothing is at that moment.
        VersionReclaimedError: cleanup has removed what the commit needs.
        ConflictError: a cleanup is running.
    """
    tagged, parent = parse_tag(name), parse_branch(branch)
    author = context.admit("change", actor, branch=parent)
    said = check_message(message)
    _refuse_read_only(context)
    heal(context.recovery)
    tags, history = context.manifest.history.tags, context.manifest.history

    def create(lock: BranchLock) -> Tag:
        commit = history.newest(parent) if at is None else history.commit_at(at, parent)
        refuse_while_branch_changes(context.recovery.intents, commit.manifest_branch)
        history.whole_snapshot(commit)
        if tagged in context.manifest.branches():
            raise AlreadyExistsError(f"there is a branch '{tagged}': a tag of that name would be hard to tell from it")
        place = (commit.graph_commit_id, commit.manifest_branch, commit.manifest_version)
        tag = Tag(tagged, *place, now_micros(), author, said, attached().get(REQUEST))
        maybe_fail(TAG_BEFORE_PUT)
        lock.check()
        if not tags.add(tag):
            raise AlreadyExistsError(f"there is a tag '{tagged}' already: delete it first to name another commit")
        return tag

    return keeping(context.recovery.intents, f"{TAG}{tagged}", create)


def tag_made_for(context: GraphContext, name: str, request: str) -> Tag | None:
    """The tag of this name that was made for this request; where there is none, the one that others have deleted."""
    found = context.manifest.history.tags.find(name.strip())
    if found is not None:
        return found if found.request == request else None
    facts = gone(context.store.objects, request)
    return None if facts is None else Tag(**facts)


def list_tags(context: GraphContext) -> list[Tag]:
    """Every tag, by name."""
    return context.manifest.history.tags.list()


def delete_tag(context: GraphContext, name: str, *, actor: str | None = None, identity: str | None = None) -> None:
    """Remove a tag; what only it kept is for the next cleanup.

    `identity` is the tag that is meant, should another one have its name by now.

    Raises:
        NotFoundError: there is no tag of this name, or another one than is meant.
        ConflictError: somebody else is making or removing it.
    """
    tags = context.manifest.history.tags
    found = tags.find(name.strip())
    context.admit("change", actor, branch=parse_branch((found and found.manifest_branch) or MAIN))
    _refuse_read_only(context)
    if found is None:
        raise NotFoundError(f"there is no tag '{name.strip()}'")
    meant = found.identity if identity is None else identity

    def delete(lock: BranchLock) -> None:
        # Looked at again, now that nobody makes one of this name: it is removed by its name.
        again = tags.find(found.name)
        if again is None or again.identity != meant:
            raise NotFoundError(f"the tag '{found.name}' that was to be deleted is not there any more")
        record_gone(context.store.objects, again.request, asdict(again))
        lock.check()
        tags.remove(found.name)

    locked_branch(context.recovery.intents, f"{TAG}{found.name}", delete)


def _refuse_read_only(context: GraphContext) -> None:
    if context.read_only:
        raise InputError("this graph was opened read-only; open it read-write to change tags")
