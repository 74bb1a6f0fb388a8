"""What writes report back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa

from omnigraph.ids import CommitId
from omnigraph.plan.results import rows_to_json


class LoadMode(StrEnum):
    """What a load does to the tables its input names; other tables stay as they are.

    `APPEND` refuses ids that exist, `MERGE` replaces the entities that have them, `UPDATE` gives them what the input
    has and refuses ids that do not exist, `OVERWRITE` replaces everything.
    """

    APPEND = "append"
    MERGE = "merge"
    UPDATE = "update"
    OVERWRITE = "overwrite"


@dataclass(frozen=True)
class TouchedIds:
    """The ids that one statement of a mutation has touched, in order; `more` says that there were others."""

    ids: tuple[str, ...] = ()
    more: bool = False

    def to_json(self) -> dict[str, Any]:
        """The JSON form that every surface shows."""
        return {"ids": list(self.ids), "more": self.more}


@dataclass(frozen=True)
class MutationResult:
    """What a mutation did; `commit_id` is None when nothing was affected and so nothing was committed.

    `ids` has an entry for each statement, in their order. `returned` holds the rows of a `return`, where there is one.
    """

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None = None
    commit_id: CommitId | None = None
    ids: tuple[TouchedIds, ...] = ()
    returned: pa.Table | None = field(default=None, compare=False)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of a `return` as dictionaries with JSON-ready values; none where nothing is returned."""
        return [] if self.returned is None else rows_to_json(self.returned)

    def to_json(self) -> dict[str, Any]:
        """The JSON form that every surface shows."""
        body: dict[str, Any] = {
            "branch": self.branch,
            "query_name": self.query_name,
            "affected_nodes": self.affected_nodes,
            "affected_edges": self.affected_edges,
            "actor_id": self.actor_id,
            "ids": [touched.to_json() for touched in self.ids],
        }
        if self.returned is not None:
            body |= {"columns": self.returned.column_names, "rows": self.rows}
        return body


@dataclass(frozen=True)
class LoadResult:
    """What a load did: records per type, the engine that ran it and the seconds each phase took.

    `commit_id` is None when the input was empty. `reason` says why the engine was chosen.
    """

    branch: str
    mode: str
    nodes: Mapping[str, int] = field(default_factory=dict)
    edges: Mapping[str, int] = field(default_factory=dict)
    commit_id: CommitId | None = None
    actor_id: str | None = None
    engine: str = "local"
    reason: str = ""
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    bytes_written: int = 0
    base_branch: str | None = None
    branch_created: bool = False

    @property
    def rows(self) -> dict[str, int]:
        """Records per table key, in key order."""
        return {table["table_key"]: table["rows_loaded"] for table in self.tables()}

    @property
    def nodes_loaded(self) -> int:
        """Node records loaded, over all types."""
        return sum(self.nodes.values())

    @property
    def edges_loaded(self) -> int:
        """Edge records loaded, over all types."""
        return sum(self.edges.values())

    def tables(self) -> list[dict[str, Any]]:
        """Records per table, sorted by table key."""
        counts = {f"node:{name}": count for name, count in self.nodes.items()}
        counts.update({f"edge:{name}": count for name, count in self.edges.items()})
        return [{"table_key": key, "rows_loaded": counts[key]} for key in sorted(counts)]

    def to_json(self) -> dict[str, Any]:
        """The JSON form the command line shows."""
        body: dict[str, Any] = {
            "branch": self.branch,
            "branch_created": self.branch_created,
            "mode": str(self.mode),
            "nodes_loaded": self.nodes_loaded,
            "edges_loaded": self.edges_loaded,
            "node_types_loaded": len(self.nodes),
            "edge_types_loaded": len(self.edges),
        }
        if self.base_branch is not None:
            body["base_branch"] = self.base_branch
        return body
