"""The feed: what happened on a branch, commit by commit, for whoever follows.

A poll goes on from where the reader stands, along the first parents, and delivers each commit as a block: what changed
against the state before it. A merge is one block with what it brought. Delivery is at least once: a reader that keeps
the cursor of what it has dealt with misses nothing, and may see again what came after that cursor. A cursor comes after
whole commits; a commit that is larger than a page is told in several, each with a token for the next.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from omnigraph import failpoints
from omnigraph.engine.changes import Change, Diff, Values, diff
from omnigraph.engine.changes.cursors import Place, decode, encode, filter_digest
from omnigraph.engine.changes.diff import State, Wanted, check_types
from omnigraph.engine.changes.kept import Key
from omnigraph.engine.manifest.line import following
from omnigraph.engine.manifest.records import CommitRecord, CommitWrite
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import (
    ChangeCursorError,
    ChangeFeedGapError,
    ChangesUnavailableError,
    InputError,
    LimitError,
    NotFoundError,
)
from omnigraph.ids import MAIN, BranchName, CommitId, parse_branch

CHANGES_DEFAULT, CHANGES_MAX = 1_000, 8_192
BYTES_DEFAULT, BYTES_MAX = 4 << 20, 32 << 20
COMMITS_DEFAULT, COMMITS_MAX = 128, 512
_READ_AT_ONCE = 256
"""Changes read before the size of a page is looked at."""


class Limits(Struct, frozen=True):
    """How large an answer may be; a change larger than all of it comes alone."""

    changes: int = CHANGES_DEFAULT
    bytes: int = BYTES_DEFAULT
    commits: int = COMMITS_DEFAULT

    def check(self) -> Limits:
        """Refuse answers of any size.

        Raises:
            LimitError: which bound is too large.
        """
        for what, asked, most in (
            ("changes", self.changes, CHANGES_MAX),
            ("bytes", self.bytes, BYTES_MAX),
            ("commits", self.commits, COMMITS_MAX),
        ):
            if asked < 1:
                raise InputError(f"a page of {asked} {what} holds nothing: ask for 1 at least")
            if asked > most:
                raise LimitError(
                    f"a page has at most {most} {what}, not {asked}",
                    resource=f"{what} of a page",
                    limit=most,
                    actual=asked,
                )
        return self


@dataclass(frozen=True)
class Cause:
    """The commit that a block of changes comes from; times are Unix microseconds."""

    graph_commit_id: CommitId
    parent_commit_id: CommitId | None
    merged_parent_commit_id: CommitId | None
    authored_branch: str
    actor_id: str | None
    authored_at: int
    message: str | None = None
    writes: tuple[CommitWrite, ...] = ()
    """The writes that were published together as this commit, where they were several."""

    @classmethod
    def of(cls, commit: CommitRecord) -> Cause:
        """The cause that a commit is."""
        return cls(
            commit.graph_commit_id,
            commit.parent_commit_id,
            commit.merged_parent_commit_id,
            commit.manifest_branch or str(MAIN),
            commit.actor_id,
            commit.created_at,
            commit.message,
            commit.writes,
        )

    def to_json(self) -> dict[str, Any]:
        """The cause as the wire has it."""
        told = {name: value for name, value in self.__dict__.items() if value is not None and name != "writes"}
        return {**told, "writes": [write.shown() for write in self.writes]} if self.writes else told


@dataclass(frozen=True)
class ChangeBlock:
    """What one commit changed, or a part of it."""

    cause: Cause
    changes: tuple[Change, ...]

    def to_json(self) -> dict[str, Any]:
        """The block as the wire has it."""
        return {"cause": self.cause.to_json(), "changes": [change.to_json() for change in self.changes]}


@dataclass(frozen=True)
class ChangePage:
    """An answer to a poll: blocks in order, and either a token for the rest of a commit or the cursor after it."""

    blocks: tuple[ChangeBlock, ...]
    next_page_token: str | None = None
    cursor: str | None = None
    caught_up: bool = False
    """True when nothing newer was there."""

    def to_json(self) -> dict[str, Any]:
        """The page as the wire has it."""
        found: dict[str, Any] = {"blocks": [block.to_json() for block in self.blocks]}
        if self.next_page_token is not None:
            return {**found, "next_page_token": self.next_page_token}
        return {**found, "cursor": self.cursor, "caught_up": self.caught_up}


@dataclass(frozen=True)
class CommitChanges:
    """What one commit changed, a page of it."""

    cause: Cause
    changes: tuple[Change, ...]
    next_page_token: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The page as the wire has it."""
        found: dict[str, Any] = {"cause": self.cause.to_json(), "changes": [each.to_json() for each in self.changes]}
        return found if self.next_page_token is None else {**found, "next_page_token": self.next_page_token}


class FeedRequest(Struct, frozen=True):
    """What somebody wants to hear, and from where on: exactly one of `cursor`, `page_token` and `start`."""

    branch: str = MAIN
    cursor: str | None = None
    start: str | None = None
    page_token: str | None = None
    wanted: Wanted = field(default_factory=Wanted)
    values: Values = Values.CHANGED
    limits: Limits = field(default_factory=Limits)


