"""What a publish changes about tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from omnigraph.engine.manifest.records import SchemaRecord
from omnigraph.ids import CommitId, TableKey


class RegisterTable(Struct, frozen=True):
    """A table exists at this path; repeating a registration is fine."""

    table_key: TableKey
    path: str
    incarnation: int = 1


class UpdateTable(Struct, frozen=True):
    """A table's visible version, which must be above the one visible now."""

    table_key: TableKey
    version: int
    branch: str | None
    row_count: int
    metadata: Mapping[str, Any] = field(default_factory=dict)


class TombstoneTable(Struct, frozen=True):
    """A table's versions up to this one disappear."""

    table_key: TableKey
    version: int


class SetSchema(Struct, frozen=True):
    """The graph's schema from here on."""

    record: SchemaRecord


Change = RegisterTable | UpdateTable | TombstoneTable | SetSchema


class Lineage(Struct, frozen=True):
    """The commit a publish records; its parent is found inside the publish, from the head of that moment."""

    commit_id: CommitId
    actor_id: str | None
    created_at: int
    merged_parent: CommitId | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
