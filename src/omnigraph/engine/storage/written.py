"""Rows this process wrote a moment ago, so that reading them back does not go to the store.

The first read after a small commit wants exactly the rows that were just handed to the writer. A data file's name is
unique for all time and its content never changes, so what was written under a name may stand for the file; columns are
kept by field number, which outlives a rename and is never given to another column.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping

import pyarrow as pa

ROWS_MAX = 2048
"""Larger fragments are read from the store, where reading costs little beside their size."""
TABLE_BYTES_MAX = 1 << 20
BYTES_MAX = 32 << 20
COLUMN_BYTES = 512
"""What a column takes beside its values, which for a row or two is most of it."""


class WrittenRows:
    """The columns of small data files, bounded by bytes; the oldest go first."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._files: OrderedDict[str, tuple[pa.Table, Mapping[str, int], int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def keep(self, file: str, rows: pa.Table, field_ids: Mapping[str, int]) -> None:
        """Remember what a data file holds, unless it is large or rests on memory that is."""
        size = int(rows.get_total_buffer_size())
        if rows.num_rows > ROWS_MAX or size > TABLE_BYTES_MAX:
            return
        size += COLUMN_BYTES * (rows.num_columns + 1)
        with self._lock:
            if file in self._files:
                return
            self._files[file] = (rows, field_ids, size)
            self._bytes += size
            while self._bytes > self._bytes_max:
                _, (_, _, freed) = self._files.popitem(last=False)
                self._bytes -= freed

    def forget(self, files: Iterable[str]) -> None:
        """Drop what was kept of data files that have been replaced."""
        with self._lock:
            for file in files:
                found = self._files.pop(file, None)
                if found is not None:
                    self._bytes -= found[2]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._files.clear()
            self._bytes = 0

    def use(self) -> tuple[int, int]:
        """How many files are kept, and their bytes."""
        with self._lock:
            return len(self._files), self._bytes

    def find(self, file: str, wanted: Mapping[str, int], schema: pa.Schema) -> pa.Table | None:
        """The wanted columns of a data file, in the types of `schema`; None when one of them is not known so."""
        entry = self._files.get(file)
        if entry is None:
            return None
        rows, field_ids, _ = entry
        held = {field_ids[name]: place for place, name in enumerate(rows.column_names) if name in field_ids}
        columns, fields = [], []
        for name, field_id in wanted.items():
            place, field = held.get(field_id), schema.field(name)
            if place is None or rows.column(place).type != field.type:
                return None
            columns.append(rows.column(place))
            fields.append(field)
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))


WRITTEN = WrittenRows()
"""The one memory of the process; names of data files never repeat, so all graphs may share it."""
