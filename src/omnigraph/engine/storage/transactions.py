"""What made a version of a table, as the version itself tells it.

A commit carries properties, by which recovery knows whose it is and never guesses from numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

from lance import LanceDataset
from msgspec import Struct

from omnigraph.engine.storage.translate import translated

OPERATION_ID = "omnigraph.operation_id"
"""Which write made the version."""
STEP = "omnigraph.step"
"""Which of the commits of that write to this table it was, counted from 1."""
COMPENSATES = "omnigraph.compensates"
"""The write whose effects the version takes back."""
RESTORES = "omnigraph.restores"
"""The version whose content came back with that."""


class TransactionInfo(Struct, frozen=True):
    """What one version of a table was made by; `operation` is None when Lance cannot tell."""

    version: int
    uuid: str | None
    operation: str | None
    properties: Mapping[str, str]


def read_transaction(dataset: LanceDataset, path: str, version: int) -> TransactionInfo:
    """What made one version of the table at this path."""
    with translated(f"reading the history of {path}"):
        try:
            transaction = dataset.read_transaction(version)
        except TypeError:
            # A compaction that rewrote an index cannot be decoded by the Python binding; it is maintenance.
            return TransactionInfo(version, None, "Rewrite", {})
    if transaction is None:
        return TransactionInfo(version, None, None, {})
    return TransactionInfo(
        version,
        str(transaction.uuid),
        type(transaction.operation).__name__,
        dict(transaction.transaction_properties or {}),
    )
