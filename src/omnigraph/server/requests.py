"""The bodies of requests, field by field. Fields that are not known are ignored unless a model says otherwise."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

Params = Annotated[
    dict[str, Any] | None,
    Field(description="Values of the declared parameters by name; a parameter that is not declared is refused."),
]
Branch = Annotated[str | None, Field(description="The branch; `main` when absent.")]
Snapshot = Annotated[
    str | None,
    Field(
        validation_alias=AliasChoices("snapshot", "at"),
        description="A commit, tag, time, snapshot id or manifest version to read at, also as `at`; excludes `branch`.",
    ),
]
LoadMode = Literal["append", "merge", "update", "overwrite"]


class _OfState(BaseModel):
    """What may name an earlier state, by either name of it."""

    @model_validator(mode="before")
    @classmethod
    def _one_state(cls, body: Any) -> Any:
        if isinstance(body, dict) and "snapshot" in body and "at" in body:
            if body["snapshot"] is not None and body["at"] is not None:
                raise PydanticCustomError("two_states", "'at' and 'snapshot' name the same thing: pass one of them")
            unused = "snapshot" if body["snapshot"] is None else "at"
            return {name: value for name, value in body.items() if name != unused}
        return body


class QueryRequest(_OfState):
    """A read query with its parameters and the state it reads."""

    query: str
    name: str | None = None
    params: Params = None
    branch: Branch = None
    snapshot: Snapshot = None


class ReadRequest(_OfState):
    """The older spelling of `QueryRequest`."""

    query_source: str
    query_name: str | None = None
    params: Params = None
    branch: Branch = None
    snapshot: Snapshot = None


class ChangeRequest(BaseModel):
    """A write query with its parameters; `query_source` and `query_name` are older spellings."""

    query: str = Field(validation_alias=AliasChoices("query", "query_source"))
    name: str | None = Field(None, validation_alias=AliasChoices("name", "query_name"))
    params: Params = None
    branch: Branch = None
    message: str | None = Field(None, description="Kept with the commit.")


class InvokeStoredQueryRequest(_OfState):
    """What a stored query is run with."""

    params: Params = None
    branch: Branch = None
    snapshot: Snapshot = None
    expect_mutation: bool | None = Field(None, description="Refuse the call when the query is of the other kind.")
    message: str | None = Field(None, description="Kept with the commit of a mutation.")


class IngestRequest(BaseModel):
    """Data lines and where they go."""

    model_config = ConfigDict(populate_by_name=True)

    data: str = Field(description="Data lines (NDJSON).")
    branch: Branch = None
    base: str | None = Field(None, alias="from", description="Create the branch from this one if it is missing.")
    mode: LoadMode = "merge"
    message: str | None = Field(None, description="Kept with the commit.")


class ExportRequest(_OfState):
    """What is exported; without types and tables, everything."""

    model_config = ConfigDict(extra="forbid")

    branch: Branch = None
    snapshot: Snapshot = None
    type_names: list[str] = []
    table_keys: list[str] = []


class BaselineRequest(BaseModel):
    """What a baseline of the change feed holds."""

    model_config = ConfigDict(extra="forbid")

    branch: Branch = None
    kind: list[str] = []
    type: list[str] = []
    op: list[str] = []


class SchemaApplyRequest(BaseModel):
    """A schema to accept, or to plan for."""

    schema_source: str
    allow_data_loss: bool = False
    confirm_drops: bool = False
    message: str | None = Field(None, description="Kept with the commit.")


class BranchCreateRequest(BaseModel):
    """A branch to create."""

    model_config = ConfigDict(populate_by_name=True)

    name: str
    base: str | None = Field(None, alias="from")
    at: str | None = Field(None, description="A commit id, tag, time or manifest version to begin at, not the newest.")


class BranchMergeRequest(BaseModel):
    """A merge, or with `dry_run` the plan of one."""

    source: str
    target: str | None = None
    delete_branch: bool = False
    dry_run: bool = Field(False, description="Tell what would happen; nothing is written.")
    strategy: str | None = Field(None, description="`ours`, `theirs` or `fields`, where both sides differ.")
    strategies: dict[str, str] | None = Field(None, description="The strategy by type.")
    resolve: list[dict[str, Any]] | None = Field(None, description="Conflicts as listed, each with a `take`.")
    expect_source: str | None = Field(None, description="Refuse unless the source is at this commit.")
    expect_target: str | None = Field(None, description="Refuse unless the target is at this commit.")
    base: str | None = None
    message: str | None = Field(None, description="Kept with the commit.")


class RevertRequest(BaseModel):
    """A commit to undo by a new one."""

    commit: str
    branch: Branch = None
    strategy: str | None = Field(None, description="`ours`, `theirs` or `fields`, where it was changed again since.")
    strategies: dict[str, str] | None = Field(None, description="The strategy by type.")
    resolve: list[dict[str, Any]] | None = Field(None, description="Conflicts as listed, each with a `take`.")
    expect_head: str | None = Field(None, description="Refuse unless the branch is at this commit.")
    message: str | None = Field(None, description="Kept with the commit.")


class TagCreateRequest(BaseModel):
    """A commit to name: the newest of a branch, or one of its past."""

    name: str
    at: str | None = Field(None, description="A commit id, tag, time or manifest version; the newest when absent.")
    branch: Branch = None
    message: str | None = Field(None, description="Kept with the tag.")


class BranchConflictsRequest(BaseModel):
    """Two branches whose conflicts are listed."""

    source: str
    target: str | None = None
    strategy: str | None = None
    strategies: dict[str, str] | None = None
    base: str | None = Field(None, description="The common commit to compare with; where they parted when absent.")
    after: str | None = Field(None, description="Go on behind the conflict of this token.")
    limit: int = Field(1_000, ge=1, le=8_192, description="At most so many; the answer tells where to go on.")
