"""Fragments as texts that travel between processes.

A fragment somebody wrote is described by JSON until a transaction takes it. The functions here read such fragments
before any version has them, and prepare the deletions and row ids of an upsert where the rows are, so that whoever
holds the transaction handles one text per fragment and never a value per row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import lance
import pyarrow as pa
from lance import LanceOperation
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata, RowIdSequence

from omnigraph.catalog.arrow import BLOB_EXTENSION, BLOB_STORAGE
from omnigraph.engine.storage.batches import stream
from omnigraph.engine.storage.handle import Addresses, TableHandle
from omnigraph.engine.storage.lance_internals.files import data_file, detached_version_file, file_name
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.engine.storage.staged import StagedWrite, _row_count, stage_update
from omnigraph.engine.storage.steps import step
from omnigraph.engine.storage.translate import translated

BATCH_ROWS = 65_536
WHOLE_ROWS = 8_192
"""How many rows with all their columns are read at once."""


def fragment_rows(text: str) -> int:
    """How many rows a fragment holds, deleted ones included."""
    return int(FragmentMetadata.from_json(text).physical_rows)


def fragment_files(text: str) -> list[str]:
    """The fragment's data files, relative to its table."""
    return [data_file(file_name(file)) for file in FragmentMetadata.from_json(text).files]


def read_fragment(
    table_uri: str, text: str, columns: Sequence[str], *, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Columns of a fragment that no version has yet, in row order; blob columns cannot be read this way."""
    [name] = fragment_files(text)
    yield from read_file(table_uri, name, columns, batch_rows=batch_rows)


def read_file(
    table_uri: str, name: str, columns: Sequence[str], *, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The same of a data file, by its name below the table."""
    with translated(f"reading staged rows of {table_uri}"):
        reader = LanceFileReader(f"{table_uri}/{name}", columns=list(columns))
        yield from stream(lambda batch: reader.read_all(batch_size=batch).to_batches(), batch_rows)


def read_fragment_rows(table_uri: str, text: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Whole rows of a fragment that no version has yet, in the stored schema and in row order.

    The bytes of blobs are only within reach of a table that has the fragment. For those a version is made that no
    lineage knows, and removed again.
    """
    blobs = [field.name for field in schema if is_blob(field)]
    if not blobs:
        for batch in read_fragment(table_uri, text, schema.names, batch_rows=WHOLE_ROWS):
            yield batch.select(schema.names).cast(schema)
        return
    with translated(f"reading staged rows of {table_uri}"):
        base = lance.dataset(table_uri)
        transaction = lance.Transaction(base.version, LanceOperation.Append([FragmentMetadata.from_json(text)]))
        detached = lance.LanceDataset.commit(base, transaction, detached=True, max_retries=1)
        try:
            fragment = detached.get_fragments()[-1]

            def read(rows: int) -> pa.RecordBatchReader:
                return detached.scanner(
                    fragments=[fragment], blob_handling="all_binary", scan_in_order=True, batch_size=rows
                ).to_reader()

            for batch in stream(read, WHOLE_ROWS):
                columns = [
                    _as_blob(batch.column(field.name), field) if field.name in blobs else batch.column(field.name)
                    for field in schema
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
        finally:
            ObjectStore(table_uri).delete(detached_version_file(detached.version))


def is_blob(field: pa.Field) -> bool:
    """True for a column of Lance blobs, whichever way Arrow shows its extension type."""
    named = (field.metadata or {}).get(b"ARROW:extension:name") == BLOB_EXTENSION.encode()
    return named or getattr(field.type, "extension_name", None) == BLOB_EXTENSION


def _as_blob(data: pa.Array, field: pa.Field) -> pa.Array:
    """Bytes in the form a blob column is written from."""
    inline = data.cast(pa.large_binary())
    nothing = pa.nulls(len(inline), pa.uint64())
    stored = pa.StructArray.from_arrays(
        [inline, pa.nulls(len(inline), pa.string()), nothing, nothing],
        fields=list(BLOB_STORAGE),
        mask=inline.is_null(),
    )
    return stored if field.type == stored.type else pa.ExtensionArray.from_storage(field.type, stored)


def keep_row_ids(text: str, row_ids: Addresses) -> str:
    """The fragment whose rows replace rows of the table, in order, and take over their row ids."""
    fragment = FragmentMetadata.from_json(text)
    fragment.row_id_meta = RowIdSequence(row_ids.tolist()).to_inline_metadata()
    return json.dumps(fragment.to_json())


def delete_from_fragment(base: TableHandle, fragment_id: int, offsets: Addresses) -> str | None:
    """Write the deletion file for some rows of one fragment: the changed fragment, or None when it becomes empty."""
    with translated(f"marking deleted rows of {base.path}"), step("delete_rows", base.path):
        after = base.dataset.get_fragment(fragment_id).delete_rows(offsets.tolist())
    return None if after is None else json.dumps(after.to_json())


def stage_prepared(
    base: TableHandle,
    *,
    added: Sequence[str],
    changed: Sequence[str] = (),
    emptied: Sequence[int] = (),
    rows_removed: int = 0,
) -> StagedWrite | None:
    """Stage fragments, deletions and row ids that others prepared, as one transaction; None when there is nothing.

    `changed` are fragments of `base` with new deletion files and `emptied` those without a live row left;
    `rows_removed` is how many rows the two remove together.
    """
    fresh = [fragment for fragment in map(FragmentMetadata.from_json, added) if fragment.physical_rows]
    if not fresh and not changed and not emptied:
        return None
    return stage_update(
        base,
        added=fresh,
        changed=[FragmentMetadata.from_json(text) for text in changed],
        emptied=list(emptied),
        rows_added=_row_count(fresh),
        rows_removed=rows_removed,
    )
