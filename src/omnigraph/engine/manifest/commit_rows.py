"""Commits as rows of the commit table, which holds what has left the manifest, and back."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from omnigraph.engine.manifest.records import CommitRecord
from omnigraph.ids import CommitId, storable, text_fault

_MICROS = pa.timestamp("us")

COMMITS_SCHEMA = pa.schema(
    [
        pa.field("graph_commit_id", pa.utf8(), nullable=False),
        pa.field("manifest_branch", pa.utf8()),
        pa.field("manifest_version", pa.uint64(), nullable=False),
        pa.field("parent_commit_id", pa.utf8()),
        pa.field("merged_parent_commit_id", pa.utf8()),
        pa.field("created_at", _MICROS, nullable=False),
        pa.field("actor_id", pa.utf8()),
        pa.field("properties", pa.utf8()),
    ]
)
"""`properties` is JSON, null without any. A commit table without the last two columns gets them when it is next
written; until then the table of actors tells who made a commit."""

ACTORS_SCHEMA = pa.schema(
    [
        pa.field("graph_commit_id", pa.utf8(), nullable=False),
        pa.field("actor_id", pa.utf8(), nullable=False),
        pa.field("created_at", _MICROS, nullable=False),
    ]
)

EXACT_ACTOR = "omnigraph.actor"
"""The property of a row of the commit table that tells an actor which its column cannot hold."""


def commit_rows(commits: Sequence[CommitRecord]) -> pa.Table:
    """The rows of commits, in the order they are given."""
    columns: dict[str, list[object]] = {
        name: [getattr(commit, name) for commit in commits] for name in COMMITS_SCHEMA.names if name != "properties"
    }
    columns["actor_id"] = [_stored_actor(commit) for commit in commits]
    properties = [_stored_properties(commit) for commit in commits]
    columns["properties"] = [json.dumps(facts) if facts else None for facts in properties]
    return pa.table(columns, schema=COMMITS_SCHEMA)


def _stored_actor(commit: CommitRecord) -> str | None:
    return None if commit.actor_id is None else storable(commit.actor_id)


def _stored_properties(commit: CommitRecord) -> dict[str, str]:
    """The properties of a commit, and its actor where the column of actors cannot hold it.

    No writer accepts such an actor, but an earlier release did; the manifest tells it in JSON, which can.
    """
    facts = dict(commit.properties)
    if commit.actor_id is not None and text_fault(commit.actor_id) is not None:
        facts[EXACT_ACTOR] = commit.actor_id
    return facts


def _told(actor: str | None, properties: str | None) -> tuple[str | None, dict[str, str]]:
    """The actor and the properties of a row of the commit table."""
    facts: dict[str, str] = json.loads(properties) if properties else {}
    return facts.pop(EXACT_ACTOR, actor), facts


def actor_rows(commits: Sequence[CommitRecord]) -> pa.Table:
    """The rows of those commits that say who made them, for the table that earlier releases read."""
    named = [commit for commit in commits if commit.actor_id is not None]
    return pa.table(
        {
            "graph_commit_id": [commit.graph_commit_id for commit in named],
            "actor_id": [_stored_actor(commit) for commit in named],
            "created_at": [commit.created_at for commit in named],
        },
        schema=ACTORS_SCHEMA,
    )


def read_commits(rows: pa.Table, actors: pa.Table | None) -> dict[CommitId, CommitRecord]:
    """The commits that rows of the commit table stand for; `actors` names those of rows that do not tell theirs."""
    if not rows.num_rows:
        return {}
    named: dict[str, str] = {}
    if actors is not None:
        named = dict(zip(actors["graph_commit_id"].to_pylist(), actors["actor_id"].to_pylist(), strict=True))
    for later in {"actor_id", "properties"}.difference(rows.schema.names):
        rows = rows.append_column(later, pa.nulls(rows.num_rows, pa.utf8()))
    created = rows.schema.get_field_index("created_at")
    rows = rows.set_column(created, "created_at", rows["created_at"].cast(pa.int64()))
    columns = (rows[name].to_pylist() for name in COMMITS_SCHEMA.names)
    return {
        commit_id: CommitRecord(
            commit_id,
            branch,
            version,
            parent,
            merged,
            told[0] or named.get(commit_id),
            created_at,
            told[1],
        )
        for commit_id, branch, version, parent, merged, created_at, actor, properties in zip(*columns, strict=True)
        for told in [_told(actor, properties)]
    }
