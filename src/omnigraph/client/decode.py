"""Bodies as the results that `Graph` gives: the same classes where they are data, and views of the same shape else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from omnigraph.engine.changes.images import Change, Image, Op
from omnigraph.engine.manifest.listed import counts_table, state_table
from omnigraph.engine.manifest.records import MESSAGE, WRITES, CommitRecord, CommitWrite, TableEntry
from omnigraph.engine.manifest.tags import Tag
from omnigraph.engine.operations.branch import BranchInfo
from omnigraph.engine.operations.feed import Cause, ChangeBlock, ChangePage, CommitChanges
from omnigraph.engine.operations.merge.conflicts import ConflictKind, MergeConflict
from omnigraph.engine.operations.merge.outcome import MergePlan, MergeResult, Outcome, TypeMerge
from omnigraph.engine.operations.merge.stage import How
from omnigraph.engine.operations.migrate import SchemaApplyResult
from omnigraph.engine.operations.outcomes import LoadResult, MutationResult, TouchedIds
from omnigraph.errors import InternalError, SchemaError
from omnigraph.ids import CommitId, TableKey
from omnigraph.plan.explain import Explanation
from omnigraph.results import TableRows
from omnigraph.shown import Shown, Table


def fetched_rows(body: bytes) -> TableRows:
    """The rows of an Arrow stream."""
    try:
        with pa.ipc.open_stream(pa.BufferReader(body)) as reader:
            return TableRows(reader.read_all())
    except pa.ArrowInvalid as exc:
        raise InternalError(f"the server's rows are not an Arrow stream: {exc}") from exc


@dataclass(frozen=True, repr=False)
class RemoteSnapshot(Shown):
    """A state of a graph as a server describes it."""

    branch: str
    version: int
    head: CommitId | None
    entries: Mapping[TableKey, TableEntry]

    def _table(self) -> Table:
        return state_table(f"{self.branch} at {self.head or self.id}, version {self.version}", self.entries)

    @property
    def id(self) -> str:
        """A name for exactly this state, usable wherever a commit id is."""
        return f"manifest:{self.branch}:v{self.version}"


def snapshot(body: Mapping[str, Any]) -> RemoteSnapshot:
    """A `SnapshotOutput`."""
    entries = {
        TableKey(table["table_key"]): TableEntry(
            TableKey(table["table_key"]),
            table["table_path"],
            table["table_version"],
            table["table_branch"],
            table["row_count"],
        )
        for table in body["tables"]
    }
    return RemoteSnapshot(body["branch"], body["manifest_version"], body.get("graph_commit_id"), entries)


def commit_record(body: Mapping[str, Any]) -> CommitRecord:
    """A `CommitOutput`."""
    return CommitRecord(**{**_fields(CommitRecord, body), "properties": _properties(body)})


def _properties(body: Mapping[str, Any]) -> dict[str, str]:
    """What is recorded with a commit, its message and its writes included."""
    message, writes = body.get("message"), body.get("writes") or ()
    listed = {WRITES: json.dumps([written(each).to_json() for each in writes])} if writes else {}
    return {**(body.get("properties") or {}), **({} if message is None else {MESSAGE: message}), **listed}


def written(body: Mapping[str, Any]) -> CommitWrite:
    """One of the writes of a commit."""
    counts = (body["affected_nodes"], body["affected_edges"])
    return CommitWrite(body["actor_id"], body["name"], body["message"], body["key"], *counts)


def mutation(body: Mapping[str, Any]) -> MutationResult:
    """A `ChangeOutput`."""
    return MutationResult(
        body["branch"],
        body["query_name"],
        body["affected_nodes"],
        body["affected_edges"],
        body["actor_id"],
        _commit_id(body.get("commit")),
        tuple(TouchedIds(tuple(touched["ids"]), touched["more"]) for touched in body.get("ids", ())),
        _returned(body),
    )


def _returned(body: Mapping[str, Any]) -> pa.Table | None:
    """The rows of a `return` as a table, whose types are those that their JSON values have."""
    names = body.get("columns")
    if names is None:
        return None
    return pa.table({name: pa.array([row[name] for row in body["rows"]]) for name in names})


def _commit_id(told: Any) -> CommitId | None:
    """A receipt names its commit, or describes it."""
    return told.get("graph_commit_id") if isinstance(told, Mapping) else told


def load(body: Mapping[str, Any], *, seconds: float) -> LoadResult:
    """A `GraphBatchLoadOutput`."""
    return LoadResult(
        branch=body["branch"],
        mode=body["mode"],
        nodes={each["name"]: each["entities_loaded"] for each in body["nodes"]},
        edges={each["name"]: each["entities_loaded"] for each in body["edges"]},
        commit_id=_commit_id(body["commit"]),
        actor_id=body["actor_id"],
        engine="server",
        reason="the graph is served",
        seconds=seconds,
        base_branch=body["base_branch"],
        branch_created=body["branch_created"],
    )


def explanation(body: Mapping[str, Any]) -> Explanation:
    """A tree of operators."""
    return Explanation(
        body["operator"],
        body.get("detail", ""),
        tuple(explanation(child) for child in body.get("children", ())),
        dict(body.get("facts", {})),
    )


# --- schemas ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RemoteStep:
    """One step between two schemas, as the server tells it."""

    body: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """What is done."""
        return str(self.body["kind"])

    def to_json(self) -> dict[str, Any]:
        """The step as the surfaces show it."""
        return dict(self.body)


@dataclass(frozen=True)
class RemotePlan:
    """The steps between two schemas."""

    steps: tuple[RemoteStep, ...]
    other_branches: tuple[str, ...] = ()

    @property
    def is_supported(self) -> bool:
        """True when every step can be done."""
        return all(step.kind != "unsupported_change" for step in self.steps)

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to do."""
        return not self.steps

    def to_json(self) -> dict[str, Any]:
        """`supported`, `step_count`, `steps` and `other_branches`."""
        steps = [step.to_json() for step in self.steps]
        return {
            "supported": self.is_supported,
            "step_count": len(steps),
            "steps": steps,
            "other_branches": list(self.other_branches),
        }

    def require_supported(self) -> None:
        """Refuse a plan that cannot be applied.

        Raises:
            SchemaError: the first reason.
        """
        for step in self.steps:
            if step.kind == "unsupported_change":
                prefix = f"[{step.body['code']}] " if step.body.get("code") else ""
                raise SchemaError(f"{prefix}{step.body['entity']}: {step.body['reason']}")


