"""One attempt to change the graph: everything a write reads and changes, on one snapshot.

A `Transaction` gathers changes (`insert`, `upsert`, `update`, `patch`, `remove`, `replace`) with read-your-writes, is
validated once over their final state, and stages exactly one change per table. Nothing here is visible to anybody;
`commit` makes it so, and `writer` repeats the whole attempt on a newer snapshot when that is allowed. Mutations, loads,
Spark jobs and maintenance all write through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from omnigraph.catalog import wide
from omnigraph.catalog.arrow import blob_columns
from omnigraph.catalog.model import Catalog
from omnigraph.engine.commit.cancellation import Cancellation
from omnigraph.engine.commit.request import Stage, TablePointer
from omnigraph.engine.coordination.intent import WriterKind
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.rules.patches import complete
from omnigraph.engine.rules.validate import ChangeSet, TableChange, refuse_rows, validate
from omnigraph.engine.storage.folding import fold_small
from omnigraph.engine.storage.fragments import read_fragment_rows
from omnigraph.engine.storage.handle import Addresses, TableHandle
from omnigraph.engine.storage.staged import (
    Fold,
    StagedWrite,
    stage_changes,
    stage_fragments,
    stage_overwrite,
    write_fragment_files,
)
from omnigraph.engine.values.entities import Entity
from omnigraph.engine.write.attached import Foretold, attached, detached
from omnigraph.engine.write.committed import SnapshotView
from omnigraph.engine.write.limits import WriteLimits
from omnigraph.engine.write.overlay import Marks
from omnigraph.engine.write.rows import PendingTable, Resolved, Under, WriteKind
from omnigraph.engine.write.staging import Staging, TableWrite
from omnigraph.errors import ExpectedVersionMismatchError, InternalError
from omnigraph.ids import CommitId, TableKey, check_text, now_micros, stored_branch
from omnigraph.interrupts import nothing

KEEP_FRAGMENTS_ROWS = 4_096


class WriteRequest(Struct, frozen=True):
    """Who wants to write where, and under which conditions."""

    branch: str
    kind: WriterKind
    actor: str | None = None
    if_commit: CommitId | None = None
    merged_parent: CommitId | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    cancellation: Cancellation = field(default_factory=Cancellation)
    limits: WriteLimits = field(default_factory=WriteLimits)
    check: Callable[[], None] = nothing
    """Raises a `ConflictError` when what the write rests on besides its branch is gone."""
    publishing: Callable[[], None] = nothing
    """Called when every table has its commit and only the publish is left; it must not fail."""

    def __post_init__(self) -> None:
        force_setattr(self, "properties", {**attached(), **self.properties})
        # The commit keeps these for ever, so what cannot be stored for ever is refused before anything is staged.
        if self.actor is not None:
            check_text(self.actor, "the actor")
        for name, value in self.properties.items():
            check_text(value, f"the commit property '{check_text(name, 'the name of a commit property')}'")


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

    def keep(self, table_key: TableKey, uri: str, source: pa.Table, fragments: list[str]) -> None:
        """Fragments below a location that were written of the rows of `source`, while they were read."""
        self._kept[(table_key, uri)] = (source, fragments)

    def found(self, table_key: TableKey, source: pa.Table, base: TableHandle) -> list[str] | None:
        """The fragments that hold all rows of `source`, where the table is now."""
        kept = self._kept.get((table_key, base.uri))
        return kept[1] if kept is not None and kept[0] is source else None

    def read_back(
        self, table_key: TableKey, source: pa.Table, places: npt.NDArray[np.int64], schema: pa.Schema
    ) -> pa.Table:
        """Whole rows, by number, of those that were stored while they were read."""
        uri, texts = next(
            (uri, kept[1]) for (key, uri), kept in self._kept.items() if key == table_key and kept[0] is source
        )
        batches = [batch for text in texts for batch in read_fragment_rows(uri, text, schema)]
        whole = pa.Table.from_batches(batches, schema)
        return whole if len(places) == whole.num_rows else wide.take_rows(whole, places)


class Transaction:
    """Changes on top of one snapshot; used by one thread, once."""

    def __init__(
        self,
        catalog: Catalog,
        snapshot: Snapshot,
        request: WriteRequest,
        fragments: WrittenFragments | None = None,
        fold: Fold = fold_small,
        view: SnapshotView | None = None,
    ) -> None:
        self.catalog, self.snapshot, self.request = catalog, snapshot, request
        self._fold = fold
        self._fragments = fragments or WrittenFragments()
        self.view = view or SnapshotView(snapshot)
        self._tables: dict[TableKey, PendingTable] = {}
        self._direct: dict[TableKey, TableWrite] = {}
        self._changes: dict[TableKey, TableChange] | None = None
        self.writes: dict[TableKey, TableWrite] = {}
        self.pointers: list[TablePointer] = []

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

    def update(self, entity: Entity, rows: pa.Table, under: int | Marks, addresses: Addresses | None = None) -> None:
        """Replace entities that were selected in this transaction."""
        self.table(entity, WriteKind.UPDATE).add(rows, under, addresses)

    def patch(self, entity: Entity, rows: pa.Table) -> None:
        """Give entities that must be there what the records of an update hold of them, and leave the rest as it is.

        Raises:
            ConstraintError: an entity is not there, or would become another one or break a rule of its own.
        """
        if rows.num_rows:
            completed = complete(entity, rows, self.view)
            refuse_rows(entity, rows, completed.wrong)
            self.update(entity, completed.rows, Under.A_ROW, completed.addresses)

    def remove(self, entity: Entity, ids: pa.Array, addresses: Addresses, sources: pa.Array | None = None) -> None:
        """Remove committed entities that were selected in this transaction."""
        self.table(entity, WriteKind.DELETE).remove(ids, addresses, sources)

    def replace(self, entity: Entity, rows: pa.Table) -> None:
        """Make these rows the whole content of the table."""
        pending = self.table(entity, WriteKind.REPLACE)
        pending.replaces_table = True
        pending.add(rows, Under.NOTHING)

    def stage_with(
        self, table_key: TableKey, kind: WriteKind, stage: Stage, then: Callable[[], Stage | None] | None = None
    ) -> None:
        """Let `stage` describe the change of a table that this transaction does not hold row by row.

        `then` is asked for a second commit, to be staged on the version that the first has made.
        """
        if table_key in self._direct or table_key in self._tables:
            raise InternalError(f"'{table_key}' is already changed by this write")
        self._direct[table_key] = self._table_write(table_key, kind, stage)
        self._direct[table_key].staged_elsewhere = True
        self._direct[table_key].then = then

    def adopt(self, entity: Entity, rows: Resolved) -> None:
        """Take over the change of a table that was settled and judged elsewhere; nothing of it is checked again."""
        self._change(PendingTable(entity, WriteKind.MERGE), rows)

    def point(self, pointer: TablePointer) -> None:
        """Let the branch show a version of a table that exists, instead of the one it inherits."""
        self.pointers.append(pointer)

    def foretell(self, hear: Foretold | None, report: Callable[[], Any]) -> None:
        """Let whoever asked for the write hear what it will report, and the commit carry what that needs."""
        if hear is not None:
            told = hear(report())
            # It may be the leader of a group who runs this for another: what is attached there is the leader's own.
            with detached():
                self.request = replace(self.request, properties={**self.request.properties, **told})

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
        self.settle()
        self.check()

    def settle(self) -> ChangeSet:
        """Look up what is still unknown of the rows gathered, once, and decide what each table's change is."""
        if self._changes is None:
            self._changes = {}
            for key in sorted(self._tables):
                pending = self._tables[key]
                if pending.is_empty:
                    continue
                rows, self._changes[key] = pending.resolve(self.view)
                self.request.limits.check(key, rows.rows, replaces_table=pending.replaces_table)
                self._change(pending, rows)
            self.writes.update(self._direct)
        return self._changes

    def check(self) -> None:
        """Judge what was settled.

        Raises:
            ConstraintError: a rule of the schema would be broken.
            KeyConflictError: an id that must be new is taken.
        """
        changes = self.settle()
        if changes:
            validate(self.catalog, changes, self.view)

    def staging(self) -> Staging:
        """The files of every change that was settled; tables to be forked are staged later."""
        return Staging(self.snapshot.store, self.request.cancellation, [self.writes[k] for k in sorted(self.writes)])

    def leave_unchanged(self) -> None:
        """Let go of the tables for which there was nothing to stage."""
        for key in [key for key, write in self.writes.items() if not write.is_staged and not write.forks]:
            del self.writes[key]

    def _change(self, pending: PendingTable, rows: Resolved) -> None:
        """Let what was gathered for a table be its change."""
        key = pending.entity.table_key
        write = self._table_write(key, pending.kind, _stage_rows(pending, rows, self._fragments, self._fold))
        write.rows = rows
        write.removable = rows.places is None and not blob_columns(pending.entity)
        self.writes[key] = write

    def _table_write(self, table_key: TableKey, kind: WriteKind, stage: Stage) -> TableWrite:
        entry = self.snapshot.entry(table_key)
        forks = entry.branch != stored_branch(self.request.branch)
        base = None if forks else self.snapshot.open(table_key)
        return TableWrite(table_key, entry, kind, stage, forks, base)

    # --- expectations ----------------------------------------------------------------------------------------------

    @property
    def expected(self) -> dict[TableKey, int]:
        """The version of every table written or read, as the write saw it."""
        return {key: self.snapshot.entry(key).version for key in sorted({*self.writes, *self.view.read})}

    @property
    def read_set(self) -> dict[TableKey, int]:
        """The versions of the tables that were only read."""
        pointed = {pointer.entry.table_key for pointer in self.pointers}
        return {key: version for key, version in self.expected.items() if key not in self.writes and key not in pointed}

    def hold_strict(self, bound: dict[TableKey, int]) -> None:
        """Let strict changes stay bound to the versions that the first attempt saw, which `bound` remembers.

        Raises:
            ExpectedVersionMismatchError: a table has another version since.
        """
        for key in self.strict_tables:
            version = self.snapshot.entry(key).version
            expected = bound.setdefault(key, version)
            if expected != version:
                raise ExpectedVersionMismatchError(table_key=key, expected=expected, actual=version)

    @property
    def strict_tables(self) -> list[TableKey]:
        """The tables whose concurrent change refuses this write."""
        return [key for key, write in sorted(self.writes.items()) if write.kind.is_strict]


