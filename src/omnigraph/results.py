"""What a read returns: rows that convert to Arrow, pandas or plain Python, whole or as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.plan.results import rows_to_json

if TYPE_CHECKING:
    import pandas

    from omnigraph.engine.reading import ReadResult
    from omnigraph.engine.reading.context import Step

SHOWN_ROWS = 10
SHOWN_WIDTH = 48


class QueryResult:
    """The rows of one query. Columns are fetched when first asked for; `to_batches` never holds them all.

    Iterating gives dictionaries with JSON-ready values: dates as text, vectors as lists.
    """

    def __init__(self, name: str, rows: ReadResult) -> None:
        self.query_name = name
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

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._rows.to_json()

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table."""
        return self._rows.to_table()

    def to_batches(self, rows_max: int = 65_536) -> Iterator[pa.RecordBatch]:
        """The rows as a stream of Arrow batches, each made when it is reached."""
        return self._rows.to_batches(rows_max)

    def to_pylist(self) -> list[dict[str, Any]]:
        """All rows as dictionaries with JSON-ready values."""
        return list(self._rows.to_json())

    def to_pandas(self) -> pandas.DataFrame:
        """All rows as a pandas frame; needs pandas installed."""
        return self.to_arrow().to_pandas(date_as_object=False)

    def _head(self) -> list[list[str]]:
        head = next(iter(self._rows.to_batches(SHOWN_ROWS)), None)
        rows = rows_to_json(head) if head is not None else []
        return [[_shown(value) for value in row.values()] for row in rows]

    def __repr__(self) -> str:
        count = f"{len(self):,} row{'' if len(self) == 1 else 's'}"
        head = self._head()
        widths = [max(len(text) for text in column) for column in zip(self.columns, *head, strict=True)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in [self.columns, ["─" * width for width in widths], *head]
        ]
        more = [f"… {len(self) - len(head):,} more"] if len(self) > len(head) else []
        return "\n".join([f"{self.query_name}: {count}", *lines, *more])

    def _repr_html_(self) -> str:
        import html  # Only a notebook asks for this.

        header = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in self._head()
        )
        caption = html.escape(f"{self.query_name}: {len(self):,} rows")
        return f"<table><caption>{caption}</caption><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    text = str(value)
    return text if len(text) <= SHOWN_WIDTH else text[: SHOWN_WIDTH - 1] + "…"
