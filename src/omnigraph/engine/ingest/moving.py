"""Staged fragments on their way to a branch that gets its own line of a table.

Executors stage rows before a load knows its commit, so for a branch that still shares its parent's table they write
below the parent. Once the branch has its own line the files are copied there, whole: no row is read, except where blobs
lie outside the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from omnigraph.engine.ingest.leftovers import folder_of
from omnigraph.engine.ingest.stage import Target
from omnigraph.engine.storage.fragments import fragment_files, fragment_rows, is_blob, read_fragment_rows
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.staged import write_fragment_files
from omnigraph.engine.storage.tables import TableStore


def copied(store: TableStore, source: Target, texts: Sequence[str], base: TableHandle) -> list[str]:
    """The same fragments below `base`, row ids included."""
    if source.uri == base.uri:
        return list(texts)
    if any(is_blob(field) for field in source.schema):
        return [_rewritten(source, text, base) for text in texts]
    older, newer = folder_of(store, source.uri), folder_of(store, base.uri)
    for text in texts:
        for name in fragment_files(text):
            store.objects.copy(f"{older}/{name}", f"{newer}/{name}")
    return list(texts)


def _rewritten(source: Target, text: str, base: TableHandle) -> str:
    rows = read_fragment_rows(source.uri, text, source.schema)
    count = max(fragment_rows(text), 1)
    [written] = write_fragment_files(base.uri, rows, source.schema, rows_per_file=count)
    return json.dumps({**json.loads(written), "row_id_meta": json.loads(text).get("row_id_meta")})
