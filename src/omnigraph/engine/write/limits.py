"""How large one write may be, for those who want to bound it."""

from __future__ import annotations

import pyarrow as pa
from msgspec import Struct

from omnigraph.errors import LimitError
from omnigraph.ids import TableKey


class WriteLimits(Struct, frozen=True):
    """How much one write may put into one table, where that is bounded; replacing a whole table is exempt.

    Nothing is bounded unless somebody asks for it: the strict commit has no key filter that could fill up, so memory
    alone limits the number of keys.
    """

    rows_max: int | None = None
    bytes_max: int | None = None

    def check(self, table_key: TableKey, rows: pa.Table, *, replaces_table: bool) -> None:
        """Refuse more than is allowed.

        Raises:
            LimitError: which bound of which table; nothing changed.
        """
        if replaces_table:
            return
        if self.rows_max is not None and rows.num_rows > self.rows_max:
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
                " commit — split it, or load it with overwrite",
                resource=f"bytes of {table_key}",
                limit=self.bytes_max,
                actual=int(rows.nbytes),
            )
