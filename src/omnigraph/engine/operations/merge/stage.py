"""How a table is written that a merge changes: files are taken over, rows are written only where they have to be.

A source fragment whose live rows are all taken is adopted as it is; the rows it replaces die by a deletion file. What
is left, single rows of larger fragments and rows that are on no branch, is written anew, a few megabytes at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from itertools import chain
from typing import Protocol

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from omnigraph.engine.changes.delta import Candidates, Delta, live_rows
from omnigraph.engine.changes.located import Located
from omnigraph.engine.operations.merge.compose import Mixed
from omnigraph.engine.operations.merge.decided import TableMerge
from omnigraph.engine.operations.merge.progress import Watch
from omnigraph.engine.storage.adopting import Prepared, StagedAdoption, adopt, stage_adopted
from omnigraph.engine.storage.fragments import is_blob
from omnigraph.engine.storage.handle import Addresses, TableHandle
from omnigraph.engine.storage.staged import Fold, StagedWrite
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.values.entities import Entity, row_schema
from omnigraph.engine.write.committed import read_rows

CHUNK_BYTES = 8 << 20
"""How much of the rows that are written anew is in memory at once."""
CHUNK_ROWS_MAX = 8_192
BLOB_ROWS = 64
"""The same for rows with blobs, of which nobody knows how large they are."""
_TEXT_BYTES = 64


class How(StrEnum):
    """How the target gets its new state of a table."""

    UNCHANGED = "unchanged"
    POINTER = "pointer"
    MIRRORED = "mirrored"
    """The files of the source became those of the target; no row was read."""
    ADOPTED = "adopted"
    """Whole files were taken over for the rows they hold."""
    REWRITTEN = "rewritten"
    """Rows were written anew."""


class Elsewhere(Protocol):
    """Whoever writes the rows and deletions of a table in other processes."""

    def prepare(
        self, entity: Entity, base: TableHandle, parts: Sequence[Located], mixed: Sequence[Mixed], dead: Addresses
    ) -> Prepared:
        """Write the rows that are written anew, and the deletion files of those that go."""


class Move(Struct):
    """One table on its way: what is taken from where, and how it went."""

    entity: Entity
    source: TableHandle
    rows: list[Located] = field(default_factory=list)
    """Rows of versions that the target gets."""
    fragments: Sequence[int] = ()
    """Fragments of the source of which it gets every row, besides."""
    mixed: Sequence[Mixed] = ()
    written: Sequence[pa.Table] = ()
    dead: list[Addresses] = field(default_factory=list)
    mirrored: bool = False
    how: How = How.UNCHANGED
    reason: str | None = None
    rows_written: int = 0
    uncovered_rows: int = 0
    counts: tuple[int, int, int, bool] = (0, 0, 0, True)
    """Inserted, updated, deleted, and whether that is certain, where entities were not decided one by one."""
    watch: Watch = field(default_factory=Watch)
    elsewhere: Elsewhere | None = None
    """Who writes rows and deletions instead of this process."""
    _staged: StagedAdoption | None = None

    @property
    def bytes_estimated(self) -> int:
        """About how much is written for the rows that are written anew."""
        return self.rows_written * row_bytes(self.source)

    def foresee(self, base: TableHandle) -> None:
        """Say how it would probably go, without doing it: no file is copied."""
        whole, parts = self._whole_fragments()
        there = {name for fragment in base.fragments() for name in fragment.files}
        fragments = [fragment for fragment in self.source.fragments() if fragment.id in set(whole)]
        taken = [fragment for fragment in fragments if not there.intersection(fragment.files)]
        left = sum(fragment.live_rows for fragment in fragments if there.intersection(fragment.files))
        self.rows_written = (
            left + sum(map(len, parts)) + sum(map(len, self.mixed)) + sum(t.num_rows for t in self.written)
        )
        self._tell(sum(fragment.live_rows for fragment in taken), None)

    def stage(self, store: TableStore, fold: Fold, base: TableHandle) -> StagedWrite | None:
        """Stage the change on the version it was planned on, or on a fork of that."""
        whole, parts = self._whole_fragments()
        adopted = adopt(store, self.source, whole, base)
        left = [*parts, *(_fragment_rows(self.source, number) for number in adopted.left)]
        dead = np.concatenate(self.dead) if self.dead else np.empty(0, dtype=np.uint64)
        self.rows_written = self._rows_anew(left)
        self.watch.writing(self.rows_written)
        self._tell(adopted.live_rows, adopted.reason)
        mixed, prepared = self.mixed, Prepared()
        if self.elsewhere is not None:
            prepared = self.elsewhere.prepare(self.entity, base, left, mixed, dead)
            self.watch.wrote(self._rows_anew(left) - sum(int(table.num_rows) for table in self.written))
            left, mixed, dead = [], (), dead[:0]
        rows = partial(self._reader, base, left, mixed)
        self._staged = stage_adopted(base, adopted, dead, rows, fold=fold, prepared=prepared)
        return self._staged.first

    def then(self) -> Callable[[TableHandle], StagedWrite | None] | None:
        """The second commit, once the first is staged; None where there is none."""
        return self._staged.then if self._staged is not None and self._staged.appended else None

    def _tell(self, live_rows: int, reason: str | None) -> None:
        self.uncovered_rows = live_rows + self.rows_written
        self.reason = reason
        if self.mirrored and not self.rows_written:
            self.how = How.MIRRORED
        else:
            self.how = How.REWRITTEN if self.rows_written else How.ADOPTED

    def _whole_fragments(self) -> tuple[list[int], list[Located]]:
        """The source fragments of which every live row is taken, and all other rows."""
        whole = list(self.fragments)
        parts: list[Located] = []
        mine = [rows.at[places] for rows in self.rows for handle, places in rows.groups() if self._is_source(handle)]
        parts += [
            Located.of(handle, rows.at[places], np.ones(len(places), dtype=np.bool_))
            for rows in self.rows
            for handle, places in rows.groups()
            if not self._is_source(handle)
        ]
        if mine:
            addresses = np.sort(np.concatenate(mine))
            owners = addresses >> np.uint64(32)
            numbers, counts = np.unique(owners, return_counts=True)
            live = {fragment.id: fragment.live_rows for fragment in self.source.fragments()}
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                if live[number] == count:
                    whole.append(number)
            rest = addresses[~np.isin(owners, np.array(whole, dtype=np.uint64))]
            if len(rest):
                parts.append(Located.of(self.source, rest, np.ones(len(rest), dtype=np.bool_)))
        return whole, parts

    def _rows_anew(self, parts: Sequence[Located]) -> int:
        return sum(map(len, parts)) + sum(map(len, self.mixed)) + sum(int(table.num_rows) for table in self.written)

    def _is_source(self, handle: TableHandle) -> bool:
        return (handle.branch, handle.version) == (self.source.branch, self.source.version)

    def _reader(
        self, base: TableHandle, parts: Sequence[Located], mixed: Sequence[Mixed]
    ) -> pa.RecordBatchReader | None:
        if not any(map(len, (*parts, *mixed, *self.written))):
            return None
        schema = row_schema(self.entity)
        rows = row_batches(self.entity, parts, mixed, chunk_rows(base))
        set_ones = (batch for table in self.written for batch in _cast(table.select(schema.names), schema))
        return pa.RecordBatchReader.from_batches(schema, self._watched(chain(rows, set_ones)))

    def _watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            self.watch.wrote(batch.num_rows)


def row_batches(
    entity: Entity, parts: Sequence[Located], mixed: Sequence[Mixed], size: int
) -> Iterator[pa.RecordBatch]:
    """The rows that are written anew, some at a time, as they are stored."""
    schema = row_schema(entity)

    def read(handle: TableHandle, at: Addresses) -> pa.Table:
        return read_rows(handle, entity, at)

    for part in parts:
        for start in range(0, len(part), size):
            yield from _cast(part.where(np.arange(start, min(start + size, len(part)))).read(read, schema), schema)
    for some in mixed:
        for start in range(0, len(some), size):
            yield from _cast(some.where(np.arange(start, min(start + size, len(some)))).read(entity), schema)


def _cast(table: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for field, column in ((field, table.column(field.name)) for field in schema)
    ]
    found: list[pa.RecordBatch] = pa.Table.from_arrays(columns, schema=schema).to_batches()
    return found


def _fragment_rows(handle: TableHandle, number: int) -> Located:
    """Every live row of one fragment."""
    [fragment] = [each for each in handle.fragments() if each.id == number]
    at = Candidates((live_rows(handle, fragment),)).addresses
    return Located.of(handle, at, np.ones(len(at), dtype=np.bool_))


def chunk_rows(handle: TableHandle) -> int:
    """How many rows of a table are about as much as may be in memory."""
    if any(is_blob(field) for field in handle.schema):
        return BLOB_ROWS
    return max(1, min(CHUNK_ROWS_MAX, CHUNK_BYTES // row_bytes(handle)))


def row_bytes(handle: TableHandle) -> int:
    """About how large a row is, blobs aside."""
    return sum(
        field.type.list_size * field.type.value_type.bit_width // 8
        if pa.types.is_fixed_size_list(field.type)
        else _TEXT_BYTES
        for field in handle.schema
    )


def move_by_rows(table: TableMerge) -> Move:
    """The change of a table whose entities were decided one by one."""
    overs = [*(p.over for p in table.taken), *(p.over for p in table.written), *(p.ours for p in table.mixed)]
    overs += [part.over for part in table.removed]
    return Move(
        table.entity,
        table.theirs,
        rows=[part.rows for part in table.taken],
        mixed=table.mixed,
        written=[part.rows for part in table.written],
        dead=[over.at[over.present] for over in overs],
    )


def move_by_files(entity: Entity, source: TableHandle, touched: Delta) -> Move:
    """The change by which a table becomes what the source has, without a look at a row."""
    whole = [part.fragment.id for part in touched.added.parts if part.is_whole]
    added = Candidates(tuple(part for part in touched.added.parts if not part.is_whole)).addresses
    taken = Located.of(source, added, np.ones(len(added), dtype=np.bool_))
    dead = [touched.removed.addresses]
    return Move(entity, source, rows=[taken], fragments=whole, dead=dead, mirrored=True)
