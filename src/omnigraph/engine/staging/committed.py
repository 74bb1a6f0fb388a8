"""The committed state as a write sees it: a snapshot, searched by value.

Answers the questions of the validator and finds the rows that updates supersede and deletes remove. Everything a write
asked about is remembered in `read`, because the write is only valid while those tables stay as they were.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.staging.columns import ColumnCache, Offsets
from omnigraph.engine.storage.handle import Addresses, FragmentInfo, TableHandle
from omnigraph.ids import TableKey

ADDRESS = "_rowaddr"
INDEX_VALUES_MAX = 512
INDEX_ROWS_MIN = 100_000
INDEX_ASKS_MAX = 8


class SnapshotView:
    """`CommittedView` over one snapshot."""

    def __init__(self, snapshot: Snapshot, cache: ColumnCache | None = None) -> None:
        self.snapshot = snapshot
        self.read: set[TableKey] = set()
        self._cache = cache or ColumnCache.shared()

    def contains(self, table_key: TableKey, ids: pa.Array) -> pa.Array:
        """For each id, whether the table has it."""
        return pa.array(self.locate(table_key, ids)[1])

    def locate(self, table_key: TableKey, ids: pa.Array) -> tuple[Addresses, npt.NDArray[np.bool_]]:
        """The address of each id's row, and whether there is one."""
        addresses = np.zeros(len(ids), dtype=np.uint64)
        found = np.zeros(len(ids), dtype=np.bool_)
        rows = self.rows_where_in(table_key, "id", ids, ["id"], with_address=True)
        if rows.num_rows:
            places = pc.index_in(ids, value_set=rows.column("id").combine_chunks())
            found = np.asarray(pc.is_valid(places))
            at = np.asarray(pc.fill_null(places, 0), dtype=np.int64)
            addresses = np.where(found, rows.column(ADDRESS).to_numpy()[at], 0).astype(np.uint64)
        return addresses, found

    def rows_where_in(
        self,
        table_key: TableKey,
        column: str,
        values: pa.Array,
        columns: Sequence[str],
        *,
        with_address: bool = False,
    ) -> pa.Table:
        """The rows whose `column` is one of `values`, in storage order."""
        handle = self._open(table_key)
        wanted = list(dict.fromkeys(columns))
        schema = _result_schema(handle, wanted, with_address)
        if handle is None or not len(values):
            return schema.empty_table()
        if self._should_ask_index(handle, column, values):
            return _ask_index(handle, column, values, wanted, with_address).cast(schema)
        parts = []
        for fragment in handle.fragments():
            offsets = self._cache.column(handle, fragment, column).find(values)
            if len(offsets):
                parts.append(self._rows_at(handle, fragment, live_offsets(handle, fragment, offsets), schema))
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def all_rows(self, table_key: TableKey, columns: Sequence[str]) -> pa.Table:
        """Every live row."""
        handle = self._open(table_key)
        if handle is None:
            return _result_schema(handle, columns, False).empty_table()
        return handle.scan(list(columns))

    def _open(self, table_key: TableKey) -> TableHandle | None:
        """The table at the snapshot's version; None when it is empty, which needs no look at storage."""
        self.read.add(table_key)
        return self.snapshot.open(table_key) if self.snapshot.entry(table_key).row_count else None

    def _rows_at(self, handle: TableHandle, fragment: FragmentInfo, offsets: Offsets, schema: pa.Schema) -> pa.Table:
        place = pa.array(offsets)
        arrays = []
        for field in schema:
            if field.name == ADDRESS:
                arrays.append(pa.array((np.uint64(fragment.id) << np.uint64(32)) | offsets.astype(np.uint64)))
            else:
                arrays.append(self._cache.column(handle, fragment, field.name).values.take(place))
        return pa.Table.from_arrays(arrays, schema=schema)

    def _should_ask_index(self, handle: TableHandle, column: str, values: pa.Array) -> bool:
        """A table index beats reading a large column that is not in memory, if few values are sought."""
        if len(values) > INDEX_VALUES_MAX or not pa.types.is_string(values.type):
            return False
        unread = [f for f in handle.fragments() if not self._cache.holds(handle, f, column)]
        if sum(fragment.physical_rows for fragment in unread) < INDEX_ROWS_MIN:
            return False
        if not any(index.columns == (column,) and index.kind.upper() == "BTREE" for index in handle.indexes()):
            return False
        # A process that keeps asking is better off with the column in memory.
        return self._cache.asked(handle.path, handle.field_ids[column]) <= INDEX_ASKS_MAX


def live_offsets(handle: TableHandle, fragment: FragmentInfo, offsets: Offsets) -> Offsets:
    """Leave out the offsets that are deleted in this version."""
    if not fragment.deleted_rows:
        return offsets
    deleted = handle.deleted_offsets(fragment)
    places = np.minimum(np.searchsorted(deleted, offsets), len(deleted) - 1)
    kept: Offsets = offsets[deleted[places] != offsets]
    return kept


def _ask_index(
    handle: TableHandle, column: str, values: pa.Array, columns: Sequence[str], with_address: bool
) -> pa.Table:
    quoted = ", ".join("'" + text.replace("'", "''") + "'" for text in values.to_pylist() if text is not None)
    return handle.scan(columns, f"`{column}` IN ({quoted})", with_row_address=with_address)


def _result_schema(handle: TableHandle | None, columns: Sequence[str], with_address: bool) -> pa.Schema:
    fields = [pa.field(name, pa.string() if handle is None else handle.schema.field(name).type) for name in columns]
    if with_address:
        fields.append(pa.field(ADDRESS, pa.uint64()))
    return pa.schema(fields)
