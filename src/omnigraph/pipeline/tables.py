"""Inputs per type for the engine in this process: files with a mapping, read as one Arrow table per type.

The same cutting, reading and checking as on executors, in one thread; what it returns is what the local engine takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from omnigraph.catalog.model import Catalog
from omnigraph.engine.staging.entities import LINE, RECORD, row_schema
from omnigraph.errors import InputError
from omnigraph.ids import TableKey
from omnigraph.pipeline.blame import Locator, refuse
from omnigraph.pipeline.shape import Shaped, shape_columns, shape_feed
from omnigraph.pipeline.sources import ColumnMap, Inputs, resolve
from omnigraph.pipeline.stage import InputProblem


def read_tables(
    source: Any, catalog: Catalog, *, columns: Mapping[str, ColumnMap] | None = None
) -> dict[str, pa.Table]:
    """The rows of a source by table key, in the columns of the schema; ids nobody supplied are left out.

    Raises:
        InputError: a source cannot be read, or does not fit the schema's types.
        ConstraintError: a record is at fault.
    """
    inputs = resolve(source, catalog, columns=columns)
    locator = Locator(inputs, catalog)
    parts: dict[TableKey, list[pa.Table]] = {}
    supplied: set[TableKey] = set()
    for number, shaped in _shaped(inputs, catalog):
        if shaped.problems:
            found = [InputProblem(number, each.record, each.line, each.message) for each in sorted(shaped.problems)]
            refuse([locator.problem(each) for each in found], len(found), None)
        supplied |= shaped.with_ids
        for key, tables in shaped.tables.items():
            parts.setdefault(key, []).extend(tables)
    for key in {each.table_key for each in inputs.feeds if each.table_key is not None} - parts.keys():
        parts[key] = [row_schema(catalog.tables[key]).empty_table()]
    return {key: _table(tables, with_ids=key in supplied) for key, tables in parts.items()}


def _shaped(inputs: Inputs, catalog: Catalog) -> Iterator[tuple[int, Shaped]]:
    for number, feed in enumerate(inputs.feeds):
        for shaped in shape_feed(feed, catalog):
            yield number, shaped
    for number, frame in enumerate(inputs.frames, len(inputs.feeds)):
        if not isinstance(frame.data, pa.Table) or frame.table_key is None:
            raise InputError("a Spark DataFrame is loaded with engine 'spark' or 'auto'")
        yield number, shape_columns(catalog.tables[frame.table_key], frame.data, frame.columns)


def _table(parts: list[pa.Table], *, with_ids: bool) -> pa.Table:
    whole = pa.concat_tables(parts)
    unwanted = {RECORD, LINE} if with_ids else {RECORD, LINE, "id"}
    return whole.drop_columns([name for name in whole.column_names if name in unwanted])
