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

from omnigraph.catalog import wide
from omnigraph.catalog.arrow import blob_columns
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.storage.columns import ColumnCache, Hits, Offsets
from omnigraph.engine.storage.handle import Addresses, FragmentInfo, TableHandle
from omnigraph.engine.storage.literals import literal
from omnigraph.engine.values.blobs import read_blobs
from omnigraph.engine.values.entities import Entity, row_schema
from omnigraph.engine.write.asked import Asked, Hidden, narrowed, narrowed_whole, nothing_hidden
from omnigraph.ids import TableKey

ADDRESS = "_rowaddr"
INDEX_VALUES_MAX = 512
INDEX_ROWS_MIN = 100_000
INDEX_ASKS_MAX = 8
_TAKE_ROWS_MAX = 4_096


class SnapshotView:
    """`CommittedView` over one snapshot."""

    def __init__(self, snapshot: Snapshot, cache: ColumnCache | None = None) -> None:
        self.snapshot = snapshot
        self.read: set[TableKey] = set()
        self._opened: dict[TableKey, TableHandle] = {}
        self._cache = cache or ColumnCache.shared()

    def contains(self, table_key: TableKey, ids: pa.Array) -> pa.Array:
        """For each id, whether the table has it."""
        return pa.array(self.locate(table_key, ids)[1])

    def locate(self, table_key: TableKey, ids: pa.Array) -> tuple[Addresses, npt.NDArray[np.bool_]]:
        """The address of each id's row, and whether there is one."""
        if len(ids) == 1:
            return self._locate_one(table_key, ids)
        addresses = np.zeros(len(ids), dtype=np.uint64)
        found = np.zeros(len(ids), dtype=np.bool_)
        rows = self.rows_where_in(table_key, "id", ids, ["id"], with_address=True)
        if rows.num_rows:
            places = pc.index_in(ids, value_set=wide.one_array(rows.column("id")))
            found = np.asarray(pc.is_valid(places))
            at = np.asarray(pc.fill_null(places, 0), dtype=np.int64)
            addresses = np.where(found, rows.column(ADDRESS).to_numpy()[at], 0).astype(np.uint64)
        return addresses, found

    def _locate_one(self, table_key: TableKey, ids: pa.Array) -> tuple[Addresses, npt.NDArray[np.bool_]]:
        """The same for one id, as most writes ask; of its row nothing but the place is wanted."""
        handle = self._open(table_key)
        if handle is None:
            return _one_address(np.empty(0, dtype=np.uint64))
        if self._should_ask_index(handle, "id", ids):
            asked = _ask_index(handle, "id", ids, ["id"], with_address=True)
            return _one_address(asked.column(ADDRESS).to_numpy())
        for fragment, offsets in self._cache.find(handle, "id", ids):
            live = live_offsets(handle, fragment, offsets)
            if len(live):
                return _one_address((np.uint64(fragment.id) << np.uint64(32)) | live.astype(np.uint64))
        return _one_address(np.empty(0, dtype=np.uint64))

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
        parts = [
            self._rows_at(handle, fragment, live_offsets(handle, fragment, offsets), schema)
            for fragment, offsets in self._cache.find(handle, column, values)
        ]
        if len(parts) == 1:
            return parts[0]
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def select(
        self, table_key: TableKey, asked: Asked, columns: Sequence[str], hidden: Hidden = nothing_hidden
    ) -> tuple[list[pa.Array], Addresses]:
        """Columns of the live rows that are meant, and their addresses.

        A risky test is not asked of rows that are hidden, for it might fail on a row that nobody sees any more.
        """
        handle = self._open(table_key)
        parts: list[list[pa.Array]] = []
        addresses = []
        for fragment, hits in [] if handle is None else self._hits(handle, asked):
            assert handle is not None
            offsets = self._narrowed(handle, fragment, hits, asked, hidden)
            if len(offsets):
                held = [self._cache.column(handle, fragment, name).values for name in columns]
                parts.append([wide.take(values, offsets) for values in held])
                addresses.append(_addressed(fragment, offsets))
        if not parts:
            return [pa.array([], pa.string()) for _ in columns], np.empty(0, dtype=np.uint64)
        return [wide.concat(pieces) for pieces in zip(*parts, strict=True)], np.concatenate(addresses)

    def _hits(self, handle: TableHandle, asked: Asked) -> Hits:
        """The rows of a version that a probe finds, or all, by fragment; deleted ones may be among them."""
        probe = asked.probe
        if probe is not None:
            return self._cache.find(handle, probe.column, probe.array(handle.schema.field(probe.column).type))
        return [(fragment, np.arange(fragment.physical_rows, dtype=np.int64)) for fragment in handle.fragments()]

    def _narrowed(
        self, handle: TableHandle, fragment: FragmentInfo, hits: Offsets, asked: Asked, hidden: Hidden
    ) -> Offsets:
        def columns(name: str) -> pa.Array:
            return self._cache.column(handle, fragment, name).values

        is_whole = len(hits) == fragment.physical_rows
        offsets = narrowed_whole(columns, hits, asked.tests) if is_whole else narrowed(hits, columns, asked.tests)
        offsets = live_offsets(handle, fragment, offsets)
        if asked.risky and len(offsets):
            gone = hidden(wide.take(columns("id"), offsets), _addressed(fragment, offsets))
            offsets = narrowed(offsets[~gone], columns, asked.risky)
        return offsets

    def whole_rows(self, entity: Entity, addresses: Addresses) -> pa.Table:
        """Whole rows by address, blobs as they were given, in the order asked for."""
        return read_rows(self.snapshot.open(entity.table_key), entity, addresses)

    def all_rows(self, table_key: TableKey, columns: Sequence[str]) -> pa.Table:
        """Every live row."""
        handle = self._open(table_key)
        if handle is None:
            return _result_schema(handle, columns, False).empty_table()
        return handle.scan(list(columns))

    def _open(self, table_key: TableKey) -> TableHandle | None:
        """The table at the snapshot's version; None when it is empty, which needs no look at storage."""
        self.read.add(table_key)
        if table_key not in self._opened and self.snapshot.entry(table_key).row_count:
            self._opened[table_key] = self.snapshot.open(table_key)
        return self._opened.get(table_key)

    def _rows_at(self, handle: TableHandle, fragment: FragmentInfo, offsets: Offsets, schema: pa.Schema) -> pa.Table:
        place = pa.array(offsets)
        arrays: list[pa.Array | pa.ChunkedArray] = []
        for field in schema:
            if field.name == ADDRESS:
                arrays.append(pa.array((np.uint64(fragment.id) << np.uint64(32)) | offsets.astype(np.uint64)))
            else:
                values = self._cache.column(handle, fragment, field.name).values
                arrays.append(wide.plain_chunks(wide.take(values, place), field.type))
        return pa.Table.from_arrays(arrays, schema=schema)

    def _should_ask_index(self, handle: TableHandle, column: str, values: pa.Array) -> bool:
        """A table index beats reading a large column that is not in memory, if few values are sought."""
        if len(values) > INDEX_VALUES_MAX or not pa.types.is_string(values.type):
            return False
        if self._cache.unread_rows(handle, column) < INDEX_ROWS_MIN:
            return False
        if not any(index.columns == (column,) and index.kind.upper() == "BTREE" for index in handle.indexes()):
            return False
        # A process that keeps asking is better off with the column in memory.
        return self._cache.asked(handle.path, handle.field_ids[column]) <= INDEX_ASKS_MAX