def poll(context: GraphContext, request: FeedRequest) -> ChangePage:
    """What has happened since the reader's place, as much as fits an answer.

    Raises:
        ChangeCursorError: the cursor or token is none, or belongs to another graph, branch or filter.
        ChangeFeedGapError: cleanup has removed a state that the next commit would have to be compared with.
        ChangesUnavailableError: the next commit changed the schema.
        LimitError: a page of that size is not given.
    """
    limits = request.limits.check()
    reader = _Reader(context, request)
    place = reader.place()
    reader.check_types(place)
    commits, more = reader.commits(place, limits.commits)
    failpoints.maybe_fail(failpoints.FEED_POST_CAPTURE)
    blocks: list[ChangeBlock] = []
    room = _Room(limits)
    for commit in commits:
        try:
            found = reader.changes_of(commit)
        except (ChangesUnavailableError, ChangeFeedGapError):
            if not blocks:
                raise
            return ChangePage(tuple(blocks), cursor=encode(place))  # The next poll begins with it, and says so.
        offset = place.offset if place.within == commit.graph_commit_id else 0
        part = room.take(_window(found, offset, request.values))
        if blocks and not part and len(found):
            return ChangePage(tuple(blocks), cursor=encode(place))  # None of it fits beside what is there already.
        blocks.append(ChangeBlock(Cause.of(commit), tuple(part)))
        if offset + len(part) < len(found):
            rest = replace(place, offset=offset + len(part), within=commit.graph_commit_id)
            return ChangePage(tuple(blocks), next_page_token=encode(rest))
        reader.done_with(commit)
        place = replace(place, commit=commit.graph_commit_id, offset=0, within=None)
        if room.full:
            more = more or commit is not commits[-1]
            break
    return ChangePage(tuple(blocks), cursor=encode(place), caught_up=not more)


def cursor_at(context: GraphContext, branch: str, commit: CommitId, wanted: Wanted) -> str:
    """The cursor of a reader that has the state of a commit."""
    reader = _Reader(context, FeedRequest(branch, wanted=wanted))
    return encode(reader.after(commit))


def page_of_commit(
    context: GraphContext, name: str, wanted: Wanted, values: Values, limits: Limits, page_token: str | None
) -> CommitChanges:
    """What one commit changed against its first parent, a page at a time.

    Raises:
        CommitNotFoundError: there is no such commit.
        ChangesUnavailableError: it has no parent, or it changed the schema.
        ChangeFeedGapError: cleanup has removed a state that it would have to be compared with.
        ChangeCursorError: the token is none, or of another commit or filter.
    """
    limits.check()
    commit = context.manifest.history.commit_at(name)
    reader = _Reader(context, FeedRequest(commit.manifest_branch or MAIN, page_token=page_token, wanted=wanted))
    place = Place(reader.graph, "", "", filter_digest(wanted), commit.graph_commit_id)
    if page_token is not None:
        place = reader.checked(decode(page_token), place)
        if place.within != commit.graph_commit_id:
            raise ChangeCursorError("it is of another commit")
    reader.check_types(place)
    found = reader.changes_of(commit)
    part = tuple(_Room(limits).take(_window(found, place.offset, values)))
    offset = place.offset + len(part)
    if offset < len(found):
        rest = replace(place, offset=offset, within=commit.graph_commit_id)
        return CommitChanges(Cause.of(commit), part, encode(rest))
    reader.done_with(commit)
    return CommitChanges(Cause.of(commit), part)


