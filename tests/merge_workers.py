"""Workers of a merge inside this process: what is handed to them is pickled, and groups are small.

They show that a merge decided in groups by others is the merge decided here, without an engine that takes seconds to
start.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.operations.bulk import BulkPlace
from omnigraph.engine.operations.export_files import ExportResult, FileExport
from omnigraph.engine.operations.merge.progress import Watch
from omnigraph.engine.operations.merge.workers import DECIDED, READ, Act
from omnigraph.engine.operations.outcomes import LoadResult
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import ExecutionError
from omnigraph.ids import Moment


class InProcess:
    """A `BulkEngine` for merges alone."""

    is_installed = True
    is_running = True

    def __init__(self) -> None:
        self.groups = 0
        self.acts: set[str] = set()

    def merge_workers(self, watch: Watch) -> InProcess:
        """These workers."""
        watch.say("workers are ready")
        return self

    def by_id(self, read: Callable[[int], Iterator[pa.RecordBatch]], tasks: int, groups: int, act: Act) -> pa.Table:
        """Read, gather by a digest of the id, and act."""
        elsewhere = pickle.loads(pickle.dumps(read))
        rows = pa.Table.from_batches([batch for task in range(tasks) for batch in elsewhere(task)], READ)
        numbers = [zlib.crc32(each.encode()) % groups for each in rows.column("id").to_pylist()]
        return self.by_group(rows.append_column("group", pa.array(numbers, pa.int64())), act, DECIDED)

    def by_group(self, rows: pa.Table, act: Act, schema: pa.Schema) -> pa.Table:
        """Act on each group, the last one first, because nobody promises an order."""
        self.acts.add(getattr(act, "__name__", ""))
        numbers = rows.column("group").to_numpy()
        found = [schema.empty_table()]
        for number in np.unique(numbers)[::-1]:
            self.groups += 1
            found.append(pickle.loads(pickle.dumps(act))(rows.filter(pa.array(numbers == number))))
        return pa.concat_tables(found)

    def load(self, context: GraphContext, source: Any, **how: Any) -> LoadResult:
        """Not what these workers are for."""
        raise ExecutionError("these workers only merge")

    def export(self, export: FileExport, place: BulkPlace, progress: Callable[[Any], None] | None) -> ExportResult:
        """Not what these workers are for."""
        raise ExecutionError("these workers only merge")

    def frames(self, context: GraphContext, session: Any, *, branch: str, at: Moment | None) -> Any:
        """Not what these workers are for."""
        raise ExecutionError("these workers only merge")
