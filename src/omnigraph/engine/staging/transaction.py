"""One attempt to change the graph: everything a write reads and changes, on one snapshot.

A `Transaction` gathers changes (`insert`, `upsert`, `update`, `remove`, `replace`) with read-your-writes, is validated
once over their final state, and stages exactly one change per table. Nothing here is visible to anybody; `commit`
makes it so, and `writer` repeats the whole attempt on a newer snapshot when that is allowed. Mutations, loads, Spark
jobs and maintenance all write through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field

import pyarrow as pa

from omnigraph.catalog.arrow import blob_columns
from omnigraph.catalog.model import Catalog
from omnigraph.dataclass import dataclass
from omnigraph.engine.manifest.records import TableEntry
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery.intent import WriterKind
from omnigraph.engine.staging.cancellation import Cancellation
from omnigraph.engine.staging.committed import SnapshotView
from omnigraph.engine.staging.entities import Entity, row_schema
from omnigraph.engine.staging.rows import Marks, PendingTable, Resolved, Under, WriteKind
from omnigraph.engine.staging.validate import ChangeSet, TableChange, validate
from omnigraph.engine.storage.handle import Addresses, TableHandle
from omnigraph.engine.storage.staged import (
    StagedWrite,
    stage_changes,
    stage_fragments,
    stage_overwrite,
    write_fragment_files,
)
from omnigraph.errors import InternalError, LimitError
from omnigraph.ids import CommitId, TableKey, now_micros, stored_branch

KEEP_FRAGMENTS_ROWS = 4_096
PARALLEL_ROWS = 50_000
STAGING_THREADS = 8

Stage = Callable[[TableHandle], StagedWrite | None]
"""Stages one table's change on the version it is given."""


@dataclass(frozen=True)
class WriteLimits:
    """How much one write may put into one table, where that is bounded; replacing a whole table is exempt from rows."""

    rows_max: int | None = None
    bytes_max: int | None = None

    def check(self, table_key: TableKey, rows: pa.Table, *, replaces_table: bool) -> None:
        """Refuse more than is allowed.

        Raises:
            LimitError: which bound of which table; nothing changed.
        """
        if self.rows_max is not None and rows.num_rows > self.rows_max and not replaces_table:
            raise LimitError(
                f"this write has {rows.num_rows} entities for '{table_key}', more than the {self.rows_max} allowed per"
                " commit — split it, or load it with overwrite",
                resource=f"rows of {table_key}",
                limit=self.rows_max,
                actual=rows.num_rows,
            )
        if self.bytes_max is not None and rows.nbytes > self.bytes_max:
            raise LimitError(
                f"this write has {rows.nbytes} bytes for '{table_key}', more than the {self.bytes_max} allowed per"
                " commit — split it",
                resource=f"bytes of {table_key}",
                limit=self.bytes_max,
                actual=int(rows.nbytes),
            )


@dataclass(frozen=True)
class WriteRequest:
    """Who wants to write where, and under which conditions."""

    branch: str
    kind: WriterKind
    actor: str | None = None
    if_commit: CommitId | None = None
    merged_parent: CommitId | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    cancellation: Cancellation = field(default_factory=Cancellation)
    limits: WriteLimits = field(default_factory=WriteLimits)


@dataclass
class TableWrite:
    """The one change of one table, ready to be staged and committed."""

    table_key: TableKey
    entry: TableEntry
    kind: WriteKind
    stage: Stage
    forks: bool = False
    base: TableHandle | None = None
    staged: StagedWrite | None = None
    rows: Resolved | None = None
    staged_elsewhere: bool = False


