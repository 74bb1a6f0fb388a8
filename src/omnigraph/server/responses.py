"""The bodies of answers, for the OpenAPI document: older and newer names side by side.

Answers are made by `omnigraph.wire`; a test compares every field of every answer with these.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class ErrorCode(StrEnum):
    """The closed set of codes."""

    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    BAD_REQUEST = "bad_request"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    CONFLICT = "conflict"
    TOO_MANY_REQUESTS = "too_many_requests"
    INTERNAL = "internal"


class LoadMode(StrEnum):
    """What a load does to entities that are there."""

    APPEND = "append"
    MERGE = "merge"
    UPDATE = "update"
    OVERWRITE = "overwrite"


class EntityKind(StrEnum):
    """A node or an edge."""

    NODE = "node"
    EDGE = "edge"


class BranchMergeOutcome(StrEnum):
    """How a merge ends."""

    ALREADY_UP_TO_DATE = "already_up_to_date"
    FAST_FORWARD = "fast_forward"
    MERGED = "merged"


class MergeConflictKindOutput(StrEnum):
    """What does not fit together."""

    DIVERGENT_INSERT = "divergent_insert"
    DIVERGENT_UPDATE = "divergent_update"
    DELETE_VS_UPDATE = "delete_vs_update"
    ORPHAN_EDGE = "orphan_edge"
    UNIQUE_VIOLATION = "unique_violation"
    CARDINALITY_VIOLATION = "cardinality_violation"
    VALUE_CONSTRAINT_VIOLATION = "value_constraint_violation"


class ParamKind(StrEnum):
    """What a parameter takes; bigint, date, datetime and blob travel as texts."""

    STRING = "string"
    BOOL = "bool"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DATE = "date"
    DATETIME = "datetime"
    BLOB = "blob"
    VECTOR = "vector"
    LIST = "list"


class Output(BaseModel):
    """An answer may have more fields than are promised."""

    model_config = ConfigDict(extra="allow")


class HealthOutput(Output):
    """The server answers."""

    status: Literal["ok"]
    version: str
    source_version: str | None = None
    internal_schema_version: int
    auth: Literal["open", "default_deny", "policy"]


class ReadinessOutput(Output):
    """Whether every graph that is expected is open."""

    status: Literal["ready", "unavailable"]
    expected: int
    ready: int
    unavailable: list[str] = []


class GraphInfo(Output):
    """One graph."""

    graph_id: str
    uri: str


class GraphListResponse(Output):
    """The graphs of the server."""

    graphs: list[GraphInfo]
    quarantined: list[GraphInfo] = []


class SnapshotTableOutput(Output):
    """One table of a snapshot."""

    table_key: str
    table_path: str
    table_version: int
    table_branch: str | None
    row_count: int
    entity_kind: EntityKind
    type_name: str
    dataset_path: str
    published_dataset_version: int
    native_dataset_branch: str | None
    entity_count: int


class SnapshotOutput(Output):
    """Every table at one version."""

    branch: str
    manifest_version: int
    tables: list[SnapshotTableOutput]
    graph_branch: str
    graph_manifest_version: int
    datasets: list[SnapshotTableOutput]
    graph_commit_id: str | None


class ReadTargetOutput(Output):
    """The state that was read: one of the two."""

    branch: str | None
    snapshot: str | None


class ReadOutput(Output):
    """Rows."""

    query_name: str
    target: ReadTargetOutput
    row_count: int
    columns: list[str] | None = None
    rows: list[dict[str, Any]]
    graph_commit_id: str | None = None


class TouchedIdsOutput(Output):
    """Ids that one statement has touched, in order; `more` when there were others."""

    ids: list[str]
    more: bool


class ChangeOutput(Output):
    """What a mutation did; `commit` is null when nothing changed. `columns` and `rows` are there when it returns."""

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    ids: list[TouchedIdsOutput]
    columns: list[str] | None = None
    rows: list[dict[str, Any]] | None = None
    commit: str | None


class InvokeStoredQueryResponse(Output):
    """A `ReadOutput` or a `ChangeOutput`, as the query is a read or a mutation."""


class IngestTableOutput(Output):
    """Rows of one table."""

    table_key: str
    rows_loaded: int


class LoadedTypeOutput(Output):
    """Entities of one type."""

    name: str
    entities_loaded: int


class GraphBatchLoadOutput(Output):
    """What a load did."""

    branch: str
    base_branch: str | None
    branch_created: bool
    mode: LoadMode
    nodes: list[LoadedTypeOutput]
    edges: list[LoadedTypeOutput]
    total_entities: int
    actor_id: str | None
    commit: str | None


class IngestOutput(GraphBatchLoadOutput):
    """What a load did, in both vocabularies."""

    uri: str
    tables: list[IngestTableOutput]


class CommitWriteOutput(Output):
    """One of the writes that were published together as a commit; `key` is its Idempotency-Key."""

    actor_id: str | None = None
    name: str | None = None
    message: str | None = None
    key: str | None = None
    affected_nodes: int
    affected_edges: int


class CommitOutput(Output):
    """One commit; `created_at` is Unix time in microseconds."""

    graph_commit_id: str
    manifest_branch: str | None
    manifest_version: int
    graph_branch: str | None
    graph_manifest_version: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int
    message: str | None = None
    writes: list[CommitWriteOutput] | None = None


class CommitListOutput(Output):
    """Commits, newest first."""

    commits: list[CommitOutput]


class SchemaOutput(Output):
    """The accepted schema."""

    schema_source: str


class _SchemaSteps(Output):
    uri: str
    supported: bool
    step_count: int
    steps: list[dict[str, Any]]


class SchemaPlanOutput(_SchemaSteps):
    """The steps to another schema, and the branches that have to be deleted before it can be accepted."""

    other_branches: list[str]


class SchemaApplyOutput(_SchemaSteps):
    """What became of a schema that was to be accepted."""

    applied: bool
    manifest_version: int
    commit: str | None


class BranchListOutput(Output):
    """The branches by name."""

    branches: list[str]


class BranchCreateOutput(Output):
    """A branch that was created."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    uri: str
    base: str = Field(alias="from")
    name: str
    actor_id: str | None


