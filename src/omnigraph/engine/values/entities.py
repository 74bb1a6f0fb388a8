"""Finished property columns become rows of a table: ids derived or minted, required values checked.

Both readers of a load, the mutations and the Spark executors build their rows here, so an entity has the same id and
the same columns whichever way it came in.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import table_schema
from omnigraph.catalog.derived import once
from omnigraph.catalog.keys import id_from_key
from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.engine.values.columns import PROBLEMS_MAX, Problem, column_type
from omnigraph.engine.values.defaults import default_column, this_moment
from omnigraph.ids import new_ulid

Entity: TypeAlias = NodeType | EdgeType

RECORD, LINE, SOURCE = "@record", "@line", "@source"
"""Columns that say where a row came from, the source only if there are several; they are dropped before storing.

No property can be called so, whatever its author likes: a name of the schema language has no `@`.
"""

GIVEN = "@given "
"""Begins the names of the columns that say, of each property, which records of an update have it."""

_CROCKFORD = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", dtype=np.uint8)


@once
def row_schema(entity: Entity) -> pa.Schema:
    """The columns of a staged row in table order: `id`, an edge's `src` and `dst`, then properties by name."""
    return table_schema(entity)


@once
def no_rows(entity: Entity) -> pa.Table:
    """A table of these columns without any row."""
    return row_schema(entity).empty_table()


def assemble(
    entity: Entity,
    columns: Mapping[str, pa.Array],
    rows: int,
    *,
    ids: pa.Array | None = None,
    ends: tuple[pa.Array, pa.Array] | None = None,
    now: dt.datetime | None = None,
) -> tuple[pa.Table, list[Problem]]:
    """Rows of `entity` from its finished columns; a property without a column has its default, or is null everywhere.

    `now` is the moment that a default may stand for. `ids` holds the ids the input supplied (null where it supplied
    none) and `ends` the source and target ids of edges, which an update may leave out.
    """
    problems: list[Problem] = []
    schema = _relaxed(entity)
    built: dict[str, pa.Array] = {}
    for prop in entity.properties.values():
        column = columns.get(prop.name)
        if column is None:
            column = default_column(prop, rows, now or this_moment())
        if column is None:
            column = pa.nulls(rows, column_type(prop.type))
        built[prop.name] = column
        if column.null_count and not prop.type.nullable:
            problems += _at(pc.is_null(column), f"{entity.name}.{prop.name} is required")
    if ends is not None:
        built["src"], built["dst"] = ends
    elif isinstance(entity, EdgeType):
        built["src"] = built["dst"] = pa.nulls(rows, pa.string())
    identity, found = _identity(entity, built, rows, ids)
    built["id"] = identity
    return pa.Table.from_arrays([built[name] for name in schema.names], schema=schema), problems + found


@once
def _relaxed(entity: Entity) -> pa.Schema:
    """The same columns, nullable: rows with problems hold nulls until the problems are reported."""
    return pa.schema([field.with_nullable(True) for field in row_schema(entity)])


def _identity(
    entity: Entity, columns: Mapping[str, pa.Array], rows: int, supplied: pa.Array | None
) -> tuple[pa.Array, list[Problem]]:
    problems: list[Problem] = []
    if supplied is not None and supplied.null_count < rows:
        problems += _at(_empty(entity, columns, supplied), f"an explicit id of {entity.name} must not be empty")
    if entity.partial:
        meant, found = _meant(entity, columns, supplied if supplied is not None else pa.nulls(rows, pa.string()))
        return meant, problems + found
    if entity.key:
        if any(columns[name].null_count for name in entity.key):
            # The missing key values are already reported as required, so which ids the other rows get is moot.
            return pa.nulls(rows, pa.string()), problems
        derived = id_from_key(entity, {name: columns[name] for name in entity.key})
        if supplied is not None and supplied.null_count < rows:
            problems += _differing(entity, supplied, derived)
        return derived, problems
    if supplied is None:
        return fresh_ulids(rows), problems
    if supplied.null_count:
        return pc.coalesce(supplied, fresh_ulids(rows)), problems
    return supplied, problems


def _empty(entity: Entity, columns: Mapping[str, pa.Array], supplied: pa.Array) -> pa.Array:
    """Which ids are empty, but for those of the key that is the empty text: exports write both, and loads read them."""
    empty = pc.equal(supplied, "")
    if len(entity.key) == 1 and pa.types.is_string(columns[entity.key[0]].type):
        return pc.and_(empty, pc.fill_null(pc.not_equal(columns[entity.key[0]], ""), True))
    return empty


def _meant(entity: Entity, columns: Mapping[str, pa.Array], supplied: pa.Array) -> tuple[pa.Array, list[Problem]]:
    """The entities that records of an update mean: by the key where all of it is given, else by the id."""
    ids, problems, names = supplied, [], "its id"
    if entity.key:
        names = f"its id or its key ({', '.join(entity.key)})"
        whole = np.logical_and.reduce([np.asarray(pc.is_valid(columns[name])) for name in entity.key])
        rows = np.flatnonzero(whole)
        derived = id_from_key(entity, {name: columns[name].take(pa.array(rows)) for name in entity.key})
        places = pa.array(np.cumsum(whole) - 1, mask=~whole)
        derived = derived.take(places)
        problems += _differing(entity, supplied, derived)
        ids = pc.coalesce(supplied, derived)
    problems += _at(pc.is_null(ids), f"an update names a {entity.name} by {names}, and this record has none")
    return ids, problems


def _differing(entity: Entity, supplied: pa.Array, derived: pa.Array) -> list[Problem]:
    differs = np.flatnonzero(np.asarray(pc.fill_null(pc.not_equal(supplied, derived), False)))
    return [
        Problem(
            row, f"id '{supplied[row].as_py()}' of {entity.name} is not '{derived[row].as_py()}', the id of its key"
        )
        for row in differs[:PROBLEMS_MAX].tolist()
    ]


def with_given(entity: Entity, rows: pa.Table, given: Mapping[str, pa.Array | bool]) -> pa.Table:
    """Rows of an update with a column for each property that says which of them have it; others have it nowhere."""
    for name in entity.properties:
        mask = given.get(name, False)
        column = pa.array(np.full(rows.num_rows, mask)) if isinstance(mask, bool) else mask
        rows = rows.append_column(f"{GIVEN}{name}", column)
    return rows


def _at(mask: pa.Array, message: str) -> list[Problem]:
    hits = np.flatnonzero(np.asarray(pc.fill_null(mask, False)))
    return [Problem(int(row), message) for row in hits[:PROBLEMS_MAX]]


def fresh_ulids(count: int) -> pa.Array:
    """New ULIDs in ascending order: one time stamp and 79 random bits, counted up.

    >>> [len(text) for text in fresh_ulids(2).to_pylist()]
    [26, 26]
    """
    if count < 2:
        return pa.array([new_ulid()] * count, pa.string())
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
