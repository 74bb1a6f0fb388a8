"""Rows of a large input are stored while they are still being read.

A load is one commit, and what it has to prove is proven of ids, ends and unique properties. So once an input has grown
beyond a bound, its batches are written to the table's own location as they come, as fragments that nobody refers to
yet, and only those columns are kept. The commit then takes the fragments; a load that is refused leaves files that
`cleanup` removes. Where rows have to be told apart after all, because some of them replace committed ones, they are
read back.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from omnigraph.catalog import wide
from omnigraph.catalog.arrow import blob_columns
from omnigraph.catalog.model import EdgeType
from omnigraph.engine.ingest.inputs import LoadFeeds, LoadRows, RowsRead
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.staged import write_fragment_files
from omnigraph.engine.values.entities import LINE, RECORD, SOURCE, Entity, row_schema
from omnigraph.engine.write.rows import PLACE
from omnigraph.engine.write.transaction import WrittenFragments
from omnigraph.ids import stored_branch

HELD_BYTES = 32 << 20
"""So much of a table is held in memory before its rows are stored as they come."""


class Spool:
    """Where the rows of one load go while they are read."""

    def __init__(self, snapshot: Snapshot, branch: str, fragments: WrittenFragments) -> None:
        self._snapshot, self._branch, self._fragments = snapshot, branch, fragments

    def read(self, feeds: LoadFeeds, count: RowsRead) -> LoadRows:
        """Read everything: whole tables where they are small, and of large ones what a load has to know of them.

        Raises:
            ConstraintError: a record is at fault.
            InputError: a source cannot be read.
        """
        rows = LoadRows()
        for entity, batches in feeds.tables:
            rows.tables[entity.table_key] = self._gather(entity, _counted(batches, entity, rows, count))
        return rows

    def _gather(self, entity: Entity, batches: Iterator[pa.Table]) -> pa.Table:
        base = self._target(entity)
        held: list[pa.Table] = []
        size = 0
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if base is not None and size > HELD_BYTES:
                return self._store(entity, base, itertools.chain(_drained(held), batches))
        return pa.concat_tables(held) if held else row_schema(entity).empty_table()

    def _target(self, entity: Entity) -> TableHandle | None:
        """The table as fragments for it can be written now; a branch may still have to get its own line of it."""
        entry = self._snapshot.entry(entity.table_key)
        if blob_columns(entity) or entry.branch != stored_branch(self._branch):
            return None
        return self._snapshot.open(entity.table_key)

    def _store(self, entity: Entity, base: TableHandle, batches: Iterable[pa.Table]) -> pa.Table:
        kept = _needed(entity)
        slim: list[pa.Table] = []
        schema = row_schema(entity)

        def stored() -> Iterator[pa.RecordBatch]:
            place = 0
            for batch in batches:
                numbers = pa.array(np.arange(place, place + batch.num_rows, dtype=np.int64))
                known = [name for name in kept if name in batch.column_names]
                slim.append(batch.select(known).append_column(PLACE, numbers))
                place += batch.num_rows
                yield from wide.plain_table(batch, schema).to_batches()

        texts = write_fragment_files(base.uri, pa.RecordBatchReader.from_batches(schema, stored()), base.schema)
        source = pa.concat_tables(slim)
        self._fragments.keep(entity.table_key, base.uri, source, texts)
        return source


def _counted(
    batches: Iterable[tuple[pa.Table, bool]], entity: Entity, rows: LoadRows, count: RowsRead
) -> Iterator[pa.Table]:
    for batch, decides_ids in batches:
        if decides_ids:
            rows.with_ids.add(entity.table_key)
        count(batch.num_rows)
        yield batch


def _drained(held: list[pa.Table]) -> Iterator[pa.Table]:
    """What was held, given away one by one so that none of it stays."""
    while held:
        yield held.pop(0)


def _needed(entity: Entity) -> list[str]:
    """The columns that the checks of a load look at, and those that say where a row came from."""
    unique = {name for group in entity.unique for name in group} | set(entity.key)
    ends = ["src", "dst"] if isinstance(entity, EdgeType) else []
    return list(dict.fromkeys(["id", *ends, *sorted(unique), RECORD, LINE, SOURCE]))
