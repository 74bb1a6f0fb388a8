"""The feed of a graph: `graph.changes`.

A reader takes a baseline once, keeps the cursor it ends with, and polls or follows from there: what it had, changed by
what it hears, is at every commit what the graph is.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec.structs import replace

from omnigraph.boundary import leaving, verb
from omnigraph.choices import ToldValues
from omnigraph.engine.changes.diff import Wanted, check_types
from omnigraph.engine.operations.differences import told_values, wanted_changes
from omnigraph.engine.operations.export import export_lines, write_lines
from omnigraph.engine.operations.feed import (
    BYTES_DEFAULT,
    CHANGES_DEFAULT,
    COMMITS_DEFAULT,
    ChangePage,
    CommitChanges,
    FeedRequest,
    Limits,
    cursor_at,
    page_of_commit,
    poll,
)
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import CommitNotFoundError
from omnigraph.ids import MAIN, CommitId, Moment, parse_branch

FIRST_WAIT_SECONDS = 0.02
"""How soon a follower that is up to date looks again; it waits twice as long each time, up to what it was told."""
_SLICE_SECONDS = 0.1
"""How long a waiting follower may take to notice that its graph was closed."""


class Opened(Protocol):
    """The graph the verbs belong to."""

    @property
    def context(self) -> GraphContext:
        """What operations work with."""

    @property
    def closed(self) -> bool:
        """True when it may no longer be used."""


@dataclass(frozen=True)
class Baseline:
    """A state to begin with, in a file: how many entities it has, which commit it is, and the cursor to go on with."""

    path: str
    entities: int
    snapshot_commit_id: CommitId
    resume_cursor: str

    def to_json(self) -> dict[str, Any]:
        """The baseline as the wire has it."""
        return {
            "path": self.path,
            "entities": self.entities,
            "baseline": {"snapshot_commit_id": self.snapshot_commit_id, "resume_cursor": self.resume_cursor},
        }


class ChangeVerbs:
    """What happens on a graph, commit by commit, for whoever follows."""

    def __init__(self, graph: Opened) -> None:
        self._graph = graph

    @verb()
    def poll(
        self,
        cursor: str | None = None,
        *,
        start: str | None = None,
        page_token: str | None = None,
        branch: str = MAIN,
        types: Sequence[str] = (),
        kinds: Sequence[str] = (),
        ops: Sequence[str] = (),
        values: ToldValues = "changed",
        limit: int | None = None,
        limit_bytes: int | None = None,
        limit_commits: int | None = None,
    ) -> ChangePage:
        """What came after a cursor, or after a start: `now` (the default), `beginning` or `after:<commit>`.

        There is one block per commit, oldest first, along the first parents. A merge is one block with everything it
        brought, and a commit that changed no entity is an empty block. A page ends with a `cursor`, to be stored once
        everything before it is processed, or, within a commit that is larger than the page, with a `next_page_token`.
        The filters and `values` are those of `graph.diff`. A page has up to `limit` changes (1,000; at most 8,192),
        `limit_bytes` (4 MiB; 32 MiB) and `limit_commits` (128; 512).

        Raises:
            ChangeCursorError: the cursor or token is none, or of another graph, branch or filter.
            ChangeFeedGapError: cleanup has removed what comes next; take a baseline.
            ChangesUnavailableError: the next commit changed the schema; take a baseline, or start after it.
            LimitError: a page of that size is not given.
        """
        limits = _limits(limit, limit_bytes, limit_commits)
        wanted = wanted_changes(types, kinds, ops)
        request = FeedRequest(branch, cursor, start, page_token, wanted, told_values(values), limits)
        return poll(self._graph.context, request)

    @verb()
    def follow(
        self,
        cursor: str | None = None,
        *,
        start: str | None = None,
        branch: str = MAIN,
        types: Sequence[str] = (),
        kinds: Sequence[str] = (),
        ops: Sequence[str] = (),
        values: ToldValues = "changed",
        limit: int | None = None,
        limit_bytes: int | None = None,
        poll_seconds: float = 1.0,
        idle_seconds: float | None = None,
    ) -> Iterator[ChangePage]:
        """The pages of `poll` one after the other, without end: where nothing is new, it waits.

        The starting point is fixed by the call, before the first page is asked for. While nothing happens it looks
        again at growing intervals, up to `poll_seconds`. It ends when the graph is closed, or when nothing has come for
        `idle_seconds`; it can be interrupted at any time. Pages without blocks are left out.

        Raises:
            As `poll`, at once or when it gets there.
        """
        wanted = wanted_changes(types, kinds, ops)
        limits = _limits(limit, limit_bytes, None)
        request = FeedRequest(branch, cursor, start, None, wanted, told_values(values), limits)
        first = poll(self._graph.context, request)

        def ask(page: ChangePage) -> ChangePage:
            later = replace(request, start=None, cursor=page.cursor, page_token=page.next_page_token)
            return poll(self._graph.context, later)

        return leaving(following(first, ask, lambda: self._graph.closed, poll_seconds, idle_seconds))

    @verb()
    def baseline(
        self,
        out: str | os.PathLike[str],
        branch: str = MAIN,
        at: Moment | None = None,
        *,
        types: Sequence[str] = (),
        kinds: Sequence[str] = (),
        ops: Sequence[str] = (),
    ) -> Baseline:
        """Write one state as load records, and last a line with its commit and the cursor of whoever has read it all.

        The file appears complete or not at all. Use the same filters with `poll` afterwards.

        Raises:
            CommitNotFoundError, VersionReclaimedError: there is no such state, or it can no longer be read.
            InputError: a type that is asked for is not in its schema.
        """
        context, wanted, name = self._graph.context, wanted_changes(types, kinds, ops), parse_branch(branch)
        history = context.manifest.history
        snapshot = context.manifest.snapshot(name) if at is None else history.snapshot_at(at, name)
        if snapshot.head is None:
            raise CommitNotFoundError(f"{snapshot.id} is a state that no commit made: choose a commit")
        catalog = context.catalog_of(snapshot, past=True)
        check_types(catalog, catalog, wanted.types)
        cursor = cursor_at(context, name, snapshot.head, wanted)
        told = {"baseline": {"snapshot_commit_id": snapshot.head, "resume_cursor": cursor}}

        def lines() -> Iterator[str]:
            tables = _tables(catalog.tables, wanted)
            if tables:
                yield from export_lines(catalog, snapshot, tables=tables)
            yield json.dumps(told)

        written = write_lines(out, lines())
        return Baseline(os.fspath(out), written - 1, snapshot.head, cursor)

    @verb()
    def of(
        self,
        commit_id: str,
        *,
        page_token: str | None = None,
        types: Sequence[str] = (),
        kinds: Sequence[str] = (),
        ops: Sequence[str] = (),
        values: ToldValues = "changed",
        limit: int | None = None,
        limit_bytes: int | None = None,
    ) -> CommitChanges:
        """What one commit changed against its first parent, a page at a time; `history.changes` gives all of it.

        Raises:
            CommitNotFoundError: there is no such commit.
            ChangesUnavailableError: it is the first commit, or it changed the schema.
            ChangeFeedGapError: cleanup has removed what it would be compared with.
        """
        wanted, limits = wanted_changes(types, kinds, ops), _limits(limit, limit_bytes, None)
        return page_of_commit(self._graph.context, commit_id, wanted, told_values(values), limits, page_token)


def following(
    page: ChangePage,
    ask: Callable[[ChangePage], ChangePage],
    closed: Callable[[], bool],
    poll_seconds: float,
    idle_seconds: float | None,
) -> Iterator[ChangePage]:
    """This page and those that `ask` gives behind each, without end: where nothing is new, it waits."""
    wait, heard = FIRST_WAIT_SECONDS, time.monotonic()
    while True:
        if page.blocks:
            yield page
            wait, heard = FIRST_WAIT_SECONDS, time.monotonic()
        if page.caught_up:
            if not _waited(wait, None if idle_seconds is None else heard + idle_seconds, closed):
                return
            wait = min(2 * wait, poll_seconds)
        if closed():
            return
        page = ask(page)


def _waited(seconds: float, until: float | None, closed: Callable[[], bool]) -> bool:
    """Wait a while; False when the graph was closed meanwhile, or the time for waiting is over."""
    end = time.monotonic() + seconds
    while not closed():
        now = time.monotonic()
        if until is not None and now >= until:
            return False
        if now >= end:
            return True
        time.sleep(min(_SLICE_SECONDS, end - now, _SLICE_SECONDS if until is None else until - now))
    return False


def _limits(changes: int | None, size: int | None, commits: int | None) -> Limits:
    return Limits(
        CHANGES_DEFAULT if changes is None else changes,
        BYTES_DEFAULT if size is None else size,
        COMMITS_DEFAULT if commits is None else commits,
    )


def _tables(keys: Iterable[str], wanted: Wanted) -> list[str]:
    return [key for key in keys if wanted.takes(*key.split(":", 1))]
