"""Answers about names of commits: those that move, and those that stay."""

from __future__ import annotations

from omnigraph.server.responses import CommitOutput, Output


class BranchOutput(Output):
    """Where a branch stands: its newest commit, where it was created, and how far it is from another one."""

    name: str
    head: CommitOutput
    created_from: str | None
    created_at_version: int | None
    compared_with: str
    ahead: int
    behind: int


class TagOutput(Output):
    """One tag; `created_at` is Unix time in microseconds, and `manifest_branch` is null for main."""

    name: str
    graph_commit_id: str
    manifest_branch: str | None
    manifest_version: int
    created_at: int
    actor_id: str | None
    message: str | None


class TagListOutput(Output):
    """The tags by name."""

    tags: list[TagOutput]


class TagDeleteOutput(Output):
    """A tag that was deleted."""

    uri: str
    name: str
    actor_id: str | None
