"""What a write has changed so far, before anything is stored.

`PendingTable` gathers the rows of one table: new images in the order they were written, and the committed rows that go
away. Several images of one id count as the last one. Each image knows whether a committed row is known to lie under it,
known not to, or still has to be looked up, so that nothing is looked up twice.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct, field

from omnigraph.catalog import wide
from omnigraph.catalog.model import EdgeType
from omnigraph.engine.rules.validate import NO_IDS, TableChange, repeated_rows
from omnigraph.engine.storage.handle import Addresses
from omnigraph.engine.values.entities import Entity, no_rows, row_schema
from omnigraph.engine.write.committed import SnapshotView
from omnigraph.engine.write.overlay import Images, Marks, Overlay
from omnigraph.errors import InternalError

PLACE = "@place"
"""The column that numbers rows which were stored while they were read."""
NO_ADDRESSES: Addresses = np.empty(0, dtype=np.uint64)


class WriteKind(IntEnum):
    """What is done to a table, from the most lenient to the strictest.

    The strict kinds depend on what they read: they are refused, not repeated, when the table changed meanwhile.
    """

    INSERT = 0
    MERGE = 1
    UPDATE = 2
    DELETE = 3
    REPLACE = 4

    @property
    def is_strict(self) -> bool:
        """True when a concurrent change of the table makes this write fail."""
        return self >= WriteKind.UPDATE


class Under:
    """What is known of the committed row under an image.

    Plain numbers: numpy looks for a dozen attributes on the class of an enum's member, in Python, and drops whatever
    that look raises, an interrupt too.
    """

    UNKNOWN: Final = 0
    NOTHING: Final = 1
    A_ROW: Final = 2


class Resolved(Struct):
    """The final images of a table, told apart: rows that are new, and rows that supersede a committed one."""

    rows: pa.Table
    supersedes: npt.NDArray[np.bool_]
    addresses: Addresses
    removed_addresses: Addresses
    places: npt.NDArray[np.int64] | None = None
    """Where the rows lie among those stored while they were read; `rows` has only some of their columns then."""

    @property
    def touched(self) -> int:
        """How many rows are written or removed."""
        return int(self.rows.num_rows) + len(self.removed_addresses)

    def new_rows(self) -> pa.Table:
        """The images without a committed row under them."""
        return self.rows if not self.supersedes.any() else wide.filter_rows(self.rows, ~self.supersedes)

    def updated_rows(self) -> pa.Table:
        """The images that supersede a committed row, in the order of `updated_addresses`."""
        return self.rows.slice(0, 0) if not self.supersedes.any() else wide.filter_rows(self.rows, self.supersedes)

    def updated_addresses(self) -> Addresses:
        """The addresses of the superseded rows."""
        chosen: Addresses = self.addresses[self.supersedes]
        return chosen


class PendingTable(Struct):
    """Everything one write does to one table."""

    entity: Entity
    kind: WriteKind
    must_be_new: bool = False
    values_checked: bool = False
    replaces_table: bool = False
    edges_follow: bool = False
    """True when the edges of removed nodes are removed by the same write, so that none needs looking for again."""
    removed_ids: list[pa.Array] = field(default_factory=list)
    removed_sources: list[pa.Array] = field(default_factory=list)
    removed_addresses: list[Addresses] = field(default_factory=list)
    _images: list[Images] = field(default_factory=list)
    _overlay: Overlay = field(default_factory=Overlay)
    _overlaid: int = 0

    def add(
        self, rows: pa.Table, under: int | Marks, addresses: Addresses | None = None, *, ids_differ: bool = False
    ) -> None:
        """Add images, with what is known of the row under all or each of them; `addresses` belong to `Under.A_ROW`.

        `ids_differ` promises that no id occurs twice among these rows.
        """
        if self._images and rows.schema.names != self._images[0].rows.schema.names:
            raise InternalError(f"rows of {self.entity.name} have columns {rows.schema.names}")
        marks = np.full(rows.num_rows, under, dtype=np.uint8) if isinstance(under, int) else under
        places = np.zeros(rows.num_rows, dtype=np.uint64) if addresses is None else addresses
        self._images.append(Images(rows, marks, places, ids_differ))

    def remove(self, ids: pa.Array, addresses: Addresses, sources: pa.Array | None = None) -> None:
        """Remove committed rows; `sources` are those of removed edges."""
        self.removed_ids.append(ids)
        self.removed_addresses.append(addresses)
        if sources is not None:
            self.removed_sources.append(sources)

    @property
    def only_source(self) -> pa.Table | None:
        """The rows as they were given, when they were given at once."""
        return self._images[0].rows if len(self._images) == 1 else None

    @property
    def overlay(self) -> Overlay:
        """The images added so far, indexed for the statements that ask for them."""
        for images in self._images[self._overlaid :]:
            self._overlay.add(images)
        self._overlaid = len(self._images)
        return self._overlay

    @property
    def gone(self) -> pa.Array:
        """Ids of committed rows this write removes."""
        return wide.concat(self.removed_ids) if self.removed_ids else NO_IDS

    @property
    def is_empty(self) -> bool:
        """True when the write leaves the table as it is."""
        return not self.replaces_table and not any(i.rows.num_rows for i in self._images) and not len(self.gone)

    def final_images(self) -> tuple[pa.Table, Marks, Addresses]:
        """The last image of every id, in the order first written, and what is known of the rows under them."""
        if not self._images:
            return no_rows(self.entity), np.empty(0, dtype=np.uint8), NO_ADDRESSES
        if len(self._images) == 1:
            only = self._images[0]
            rows, under, addresses = only.rows, only.under, only.addresses
        else:
            first = self._images[0].rows.schema
            rows = pa.concat_tables([images.rows.cast(first) for images in self._images])
            under = np.concatenate([images.under for images in self._images])
            addresses = np.concatenate([images.addresses for images in self._images])
        if rows.num_rows > 1 and not (len(self._images) == 1 and self._images[0].ids_differ):
            ids = wide.one_array(rows.column("id"))
            superseded = len(ids) - 1 - repeated_rows(wide.take(ids, np.arange(len(ids) - 1, -1, -1)))
            if len(superseded):
                keep = np.ones(len(ids), dtype=np.bool_)
                keep[superseded] = False
                rows, under, addresses = wide.filter_rows(rows, keep), under[keep], addresses[keep]
        return rows, under, addresses

    def resolve(self, view: SnapshotView) -> tuple[Resolved, TableChange]:
        """Look up what is still unknown, and describe the change for the validator and for storage."""
        rows, under, addresses = self.final_images()
        if self.replaces_table:
            under = np.full(rows.num_rows, Under.NOTHING, dtype=np.uint8)
        unknown = np.flatnonzero(under == Under.UNKNOWN)
        if len(unknown):
            ids = wide.one_array(rows.column("id"))
            sought = ids if len(unknown) == len(ids) else wide.take(ids, unknown)
            located, found = view.locate(self.entity.table_key, sought)
            under, addresses = under.copy(), addresses.copy()
            under[unknown] = np.where(found, Under.A_ROW, Under.NOTHING)
            addresses[unknown] = located
        supersedes = under == Under.A_ROW
        removed = np.concatenate(self.removed_addresses) if self.removed_addresses else NO_ADDRESSES
        change = TableChange(
            self.entity,
            rows,
            replaces_table=self.replaces_table,
            values_checked=self.values_checked,
            edges_follow=self.edges_follow,
            taken=supersedes if self.must_be_new else None,
            removed=self.gone,
            removed_sources=self._lost_sources(view, rows, supersedes),
        )
        if PLACE in rows.column_names:
            places = np.asarray(rows.column(PLACE), dtype=np.int64)
            return Resolved(rows, supersedes, addresses, removed, places), change
        return Resolved(_stored(self.entity, rows), supersedes, addresses, removed), change

    def _lost_sources(self, view: SnapshotView, rows: pa.Table, supersedes: npt.NDArray[np.bool_]) -> pa.Array:
        """Sources of edges that go away or may move to another source."""
        parts = list(self.removed_sources)
        if isinstance(self.entity, EdgeType) and supersedes.any() and not self._unbounded():
            ids = wide.take(rows.column("id"), np.flatnonzero(supersedes))
            before = view.rows_where_in(self.entity.table_key, "id", ids, ["id", "src"])
            parts.append(wide.one_array(before.column("src")))
        return wide.concat(parts) if parts else NO_IDS

    def _unbounded(self) -> bool:
        cardinality = getattr(self.entity, "cardinality", None)
        return cardinality is None or bool(cardinality.is_default)


def _stored(entity: Entity, rows: pa.Table) -> pa.Table:
    """The columns of the table alone, under its own schema: what required columns promise is checked by now."""
    return wide.plain_table(rows, row_schema(entity)) if rows.num_rows else no_rows(entity)
