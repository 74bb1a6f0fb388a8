"""The JSON shapes that the command line prints and that both ends of HTTP share.

Functions from results to plain dictionaries, in the field order the surfaces promise. They decide nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from omnigraph.errors import (
    AlreadyExistsError,
    ConflictError,
    GraphError,
    InputError,
    LimitError,
    NotFoundError,
    PolicyError,
    PreconditionFailedError,
    RecoveryRequiredError,
    VersionReclaimedError,
)

if TYPE_CHECKING:
    from omnigraph.engine.manifest.records import CommitRecord
    from omnigraph.engine.manifest.snapshot import Snapshot
    from omnigraph.engine.operations.cleanup import CleanupReport
    from omnigraph.engine.operations.outcomes import LoadResult, MutationResult
    from omnigraph.engine.operations.repair import RepairReport
    from omnigraph.engine.operations.verify import VerifyReport
    from omnigraph.engine.recovery import Intent

_CODES: tuple[tuple[type[GraphError], str | None], ...] = (
    (PreconditionFailedError, None),
    (VersionReclaimedError, None),
    (RecoveryRequiredError, None),
    (LimitError, None),
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
    return {"error": error.message, **({"code": code} if code else {}), **error.facts()}


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
        "phases": {name: round(seconds, 6) for name, seconds in result.phases.items()},
    }


def commit_output(commit: CommitRecord) -> dict[str, Any]:
    """The `CommitOutput` of a commit; `created_at` is Unix time in microseconds."""
    return {
        "graph_commit_id": commit.graph_commit_id,
        "manifest_branch": commit.manifest_branch,
        "manifest_version": commit.manifest_version,
        "parent_commit_id": commit.parent_commit_id,
        "merged_parent_commit_id": commit.merged_parent_commit_id,
        "actor_id": commit.actor_id,
        "created_at": commit.created_at,
        **({"properties": dict(commit.properties)} if commit.properties else {}),
    }


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
