"""Blobs read back the way they were given: inline bytes, or the reference to bytes that lie elsewhere.

A reference is never followed here. Rewriting a row keeps it, and whether its target can be read is nobody's business
until somebody asks for the bytes.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from omnigraph.engine.staging.values import blob_column
from omnigraph.engine.storage.handle import Addresses, TableHandle

_EXTERNAL = 3
"""The kind of a blob descriptor whose bytes lie elsewhere."""
_LISTED_MAX = 1_000


def read_blobs(handle: TableHandle, column: str, row_ids: Addresses) -> pa.Array:
    """The blobs of some rows by row id, as they are staged, in the order asked for."""
    wanted = [int(row_id) for row_id in row_ids]
    described = _by_row_id(handle, column, wanted, blob_bytes=False)
    inline = [row_id for row_id, blob in described.items() if blob is not None and blob["kind"] != _EXTERNAL]
    content = _by_row_id(handle, column, inline, blob_bytes=True)
    references = {
        row_id: blob["blob_uri"] for row_id, blob in described.items() if blob is not None and blob["kind"] == _EXTERNAL
    }
    return blob_column([content.get(row_id) for row_id in wanted], [references.get(row_id) for row_id in wanted])


def _by_row_id(handle: TableHandle, column: str, row_ids: list[int], *, blob_bytes: bool) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for start in range(0, len(row_ids), _LISTED_MAX):
        listed = ", ".join(map(str, row_ids[start : start + _LISTED_MAX]))
        rows = handle.scan([column], f"_rowid IN ({listed})", with_row_id=True, blob_bytes=blob_bytes)
        found.update(zip(rows.column("_rowid").to_pylist(), rows.column(column).to_pylist(), strict=True))
    return found
