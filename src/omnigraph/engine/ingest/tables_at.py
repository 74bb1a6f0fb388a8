"""Published tables at one version each, as processes open them that hold no snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import pyarrow as pa
from msgspec import Struct

from omnigraph.engine.manifest.records import TableEntry
from omnigraph.engine.manifest.snapshot import reclaimed
from omnigraph.engine.rules.patches import Mask
from omnigraph.engine.storage.handle import Addresses, TableHandle
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.values.entities import Entity
from omnigraph.engine.write.committed import locate_in, read_rows
from omnigraph.errors import StorageError
from omnigraph.ids import TableKey, new_ulid


class TableAt(Struct, frozen=True):
    """One table at one version, as executors open it."""

    root: str
    path: str
    branch: str | None
    version: int
    tag: str | None = None
    mark: str = ""
    """Another in each job, because a graph that was made anew in the same place has tables of the same numbers."""
    storage_options: tuple[tuple[str, str], ...] = ()
    table_key: TableKey | None = None
    """What it is called, for whoever cannot read it."""

    @classmethod
    def of(cls, root: str, entry: TableEntry) -> TableAt:
        """The table an entry of a snapshot publishes."""
        place = (entry.path, entry.branch, entry.version, entry.e_tag)
        return cls(root, *place, new_ulid(), table_key=entry.table_key)

    def open(self) -> TableHandle:
        """The table, opened once per process and job.

        Raises:
            VersionReclaimedError: cleanup has removed that version, or its branch was deleted.
        """
        return _opened(self)


@lru_cache(maxsize=32)
def _opened(table: TableAt) -> TableHandle:
    store = TableStore.at(table.root, storage_options=dict(table.storage_options) or None)
    try:
        tag = table.mark or table.tag
        handle = store.open_pinned(table.path, branch=table.branch, version=table.version, tag=tag)
    except StorageError as exc:
        if exc.kind != "not_found":
            raise
        raise reclaimed(table.table_key or table.path, table.version) from exc
    handle.table_key = table.table_key
    return handle


class TablesAt(Struct, frozen=True):
    """The tables of a snapshot, searched by id."""

    tables: Mapping[TableKey, TableAt]

    def locate(self, table_key: TableKey, ids: pa.Array) -> tuple[Addresses, Mask]:
        """The address of each id's row, and whether there is one."""
        return locate_in(self.tables[table_key].open(), ids)

    def whole_rows(self, entity: Entity, addresses: Addresses) -> pa.Table:
        """Whole rows by address, blobs as they were given, in the order asked for."""
        return read_rows(self.tables[entity.table_key].open(), entity, addresses)
