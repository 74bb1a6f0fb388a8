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
    CommitNotFoundError,
    ConflictError,
    ConstraintError,
    DriftError,
    ExecutionError,
    ExpectedVersionMismatchError,
    FormatError,
    GraphError,
    GraphNotFoundError,
    InputError,
    InternalError,
    KeyConflictError,
    LimitError,
    MergeConflictError,
    NotFoundError,
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
    VersionReclaimedError,
)
from omnigraph.version import __version__

if TYPE_CHECKING:
    from omnigraph.engine.embedding import EmbeddingConfig
    from omnigraph.engine.operations.outcomes import LoadResult, MutationResult
    from omnigraph.graph import Graph, connect, create
    from omnigraph.results import QueryResult

_LAZY = {
    "EmbeddingConfig": "omnigraph.engine.embedding",
    "Graph": "omnigraph.graph",
    "connect": "omnigraph.graph",
    "create": "omnigraph.graph",
    "LoadResult": "omnigraph.engine.operations.outcomes",
    "MutationResult": "omnigraph.engine.operations.outcomes",
    "QueryResult": "omnigraph.results",
}
"""The names that need the engine, and the module each is loaded from when it is first asked for."""

__all__ = [
    "AlreadyExistsError",
    "BranchNotFoundError",
    "CancelledWriteError",
    "CommitNotFoundError",
    "ConflictError",
    "ConstraintError",
    "DriftError",
    "EmbeddingConfig",
    "ExecutionError",
    "ExpectedVersionMismatchError",
    "FormatError",
    "Graph",
    "GraphError",
    "GraphNotFoundError",
    "InputError",
    "InternalError",
    "KeyConflictError",
    "LimitError",
    "LoadResult",
    "MergeConflictError",
    "MutationResult",
    "NotFoundError",
    "ParameterError",
    "ParseError",
    "PolicyError",
    "PreconditionFailedError",
    "PublishContentionError",
    "QueryNotFoundError",
    "QueryResult",
    "ReadSetChangedError",
    "RecoveryRequiredError",
    "SchemaError",
    "StorageError",
    "TypeCheckError",
    "VersionReclaimedError",
    "__version__",
    "connect",
    "create",
]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'omnigraph' has no attribute '{name}'")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