class _Reader:
    """One poll: the branch it reads, and where along it."""

    def __init__(self, context: GraphContext, request: FeedRequest) -> None:
        self._context, self._request = context, request
        self._history = context.manifest.history
        self.branch: BranchName = parse_branch(request.branch)
        self.graph = self._history.genesis().graph_commit_id
        self._filters = filter_digest(request.wanted)

    def place(self) -> Place:
        """Where the request begins."""
        request = self._request
        given = [name for name in ("cursor", "start", "page_token") if getattr(request, name) is not None]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} say different things: give one of them")
        text = request.cursor if request.cursor is not None else request.page_token
        if text is None:
            return self._start("now" if request.start is None else request.start)
        here = self.after(CommitId(""))
        found = self.checked(decode(text), here)
        if (found.within is None) == (request.page_token is not None):
            raise ChangeCursorError(
                "it is a page token, not a cursor" if found.within else "it is a cursor, not a page token"
            )
        return found

    def check_types(self, place: Place) -> None:
        """Refuse types that there are neither now nor at a place: before it was dropped, one still had changes.

        Raises:
            InputError: which one.
        """
        catalog, types = self._context.catalog, self._request.wanted.types
        if types:
            try:
                then = self._state(self._history.find(place.commit)).catalog
            except NotFoundError:
                then = catalog  # Cleanup has taken the state, as the rest of the poll will tell.
            check_types(then, catalog, types)

    def after(self, commit: CommitId) -> Place:
        """The place of somebody who has everything up to a commit."""
        return Place(self.graph, self.branch, self._mark(), self._filters, commit)

    @staticmethod
    def checked(found: Place, here: Place) -> Place:
        """A place that somebody handed back, if it belongs here.

        Raises:
            ChangeCursorError: it does not.
        """
        for name, told in (
            ("graph", "it is of another graph"),
            ("branch", f"it is of the branch '{found.branch}'"),
            (
                "mark",
                f"the branch '{found.branch}' it was made for was deleted, and another has its name: take a baseline",
            ),
            ("filters", "it was made with other filters"),
        ):
            if getattr(found, name) != getattr(here, name):
                raise ChangeCursorError(told)
        return found

    def _mark(self) -> str:
        """What tells this branch from another one of its name."""
        mark = self._context.manifest.identity(self.branch)
        return hashlib.blake2b(mark.encode(), digest_size=8).hexdigest() if mark else ""

    def _start(self, start: str) -> Place:
        if start == "now":
            return self.after(self._history.newest(self.branch).graph_commit_id)
        if start == "beginning":
            return self.after(self._history.genesis().graph_commit_id)
        kind, separator, name = start.partition(":")
        if kind != "after" or not separator or not name:
            raise InputError(f"a feed starts 'now', at the 'beginning', or 'after:<commit>', not '{start}'")
        return self.after(self._history.commit_at(name, self.branch).graph_commit_id)

    def commits(self, place: Place, count: int) -> tuple[list[CommitRecord], bool]:
        """The commits that follow a place, oldest first, and whether there are more."""
        position = self._history.find(place.commit)
        found = following(self._context.manifest, position, self.branch, count + 1)
        return found[:count], len(found) > count

    def changes_of(self, commit: CommitRecord) -> Diff:
        """What a commit changed; kept while its pages are asked for.

        Raises:
            ChangesUnavailableError: it has no parent, or it changed the schema.
            ChangeFeedGapError: a state is gone.
        """
        if commit.parent_commit_id is None:
            raise ChangesUnavailableError(
                f"commit {commit.graph_commit_id} is the first one: there is nothing before it to compare with",
                reason="parentless_commit",
                graph_commit_id=commit.graph_commit_id,
            )
        try:
            older = self._state(self._history.find(commit.parent_commit_id))
            newer = self._state(commit)
            if older.catalog.schema_hash != newer.catalog.schema_hash:
                raise ChangesUnavailableError(
                    f"commit {commit.graph_commit_id} changed the schema: take a baseline, or go on after it with"
                    f" start='after:{commit.graph_commit_id}'",
                    reason="schema_boundary",
                    graph_commit_id=commit.graph_commit_id,
                )
            wanted = self._request.wanted
            failpoints.maybe_fail(failpoints.FEED_PRE_TABLE_OPEN)
            return self._context.kept_diffs.of(self._key(commit), lambda: diff(older, newer, wanted=wanted))
        except NotFoundError as gone:
            raise ChangeFeedGapError(
                f"what commit {commit.graph_commit_id} changed can no longer be told, because cleanup has removed what"
                f" it would be compared with ({gone}): take a baseline and go on from there",
                first_unreadable_commit_id=commit.graph_commit_id,
                cursor=self._request.cursor,
            ) from gone

    def done_with(self, commit: CommitRecord) -> None:
        """Forget what was kept for the pages of a commit."""
        self._context.kept_diffs.done(self._key(commit))

    def _key(self, commit: CommitRecord) -> Key:
        return (commit.graph_commit_id, self._filters)

    def _state(self, commit: CommitRecord) -> State:
        snapshot = self._history.snapshot_of(commit)
        return State(snapshot, self._context.catalog_of(snapshot, past=True))


def _window(found: Diff, offset: int, values: Values) -> Iterator[Change]:
    """The changes from an offset on, read some at a time."""
    for start in range(offset, len(found), _READ_AT_ONCE):
        yield from found.window(start, _READ_AT_ONCE, values)


class _Room:
    """What still fits a page."""

    def __init__(self, limits: Limits) -> None:
        self._changes, self._bytes = limits.changes, limits.bytes
        self._fresh = True

    @property
    def full(self) -> bool:
        """True when nothing more fits."""
        return self._changes <= 0 or self._bytes <= 0

    def take(self, changes: Iterator[Change]) -> list[Change]:
        """As many of the changes as fit; the first of a page always does."""
        taken: list[Change] = []
        if self._changes <= 0:
            return taken
        for change in changes:
            size = len(json.dumps(change.to_json(), ensure_ascii=False, separators=(",", ":")).encode())
            if size > self._bytes and not self._fresh:
                self._bytes = 0
                break
            taken.append(change)
            self._fresh = False
            self._changes, self._bytes = self._changes - 1, self._bytes - size
            if self.full:
                break
        return taken
