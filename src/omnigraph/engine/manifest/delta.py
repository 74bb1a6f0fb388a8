"""What a publish changes about tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph.engine.manifest.records import SchemaRecord
from omnigraph.ids import CommitId, TableKey


@dataclass(frozen=True)
class RegisterTable:
    """A table exists at this path; repeating a registration is fine."""

    table_key: TableKey
    path: str
    incarnation: int = 1


@dataclass(frozen=True)
class UpdateTable:
    """A table's visible version, which must be above the one visible now."""

    table_key: TableKey
    version: int
    branch: str | None
    row_count: int
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TombstoneTable:
    """A table's versions up to this one disappear."""

    table_key: TableKey
    version: int


@dataclass(frozen=True)
class SetSchema:
    """The graph's schema from here on."""

    record: SchemaRecord


Change = RegisterTable | UpdateTable | TombstoneTable | SetSchema


@dataclass(frozen=True)
class Lineage:
    """The commit a publish records; its parent is found inside the publish, from the head of that moment."""

    commit_id: CommitId
    actor_id: str | None
    created_at: int
    merged_parent: CommitId | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
