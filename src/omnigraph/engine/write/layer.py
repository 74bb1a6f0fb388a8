"""A snapshot with writes laid over it that are not published yet, as the next of a group of writes sees it.

The writes of a group run in turn, each on the state that the earlier ones left. `Layer` holds what those did, settled
row by row: new images, what committed row lies under each, and the committed rows that are gone. `LaidView` answers
every question a write asks of the committed state with both together, so that a write cannot tell whether the ones
before it are published. A row of the layer has an address like any other, in a fragment that no table has.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.storage.columns import Offsets
from omnigraph.engine.storage.handle import Addresses
from omnigraph.engine.values.entities import Entity, row_schema
from omnigraph.engine.values.temporal import Mask
from omnigraph.engine.write.asked import Asked, Hidden, narrowed, nothing_hidden
from omnigraph.engine.write.committed import ADDRESS, SnapshotView
from omnigraph.engine.write.rows import NO_ADDRESSES, Resolved
from omnigraph.ids import TableKey

OWN = np.uint64(0xFFFF_FFFF) << np.uint64(32)
"""Where the addresses of rows of the layer begin; tables count their fragments from zero."""
_PLACE = np.uint64(0xFFFF_FFFF)
CHUNKS_MAX = 16
"""So many writes are kept as they came; then their rows are put together."""


class LaidTable(Struct, dict=True):
    """What earlier writes did to one table: its new images, what lies under them, and the committed rows now gone."""

    entity: Entity
    rows: pa.Table
    supersedes: Mask
    under: Addresses
    removed: Addresses

    @classmethod
    def over(cls, entity: Entity) -> LaidTable:
        """A table to which nothing was done yet."""
        empty = row_schema(entity).empty_table()
        return cls(entity, empty, np.empty(0, dtype=np.bool_), NO_ADDRESSES, NO_ADDRESSES)

    @property
    def is_empty(self) -> bool:
        """True when the table is as it is committed, whatever was done to it and undone."""
        return not self.rows.num_rows and not len(self.removed)

    @cached_property
    def ids(self) -> pa.Array:
        """The ids of the images."""
        return wide.one_array(self.rows.column("id"))

    @property
    def addresses(self) -> Addresses:
        """Where the images are."""
        return OWN | np.arange(self.rows.num_rows, dtype=np.uint64)

    def shows(self, addresses: Addresses) -> Mask:
        """For each committed row, whether it is still there."""
        shown = ~np.isin(addresses, self.removed) if len(self.removed) else np.ones(len(addresses), dtype=np.bool_)
        if self.supersedes.any():
            shown &= ~np.isin(addresses, self.under[self.supersedes])
        return shown

    def absorbing(self, write: Resolved) -> LaidTable:
        """The table after one more write, which has seen it like this."""
        renewed = write.supersedes & (write.addresses >= OWN)
        places = _places(write.addresses[renewed])
        supersedes, under = write.supersedes.copy(), write.addresses.copy()
        supersedes[renewed], under[renewed] = self.supersedes[places], self.under[places]
        gone = _places(write.removed_addresses[write.removed_addresses >= OWN])
        kept = np.ones(self.rows.num_rows, dtype=np.bool_)
        kept[places] = kept[gone] = False
        # A committed row under an image that goes away does not come back: it goes as well.
        under_gone = self.under[gone][self.supersedes[gone]]
        removed = [self.removed, write.removed_addresses[write.removed_addresses < OWN], under_gone]
        rows = self.rows if kept.all() else wide.filter_rows(self.rows, kept)
        together = pa.concat_tables([rows, write.rows])
        return LaidTable(
            self.entity,
            wide.compacted(together) if together.column(0).num_chunks > CHUNKS_MAX else together,
            np.concatenate([self.supersedes[kept], supersedes]),
            np.concatenate([self.under[kept], under]),
            np.concatenate(removed),
        )

    def resolved(self) -> Resolved:
        """Everything that was done to the table, as one change of it."""
        return Resolved(self.rows, self.supersedes, self.under, self.removed)


class Layer:
    """What the earlier writes of a group did."""

    def __init__(self) -> None:
        self.tables: dict[TableKey, LaidTable] = {}

    @property
    def rows(self) -> int:
        """How many images there are."""
        return sum(table.rows.num_rows for table in self.tables.values())

    def absorb(self, entity: Entity, write: Resolved) -> None:
        """Take in what one more write does to a table."""
        table = self.tables.get(entity.table_key) or LaidTable.over(entity)
        self.tables[entity.table_key] = table.absorbing(write)


class LaidView(SnapshotView):
    """A snapshot with a layer over it; where the layer has nothing, it is the snapshot."""

    def __init__(self, snapshot: Snapshot, layer: Layer) -> None:
        super().__init__(snapshot)
        self._layer = layer

    def locate(self, table_key: TableKey, ids: pa.Array) -> tuple[Addresses, npt.NDArray[np.bool_]]:
        """The address of each id's row, and whether there is one."""
        addresses, found = super().locate(table_key, ids)
        laid = self._layer.tables.get(table_key)
        if laid is None:
            return addresses, found
        found = found & laid.shows(addresses)
        if len(ids) == 1:
            # As most writes ask: looking through the images is cheaper than making a table to look them up in.
            place = laid.rows.column("id").index(ids[0]).as_py()
            if place >= 0:
                addresses, found = OWN | np.array([place], dtype=np.uint64), np.ones(1, dtype=np.bool_)
        elif laid.rows.num_rows:
            places = pc.index_in(ids, value_set=laid.ids)
            here = np.asarray(pc.is_valid(places))
            own = OWN | np.asarray(pc.fill_null(places, 0)).astype(np.uint64)
            addresses, found = np.where(here, own, addresses), found | here
        return np.where(found, addresses, np.uint64(0)), found

    def rows_where_in(
        self,
        table_key: TableKey,
        column: str,
        values: pa.Array,
        columns: Sequence[str],
        *,
        with_address: bool = False,
    ) -> pa.Table:
        """The rows whose `column` is one of `values`, those of the layer last."""
        laid = self._layer.tables.get(table_key)
        if laid is None:
            return super().rows_where_in(table_key, column, values, columns, with_address=with_address)
        below = super().rows_where_in(table_key, column, values, columns, with_address=True)
        chosen = np.flatnonzero(_is_in(laid.rows.column(column), values))
        return _together(laid, below, chosen, list(dict.fromkeys(columns)), with_address)

    def select(
        self, table_key: TableKey, asked: Asked, columns: Sequence[str], hidden: Hidden = nothing_hidden
    ) -> tuple[list[pa.Array], Addresses]:
        """Columns of the rows that are meant, and their addresses; those of the layer last."""
        laid = self._layer.tables.get(table_key)
        if laid is None:
            return super().select(table_key, asked, columns, hidden)
        shows = laid.shows

        def unseen(ids: pa.Array, addresses: Addresses) -> Mask:
            return hidden(ids, addresses) | ~shows(addresses)

        held, addresses = super().select(table_key, asked, columns, unseen)
        shown = np.flatnonzero(shows(addresses))
        if len(shown) < len(addresses):
            held, addresses = [wide.take(values, shown) for values in held], addresses[shown]
        chosen = _meant(laid, asked, hidden)
        if not len(chosen):
            return held, addresses
        own = [wide.take(wide.one_array(laid.rows.column(name)), chosen) for name in columns]
        if len(addresses):
            own = [wide.concat(parts) for parts in zip(held, own, strict=True)]
        return own, np.concatenate([addresses, laid.addresses[chosen]])

    def whole_rows(self, entity: Entity, addresses: Addresses) -> pa.Table:
        """Whole rows by address, blobs as they were given, in the order asked for."""
        own = addresses >= OWN
        if not own.any():
            return super().whole_rows(entity, addresses)
        laid = self._layer.tables[entity.table_key]
        rows = wide.take_rows(laid.rows, _places(addresses[own]))
        if own.all():
            return rows
        below = wide.plain_table(super().whole_rows(entity, addresses[~own]), laid.rows.schema)
        order = np.argsort(np.concatenate([np.flatnonzero(~own), np.flatnonzero(own)]), kind="stable")
        return wide.take_rows(pa.concat_tables([below, rows]), order)

    def all_rows(self, table_key: TableKey, columns: Sequence[str]) -> pa.Table:
        """Every live row, those of the layer last."""
        laid = self._layer.tables.get(table_key)
        handle = self._open(table_key)
        if laid is None or handle is None:
            rows = super().all_rows(table_key, columns)
            return rows if laid is None else laid.rows.select(list(columns))
        below = handle.scan(list(columns), with_row_address=True)
        return _together(laid, below, np.arange(laid.rows.num_rows), list(columns), False)


