"""The JSON shapes that the command line prints and that both ends of HTTP share.

Functions from results to plain dictionaries, in the field order the surfaces promise. They decide nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from omnigraph.errors import (
    AlreadyExistsError,
    ChangeFeedGapError,
    ConflictError,
    ExternalBlobError,
    GraphError,
    InputError,
    LimitError,
    NotFoundError,
    OutcomeUnknownError,
    PolicyError,
    PreconditionFailedError,
    RecoveryRequiredError,
    SourceSpan,
    UnavailableError,
    VersionReclaimedError,
)
from omnigraph.ids import MAIN

if TYPE_CHECKING:
    from omnigraph.engine.changes import Diff
    from omnigraph.engine.manifest.records import CommitRecord
    from omnigraph.engine.manifest.snapshot import Snapshot
    from omnigraph.engine.manifest.tags import Tag
    from omnigraph.engine.operations.branch import BranchInfo
    from omnigraph.engine.operations.cleanup import CleanupPlan, CleanupReport
    from omnigraph.engine.operations.outcomes import LoadResult, MutationResult
    from omnigraph.engine.operations.repair import RepairReport
    from omnigraph.engine.operations.verify import VerifyReport
    from omnigraph.engine.recovery import Intent

_CODES: tuple[tuple[type[GraphError], str | None], ...] = (
    (PreconditionFailedError, None),
    (VersionReclaimedError, None),
    (ChangeFeedGapError, None),
    (RecoveryRequiredError, None),
    (LimitError, None),
    (UnavailableError, None),
    (OutcomeUnknownError, None),
    (ExternalBlobError, None),
    (InputError, "bad_request"),
    (NotFoundError, "not_found"),
    (AlreadyExistsError, "conflict"),
    (ConflictError, "conflict"),
    (PolicyError, "forbidden"),
)
"""The closed set of wire codes; what came later than the set is recognised by its own field, and has no code."""


def error_output(error: GraphError) -> dict[str, Any]:
    """The `ErrorOutput` of an error: its sentence, its wire code and its structured facts."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), "internal")
    body = {"error": error.message, **({"code": code} if code else {}), **error.facts()}
    conflict = body.get("manifest_conflict")
    if conflict is not None:
        body["published_dataset_version_conflict"] = {
            **entity_of(conflict["table_key"]),
            "expected_published_dataset_version": conflict["expected"],
            "actual_published_dataset_version": conflict["actual"],
        }
    span = getattr(error, "span", None)
    if span is not None:
        body["diagnostic"] = _diagnostic(error, span)
    return body


def _diagnostic(error: GraphError, span: SourceSpan) -> dict[str, Any]:
    """What is wrong with a text, and where in it."""
    position = {"line": span.line, "column": span.column, "offset": span.start, "length": span.end - span.start}
    return {"code": error.code, "message": error.message, "position": position, "expected": []}


def entity_of(table_key: str) -> dict[str, str]:
    """A table key in newer words.

    >>> entity_of("node:Person")
    {'entity_kind': 'node', 'type_name': 'Person'}
    """
    kind, _, name = table_key.partition(":")
    return {"entity_kind": kind, "type_name": name}


def change_output(result: MutationResult) -> dict[str, Any]:
    """The `ChangeOutput` of a mutation; `commit` is null when nothing changed."""
    return {**result.to_json(), "commit": result.commit_id}


def load_counts(rows: Mapping[str, int]) -> dict[str, int]:
    """Rows per table, summed up by kind; a table without rows does not count as loaded."""
    loaded = {key: count for key, count in rows.items() if count}
    nodes = {key: count for key, count in loaded.items() if key.startswith("node:")}
    edges = {key: count for key, count in loaded.items() if key.startswith("edge:")}
    return {
        "nodes_loaded": sum(nodes.values()),
        "edges_loaded": sum(edges.values()),
        "node_types_loaded": len(nodes),
        "edge_types_loaded": len(edges),
    }


