"""Rows that a merge writes anew and rows that it deletes, written by workers elsewhere.

A worker gets addresses, reads the rows where they are, and writes them below the table as fragments that nobody knows
yet; or it writes the deletion file of one fragment. Back come descriptions of fragments.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.engine.changes.located import Located, renumbered
from omnigraph.engine.ingest.stage import SchemaText
from omnigraph.engine.ingest.staged import OFFSET_BITS
from omnigraph.engine.ingest.tables_at import TableAt
from omnigraph.engine.operations.merge.compose import Mixed
from omnigraph.engine.operations.merge.stage import chunk_rows, row_batches, row_bytes
from omnigraph.engine.operations.merge.workers import Crew, packed, unpacked
from omnigraph.engine.storage.adopting import Prepared, emptied_by
from omnigraph.engine.storage.fragments import delete_from_fragment
from omnigraph.engine.storage.handle import Addresses, TableHandle
from omnigraph.engine.storage.staged import write_rows
from omnigraph.engine.values.entities import Entity, row_schema
from omnigraph.ids import TableKey

TASK_BYTES = 256 << 20
"""About how much one worker writes."""

WROTE = pa.schema([("kind", pa.string()), ("fragment", pa.int64()), ("payload", pa.string())])
_PLACES = ("which", "at", "theirs_which", "theirs_at")


class _Writer(Struct, frozen=True):
    """What a worker needs to know: the type, the versions rows are read from by number, and the table."""

    schema: SchemaText
    key: TableKey
    versions: tuple[TableAt, ...]
    target: TableAt

    def write(self, rows: pa.Table) -> pa.Table:
        """Write some rows as fragments; those with marks are put together from ours and theirs."""
        entity = self.schema.catalog.tables[self.key]
        base = self.target.open()
        handles = tuple(table.open() for table in self.versions)
        marked = np.asarray(pc.is_valid(wide.one_array(rows.column("from_theirs"))))
        plain, both = (rows.filter(pa.array(mask)) for mask in (~marked, marked))
        parts = [_side(plain, handles, "which", "at")] if plain.num_rows else []
        mixed = []
        if both.num_rows:
            ours, theirs = _side(both, handles, "which", "at"), _side(both, handles, "theirs_which", "theirs_at")
            # Their ids are not asked for when they are only written.
            marks = unpacked(entity, both.column("from_theirs"))
            mixed = [Mixed(pa.nulls(both.num_rows, pa.large_string()), ours, theirs, marks)]
        batches = row_batches(entity, parts, mixed, chunk_rows(base))
        texts = write_rows(base, pa.RecordBatchReader.from_batches(row_schema(entity), batches))
        return _wrote([("written", -1, text) for text in texts])

    def delete(self, rows: pa.Table) -> pa.Table:
        """Write the deletion file of one fragment."""
        number = int(rows.column("group")[0].as_py())
        offsets = np.sort(rows.column("at").to_numpy().astype(np.uint64))
        text = delete_from_fragment(self.target.open(), number, offsets)
        return _wrote([("emptied" if text is None else "changed", number, text or "")])


class Writing(Struct, frozen=True):
    """Writes what one merge writes, by workers."""

    crew: Crew

    def prepare(
        self, entity: Entity, base: TableHandle, parts: Sequence[Located], mixed: Sequence[Mixed], dead: Addresses
    ) -> Prepared:
        """Write the rows that are written anew, and the deletion files of those that go."""
        handles: list[TableHandle] = []
        tables = [_rows(part, handles) for part in parts] + [_mixed_rows(some, handles) for some in mixed]
        # What was opened for an earlier merge may be another table of the same name by now.
        mark = uuid.uuid4().hex
        versions = tuple(self._at(handle, mark) for handle in handles)
        writer = _Writer(self.crew.schema, entity.table_key, versions, self._at(base, mark))
        written = []
        if tables:
            rows = pa.concat_tables(tables)
            at_once = max(1, TASK_BYTES // row_bytes(base))
            groups = np.arange(rows.num_rows, dtype=np.int64) // at_once
            found = self.crew.workers.by_group(rows.append_column("group", pa.array(groups)), writer.write, WROTE)
            written = sorted(found.column("payload").to_pylist())
        emptied, partly = emptied_by(base, dead)
        owners = (partly >> np.uint64(OFFSET_BITS)).astype(np.int64)
        offsets = (partly & np.uint64((1 << OFFSET_BITS) - 1)).astype(np.int64)
        changed: list[str] = []
        if len(partly):
            gone = pa.table({"group": pa.array(owners), "at": pa.array(offsets)})
            deleted = self.crew.workers.by_group(gone, writer.delete, WROTE).sort_by("fragment").to_pylist()
            changed = [row["payload"] for row in deleted if row["kind"] == "changed"]
            emptied += [row["fragment"] for row in deleted if row["kind"] == "emptied"]
        return Prepared(tuple(written), tuple(changed), tuple(emptied), len(dead))

    def _at(self, handle: TableHandle, mark: str) -> TableAt:
        return TableAt(self.crew.root, handle.path, handle.branch, handle.version, mark=mark)


def _side(rows: pa.Table, handles: tuple[TableHandle, ...], which: str, at: str) -> Located:
    numbers = rows.column(which).to_numpy().astype(np.int16)
    return Located(handles, numbers, rows.column(at).to_numpy().astype(np.uint64))


def _rows(part: Located, handles: list[TableHandle]) -> pa.Table:
    nothing = pa.nulls(len(part), pa.int64())
    return _placed(_numbered(part, handles), [nothing, nothing], pa.nulls(len(part), pa.binary()))


def _mixed_rows(mixed: Mixed, handles: list[TableHandle]) -> pa.Table:
    return _placed(_numbered(mixed.ours, handles), _numbered(mixed.theirs, handles), packed(mixed))


def _placed(ours: list[pa.Array], theirs: list[pa.Array], from_theirs: pa.Array) -> pa.Table:
    return pa.Table.from_arrays([*ours, *theirs, from_theirs], names=[*_PLACES, "from_theirs"])


def _numbered(side: Located, handles: list[TableHandle]) -> list[pa.Array]:
    """The places of rows, the versions by their number in the list."""
    return [pa.array(renumbered(side, handles).astype(np.int64)), pa.array(side.at.astype(np.int64))]


def _wrote(found: Sequence[tuple[str, int, str]]) -> pa.Table:
    kinds, fragments, payloads = zip(*found, strict=True) if found else ((), (), ())
    return pa.table(
        [pa.array(kinds, pa.string()), pa.array(fragments, pa.int64()), pa.array(payloads, pa.string())], WROTE
    )
