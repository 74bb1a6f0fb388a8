"""Omnigraph: a lakehouse graph database.

Everything a program needs is here: `create` and `connect` give a `Graph`; its results and every exception are named
beside them. Importing the package is quick; the engine is loaded with the first name that needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from omnigraph.errors import (
    AlreadyExistsError,
    BranchNotFoundError,
    CancelledWriteError,
    ChangeCursorError,
    ChangeFeedGapError,
    ChangesUnavailableError,
    CommitNotFoundError,
    ConflictError,
    ConstraintError,
    DriftError,
    ExecutionError,
    ExpectedVersionMismatchError,
    ExternalBlobError,
    ForkedProcessError,
    FormatError,
    GraphError,
    GraphNotFoundError,
    InputError,
    InternalError,
    KeyConflictError,
    LateCommitError,
    LimitError,
    MergeBaseError,
    MergeConflictError,
    NotFoundError,
    OutcomeUnknownError,
    ParameterError,
    ParseError,
    PolicyError,
    PreconditionFailedError,
    PublishContentionError,
    QueryNotFoundError,
    ReadSetChangedError,
    RecoveryRequiredError,
    SchemaError,
    StorageError,
    TypeCheckError,
    UnavailableError,
    VersionReclaimedError,
)
from omnigraph.version import __version__

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.drawing import Drawing
    from omnigraph.engine.changes import Change, Diff
    from omnigraph.engine.embedding import EmbeddingConfig
    from omnigraph.engine.operations.merge import MergeConflict, MergePlan, MergeResult
    from omnigraph.engine.operations.outcomes import LoadResult, MutationResult
    from omnigraph.engine.read import ReadOptions
    from omnigraph.graph import Graph
    from omnigraph.linting import lint
    from omnigraph.opening import connect, create
    from omnigraph.plan.lint import LintReport
    from omnigraph.results import QueryResult

_LAZY = {
    "Change": "omnigraph.engine.changes",
    "Diff": "omnigraph.engine.changes",
    "Drawing": "omnigraph.drawing",
    "EmbeddingConfig": "omnigraph.engine.embedding",
    "Graph": "omnigraph.graph",
    "LintReport": "omnigraph.plan.lint",
    "ReadOptions": "omnigraph.engine.read",
    "connect": "omnigraph.opening",
    "create": "omnigraph.opening",
    "lint": "omnigraph.linting",
    "LoadResult": "omnigraph.engine.operations.outcomes",
    "MergeConflict": "omnigraph.engine.operations.merge",
    "MergePlan": "omnigraph.engine.operations.merge",
    "MergeResult": "omnigraph.engine.operations.merge",
    "MutationResult": "omnigraph.engine.operations.outcomes",
    "QueryResult": "omnigraph.results",
    "RemoteGraph": "omnigraph.client",
}
"""The names that need the engine, and the module each is loaded from when it is first asked for."""

__all__ = [
    "AlreadyExistsError",
    "BranchNotFoundError",
    "CancelledWriteError",
    "Change",
    "ChangeCursorError",
    "ChangeFeedGapError",
    "ChangesUnavailableError",
    "CommitNotFoundError",
    "ConflictError",
    "ConstraintError",
    "Diff",
    "Drawing",
    "DriftError",
    "EmbeddingConfig",
    "ExecutionError",
    "ExpectedVersionMismatchError",
    "ExternalBlobError",
    "ForkedProcessError",
    "FormatError",
    "Graph",
    "GraphError",
    "GraphNotFoundError",
    "InputError",
    "InternalError",
    "KeyConflictError",
    "LateCommitError",
    "LimitError",
    "LintReport",
    "LoadResult",
    "MergeBaseError",
    "MergeConflict",
    "MergeConflictError",
    "MergePlan",
    "MergeResult",
    "MutationResult",
    "NotFoundError",
    "OutcomeUnknownError",
    "ParameterError",
    "ParseError",
    "PolicyError",
    "PreconditionFailedError",
    "PublishContentionError",
    "QueryNotFoundError",
    "QueryResult",
    "ReadOptions",
    "ReadSetChangedError",
    "RecoveryRequiredError",
    "RemoteGraph",
    "SchemaError",
    "StorageError",
    "TypeCheckError",
    "UnavailableError",
    "VersionReclaimedError",
    "__version__",
    "connect",
    "create",
    "lint",
]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'omnigraph' has no attribute '{name}'")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
