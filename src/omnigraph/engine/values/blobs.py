"""Blobs read back the way they were given: inline bytes, or the reference to bytes that lie elsewhere.

A reference is never followed here. Rewriting a row keeps it, and whether its target can be read is nobody's business
until somebody asks for the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.storage.handle import Addresses, RowFilter, TableHandle
from omnigraph.engine.values.columns import blob_column
from omnigraph.errors import InputError

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


def refuse_references(
    handle: TableHandle, columns: Sequence[str], what: str, filter: RowFilter | None = None, **options: Any
) -> None:
    """Refuse to read blobs as bytes where one of them is a reference, which storage would follow wherever it leads.

    `filter` and `options` are those of the scan that is to read them.

    Raises:
        InputError: there is one; the message names it.
    """
    if not columns:
        return
    for batch in handle.scan_batches(columns, filter, **options):
        for name in columns:
            blobs = batch.column(name)
            outside = blobs.filter(pc.fill_null(pc.equal(pc.struct_field(blobs, "kind"), _EXTERNAL), False))
            if len(outside):
                raise InputError(
                    f"{what}: '{name}' has bytes that are kept outside the graph, at {outside[0].as_py()['blob_uri']}:"
                    " export JSON lines, which keep the reference, or leave the column out"
                )


def _by_row_id(handle: TableHandle, column: str, row_ids: list[int], *, blob_bytes: bool) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for start in range(0, len(row_ids), _LISTED_MAX):
        listed = ", ".join(map(str, row_ids[start : start + _LISTED_MAX]))
        rows = handle.scan([column], f"_rowid IN ({listed})", with_row_id=True, blob_bytes=blob_bytes)
        found.update(zip(rows.column("_rowid").to_pylist(), rows.column(column).to_pylist(), strict=True))
    return found