class BranchDeleteOutput(Output):
    """A branch that was deleted."""

    uri: str
    name: str
    actor_id: str | None


class MergeConflictOutput(Output):
    """One thing a merge cannot decide by itself."""

    table_key: str
    row_id: str | None
    kind: MergeConflictKindOutput
    message: str
    entity_kind: EntityKind
    type_name: str
    entity_id: str | None


class BranchMergeOutput(Output):
    """What a merge did, or with `dry_run` would do."""

    source: str
    target: str
    outcome: BranchMergeOutcome
    actor_id: str | None
    commit: str | None = None
    branch_deleted: bool | None = None
    branch_delete_error: str | None = None
    dry_run: bool = False
    merge_conflicts: list[MergeConflictOutput] = []


class BranchConflictsOutput(Output):
    """The conflicts of two branches, a page at a time."""

    source: str
    target: str
    merge_conflicts: list[MergeConflictOutput]
    next_page_token: str | None = None


class DiffOutput(Output):
    """What differs between two states."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    older: dict[str, Any] = Field(alias="from")
    newer: dict[str, Any] = Field(alias="to")
    stats: dict[str, Any]
    types: list[dict[str, Any]]
    schema_changes: list[dict[str, Any]]
    changes: list[dict[str, Any]]


class ParamDescriptor(Output):
    """One parameter of a stored query; `nullable: false` means that it is required."""

    name: str
    kind: ParamKind
    item_kind: ParamKind | None = None
    vector_dim: int | None = None
    nullable: bool


class QueryCatalogEntry(Output):
    """One stored query."""

    name: str
    tool_name: str
    description: str | None = None
    instruction: str | None = None
    mutation: bool
    params: list[ParamDescriptor]


class QueriesCatalogOutput(Output):
    """The stored queries by name."""

    queries: list[QueryCatalogEntry]


class ExplainOutput(Output):
    """How a query is run."""

    plan: Any


class ManifestConflictOutput(Output):
    """A table that moved meanwhile."""

    table_key: str
    expected: int
    actual: int


class DatasetVersionConflictOutput(Output):
    """The same in newer words."""

    entity_kind: EntityKind
    type_name: str
    expected_published_dataset_version: int
    actual_published_dataset_version: int


class ResourceLimitOutput(Output):
    """A bound that was met."""

    resource: str
    limit: int
    actual: int


class PreconditionFailureOutput(Output):
    """The head is not the demanded commit."""

    expected: str
    actual: str | None = None


class ExternalBlobSourceOutput(Output):
    """A place outside the graph that cannot be read, without what would let one in there."""

    uri: str
    reason: str


class DiagnosticPositionOutput(Output):
    """Where in the text."""

    line: int
    column: int
    offset: int
    length: int


class DiagnosticOutput(Output):
    """What is wrong with a text, and where."""

    code: str
    message: str
    position: DiagnosticPositionOutput | None = None
    expected: list[str] = []


class ErrorOutput(Output):
    """Why a request failed; `code` is a closed set, newer failures are recognised by their own field."""

    error: str
    code: ErrorCode | None = None
    merge_conflicts: list[MergeConflictOutput] | None = None
    manifest_conflict: ManifestConflictOutput | None = None
    published_dataset_version_conflict: DatasetVersionConflictOutput | None = None
    read_set_conflict: dict[str, Any] | None = None
    key_conflict: dict[str, Any] | None = None
    precondition_failure: PreconditionFailureOutput | None = None
    resource_limit: ResourceLimitOutput | None = None
    recovery_required: dict[str, Any] | None = None
    change_diff_refusal: dict[str, Any] | None = None
    change_feed_gap: dict[str, Any] | None = None
    blob_range: dict[str, Any] | None = None
    external_blob_source: ExternalBlobSourceOutput | None = None
    diagnostic: DiagnosticOutput | None = None