def _stage_rows(pending: PendingTable, resolved: Resolved, fragments: WrittenFragments, fold: Fold) -> Stage:
    """How the gathered rows of one table become one staged change."""

    def stage(base: TableHandle) -> StagedWrite | None:
        rows, source, key = resolved, pending.only_source, pending.entity.table_key
        if rows.places is not None and source is not None:
            written = fragments.found(key, source, base)
            if written is not None and len(rows.places) == source.num_rows and not rows.supersedes.any():
                return stage_fragments(base, written, overwrite=pending.replaces_table)
            rows = replace(rows, rows=fragments.read_back(key, source, rows.places, base.schema), places=None)
        if pending.replaces_table:
            return stage_overwrite(base, rows.rows)
        updated = rows.updated_addresses()
        if source is not None and _is_worth_keeping(pending, rows):
            return stage_fragments(base, fragments.of(key, source, rows.rows, base))
        return stage_changes(
            base,
            new_rows=rows.new_rows(),
            updated_rows=rows.updated_rows() if len(updated) else None,
            updated_addresses=updated if len(updated) else None,
            updated_row_ids=base.row_ids(updated) if len(updated) else None,
            deleted_addresses=rows.removed_addresses if len(rows.removed_addresses) else None,
            fold=fold,
        )

    return stage


def _is_worth_keeping(pending: PendingTable, rows: Resolved) -> bool:
    """True for a large run of plain inserts, which another attempt would only write once more."""
    if rows.rows.num_rows < KEEP_FRAGMENTS_ROWS:
        return False
    return not rows.supersedes.any() and not len(rows.removed_addresses) and not blob_columns(pending.entity)