def locate_in(handle: TableHandle, ids: pa.Array) -> tuple[Addresses, npt.NDArray[np.bool_]]:
    """The address of each id's row in one version of a table, and whether there is one."""
    cache = ColumnCache.shared()
    known, addresses = [pa.array([], pa.string())], [np.zeros(1, dtype=np.uint64)]
    for fragment, hits in cache.find(handle, "id", ids):
        offsets = live_offsets(handle, fragment, hits)
        known.append(wide.take(cache.column(handle, fragment, "id").values, offsets))
        addresses.append(_addressed(fragment, offsets))
    places = pc.fill_null(pc.index_in(*wide.alike(ids, wide.concat(known))), -1)
    at = np.asarray(places, dtype=np.int64) + 1
    return np.concatenate(addresses)[at], at > 0


def _addressed(fragment: FragmentInfo, offsets: Offsets) -> Addresses:
    return (np.uint64(fragment.id) << np.uint64(32)) | offsets.astype(np.uint64)


def _one_address(found: Addresses) -> tuple[Addresses, npt.NDArray[np.bool_]]:
    if not len(found):
        return np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.bool_)
    return found[:1].astype(np.uint64), np.ones(1, dtype=np.bool_)


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
    quoted = ", ".join(literal(text) for text in values.to_pylist() if text is not None)
    return handle.scan(columns, f"`{column}` IN ({quoted})", with_row_address=with_address)


def _result_schema(handle: TableHandle | None, columns: Sequence[str], with_address: bool) -> pa.Schema:
    fields = [pa.field(name, pa.string() if handle is None else handle.schema.field(name).type) for name in columns]
    if with_address:
        fields.append(pa.field(ADDRESS, pa.uint64()))
    return pa.schema(fields)


def read_rows(handle: TableHandle, entity: Entity, addresses: Addresses) -> pa.Table:
    """Whole rows by address, blobs as they were given, in the order asked for."""
    schema = row_schema(entity)
    blobs = blob_columns(entity)
    plain = [name for name in schema.names if name not in blobs]
    rows = _take(handle, addresses, plain)
    columns = {name: rows.column(name) for name in plain}
    for name in blobs:
        columns[name] = read_blobs(handle, name, handle.row_ids(addresses))
    return pa.Table.from_arrays([columns[name] for name in schema.names], names=schema.names)


def _take(handle: TableHandle, addresses: Addresses, columns: list[str]) -> pa.Table:
    if len(addresses) <= _TAKE_ROWS_MAX:
        return handle.take_addresses(addresses, columns)
    parts, places = [], []
    owners = addresses >> np.uint64(32)
    for fragment in handle.fragments():
        mine = np.flatnonzero(owners == fragment.id)
        if len(mine):
            offsets = (addresses[mine] & np.uint64(0xFFFFFFFF)).astype(np.int64)
            parts.append(wide.take_rows(handle.read_fragment_columns(fragment, columns), offsets))
            places.append(mine)
    order = np.argsort(np.concatenate(places), kind="stable")
    return wide.take_rows(pa.concat_tables(parts), order)