def load_output(result: LoadResult, *, uri: str) -> dict[str, Any]:
    """The output of a load: counts in all, rows per table, the commit, and where the time went."""
    return {
        "uri": uri,
        "branch": result.branch,
        "base_branch": result.base_branch,
        "branch_created": result.branch_created,
        "mode": str(result.mode),
        **load_counts(result.rows),
        "tables": [{"table_key": key, "rows_loaded": count} for key, count in sorted(result.rows.items())],
        "actor_id": result.actor_id,
        "commit": result.commit_id,
        "engine": result.engine,
        "seconds": round(result.seconds, 6),
        "bytes_written": result.bytes_written,
        "phases": {name: round(seconds, 6) for name, seconds in result.phases.items()},
    }


def commit_output(commit: CommitRecord) -> dict[str, Any]:
    """The `CommitOutput` of a commit; `created_at` is Unix time in microseconds."""
    properties = commit.facts
    return {
        "graph_commit_id": commit.graph_commit_id,
        "manifest_branch": commit.manifest_branch,
        "manifest_version": commit.manifest_version,
        "parent_commit_id": commit.parent_commit_id,
        "merged_parent_commit_id": commit.merged_parent_commit_id,
        "actor_id": commit.actor_id,
        "created_at": commit.created_at,
        "message": commit.message,
        **({"writes": [write.shown() for write in commit.writes]} if commit.writes else {}),
        **({"properties": properties} if properties else {}),
    }


def branch_output(info: BranchInfo) -> dict[str, Any]:
    """Where a branch stands."""
    return {
        "name": info.name,
        "head": commit_output(info.head),
        "created_from": info.created_from,
        "created_at_version": info.created_at_version,
        "compared_with": info.compared_with,
        "ahead": info.ahead,
        "behind": info.behind,
    }


def tag_output(tag: Tag) -> dict[str, Any]:
    """The `TagOutput` of a tag; `created_at` is Unix time in microseconds."""
    return {name: value for name, value in asdict(tag).items() if name != "request"}


def snapshot_output(snapshot: Snapshot) -> dict[str, Any]:
    """The `SnapshotOutput` of a snapshot, its tables in key order."""
    return {
        "branch": snapshot.branch,
        "manifest_version": snapshot.version,
        "graph_commit_id": snapshot.head,
        "tables": [
            {
                "table_key": entry.table_key,
                "table_path": entry.path,
                "table_version": entry.version,
                "table_branch": entry.branch,
                "row_count": entry.row_count,
            }
            for _, entry in sorted(snapshot.entries.items())
        ],
    }


def diff_output(diff: Diff) -> dict[str, Any]:
    """What differs between two states: counts in all and by type, changes of the schema, and the changes themselves."""
    counts = {"inserted": diff.inserted, "updated": diff.updated, "deleted": diff.deleted}
    return {
        "from": {
            "graph_commit_id": diff.older.head,
            "branch": diff.older.branch,
            "manifest_version": diff.older.version,
        },
        "to": {"graph_commit_id": diff.newer.head, "branch": diff.newer.branch, "manifest_version": diff.newer.version},
        "stats": {**counts, "types_affected": [found.name for found in diff.types]},
        "types": [
            {
                "kind": found.kind,
                "type_name": found.name,
                "inserted": found.inserted,
                "updated": found.updated,
                "deleted": found.deleted,
            }
            for found in diff.types
        ],
        "schema_changes": [step.to_json() for step in diff.schema_steps],
        "changes": [change.to_json() for change in diff],
    }


def repair_output(report: RepairReport, *, uri: str) -> dict[str, Any]:
    """What a repair saw and did, table by table."""
    tables = [{**asdict(table), "operations": list(table.operations)} for table in report.tables]
    return {"uri": uri, "tables": tables, "commit": report.commit_id}


def cleanup_output(report: CleanupReport, *, uri: str) -> dict[str, Any]:
    """What a cleanup removed, table by table, and of the states of the graph."""
    *tables, manifest = [
        {**asdict(cleaned), "forks_removed": list(cleaned.forks_removed)}
        for cleaned in (*report.tables, report.manifest)
    ]
    return {"uri": uri, "tables": tables, "manifest": manifest}


