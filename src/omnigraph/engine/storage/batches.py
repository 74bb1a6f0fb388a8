"""Reading from Lance in batches that it can make.

A batch of Lance's is one array per column, and an array of texts or lists ends at 2 GiB: a read whose batches would be
larger fails. How large rows are when they are decoded is known to nobody before, so a read that fails for this reason
is made again with fewer rows to a batch, down to one; rows that were handed on already are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import lance
import pyarrow as pa
from lance.fragment import LanceFragment

from omnigraph.engine.storage.translate import FOREIGN, is_overflow

DEFAULT_ROWS = 8_192
"""Rows of a batch where the caller names no number, which is also Lance's own choice."""
FEWER = 16
"""By how much batches shrink after one that was too large."""

T = TypeVar("T")
Scan = Callable[[int], lance.LanceScanner]
"""Makes a scan with so many rows to a batch."""


def read_all(scan: Scan, rows: int | None = None) -> pa.Table:
    """Everything a scan gives, as a table."""
    return retried(lambda batch: scan(batch).to_table(), rows)


def read_stream(scan: Scan, rows: int | None = None) -> pa.RecordBatchReader:
    """Everything a scan gives, as a stream."""
    # Asking a scan for its schema plans it, and reading from it would plan it once more.
    first = scan(rows or DEFAULT_ROWS).to_reader()
    begun = [first]
    found = stream(lambda batch: begun.pop() if begun else scan(batch).to_reader(), rows)
    return pa.RecordBatchReader.from_batches(first.schema, found)


def stream(read: Callable[[int], Iterable[pa.RecordBatch]], rows: int | None = None) -> Iterator[pa.RecordBatch]:
    """The batches of a read that gives its rows in the same order every time."""
    batch = rows or DEFAULT_ROWS
    given = skip = 0
    while True:
        try:
            for found in read(batch):
                kept = found.slice(min(skip, found.num_rows))
                skip -= found.num_rows - kept.num_rows
                if kept.num_rows:
                    given += kept.num_rows
                    yield kept
            return
        except FOREIGN as exc:
            batch = _fewer(batch, exc)
        skip = given


def take_offsets(fragment: LanceFragment, offsets: Sequence[int], columns: list[str]) -> list[pa.Table]:
    """Rows of a fragment by offset, in as many tables as it takes."""
    try:
        return [fragment.take(list(offsets), columns=columns)]
    except FOREIGN as exc:
        half = len(offsets) // 2
        if not half or not is_overflow(exc):
            raise
    return take_offsets(fragment, offsets[:half], columns) + take_offsets(fragment, offsets[half:], columns)


def retried(run: Callable[[int], T], rows: int | None = None) -> T:
    """What `run` makes with so many rows to a batch, or with as many fewer as Lance needs."""
    batch = rows or DEFAULT_ROWS
    while True:
        try:
            return run(batch)
        except FOREIGN as exc:
            batch = _fewer(batch, exc)


def _fewer(rows: int, exc: Exception) -> int:
    """The next number of rows to try.

    Raises:
        Exception: what was raised, when it is no matter of size or a single row is too large.
    """
    if rows == 1 or not is_overflow(exc):
        raise exc
    return max(rows // FEWER, 1)
