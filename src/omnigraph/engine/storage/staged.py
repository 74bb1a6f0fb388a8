"""Changes that exist but cannot be seen: the first half of every write.

Staging writes data and deletion files and describes one transaction; the table's head does not move. All row changes
become one `Update` that also names the *fence fragment*, the table's smallest fragment, unchanged. Lance refuses two
updates that name the same fragment, so of any number of writers that start from one version exactly one commits,
whatever rows they touch: this is the key fence. A table without fragments has nothing to name, and is written by
`Overwrite`, which is strict by itself.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import lance
import numpy as np
import pyarrow as pa
from lance import LanceOperation, Transaction
from lance.fragment import FragmentMetadata, RowIdSequence, write_fragments
from msgspec import Struct

from omnigraph.engine.storage.folding import Folded, fold_small
from omnigraph.engine.storage.handle import Addresses, TableHandle
from omnigraph.engine.storage.lance_internals.files import data_file, file_name
from omnigraph.engine.storage.sorted_unique import sorted_unique
from omnigraph.engine.storage.steps import step
from omnigraph.engine.storage.translate import translated
from omnigraph.engine.storage.written import WRITTEN

Rows: TypeAlias = pa.Table | pa.RecordBatchReader
Fold: TypeAlias = Callable[[TableHandle, Collection[int]], Folded]
"""Which fragments of a version a write folds, given those it touches."""

ROWS_PER_FILE = 1_048_576


class StagedWrite(Struct, frozen=True, eq=False):
    """One uncommitted transaction on one table.

    `files` are the new files below the table's location, for syncing.
    """

    base_version: int
    operation: LanceOperation.BaseOperation
    rows_added: int
    rows_removed: int
    files: tuple[str, ...] = ()
    keeps_rows: bool = False
    """True for an index build: it may be committed on top of a later version of its own writer."""
    touched: frozenset[int] | None = None
    """The fragments of the base that are changed or gone afterwards; None when that may be any of them."""
    has_older_files: bool = False
    """True when some of the files were written before the write that staged this began."""
    taken: tuple[str, ...] = ()
    """Data files, below the root, that it refers to where they are although its base has not got them."""
    synced: tuple[str, ...] | None = None
    """The files that were synced when they had been written, as `files` names them; None when none were."""
    strict: bool = True
    """True when Lance itself refuses the operation if the base is not the head; otherwise it may land further on."""

    @property
    def bytes_added(self) -> int:
        """The size of the data files it adds."""
        names = {name.rpartition("/")[2] for name in self.files}
        added = [*getattr(self.operation, "fragments", ()), *getattr(self.operation, "new_fragments", ())]
        sizes = {file_name(file): file.file_size_bytes or 0 for fragment in added for file in fragment.files}
        return sum(size for path, size in sizes.items() if path.rpartition("/")[2] in names)

    @property
    def row_delta(self) -> int:
        """How the number of live rows changes."""
        return self.rows_added - self.rows_removed


def write_fragment_files(
    table_uri: str, rows: Rows | Iterable[pa.RecordBatch], schema: pa.Schema, *, rows_per_file: int | None = None
) -> list[str]:
    """Write rows as fragments nobody references yet; returns their metadata as JSON, one text per fragment.

    Runs anywhere, also in a Spark executor: the texts travel to whoever holds the transaction.
    """
    with translated(f"writing rows below {table_uri}"), step("write_fragments", table_uri):
        reader = rows if isinstance(rows, pa.Table | pa.RecordBatchReader) else None
        if reader is None:
            reader = pa.RecordBatchReader.from_batches(schema, rows)
        written = _handed(
            reader,
            table_uri,
            schema=schema,
            mode="append",
            max_rows_per_file=ROWS_PER_FILE if rows_per_file is None else rows_per_file,
            enable_stable_row_ids=True,
            allow_external_blob_outside_bases=True,
        )
    return [json.dumps(fragment.to_json()) for fragment in written]


def write_rows(base: TableHandle, rows: Rows) -> list[str]:
    """The same for the table of an open version, whose columns keep their numbers."""
    return [json.dumps(fragment.to_json()) for fragment in _write(base, rows, read_soon=False)]


def _write(base: TableHandle, rows: Rows, *, read_soon: bool = True) -> list[FragmentMetadata]:
    with translated(f"writing rows of {base.path}"), step("write_fragments", base.path):
        written = _handed(
            rows,
            base.dataset,
            mode="append",
            max_rows_per_file=ROWS_PER_FILE,
            allow_external_blob_outside_bases=True,
        )
    if read_soon and isinstance(rows, pa.Table) and len(written) == 1 and len(written[0].files) == 1:
        WRITTEN.keep(file_name(written[0].files[0]), rows, base.field_ids)
    return [fragment for fragment in written if fragment.physical_rows]


def _handed(rows: Rows, place: lance.LanceDataset | str, **options: Any) -> list[FragmentMetadata]:
    """Write what Lance is handed; an error that stops a stream goes on as itself, for Lance keeps only its words."""
    written: list[FragmentMetadata]
    failures: list[BaseException] = []

    def watched() -> Iterator[pa.RecordBatch]:
        try:
            yield from rows
        except GeneratorExit:
            raise  # Lance wants no more of it.
        except BaseException as failure:
            failures.append(failure)
            raise

    stream = rows if isinstance(rows, pa.Table) else pa.RecordBatchReader.from_batches(rows.schema, watched())
    try:
        written = write_fragments(stream, place, **options)
    except BaseException:
        if failures:
            raise failures[0] from None
        raise
    return written


def _distinct(*addresses: Addresses | None) -> Addresses:
    """All of these addresses, ascending and each once."""
    given = [some for some in addresses if some is not None and len(some)]
    if not given:
        return np.empty(0, dtype=np.uint64)
    return sorted_unique(given[0] if len(given) == 1 else np.concatenate(given))


def _group_by_fragment(addresses: Addresses) -> list[tuple[int, list[int]]]:
    """Distinct row addresses, ascending, as offsets per fragment."""
    owners = addresses >> np.uint64(32)
    offsets = addresses & np.uint64(0xFFFFFFFF)
    cuts = [0, *(np.flatnonzero(owners[1:] != owners[:-1]) + 1).tolist(), len(addresses)]
    return [(int(owners[start]), offsets[start:end].tolist()) for start, end in itertools.pairwise(cuts)]


def _delete_rows(base: TableHandle, addresses: Addresses) -> tuple[list[FragmentMetadata], list[int]]:
    """Write deletion files for distinct rows: the changed fragments, and the ids of those left empty."""
    changed: list[FragmentMetadata] = []
    emptied: list[int] = []
    if not len(addresses):
        return changed, emptied
    with translated(f"marking deleted rows of {base.path}"):
        for fragment_id, offsets in _group_by_fragment(addresses):
            with step("delete_rows", base.path):
                after = base.dataset.get_fragment(fragment_id).delete_rows(offsets)
            if after is None:
                emptied.append(fragment_id)
            else:
                changed.append(after)
                base.remember_deletions(after, offsets)
    return changed, emptied


def _carry_row_ids(fragments: Sequence[FragmentMetadata], row_ids: Addresses) -> None:
    """Give rewritten rows the row ids they had, in order."""
    start = 0
    for fragment in fragments:
        chunk = row_ids[start : start + fragment.physical_rows]
        fragment.row_id_meta = RowIdSequence(chunk.tolist()).to_inline_metadata()
        start += fragment.physical_rows


def new_files(written: Iterable[FragmentMetadata], changed: Iterable[FragmentMetadata] = ()) -> tuple[str, ...]:
    """What a commit must sync: data files of new fragments and deletion files of changed ones, below the table."""
    data = [data_file(file_name(file)) for fragment in written for file in fragment.files if file.base_id is None]
    deletions = [
        fragment.deletion_file.path(fragment.id)
        for fragment in changed
        if fragment.deletion_file is not None and fragment.deletion_file.base_id is None
    ]
    return (*data, *deletions)


def _overwrite(base: TableHandle, added: list[FragmentMetadata], rows_removed: int) -> StagedWrite:
    # The schema is given with its field ids: fragments were written with them, and numbering the columns anew would
    # detach every column behind one that was dropped.
    operation = LanceOperation.Overwrite(base.dataset.lance_schema, added)
    return StagedWrite(base.version, operation, _row_count(added), rows_removed, new_files(added))


def stage_update(
    base: TableHandle,
    *,
    added: list[FragmentMetadata],
    changed: list[FragmentMetadata],
    emptied: list[int],
    rows_added: int,
    rows_removed: int,
    fold: Fold = fold_small,
) -> StagedWrite:
    """One operation for everything, strict by the fence fragment or, on an empty table, by `Overwrite`.

    `fold` gives fragments that hold the rows of others; by default many small ones are folded.
    """
    existing = base.fragments()
    if not existing:
        return _overwrite(base, added, 0)
    touched = {fragment.id for fragment in changed} | set(emptied)
    moved = fold(base, touched)
    # Any fragment will do that all writers on this version choose alike; a transaction carries the version of every
    # row of it, so the smallest one keeps transactions small.
    fence = min(existing, key=lambda fragment: (fragment.physical_rows, fragment.id)).id
    fences = [] if fence in touched | moved.replaced else [base.dataset.get_fragment(fence).metadata]
    operation = LanceOperation.Update(
        [*emptied, *moved.removed],
        [*changed, *moved.kept, *fences],
        added,
        # Lance takes new fragments of an update for rewritten rows and counts them as covered by every index whose
        # fields are not named here, which would hide new rows from full-text and vector search. Naming all fields
        # leaves new fragments uncovered: they are scanned until the next index build.
        fields_for_preserving_frag_bitmap=list(range(base.dataset.max_field_id + 1)),
        update_mode="rewrite_rows",
    )
    files = new_files([*moved.kept, *added], changed)
    return StagedWrite(
        base.version,
        operation,
        rows_added,
        rows_removed,
        files,
        touched=frozenset(touched | moved.replaced),
        has_older_files=moved.ahead,
    )


def _row_count(fragments: Iterable[FragmentMetadata]) -> int:
    return sum(int(fragment.physical_rows) for fragment in fragments)


def stage_changes(
    base: TableHandle,
    *,
    new_rows: Rows | None = None,
    updated_rows: pa.Table | None = None,
    updated_addresses: Addresses | None = None,
    updated_row_ids: Addresses | None = None,
    deleted_addresses: Addresses | None = None,
    fold: Fold = fold_small,
    read_soon: bool = True,
) -> StagedWrite | None:
    """Stage inserts, updates and deletes of one table as one transaction; None when there is nothing to do.

    An update is given as the new row, the address of the row it supersedes and that row's id, in the same order; it
    keeps the row id. Addresses belong to the version of `base`. `read_soon` is as for `stage_overwrite`.
    """
    gone = _distinct(updated_addresses, deleted_addresses)
    changed, emptied = _delete_rows(base, gone)
    added: list[FragmentMetadata] = []
    if updated_rows is not None and updated_rows.num_rows:
        rewritten = _write(base, updated_rows)
        if updated_row_ids is not None:
            _carry_row_ids(rewritten, updated_row_ids)
        added.extend(rewritten)
    if new_rows is not None and not (isinstance(new_rows, pa.Table) and not new_rows.num_rows):
        added.extend(_write(base, new_rows, read_soon=read_soon))
    if not added and not changed and not emptied:
        return None
    return stage_update(
        base,
        added=added,
        changed=changed,
        emptied=emptied,
        rows_added=_row_count(added),
        rows_removed=len(gone),
        fold=fold,
    )


def stage_fragments(
    base: TableHandle,
    fragments: Sequence[str],
    *,
    overwrite: bool = False,
    deleted_addresses: Addresses | None = None,
) -> StagedWrite | None:
    """Stage fragments that others wrote with `write_fragment_files`; None when there is nothing to do.

    `deleted_addresses` are the rows they supersede or remove.
    """
    added = [FragmentMetadata.from_json(text) for text in fragments]
    added = [fragment for fragment in added if fragment.physical_rows]
    if overwrite:
        return _overwrite(base, added, sum(fragment.live_rows for fragment in base.fragments()))
    gone = _distinct(deleted_addresses)
    changed, emptied = _delete_rows(base, gone)
    if not added and not changed and not emptied:
        return None
    return stage_update(
        base,
        added=added,
        changed=changed,
        emptied=emptied,
        rows_added=_row_count(added),
        rows_removed=len(gone),
    )


def stage_overwrite(
    base: TableHandle, rows: Rows | None, *, read_soon: bool = True, rows_removed: int | None = None
) -> StagedWrite:
    """Stage the replacement of the whole content; no rows at all is a replacement like any other.

    `read_soon` keeps a few rows in memory for whoever reads them first. Who knows how many rows are replaced says so
    in `rows_removed`; otherwise they are counted.
    """
    added: list[FragmentMetadata] = (
        []
        if rows is None or (isinstance(rows, pa.Table) and not rows.num_rows)
        else _write(base, rows, read_soon=read_soon)
    )
    if rows_removed is None:
        rows_removed = sum(fragment.live_rows for fragment in base.fragments())
    return _overwrite(base, added, rows_removed)


def stage_touch(base: TableHandle) -> StagedWrite:
    """Stage a new version without any change, strict like every other: it takes the place after its base."""
    return stage_update(base, added=[], changed=[], emptied=[], rows_added=0, rows_removed=0)


def stage_config(base: TableHandle, config: Mapping[str, str | None]) -> StagedWrite:
    """Stage other settings of a table, None removing one; the rows stay, and so do those others commit meanwhile."""
    operation = LanceOperation.UpdateConfig(config_updates=LanceOperation.UpdateMap(dict(config)))
    return StagedWrite(base.version, operation, 0, 0, strict=False)


def as_transaction(staged: StagedWrite, properties: dict[str, str]) -> Transaction:
    """The Lance transaction of a staged write."""
    return lance.Transaction(staged.base_version, staged.operation, transaction_properties=properties)
