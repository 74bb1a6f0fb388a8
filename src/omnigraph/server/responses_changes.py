"""Answers about what changed: of one commit, and commit by commit."""

from __future__ import annotations

from typing import Any, Literal

from omnigraph.server.responses import CommitWriteOutput, EntityKind, Output


class ChangeTypeOutput(Output):
    """The type of a changed entity."""

    id: str | int | None = None
    name: str


class EntityChangeOutput(Output):
    """One entity that was inserted, updated or deleted."""

    kind: EntityKind
    type: ChangeTypeOutput
    id: str
    op: Literal["insert", "update", "delete"]
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class ChangeCauseOutput(Output):
    """The commit that made changes."""

    graph_commit_id: str
    parent_commit_id: str | None = None
    merged_parent_commit_id: str | None = None
    authored_branch: str
    actor_id: str | None = None
    authored_at: int
    message: str | None = None
    writes: list[CommitWriteOutput] | None = None


class CommitChangesOutput(Output):
    """What one commit changed, a page at a time."""

    cause: ChangeCauseOutput
    changes: list[EntityChangeOutput]
    next_page_token: str | None = None


class ChangeBlockOutput(Output):
    """The changes of one commit within a feed."""

    cause: ChangeCauseOutput
    changes: list[EntityChangeOutput]


class ChangeFeedOutput(Output):
    """Changes since a cursor; the cursor comes with the last page."""

    blocks: list[ChangeBlockOutput]
    next_page_token: str | None = None
    cursor: str | None = None
    caught_up: bool | None = None
