"""Files and column maps as one Arrow table per type, for a load that is small enough for this process.

The same reading and the same row checks as on executors, without Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from omnigraph.catalog.model import Catalog
from omnigraph.engine.staging.entities import LINE, RECORD
from omnigraph.errors import ConstraintError
from omnigraph.ids import TableKey
from omnigraph.pipeline.shape import Shaped, shape_columns, shape_feed
from omnigraph.pipeline.sources import ColumnMap, resolve

_WHOLE = 1 << 62
"""A piece as large as any file, so that record numbers count from its first line."""

_SHOWN = 20


def read_tables(
    source: Mapping[str, Any], catalog: Catalog, *, columns: Mapping[str, ColumnMap] | None = None
) -> dict[str, pa.Table]:
    """The rows of each type, by table key; ids are there where the input or a key decides them.

    Raises:
        ConstraintError: a value has the wrong kind or breaks a rule of its own; up to twenty records are named.
        InputError: a file or a mapping does not fit the schema.
    """
    inputs = resolve(source, catalog, columns=columns, piece_bytes=_WHOLE)
    parts: dict[TableKey, list[pa.Table]] = {}
    for feed in inputs.feeds:
        for shaped in shape_feed(feed, catalog):
            _keep(parts, shaped, feed.name)
    for frame in inputs.frames:
        if frame.table_key is not None:
            shaped = shape_columns(catalog.tables[frame.table_key], frame.data, frame.columns)
            _keep(parts, shaped, frame.name)
    return {str(key): pa.concat_tables(tables) for key, tables in sorted(parts.items())}


def _keep(parts: dict[TableKey, list[pa.Table]], shaped: Shaped, name: str) -> None:
    if shaped.problems:
        texts = [f"{name}: {problem}" for problem in sorted(shaped.problems)[:_SHOWN]]
        raise ConstraintError(texts[0], violations=texts)
    for key, tables in shaped.tables.items():
        parts.setdefault(key, []).extend(table.drop_columns([RECORD, LINE]) for table in tables)
