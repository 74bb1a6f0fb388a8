"""The answer to a write, kept before the write is published, so that it can be given again whatever dies when.

A server that dies between a commit and its answer leaves a note that says nothing. The commit carries the name of its
request, and what its caller was to be told: in a property of the commit where that is short, in a file beside the note
where it is long. Only what the request does not say already is kept.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from omnigraph.engine.manifest.records import RECEIPT, WRITES, CommitRecord, CommitWrite
from omnigraph.engine.recovery import settle
from omnigraph.errors import BranchNotFoundError, GraphError
from omnigraph.graph import Graph
from omnigraph.server.requests_seen import ATTACHED, Note, RequestsSeen

_log = logging.getLogger("omnigraph.server")
INLINE_BYTES_MAX = 1_024
"""Up to so many bytes a receipt is part of its commit, of which every reader of the history reads it."""
_LOOK_BACK_MICROS = 3_600_000_000
"""How far a commit may be older than its request, by the clocks of two machines."""


class Receipt(Struct, frozen=True):
    """How the answer to a write is made from what the engine reports of it, before and after it is published."""

    told: Callable[[Any], Mapping[str, Any]]
    """The answer to a report."""
    known: Mapping[str, Any] | None = None
    """The answer to a report of nothing, where the receipt may be part of the commit: what it says is not kept."""

    def keep(self, seen: RequestsSeen, note: Note, report: Any) -> Mapping[str, str]:
        """Keep what is going to be answered; returns what the commit has to carry for it."""
        known = self.known or {}
        body = {name: value for name, value in self.told(report).items() if name not in known or known[name] != value}
        text = json.dumps(body, separators=(",", ":"))
        if self.known is not None and len(text) <= INLINE_BYTES_MAX:
            return {RECEIPT: text}
        try:
            seen.foretell(note, text)
        except GraphError as exc:
            # The write is worth more than the chance to tell of it twice; the note itself is still to be completed.
            _log.warning("the receipt of a request cannot be kept: %s", exc)
        return {}

    def find(self, seen: RequestsSeen, note: Note, graph: Graph, branch: str) -> dict[str, Any] | None:
        """The answer to a request whose commit is there, None when there is none.

        Raises:
            RecoveryRequiredError: an attempt at it is unfinished, and nobody can say yet how it ends.
        """
        settle(graph.context.recovery, lambda intent: _answers(intent.commit_properties, note))
        graph.refresh()
        found = commit_of(graph, branch, note)
        if found is None:
            return None
        commit, write = found
        text = (commit if write is None else write).properties.get(RECEIPT) or seen.foretold(note)
        body = {**(self.known or {}), **({} if text is None else json.loads(text)), "commit": commit.graph_commit_id}
        if "manifest_version" in body:
            body["manifest_version"] = commit.manifest_version
        return body


def _answers(properties: Mapping[str, str], note: Note) -> bool:
    """Whether a commit of these properties, or one of its writes, answers the request of a note."""
    return properties.get(ATTACHED) == note.request or note.request in properties.get(WRITES, "")


def commit_of(graph: Graph, branch: str, note: Note) -> tuple[CommitRecord, CommitWrite | None] | None:
    """The commit that an abandoned attempt at a request made, if it made one, and which of its writes it is."""
    for name in _lines(graph, branch, note):
        found = _commit_on(graph, name, note)
        if found is not None:
            return found
    return None


def _lines(graph: Graph, branch: str, note: Note) -> Iterator[str]:
    """The branch of a request; where that one was deleted, also those that may have got its commits by a merge."""
    names = graph.branches.list()
    if branch in names:
        yield branch
    if note.is_gone(identity_of(graph, branch)) or branch not in names:
        yield from (name for name in names if name != branch)


def identity_of(graph: Graph, branch: str) -> str:
    """What tells a branch from every other one of its name; empty for main, and when there is none."""
    try:
        return graph.context.manifest.identity(branch)
    except BranchNotFoundError:
        return ""


def _commit_on(graph: Graph, branch: str, note: Note) -> tuple[CommitRecord, CommitWrite | None] | None:
    try:
        commits = graph.history.list(branch)
    except BranchNotFoundError:
        return None
    for commit in commits:
        if commit.properties.get(ATTACHED) == note.request:
            return commit, None
        for write in commit.writes:
            if write.properties.get(ATTACHED) == note.request:
                return commit, write
        if commit.created_at < note.began - _LOOK_BACK_MICROS:
            return None
    return None