def cleanup_plan_output(plan: CleanupPlan, *, uri: str) -> dict[str, Any]:
    """What a cleanup would remove, table by table; versions with the times of their commits."""
    tables = [
        {
            "table_key": table.table_key,
            "old_versions": [
                {"version": version, "committed_at": when.isoformat()} for version, when in table.versions.items()
            ],
            "forks": list(table.forks),
            "orphan_files": table.orphan_files,
            "orphan_bytes": table.orphan_bytes,
            "error": table.error,
        }
        for table in plan.tables
    ]
    return {"uri": uri, "preview": True, "tables": tables}


def verify_output(report: VerifyReport, *, uri: str) -> dict[str, Any]:
    """What a walk over the whole graph found."""
    return {"uri": uri, "clean": report.clean, **asdict(report)}


def intent_output(intent: Intent) -> dict[str, Any]:
    """A write in flight or cut short, as far as it concerns people."""
    return {
        "operation_id": intent.operation_id,
        "writer_kind": str(intent.writer_kind),
        "branch": intent.branch,
        "actor_id": intent.actor_id,
        "started_at": intent.started_at,
        "tables": [effect.table_key for effect in intent.effects],
    }


# --- both vocabularies -----------------------------------------------------------------------------------------------
# Clients of two generations read these: each thing has its older name and, beside it, its newer one.


def served_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """`snapshot_output` in older and newer words."""
    body = snapshot_output(snapshot)
    body["tables"] = [
        {
            **table,
            **entity_of(table["table_key"]),
            "dataset_path": table["table_path"],
            "published_dataset_version": table["table_version"],
            "native_dataset_branch": table["table_branch"],
            "entity_count": table["row_count"],
        }
        for table in body["tables"]
    ]
    return {
        **body,
        "graph_branch": body["branch"],
        "graph_manifest_version": body["manifest_version"],
        "datasets": body["tables"],
    }


def served_commit(commit: CommitRecord) -> dict[str, Any]:
    """`commit_output` in older and newer words."""
    body = commit_output(commit)
    return {**body, "graph_branch": body["manifest_branch"], "graph_manifest_version": body["manifest_version"]}


def served_branch(info: BranchInfo) -> dict[str, Any]:
    """`branch_output`, its commit in older and newer words."""
    return {**branch_output(info), "head": served_commit(info.head)}


def cause_output(commit: CommitRecord) -> dict[str, Any]:
    """The commit that made some changes, as feeds name it."""
    return {
        "graph_commit_id": commit.graph_commit_id,
        "parent_commit_id": commit.parent_commit_id,
        "merged_parent_commit_id": commit.merged_parent_commit_id,
        "authored_branch": commit.manifest_branch or MAIN,
        "actor_id": commit.actor_id,
        "authored_at": commit.created_at,
        "message": commit.message,
        **({"writes": [write.shown() for write in commit.writes]} if commit.writes else {}),
    }


def batch_load_output(result: LoadResult) -> dict[str, Any]:
    """The `GraphBatchLoadOutput` of a load."""
    nodes = [{"name": name, "entities_loaded": count} for name, count in sorted(result.nodes.items()) if count]
    edges = [{"name": name, "entities_loaded": count} for name, count in sorted(result.edges.items()) if count]
    return {
        "branch": result.branch,
        "base_branch": result.base_branch,
        "branch_created": result.branch_created,
        "mode": str(result.mode),
        "nodes": nodes,
        "edges": edges,
        "total_entities": result.nodes_loaded + result.edges_loaded,
        "actor_id": result.actor_id,
        "commit": result.commit_id,
    }


def ingest_output(result: LoadResult, *, uri: str) -> dict[str, Any]:
    """The `IngestOutput` of a load, in older and newer words."""
    return {**load_output(result, uri=uri), **batch_load_output(result)}