def schema_plan(body: Mapping[str, Any]) -> RemotePlan:
    """A `SchemaPlanOutput`."""
    steps = tuple(RemoteStep(step) for step in body["steps"])
    # A server of an earlier release does not tell of branches.
    return RemotePlan(steps, tuple(body.get("other_branches", ())))


def schema_applied(body: Mapping[str, Any]) -> SchemaApplyResult:
    """A `SchemaApplyOutput`."""
    return SchemaApplyResult(
        schema_plan(body),  # type: ignore[arg-type]
        body["applied"],
        body["manifest_version"],
        _commit_id(body.get("commit")),
    )


# --- differences -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TypeCounts:
    """How many entities of one type differ."""

    kind: str
    name: str
    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True, repr=False)
class RemoteDiff(Shown):
    """What it takes to get from an older state to a newer one; iterating gives the changes."""

    older: RemoteSnapshot
    newer: RemoteSnapshot
    types: tuple[TypeCounts, ...]
    schema_steps: tuple[RemoteStep, ...]
    changes: tuple[Change, ...]

    def _table(self) -> Table:
        older, newer = (state.head or state.id for state in (self.older, self.newer))
        rows = [[each.kind, each.name, each.inserted, each.updated, each.deleted] for each in self.types]
        return counts_table(older, newer, rows, len(self.schema_steps))

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return sum(found.inserted + found.updated + found.deleted for found in self.types)

    @property
    def inserted(self) -> int:
        """How many entities only the newer state has."""
        return sum(found.inserted for found in self.types)

    @property
    def updated(self) -> int:
        """How many entities both states have, with other values."""
        return sum(found.updated for found in self.types)

    @property
    def deleted(self) -> int:
        """How many entities only the older state has."""
        return sum(found.deleted for found in self.types)


