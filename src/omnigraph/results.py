"""What a read returns: rows that convert to Arrow, pandas or plain Python, whole or as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.boundary import leaving, verb
from omnigraph.plan.results import rows_to_json
from omnigraph.shown import Table

if TYPE_CHECKING:
    import pandas
    import polars

    from omnigraph.engine.read import ReadResult
    from omnigraph.engine.read.context import Step

SHOWN_ROWS = 10


class TableRows:
    """Rows that are here as one table: a server sent them, or they came from another process."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.steps: list[Step] = []

    @property
    def schema(self) -> pa.Schema:
        """Column names with their types."""
        return self._table.schema

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def to_table(self) -> pa.Table:
        """All rows."""
        return self._table

    def to_batches(self, rows_max: int = 65_536) -> Iterator[pa.RecordBatch]:
        """The rows in pieces."""
        yield from self._table.to_batches(max_chunksize=rows_max)

    def to_json(self) -> Iterator[dict[str, Any]]:
        """The rows as JSON-ready values."""
        for batch in self.to_batches():
            yield from rows_to_json(batch)


class QueryResult:
    """The rows of one query. Columns are fetched when first asked for; `to_batches` never holds them all.

    Iterating gives dictionaries with JSON-ready values: dates as text, vectors as lists. A result that is pickled
    or copied takes all its rows along, but not its `steps`.
    """

    def __init__(self, name: str, rows: ReadResult | TableRows, commit_id: str | None = None) -> None:
        self.query_name = name
        self.commit_id = commit_id
        """The commit whose state was read; a write may be made conditional on it."""
        self._rows = rows

    @property
    def columns(self) -> list[str]:
        """Column names, in projection order."""
        return list(self._rows.schema.names)

    @property
    def schema(self) -> pa.Schema:
        """Column names with their Arrow types."""
        return self._rows.schema

    @property
    def steps(self) -> list[Step]:
        """What the engine did, in order, with reasons, rows and times."""
        return self._rows.steps

    def __reduce__(self) -> tuple[Any, ...]:
        return QueryResult, (self.query_name, TableRows(self.to_arrow()), self.commit_id)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return leaving(self._rows.to_json())

    @verb()
    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table."""
        return self._rows.to_table()

    @verb()
    def to_batches(self, rows_max: int = 65_536) -> Iterator[pa.RecordBatch]:
        """The rows as a stream of Arrow batches, each made when it is reached."""
        return leaving(self._rows.to_batches(rows_max))

    @verb()
    def to_pylist(self) -> list[dict[str, Any]]:
        """All rows as dictionaries with JSON-ready values."""
        return list(self._rows.to_json())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an Arrow stream, for whatever takes one: polars, DuckDB, pyarrow, another load."""
        stream = pa.RecordBatchReader.from_batches(self.schema, self.to_batches())
        return stream.__arrow_c_stream__(requested_schema)

    @verb()
    def to_polars(self) -> polars.DataFrame:
        """All rows as a polars frame; needs polars installed."""
        import polars

        found: polars.DataFrame = polars.from_arrow(self.to_arrow())
        return found

    @verb()
    def to_pandas(self) -> pandas.DataFrame:
        """All rows as a pandas frame; needs pandas installed."""
        return self.to_arrow().to_pandas(date_as_object=False)

    def _table(self, more: str, below: str = "") -> Table:
        head = next(iter(self._rows.to_batches(SHOWN_ROWS)), None)
        rows = rows_to_json(head) if head is not None else []
        shown = [["null" if value is None else str(value) for value in row.values()] for row in rows]
        left = len(self) - len(shown)
        caption = f"{self.query_name}: {len(self):,} row{'' if len(self) == 1 else 's'}"
        return Table(
            caption + (more.format(left=left) if left else ""),
            self.columns,
            shown,
            below.format(left=left) if left else "",
        )

    def __repr__(self) -> str:
        return self._table("", "… {left:,} more").to_text()

    def _repr_html_(self) -> str:
        return self._table(", {left:,} more than shown").to_html()
