"""A table opened at one version: reads only, and safe to share between threads.

Data files never change once written, so what is read here may be cached by file name for as long as one likes; only
the list of files and the deletions belong to a version.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeAlias

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.fragment import FragmentMetadata, RowIdSequence
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.engine.storage.batches import read_all, read_stream, take_offsets
from omnigraph.engine.storage.cache import DELETED, SHARED
from omnigraph.engine.storage.lance_internals.deletions import read_deletion_file
from omnigraph.engine.storage.lance_internals.files import branch_location, file_name, table_location
from omnigraph.engine.storage.lance_internals.fragments import bare_fragments
from omnigraph.engine.storage.layout import is_local
from omnigraph.engine.storage.translate import FOREIGN, classify_lance_error, is_missing, is_panic
from omnigraph.engine.storage.written import WRITTEN
from omnigraph.errors import GraphError, InternalError, VersionReclaimedError

RowFilter: TypeAlias = pa.compute.Expression | str
Addresses: TypeAlias = npt.NDArray[np.uint64]
_KEY = b"lance-schema:unenforced-primary-key"
_AUTO_CLEANUP = "lance.auto_cleanup."
FRAGMENT_BATCH_ROWS = 1 << 20
"""A column of a fragment is read at once, if Lance can."""
_NOTE_BYTES = 64
COUNTED_MAX = 8_000_000
"""Rows to take times deleted rows, up to which a fragment is asked for them by number.

For each row it takes Lance counts the deleted ones before it, which takes nanoseconds for each of these.
"""
SOUGHT_ROWS = 4_096
"""Rows that one scan is asked for by their addresses."""
CLEANUP_PAUSES = (0.05, 0.2, 0.75)
"""Seconds between looks whether the version of a file that is missing goes, too, before the file counts as lost."""


HIGHEST_FIELD = "omnigraph:highest_field_id"
"""The schema fact that remembers the highest number ever given, so that a dropped column's is not given again."""
ORIGINS = "omnigraph:column_origins"
"""The schema fact that remembers which column one with other values or another type continues, by their numbers."""
GIVEN = "omnigraph:column_given"
"""The schema fact that remembers what rows without a value were given in a column, by the number it had first."""


class FragmentInfo(Struct, frozen=True):
    """One fragment of a table at one version.

    `files` are the names of its data files, unique for all time; `deletion_key` names its deletion file, None without
    deletions. Together they identify its live rows for ever.
    """

    id: int
    physical_rows: int
    deleted_rows: int
    files: tuple[str, ...]
    deletion_key: str | None

    @property
    def live_rows(self) -> int:
        """Rows a reader sees."""
        return self.physical_rows - self.deleted_rows