def _together(
    laid: LaidTable, below: pa.Table, chosen: npt.NDArray[np.int64], columns: list[str], with_address: bool
) -> pa.Table:
    """Committed rows that are still there, and then some of the layer."""
    shown = wide.filter_rows(below, laid.shows(below.column(ADDRESS).to_numpy()))
    own = wide.take_rows(laid.rows.select(columns), chosen).append_column(ADDRESS, pa.array(laid.addresses[chosen]))
    parts = [part for part in (shown, own) if part.num_rows]
    fields = own.schema.remove_metadata()
    plain = [wide.plain_table(part, fields) for part in parts]
    rows = pa.concat_tables(plain) if plain else fields.empty_table()
    return rows if with_address else rows.select(columns)


def _meant(laid: LaidTable, asked: Asked, hidden: Hidden) -> Offsets:
    """The rows of a layer that are meant."""

    def columns(name: str) -> pa.Array:
        return wide.one_array(laid.rows.column(name))

    chosen = np.arange(laid.rows.num_rows, dtype=np.int64)
    if asked.probe is not None:
        column = laid.rows.column(asked.probe.column)
        chosen = np.flatnonzero(_is_in(column, asked.probe.array(column.type)))
    chosen = narrowed(chosen, columns, asked.tests)
    if asked.risky and len(chosen):
        chosen = chosen[~hidden(wide.take(columns("id"), chosen), laid.addresses[chosen])]
    return narrowed(chosen, columns, asked.risky)


def _is_in(column: pa.ChunkedArray, values: pa.Array) -> Mask:
    return np.asarray(pc.is_in(column, value_set=values, skip_nulls=True), dtype=np.bool_)


def _places(addresses: Addresses) -> npt.NDArray[np.int64]:
    return (addresses & _PLACE).astype(np.int64)