class WrittenFragments:
    """Fragments of rows that were only inserted, kept for the next attempt: they fit any version of their table."""

    def __init__(self) -> None:
        self.began = now_micros()
        self._kept: dict[tuple[TableKey, str], tuple[pa.Table, list[str]]] = {}

    def of(self, table_key: TableKey, source: pa.Table, rows: pa.Table, base: TableHandle) -> list[str]:
        """The fragments of `rows`; written again only if they come from another `source` than before."""
        kept = self._kept.get((table_key, base.uri))
        if kept is None or kept[0] is not source:
            kept = (source, write_fragment_files(base.uri, rows, base.schema))
            self._kept[(table_key, base.uri)] = kept
        return kept[1]


class Transaction:
    """Changes on top of one snapshot; used by one thread, once."""

    def __init__(
        self,
        catalog: Catalog,
        snapshot: Snapshot,
        request: WriteRequest,
        fragments: WrittenFragments | None = None,
    ) -> None:
        self.catalog, self.snapshot, self.request = catalog, snapshot, request
        self._fragments = fragments or WrittenFragments()
        self.view = SnapshotView(snapshot)
        self._tables: dict[TableKey, PendingTable] = {}
        self._direct: dict[TableKey, TableWrite] = {}
        self.writes: dict[TableKey, TableWrite] = {}

    # --- gathering -------------------------------------------------------------------------------------------------

    def table(self, entity: Entity, kind: WriteKind) -> PendingTable:
        """The pending changes of a table; its kind is the strictest one asked for."""
        pending = self._tables.get(entity.table_key)
        if pending is None:
            pending = self._tables[entity.table_key] = PendingTable(entity, kind)
        pending.kind = max(pending.kind, kind)
        return pending

    @property
    def began(self) -> int:
        """When the first attempt of this write began; nothing was staged for it before."""
        return self._fragments.began

    def pending(self, table_key: TableKey) -> PendingTable | None:
        """What this write has changed in a table so far."""
        return self._tables.get(table_key)

    def insert(self, entity: Entity, rows: pa.Table, *, ids_are_fresh: bool) -> None:
        """Add entities that must be new; freshly minted ids need no proof."""
        pending = self.table(entity, WriteKind.INSERT)
        pending.must_be_new = pending.must_be_new or not ids_are_fresh
        pending.add(rows, Under.NOTHING if ids_are_fresh else Under.UNKNOWN, ids_differ=ids_are_fresh)

    def upsert(self, entity: Entity, rows: pa.Table, *, ids_differ: bool = False) -> None:
        """Add entities, replacing those that have the same id; `ids_differ` promises that no id is given twice."""
        self.table(entity, WriteKind.MERGE).add(rows, Under.UNKNOWN, ids_differ=ids_differ)

    def update(self, entity: Entity, rows: pa.Table, under: Under | Marks, addresses: Addresses | None = None) -> None:
        """Replace entities that were selected in this transaction."""
        self.table(entity, WriteKind.UPDATE).add(rows, under, addresses)

    def remove(self, entity: Entity, ids: pa.Array, addresses: Addresses, sources: pa.Array | None = None) -> None:
        """Remove committed entities that were selected in this transaction."""
        self.table(entity, WriteKind.DELETE).remove(ids, addresses, sources)

    def replace(self, entity: Entity, rows: pa.Table) -> None:
        """Make these rows the whole content of the table."""
        pending = self.table(entity, WriteKind.REPLACE)
        pending.replaces_table = True
        pending.add(rows, Under.NOTHING)

    def stage_with(self, table_key: TableKey, kind: WriteKind, stage: Stage) -> None:
        """Let `stage` describe the change of a table that this transaction does not hold row by row."""
        if table_key in self._direct or table_key in self._tables:
            raise InternalError(f"'{table_key}' is already changed by this write")
        self._direct[table_key] = self._table_write(table_key, kind, stage)
        self._direct[table_key].staged_elsewhere = True

    def depend_on(self, table_keys: Iterable[TableKey]) -> None:
        """The write is only valid while these tables stay as they are in the snapshot."""
        self.view.read.update(table_keys)

    # --- judging and staging ---------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Check the final state of everything gathered, and settle what each table's change is.

        Raises:
            ConstraintError: a rule of the schema would be broken.
            KeyConflictError: an id that must be new is taken.
        """
        changes: dict[TableKey, TableChange] = {}
        for key in sorted(self._tables):
            pending = self._tables[key]
            if pending.is_empty:
                continue
            rows, change = pending.resolve(self.view, row_schema(pending.entity))
            self.request.limits.check(key, rows.rows, replaces_table=pending.replaces_table)
            changes[key] = change
            write = self._table_write(key, pending.kind, _stage_rows(pending, rows, self._fragments))
            write.rows = rows
            self.writes[key] = write
        self.writes.update(self._direct)
        self._check(changes)

    def _check(self, changes: ChangeSet) -> None:
        if changes:
            validate(self.catalog, changes, self.view)

    def stage(self) -> None:
        """Write the files of every change whose table can be written yet; tables to be forked are staged later."""
        ready = [self.writes[key] for key in sorted(self.writes) if not self.writes[key].forks]
        rows = sum(write.rows.rows.num_rows for write in ready if write.rows is not None)
        if len(ready) > 1 and rows >= PARALLEL_ROWS:
            with ThreadPoolExecutor(min(STAGING_THREADS, len(ready))) as pool:
                list(pool.map(self._stage_one, ready))
        else:
            for write in ready:
                self._stage_one(write)
        for key in [key for key, write in self.writes.items() if write.staged is None and not write.forks]:
            del self.writes[key]

    def _stage_one(self, write: TableWrite) -> None:
        self.request.cancellation.check()
        self.stage_table(write, self.snapshot.open(write.table_key))

    def stage_table(self, write: TableWrite, base: TableHandle) -> None:
        """Stage one change on `base`, which has the content of the snapshot's version."""
        write.base, write.staged = base, write.stage(base)

    def _table_write(self, table_key: TableKey, kind: WriteKind, stage: Stage) -> TableWrite:
        entry = self.snapshot.entry(table_key)
        return TableWrite(table_key, entry, kind, stage, forks=entry.branch != stored_branch(self.request.branch))

    # --- expectations ----------------------------------------------------------------------------------------------

    @property
    def expected(self) -> dict[TableKey, int]:
        """The version of every table written or read, as the write saw it."""
        return {key: self.snapshot.entry(key).version for key in sorted({*self.writes, *self.view.read})}

    @property
    def read_set(self) -> dict[TableKey, int]:
        """The versions of the tables that were only read."""
        return {key: version for key, version in self.expected.items() if key not in self.writes}

    @property
    def strict_tables(self) -> list[TableKey]:
        """The tables whose concurrent change refuses this write."""
        return [key for key, write in sorted(self.writes.items()) if write.kind.is_strict]


def _stage_rows(pending: PendingTable, rows: Resolved, fragments: WrittenFragments) -> Stage:
    """How the gathered rows of one table become one staged change."""

    def stage(base: TableHandle) -> StagedWrite | None:
        if pending.replaces_table:
            return stage_overwrite(base, rows.rows)
        updated = rows.updated_addresses()
        source = pending.only_source
        if source is not None and _is_worth_keeping(pending, rows):
            return stage_fragments(base, fragments.of(pending.entity.table_key, source, rows.rows, base))
        return stage_changes(
            base,
            new_rows=rows.new_rows(),
            updated_rows=rows.updated_rows() if len(updated) else None,
            updated_addresses=updated if len(updated) else None,
            updated_row_ids=base.row_ids(updated) if len(updated) else None,
            deleted_addresses=rows.removed_addresses if len(rows.removed_addresses) else None,
        )

    return stage


def _is_worth_keeping(pending: PendingTable, rows: Resolved) -> bool:
    """True for a large run of plain inserts, which another attempt would only write once more."""
    is_plain = not rows.supersedes.any() and not len(rows.removed_addresses) and not blob_columns(pending.entity)
    return is_plain and rows.rows.num_rows >= KEEP_FRAGMENTS_ROWS