class IndexInfo(Struct, frozen=True):
    """A part of an index: its kind as Lance names it, the fragments it covers and the version it was built at.

    All parts of one index have its name.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    fragment_ids: frozenset[int]
    uuid: str = ""
    built_at: int = 0


_OF_COLUMNS = ("schema", "field_ids", "column_origins", "first_numbers", "column_given")
"""What is known of the columns of a version, and holds for the next one if that differs in rows alone."""


class TableHandle:
    """One table at one version on one branch."""

    def __init__(
        self,
        dataset: lance.LanceDataset,
        *,
        path: str,
        branch: str | None,
        read_only: bool = False,
        is_kept: Callable[[TableHandle], bool] = lambda handle: True,
    ) -> None:
        self._dataset = dataset
        self._is_kept = is_kept
        self.read_only = read_only
        self.path = path
        self.branch = branch
        self.version: int = int(dataset.version)
        self.table_key: str | None = None
        """The type whose table it is, once whoever opened it has said so; for messages."""
        self.written_by: str | None = None
        """The operation that is known to have made this version, which tells branches of one name apart."""
        self._unchanged: dict[int, FragmentInfo] = {}
        self._row_ids: dict[int, Addresses] = {}

    def __repr__(self) -> str:
        return f"TableHandle({self.path!r}, branch={self.branch!r}, version={self.version})"

    @property
    def dataset(self) -> lance.LanceDataset:
        """The Lance dataset, for this package only."""
        return self._dataset

    @property
    def uri(self) -> str:
        """Where files of this table and branch are written; a branch that was checked out names its root instead."""
        return branch_location(str(self._dataset.uri), self.branch)

    @property
    def table_uri(self) -> str:
        """Where the table itself is, whichever branch of it this is."""
        return table_location(self.uri, self.branch)

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema, field and schema metadata included."""
        return self._dataset.schema

    @cached_property
    def field_ids(self) -> dict[str, int]:
        """The number of each top-level column, which outlives a rename and is never given to another column."""
        return {field.name(): int(field.id()) for field in self._dataset.lance_schema.fields()}

    @cached_property
    def column_origins(self) -> dict[int, int]:
        """The number that a column continues under its own, where a change of its values has given it another one."""
        noted = (self.schema.metadata or {}).get(ORIGINS.encode())
        return {} if noted is None else {int(new): int(old) for new, old in json.loads(noted).items()}

    @cached_property
    def first_numbers(self) -> dict[str, int]:
        """The number each column had first: the same in every version that has the column, whatever became of it."""
        found = {}
        for name, number in self.field_ids.items():
            while number in self.column_origins:
                number = self.column_origins[number]
            found[name] = number
        return found

    @property
    def highest_number(self) -> int:
        """The highest number that a column has been given by a change of columns, 0 before there was one."""
        return int((self.schema.metadata or {}).get(HIGHEST_FIELD.encode(), b"0"))

    @cached_property
    def column_given(self) -> dict[int, Any]:
        """What rows were given when a column was first filled, by its first number; days and milliseconds for times."""
        noted = (self.schema.metadata or {}).get(GIVEN.encode())
        return {} if noted is None else {int(number): value for number, value in json.loads(noted).items()}

    @property
    def primary_key(self) -> list[str]:
        """The columns announced as the key of a row, in schema order."""
        return [field.name for field in self.schema if any(name.startswith(_KEY) for name in field.metadata or ())]

    @property
    def config(self) -> dict[str, str]:
        """The settings stored with the table."""
        return dict(self._dataset.config())

    @property
    def removal_settings(self) -> list[str]:
        """The settings that make Lance remove old versions inside commits; tables of ours have none."""
        return [name for name in self._dataset.config() if name.startswith(_AUTO_CLEANUP)]

    @contextmanager
    def _reading(self, what: str = "reading") -> Iterator[None]:
        """Translate what goes wrong, and tell files that were removed for good reason from files that are lost."""
        try:
            yield
        except GraphError:
            raise
        except BaseException as exc:
            if not isinstance(exc, FOREIGN) and not is_panic(exc):
                raise
            failure = classify_lance_error(exc, f"{what} {self.path}")
            if not is_missing(failure) or self._stays_kept():
                raise failure from exc
            key = self.table_key or self.path
            raise VersionReclaimedError(
                f"version {self.version} of '{key}' has been removed, by cleanup or with its branch — read a newer"
                " commit",
                table_key=key,
                version=self.version,
            ) from exc

    def _stays_kept(self) -> bool:
        """Whether this version is still there, also after a while: cleanup removes its files before the version."""
        for pause in CLEANUP_PAUSES:
            if not self._is_kept(self):
                return False
            time.sleep(pause)
        return self._is_kept(self)

    def count_rows(self, filter: RowFilter | None = None) -> int:
        """Live rows, or those a filter selects."""
        with self._reading("counting rows of"):
            return int(self._dataset.count_rows(filter))

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: RowFilter | None = None,
        *,
        with_row_id: bool = False,
        with_row_address: bool = False,
        limit: int | None = None,
        batch_size: int | None = None,
        blob_bytes: bool = False,
        fragment_ids: Sequence[int] | None = None,
        **search: Any,
    ) -> lance.LanceScanner:
        """A scan to be run by this package; see `scan` and `scan_batches` for the meaning of the arguments."""
        fragments = None
        if fragment_ids is not None:
            fragments = [self._dataset.get_fragment(fragment_id) for fragment_id in fragment_ids]
        return self._dataset.scanner(
            columns=None if columns is None else list(columns),
            filter=filter,
            limit=limit,
            batch_size=batch_size,
            with_row_id=with_row_id,
            with_row_address=with_row_address,
            blob_handling="all_binary" if blob_bytes else None,
            fragments=fragments,
            **search,
        )

    def scan(self, columns: Sequence[str] | None = None, filter: RowFilter | None = None, **options: Any) -> pa.Table:
        """Live rows as one table, in storage order.

        `with_row_id` and `with_row_address` add `_rowid` and `_rowaddr`; `blob_bytes` reads blobs as their bytes
        instead of descriptors; `fragment_ids` limits the scan; other options (`nearest`, `full_text_query`,
        `prefilter`, `use_scalar_index`, …) go to the scanner.
        """
        with self._reading():
            rows = options.pop("batch_size", None)
            return read_all(lambda batch: self.scanner(columns, filter, batch_size=batch, **options), rows)

    def scan_batches(
        self, columns: Sequence[str] | None = None, filter: RowFilter | None = None, **options: Any
    ) -> pa.RecordBatchReader:
        """The same rows as a stream, so that memory does not grow with the table."""
        with self._reading():
            rows = options.pop("batch_size", None)
            return read_stream(lambda batch: self.scanner(columns, filter, batch_size=batch, **options), rows)

    @cached_property
    def _fragments(self) -> tuple[FragmentInfo, ...]:
        found = []
        for fragment in bare_fragments(self._dataset):
            unchanged = self._unchanged.get(fragment.id())
            if unchanged is not None:
                found.append(unchanged)
                continue
            # Everything at once, because each property of a fragment is a call of its own.
            facts = fragment.metadata()
            deleted = int(facts.num_deletions)
            found.append(
                FragmentInfo(
                    id=int(facts.id),
                    physical_rows=int(facts.physical_rows),
                    deleted_rows=deleted,
                    files=tuple([file_name(file) for file in facts.files]),
                    deletion_key=str(fragment.deletion_file()) if deleted else None,
                )
            )
        return tuple(found)

    @cached_property
    def _fragment_infos(self) -> dict[int, FragmentInfo]:
        return {fragment.id: fragment for fragment in self._fragments}

    def fragments(self) -> tuple[FragmentInfo, ...]:
        """The fragments in scan order."""
        if "_fragments" in self.__dict__:
            return self._fragments
        with self._reading():
            return self._fragments

    def follow(self, base: TableHandle, touched: Collection[int]) -> None:
        """Take over what is known of the version that was changed: its columns, and the fragments but those touched.

        For the one commit that made this version out of `base`, by whoever knows what it did: to rows, not to columns.
        """
        self.__dict__.update({name: base.__dict__[name] for name in _OF_COLUMNS if name in base.__dict__})
        if "_fragments" in base.__dict__:
            self._unchanged = {f.id: f for f in base._fragments if f.id not in touched}

    def read_fragment_columns(self, fragment: FragmentInfo, columns: Sequence[str]) -> pa.Table:
        """Whole columns of one fragment, deleted rows included, so that position equals offset.

        The result depends on the data files alone: it stays right for every version that has them.
        """
        written = None if len(fragment.files) > 1 else self._written(fragment.files[0], columns)
        if written is not None:
            return written
        with self._reading():
            table = read_all(
                lambda batch: self.scanner(
                    columns,
                    fragment_ids=[fragment.id],
                    with_row_id=fragment.deleted_rows > 0,
                    include_deleted_rows=fragment.deleted_rows > 0,
                    scan_in_order=True,
                    batch_size=batch,
                ),
                FRAGMENT_BATCH_ROWS,
            )
        return table.select(list(columns))

    def _written(self, file: str, columns: Sequence[str]) -> pa.Table | None:
        """Columns of a data file this process wrote itself a moment ago."""
        ids = self.field_ids
        if not all(column in ids for column in columns):
            return None
        return WRITTEN.find(file, {column: ids[column] for column in columns}, self.schema)

    def deleted_offsets(self, fragment: FragmentInfo) -> npt.NDArray[np.uint32]:
        """Offsets of the deleted rows of one fragment of this version, ascending."""
        if not fragment.deleted_rows:
            return np.empty(0, dtype=np.uint32)
        if self._fragment_infos.get(fragment.id) != fragment:
            # The number alone would give the deletions this version has under it.
            raise InternalError(f"fragment {fragment.id} of {self!r} was asked for as another version has it")
        return SHARED.get_or_make(
            _deletions_key(fragment.files, fragment.deletion_key),
            lambda: self._read_deleted_offsets(fragment),
            lambda made: int(made.nbytes) + _NOTE_BYTES,
        )

    def remember_deletions(self, after: FragmentMetadata, offsets: Sequence[int]) -> None:
        """Keep what a deletion file says that was just written: the rows deleted before, and those at `offsets`."""
        before = self._fragment_infos.get(int(after.id))
        if before is None or after.deletion_file is None:
            return
        files = tuple([file_name(file) for file in after.files])
        # A stable sort takes two ascending runs as they are; a row named twice shows in the count.
        gone = np.sort(
            np.concatenate((self.deleted_offsets(before), np.asarray(offsets, dtype=np.uint32))), kind="stable"
        )
        if len(gone) == int(after.num_deletions) and files == before.files:
            key = _deletions_key(files, after.deletion_file.path(after.id))
            SHARED.put(key, gone, int(gone.nbytes) + _NOTE_BYTES)

    def _read_deleted_offsets(self, fragment: FragmentInfo) -> npt.NDArray[np.uint32]:
        with self._reading():
            if is_local(self.uri) and fragment.deletion_key is not None:
                # A fragment inherited by a branch keeps its deletion file at the parent, which Lance knows to find.
                direct = read_deletion_file(f"{self.uri}/{fragment.deletion_key}")
                if direct is not None and len(direct) == fragment.deleted_rows:
                    return direct
            ids = self.scanner(
                [], fragment_ids=[fragment.id], with_row_id=True, include_deleted_rows=True, scan_in_order=True
            ).to_table()["_rowid"]
        return np.flatnonzero(ids.is_null().to_numpy(zero_copy_only=False)).astype(np.uint32)

    def take_addresses(self, addresses: Addresses, columns: Sequence[str]) -> pa.Table:
        """Rows by address (fragment in the upper 32 bits, offset in the lower), in the order asked for."""
        with self._reading():
            if len(addresses) == 0:
                return self._dataset.schema.empty_table().select(list(columns))
            return self._take(addresses, list(columns))

    def _take(self, addresses: Addresses, columns: list[str]) -> pa.Table:
        order = np.argsort(addresses, kind="stable")
        parts = []
        owners = (addresses >> np.uint64(32))[order]
        offsets = (addresses & np.uint64(0xFFFFFFFF))[order]
        starts = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
        for start, end in zip(starts, np.r_[starts[1:], len(owners)], strict=True):
            fragment = self._dataset.get_fragment(int(owners[start]))
            chosen = offsets[start:end]
            info = self._fragment_infos[int(owners[start])]
            if len(chosen) * info.deleted_rows > COUNTED_MAX:
                parts.append(self._seek(info.id, chosen, columns))
                continue
            if info.deleted_rows:
                # Lance counts live rows here, an address counts all of them.
                chosen = chosen - np.searchsorted(self.deleted_offsets(info), chosen).astype(np.uint64)
            parts.extend(take_offsets(fragment, chosen.tolist(), columns))
        found = pa.concat_tables(parts)
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return wide.take_rows(found, back)

    def _seek(self, fragment_id: int, offsets: Addresses, columns: list[str]) -> pa.Table:
        """Rows of one fragment by ascending offsets, at a cost that does not grow with the rows deleted there."""
        is_first = np.r_[True, offsets[1:] != offsets[:-1]]
        addresses = offsets[is_first] | np.uint64(fragment_id << 32)
        found = []
        for start in range(0, len(addresses), SOUGHT_ROWS):
            sought = ", ".join(map(str, addresses[start : start + SOUGHT_ROWS].tolist()))
            filter = f"_rowaddr IN ({sought})"
            found.append(
                self.scan(columns, filter, with_row_address=True, fragment_ids=[fragment_id], scan_in_order=True)
            )
        rows = pa.concat_tables(found)
        if not np.array_equal(rows.column("_rowaddr").to_numpy(), addresses):
            raise InternalError(f"rows of fragment {fragment_id} of {self!r} were asked for that it has not")
        rows = rows.select(columns)
        return rows if is_first.all() else wide.take_rows(rows, np.cumsum(is_first) - 1)

    def read_blob(self, column: str, row_id: int, offset: int, length: int) -> bytes:
        """Bytes of one managed blob, by the stable row id; only the wanted range is read."""
        with self._reading("reading a blob of"):
            (blob,) = self._dataset.take_blobs(column, ids=[row_id])
            with blob:
                blob.seek(offset)
                return bytes(blob.read(length))

    def row_ids(self, addresses: Addresses) -> Addresses:
        """The stable row ids of addressed rows, in the order asked for."""
        found = np.empty(len(addresses), dtype=np.uint64)
        owners = (addresses >> np.uint64(32)).astype(np.int64)
        offsets = (addresses & np.uint64(0xFFFFFFFF)).astype(np.int64)
        with self._reading():
            for owner in np.unique(owners).tolist():
                mine = owners == owner
                found[mine] = self._fragment_row_ids(owner)[offsets[mine]]
        return found

    def _fragment_row_ids(self, fragment_id: int) -> Addresses:
        """The row ids of a whole fragment, deleted rows included."""
        found = self._row_ids.get(fragment_id)
        if found is None:
            meta = self._dataset.get_fragment(fragment_id).metadata.row_id_meta
            found = (
                RowIdSequence.from_inline_metadata(meta).to_pyarrow().to_numpy(zero_copy_only=False).astype(np.uint64)
            )
            self._row_ids[fragment_id] = found
        return found

    def indexes(self) -> tuple[IndexInfo, ...]:
        """The indexes of this version, one entry per segment."""
        with self._reading("reading the indexes of"):
            return tuple(
                IndexInfo(
                    name=str(index.name),
                    kind=str(index.index_type),
                    columns=tuple(index.field_names),
                    fragment_ids=frozenset(int(i) for i in segment.fragment_ids),
                    uuid=str(segment.uuid),
                    built_at=int(segment.dataset_version_at_last_update),
                )
                for index in self._dataset.describe_indices()
                for segment in index.segments
            )

    def check_indexes(self) -> None:
        """Read every index through, so that one that is damaged says so.

        Raises:
            StorageError: one cannot be read; its name is in the message.
        """
        for name in sorted({index.name for index in self.indexes()}):
            with self._reading(f"reading the index {name} of"):
                self._dataset.prewarm_index(name)


def _deletions_key(files: tuple[str, ...], deletion_file: str | None) -> tuple[object, ...]:
    """A deletion file is written once, as data files are, so together they name these rows in every version."""
    return (DELETED, "as stored", files, deletion_file)
