"""An upsert of any size as one commit per table.

Staged rows are joined with the published ids. A staged fragment none of whose rows exists is taken as it is; one all of
whose rows exist takes over their row ids; only a mixed one is rewritten, as changed rows and as new rows. Deletion
files for the superseded rows are written by executors too, one task per published fragment, so the driver handles
descriptions of fragments and never a value per row.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from omnigraph.catalog import wide
from omnigraph.engine.ingest.stage import Run, Target
from omnigraph.engine.ingest.staged import OFFSET_BITS, POSITION, ROW_ADDRESS, ROW_ID, Staged
from omnigraph.engine.storage.fragments import (
    delete_from_fragment,
    fragment_rows,
    keep_row_ids,
    read_fragment,
    read_fragment_rows,
)
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.staged import write_fragment_files
from omnigraph.pipeline.frames import staged_frame, table_frame
from omnigraph.pipeline.tasks import task_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TEXT_DDL = "kind string, fragment long, payload string, rows long"
_TEXT = pa.schema([("kind", pa.string()), ("fragment", pa.int64()), ("payload", pa.string()), ("rows", pa.int64())])

PAIRS_MAX = 8_000_000
"""Rows of either side that are looked up in memory; beyond that Spark joins them."""

Act = Callable[[int, pa.Table], list[tuple[Any, ...]]]
Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Prepared(Struct, frozen=True):
    """One table's upsert, ready to be staged: fragments to add, fragments with new deletions, fragments left empty.

    `marks` stand for `changed` and `emptied` where the deletions are written elsewhere: per published fragment a bit
    for each row.
    """

    added: tuple[str, ...]
    changed: tuple[str, ...] = ()
    emptied: tuple[int, ...] = ()
    marks: tuple[tuple[int, bytes], ...] = ()
    rows_removed: int = 0


def prepare_merge(session: SparkSession, staged: Staged, *, only_mark: bool = False) -> Prepared:
    """Find what the staged rows replace and prepare it; reads the published table's ids once.

    With `only_mark` no deletion is written: the table the rows go to does not exist yet.
    """
    delete = _mark if only_mark else _delete
    texts = [fragment.text for fragment in staged.fragments]
    if not staged.committed_rows or not staged.ids_given or not texts:
        return Prepared(tuple(texts))
    if max(staged.rows, staged.committed_rows) <= PAIRS_MAX:
        known = _known_pairs(staged)
        rewritten = _each_fragment(session, known, POSITION, _rewrite(staged))
        deleted = _each_fragment(session, known, ROW_ADDRESS, delete(staged))
    else:
        pairs = _pairs(session, staged).persist()
        try:
            rewritten = _by_fragment(pairs, POSITION, _rewrite(staged)).collect()
            deleted = _by_fragment(pairs, ROW_ADDRESS, delete(staged)).collect()
        finally:
            pairs.unpersist()
    untouched = set(range(len(texts))) - {row["fragment"] for row in rewritten}
    return Prepared(
        added=(
            *(row["payload"] for row in rewritten if row["payload"]),
            *(texts[number] for number in sorted(untouched)),
        ),
        changed=tuple(row["payload"] for row in deleted if row["kind"] == "changed"),
        emptied=tuple(row["fragment"] for row in deleted if row["kind"] == "emptied"),
        marks=tuple((row["fragment"], base64.b64decode(row["payload"])) for row in deleted if row["kind"] == "marked"),
        rows_removed=sum(row["rows"] for row in deleted),
    )


def drop_superseded(session: SparkSession, staged: Staged) -> Staged:
    """Keep the last of several staged rows of one id, where the mode says that the last counts."""
    from pyspark.sql import functions as F

    rows = staged_frame(session, staged.fragments, staged.target.uri, staged.target.schema, ["id"])
    last = rows.groupBy("id").agg(F.max(POSITION).alias("last"), F.count(F.lit(1)).alias("times")).where("times > 1")
    if not last.take(1):
        return staged
    earlier = rows.join(last, "id").where(F.col(POSITION) < F.col("last")).select(POSITION)
    dropped = _by_fragment(earlier, POSITION, _drop(staged)).collect()
    fragments = list(staged.fragments)
    for row in dropped:
        before = fragments[row["fragment"]]
        fragments[row["fragment"]] = replace(
            before, text=row["payload"], rows=row["rows"], runs=(Run(-1, 0, row["rows"]),)
        )
    return replace(staged, fragments=tuple(fragment for fragment in fragments if fragment.rows))


def _pairs(session: SparkSession, staged: Staged) -> DataFrame:
    """Position, address and row id of every staged row that replaces a published one."""
    incoming = staged_frame(session, staged.fragments, staged.target.uri, staged.target.schema, ["id"])
    published = table_frame(session, staged.committed, ["id"], with_address=True)
    return incoming.join(published, "id").select(POSITION, ROW_ADDRESS, ROW_ID)


def _known_pairs(staged: Staged) -> pa.Table:
    """The same, looked up here: where the ids of both sides fit into memory no shuffle is needed."""
    published = staged.committed.open().scan(["id"], with_row_id=True, with_row_address=True)
    incoming, positions = [], []
    for number, fragment in enumerate(staged.fragments):
        start = number << OFFSET_BITS
        positions.append(np.arange(start, start + fragment.rows, dtype=np.int64))
        incoming += [batch.column(0) for batch in read_fragment(staged.target.uri, fragment.text, ["id"])]
    # One call, since each builds the table of published ids anew.
    places = pc.index_in(pa.chunked_array(incoming), value_set=wide.one_array(published["id"]))
    at, position = np.asarray(pc.fill_null(places, -1), dtype=np.int64), np.concatenate(positions)
    found = at >= 0
    rows = published.take(pa.array(at[found]))
    return pa.table(
        {
            POSITION: pa.array(position[found]),
            ROW_ADDRESS: rows[ROW_ADDRESS].cast(pa.int64()),
            ROW_ID: rows[ROW_ID].cast(pa.int64()),
        }
    )


def _each_fragment(session: SparkSession, pairs: pa.Table, column: str, act: Act) -> list[Any]:
    """Act once per fragment, in tasks that carry their part of the pairs with them."""
    owners = np.asarray(pairs[column], dtype=np.int64) >> OFFSET_BITS
    numbers = np.unique(owners).tolist()
    if not numbers:
        return []
    parts = [pairs.filter(pa.array(owners == number)).combine_chunks() for number in numbers]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from _texts(act(numbers[task], parts[task])).to_batches()

    reports: list[Any] = task_numbers(session, len(numbers)).mapInArrow(run, _TEXT_DDL).collect()
    return reports


def _by_fragment(pairs: DataFrame, column: str, act: Act) -> DataFrame:
    """Act once per fragment on all rows that concern it."""
    from pyspark.sql import functions as F

    def run(rows: pa.Table) -> pa.Table:
        return _texts(act(rows.column("group")[0].as_py(), rows))

    grouped = pairs.withColumn("group", F.shiftright(F.col(column), OFFSET_BITS)).groupBy("group")
    return grouped.applyInArrow(run, _TEXT_DDL)


def _texts(found: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*found, strict=True)) if found else [() for _ in _TEXT]
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, _TEXT, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_TEXT)


def _rewrite(staged: Staged) -> Act:
    texts = [fragment.text for fragment in staged.fragments]

    def act(number: int, pairs: pa.Table) -> list[tuple[Any, ...]]:
        offsets = _offsets(pairs, POSITION)
        order = np.argsort(offsets)
        row_ids = np.asarray(pairs.column(ROW_ID), dtype=np.int64)[order].astype(np.uint64)
        text, rows = texts[number], fragment_rows(texts[number])
        if len(offsets) == rows:
            return [("kept", number, keep_row_ids(text, row_ids), rows)]
        replaced = np.zeros(rows, dtype=np.bool_)
        replaced[offsets] = True
        [changed] = write_chosen(staged.target, text, replaced)
        [fresh] = write_chosen(staged.target, text, ~replaced)
        kept = keep_row_ids(changed, row_ids)
        return [("split", number, kept, len(offsets)), ("fresh", number, fresh, rows - len(offsets))]

    return act


def _drop(staged: Staged) -> Act:
    texts = [fragment.text for fragment in staged.fragments]

    def act(number: int, earlier: pa.Table) -> list[tuple[Any, ...]]:
        rows = fragment_rows(texts[number])
        stays = np.ones(rows, dtype=np.bool_)
        stays[_offsets(earlier, POSITION)] = False
        written = write_chosen(staged.target, texts[number], stays) if stays.any() else [texts[number]]
        return [("dropped", number, written[0], int(stays.sum()))]

    return act


def _delete(staged: Staged) -> Act:
    committed = staged.committed

    def act(number: int, pairs: pa.Table) -> list[tuple[Any, ...]]:
        offsets = np.sort(_offsets(pairs, ROW_ADDRESS))
        text = delete_from_fragment(committed.open(), number, offsets.astype(np.uint64))
        return [("emptied" if text is None else "changed", number, text or "", len(offsets))]

    return act


def _mark(_: Staged) -> Act:
    def act(number: int, pairs: pa.Table) -> list[tuple[Any, ...]]:
        offsets = _offsets(pairs, ROW_ADDRESS)
        rows = np.zeros(int(offsets.max()) + 1, dtype=np.bool_)
        rows[offsets] = True
        return [("marked", number, base64.b64encode(np.packbits(rows).tobytes()).decode("ascii"), len(offsets))]

    return act


def delete_marked(base: TableHandle, marks: Sequence[tuple[int, bytes]]) -> tuple[list[str], list[int]]:
    """Write the deletions that were only marked: the changed fragments, and those left empty."""
    changed: list[str] = []
    emptied: list[int] = []
    for number, bits in marks:
        offsets = np.flatnonzero(np.unpackbits(np.frombuffer(bits, dtype=np.uint8)))
        text = delete_from_fragment(base, number, offsets.astype(np.uint64))
        if text is None:
            emptied.append(number)
        else:
            changed.append(text)
    return changed, emptied


def _offsets(rows: pa.Table, column: str) -> Offsets:
    return np.asarray(rows.column(column), dtype=np.int64) & ((1 << OFFSET_BITS) - 1)


def write_chosen(target: Target, text: str, chosen: Mask) -> Sequence[str]:
    """The chosen rows of a staged fragment as a fragment of their own, a batch at a time."""

    def batches() -> Iterator[pa.RecordBatch]:
        start = 0
        for batch in read_fragment_rows(target.uri, text, target.schema):
            picked = batch.filter(pa.array(chosen[start : start + batch.num_rows]))
            start += batch.num_rows
            if picked.num_rows:
                yield picked

    rows = max(int(chosen.sum()), 1)
    written = write_fragment_files(target.uri, batches(), target.schema, rows_per_file=rows)
    return [each for each in written if fragment_rows(each)]
