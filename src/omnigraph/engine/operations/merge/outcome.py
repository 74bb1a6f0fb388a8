"""What a merge would do, and what it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from omnigraph.engine.operations.merge.conflicts import MergeConflict
from omnigraph.engine.operations.merge.stage import How
from omnigraph.ids import CommitId
from omnigraph.shown import Shown, Table

CONFLICTS_SHOWN = 1_000
"""How many conflicts a plan or an error carries; all of them are listed by `conflicts`."""


class Outcome(StrEnum):
    """How a merge ends."""

    ALREADY_UP_TO_DATE = "already_up_to_date"
    """The target has everything of the source; no commit is made."""
    FAST_FORWARD = "fast_forward"
    """The target had no work of its own since the two parted, and now is what the source is."""
    MERGED = "merged"
    """Both sides had work of their own."""


@dataclass(frozen=True)
class TypeMerge:
    """What the target gets of one type."""

    kind: str
    name: str
    inserted: int
    updated: int
    deleted: int
    how: How = How.UNCHANGED
    counts_exact: bool = True
    """False when rows that were touched but not changed may be among those counted as updated."""
    uncovered_rows: int = 0
    """Rows that no index of the target covers until the next `optimize`; searches find them all the same."""
    rows_written: int = 0
    bytes_estimated: int = 0
    """About how much is written for the rows that are written anew."""
    reason: str | None = None
    """Why files were not taken over, where some were not."""

    def to_json(self) -> dict[str, Any]:
        """The counts as the wire has them."""
        return {
            "kind": self.kind,
            "type_name": self.name,
            "inserted": self.inserted,
            "updated": self.updated,
            "deleted": self.deleted,
            "counts_exact": self.counts_exact,
            "how": str(self.how),
            "uncovered_rows": self.uncovered_rows,
            "rows_written": self.rows_written,
            "bytes_estimated": self.bytes_estimated,
            "reason": self.reason,
        }


@dataclass(frozen=True, repr=False)
class MergePlan(Shown):
    """What a merge of two commits would do; nothing is written to find out."""

    source: str
    target: str
    source_commit: CommitId
    target_commit: CommitId
    base_commits: tuple[CommitId, ...]
    outcome: Outcome
    types: tuple[TypeMerge, ...] = ()
    conflicts_total: int = 0
    conflicts_by_kind: Mapping[str, int] = field(default_factory=dict)
    conflicts: tuple[MergeConflict, ...] = ()
    resolved: Mapping[str, int] = field(default_factory=dict)
    """Conflicts that a strategy or a resolution has settled, by how."""
    parallel_edges: int = 0
    """Edges of the source beside which the target has added one between the same nodes; both stay."""
    parallel: tuple[tuple[str, str, str], ...] = ()
    """The first of them: the type, the edge of the source, and that of the target."""
    convergent_edges: int = 0
    """Edges both sides have added alike, which a `@unique` group makes one."""
    engine: str = "local"
    """Where entities are compared and rows written: in this process (`local`) or on `spark`."""
    engine_reason: str = ""

    def _table(self) -> Table:
        outcome = "refused" if self.conflicts_total else self.outcome
        return self.table(f"merging {self.source} into {self.target} would be: {outcome}")

    def table(self, caption: str) -> Table:
        """What the target gets of each type, and how many conflicts of which kinds there are."""
        rows = [[each.kind, each.name, each.inserted, each.updated, each.deleted, each.how] for each in self.types]
        more = ", ".join(f"{number:,} {kind}" for kind, number in self.conflicts_by_kind.items())
        return Table(caption, ["kind", "type", "+", "~", "-", "how"], rows, f"in conflict: {more}" if more else "")

    def to_json(self) -> dict[str, Any]:
        """The plan as the wire has it."""
        return {
            "source": self.source,
            "target": self.target,
            "source_commit": self.source_commit,
            "target_commit": self.target_commit,
            "base_commits": list(self.base_commits),
            "outcome": str(self.outcome),
            "types": [found.to_json() for found in self.types],
            "conflicts_total": self.conflicts_total,
            "conflicts_by_kind": dict(self.conflicts_by_kind),
            "merge_conflicts": [conflict.to_json() for conflict in self.conflicts],
            "resolved": dict(self.resolved),
            "parallel_edges": self.parallel_edges,
            "parallel": [{"type_name": name, "theirs": one, "ours": other} for name, one, other in self.parallel],
            "convergent_edges": self.convergent_edges,
            "engine": self.engine,
            "engine_reason": self.engine_reason,
        }


@dataclass(frozen=True, repr=False)
class MergeResult(Shown):
    """What a merge did; `commit_id` is None when the target had everything already."""

    plan: MergePlan
    outcome: Outcome
    commit_id: CommitId | None = None
    actor_id: str | None = None
    branch_deleted: bool = False
    branch_delete_error: str | None = None

    def _table(self) -> Table:
        commit = f", commit {self.commit_id}" if self.commit_id is not None else ""
        return self.plan.table(f"merged {self.plan.source} into {self.plan.target}: {self.outcome}{commit}")

    def to_json(self) -> dict[str, Any]:
        """The result as the wire has it."""
        return {
            **self.plan.to_json(),
            "outcome": str(self.outcome),
            "commit": self.commit_id,
            "actor_id": self.actor_id,
            "branch_deleted": self.branch_deleted,
            "branch_delete_error": self.branch_delete_error,
        }