def diff(body: Mapping[str, Any]) -> RemoteDiff:
    """A `DiffOutput`."""
    return RemoteDiff(
        _end(body["from"]),
        _end(body["to"]),
        tuple(TypeCounts(**{**_fields(TypeCounts, each), "name": each["type_name"]}) for each in body["types"]),
        tuple(RemoteStep(step) for step in body["schema_changes"]),
        tuple(change(each) for each in body["changes"]),
    )


def _end(body: Mapping[str, Any]) -> RemoteSnapshot:
    return RemoteSnapshot(body["branch"], body["manifest_version"], body["graph_commit_id"], {})


def change(body: Mapping[str, Any]) -> Change:
    """One changed entity."""
    return Change(
        body["kind"],
        body["type"]["name"],
        body["id"],
        Op(body["op"]),
        _image(body.get("before")),
        _image(body.get("after")),
        tuple(body.get("columns", ())),
    )


def _image(body: Mapping[str, Any] | None) -> Image | None:
    if body is None:
        return None
    ends = body.get("endpoints")
    return Image(body["properties"], None if ends is None else (ends["from"], ends["to"]))


def _cause(body: Mapping[str, Any]) -> Cause:
    absent = dict.fromkeys(("parent_commit_id", "merged_parent_commit_id", "actor_id"))
    writes = tuple(written(each) for each in body.get("writes") or ())
    return Cause(**{**absent, **_fields(Cause, body), "writes": writes})


def change_page(body: Mapping[str, Any]) -> ChangePage:
    """A page of the change feed."""
    blocks = (
        ChangeBlock(_cause(each["cause"]), tuple(change(one) for one in each["changes"])) for each in body["blocks"]
    )
    token, cursor = body.get("next_page_token"), body.get("cursor")
    return ChangePage(tuple(blocks), token, cursor, bool(body.get("caught_up")))


def commit_changes(body: Mapping[str, Any]) -> CommitChanges:
    """A page of what one commit changed."""
    changes = tuple(change(each) for each in body["changes"])
    return CommitChanges(_cause(body["cause"]), changes, body.get("next_page_token"))


# --- merges ----------------------------------------------------------------------------------------------------------


def conflict(body: Mapping[str, Any]) -> MergeConflict:
    """A `MergeConflictOutput`."""
    return MergeConflict(
        TableKey(body["table_key"]),
        body["row_id"],
        ConflictKind(body["kind"]),
        body["message"],
        tuple(body.get("columns", ())),
        _image(body.get("base")),
        _image(body.get("ours")),
        _image(body.get("theirs")),
        body.get("related"),
        body.get("fields_disjoint"),
    )


def merge_plan(body: Mapping[str, Any]) -> MergePlan:
    """What a merge would do."""
    return MergePlan(
        body["source"],
        body["target"],
        body["source_commit"],
        body["target_commit"],
        tuple(body["base_commits"]),
        Outcome(body["outcome"]),
        tuple(
            TypeMerge(**{**_fields(TypeMerge, each), "name": each["type_name"], "how": How(each["how"])})
            for each in body["types"]
        ),
        body["conflicts_total"],
        dict(body["conflicts_by_kind"]),
        tuple(conflict(each) for each in body["merge_conflicts"]),
        dict(body["resolved"]),
        body["parallel_edges"],
        tuple((each["type_name"], each["theirs"], each["ours"]) for each in body["parallel"]),
        body["convergent_edges"],
        body["engine"],
        body["engine_reason"],
    )


def merged(body: Mapping[str, Any]) -> MergeResult:
    """A `BranchMergeOutput`."""
    return MergeResult(
        merge_plan(body),
        Outcome(body["outcome"]),
        _commit_id(body.get("commit")),
        body.get("actor_id"),
        bool(body.get("branch_deleted")),
        body.get("branch_delete_error"),
    )


def branch(body: Mapping[str, Any]) -> BranchInfo:
    """Where a branch stands."""
    return BranchInfo(**{**_fields(BranchInfo, body), "head": commit_record(body["head"])})


def tag(body: Mapping[str, Any]) -> Tag:
    """One tag."""
    return Tag(**_fields(Tag, body))


def _fields(kind: type[Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """What of an answer belongs to a record; newer servers may say more."""
    known = {each.name for each in fields(kind)}
    return {name: value for name, value in body.items() if name in known}
