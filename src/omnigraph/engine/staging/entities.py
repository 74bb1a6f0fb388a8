"""Finished property columns become rows of a table: ids derived or minted, required values checked.

Both readers of a load, the mutations and the Spark executors build their rows here, so an entity has the same id and
the same columns whichever way it came in.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import table_schema
from omnigraph.catalog.keys import id_from_key
from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.engine.staging.values import PROBLEMS_MAX, Problem, column_type

Entity: TypeAlias = NodeType | EdgeType

RECORD, LINE, SOURCE = "__record", "__line", "__source"
"""Columns that say where a row came from, the source only if there are several; they are dropped before storing."""

_CROCKFORD = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", dtype=np.uint8)


def row_schema(entity: Entity) -> pa.Schema:
    """The columns of a staged row in table order: `id`, an edge's `src` and `dst`, then properties by name."""
    return table_schema(entity, blobs="stored")


def assemble(
    entity: Entity,
    columns: Mapping[str, pa.Array],
    rows: int,
    *,
    ids: pa.Array | None = None,
    ends: tuple[pa.Array, pa.Array] | None = None,
) -> tuple[pa.Table, list[Problem]]:
    """Rows of `entity` from its finished columns; a property without a column is null everywhere.

    `ids` holds the ids the input supplied (null where it supplied none) and `ends` the source and target ids of edges.
    """
    problems: list[Problem] = []
    schema = row_schema(entity)
    built: dict[str, pa.Array] = {}
    for prop in entity.properties.values():
        column = columns.get(prop.name)
        column = pa.nulls(rows, column_type(prop.type)) if column is None else column
        built[prop.name] = column
        if column.null_count and not prop.type.nullable:
            problems += _at(pc.is_null(column), f"{entity.name}.{prop.name} is required")
    if ends is not None:
        built["src"], built["dst"] = ends
    identity, found = _identity(entity, built, rows, ids)
    built["id"] = identity
    return pa.Table.from_arrays([built[name] for name in schema.names], schema=_relaxed(schema)), problems + found


def _relaxed(schema: pa.Schema) -> pa.Schema:
    """The same columns, nullable: rows with problems hold nulls until the problems are reported."""
    return pa.schema([field.with_nullable(True) for field in schema])


def _identity(
    entity: Entity, columns: Mapping[str, pa.Array], rows: int, supplied: pa.Array | None
) -> tuple[pa.Array, list[Problem]]:
    problems: list[Problem] = []
    if supplied is not None and supplied.null_count < rows:
        problems += _at(pc.equal(supplied, ""), f"an explicit id of {entity.name} must not be empty")
    if isinstance(entity, NodeType) and entity.key:
        if any(columns[name].null_count for name in entity.key):
            # The missing key values are already reported as required, so which ids the other rows get is moot.
            return pa.nulls(rows, pa.string()), problems
        derived = id_from_key(entity, {name: columns[name] for name in entity.key})
        if supplied is not None and supplied.null_count < rows:
            differs = pc.not_equal(supplied, derived)
            for row in np.flatnonzero(np.asarray(pc.fill_null(differs, False)))[:PROBLEMS_MAX]:
                text = (
                    f"id '{supplied[row].as_py()}' of {entity.name} is not '{derived[row].as_py()}', the id of its key"
                )
                problems.append(Problem(int(row), text))
        return derived, problems
    if supplied is None:
        return fresh_ulids(rows), problems
    if supplied.null_count:
        return pc.coalesce(supplied, fresh_ulids(rows)), problems
    return supplied, problems


def _at(mask: pa.Array, message: str) -> list[Problem]:
    hits = np.flatnonzero(np.asarray(pc.fill_null(mask, False)))
    return [Problem(int(row), message) for row in hits[:PROBLEMS_MAX]]


def fresh_ulids(count: int) -> pa.Array:
    """New ULIDs in ascending order: one time stamp and 79 random bits, counted up.

    >>> [len(text) for text in fresh_ulids(2).to_pylist()]
    [26, 26]
    """
    if count == 0:
        return pa.array([], pa.string())
    high = int.from_bytes(os.urandom(2), "big")
    low = np.uint64(int.from_bytes(os.urandom(8), "big") >> 1) + np.arange(count, dtype=np.uint64)
    digits = np.empty((count, 26), dtype=np.uint8)
    digits[:, :10] = [(time.time_ns() // 1_000_000 >> shift) & 31 for shift in range(45, -1, -5)]
    # The 80 random bits are 16 digits of 5 bits: 16 bits of `high`, then 64 of `low`; digit 13 holds bits of both.
    digits[:, 10:13] = [(high >> shift) & 31 for shift in (11, 6, 1)]
    digits[:, 13] = ((high & 1) << 4) | (low >> np.uint64(60)).astype(np.uint8)
    for place in range(12):
        digits[:, 14 + place] = ((low >> np.uint64(55 - 5 * place)) & np.uint64(31)).astype(np.uint8)
    letters = _CROCKFORD[digits]
    offsets = np.arange(0, (count + 1) * 26, 26, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters.tobytes()))
