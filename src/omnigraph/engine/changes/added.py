"""Properties that came with a change of schema, and what entities that were there already have in them.

An optional one is null, a required one has what was its default then, which the table remembers. An entity with any
other value was changed since.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from omnigraph.catalog.arrow import arrow_type
from omnigraph.catalog.model import Property
from omnigraph.engine.changes.equality import equal_values
from omnigraph.engine.changes.rows import Kind, RowChanges, read_column, same_rows, wide_chunks
from omnigraph.engine.storage.evolve import from_stored
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.values.defaults import default_scalar, this_moment
from omnigraph.engine.values.entities import Entity


def without_unchanged(older: TableHandle, newer: TableHandle, entity: Entity, rows: RowChanges) -> RowChanges:
    """Leave out the updates that have changed no value, neither of a shared property nor of an added one."""
    updates = np.flatnonzero(rows.kinds == Kind.UPDATE)
    if not len(updates):
        return rows
    same = same_rows(older, newer, rows.before[updates], rows.after[updates])
    for prop in _added(older, newer, entity):
        for some in wide_chunks(np.flatnonzero(same)):
            values = read_column(newer, prop.name, rows.after[updates[some]])
            same[some] = equal_values(began_with(newer, prop, values), values)
    keep = np.ones(len(rows), dtype=np.bool_)
    keep[updates] = ~same
    return rows if keep.all() else rows.where(keep)


def lacks_dropped(older: TableHandle, newer: TableHandle) -> bool:
    """Whether a version lacks a column of the other because it was dropped: the other is the earlier one.

    A column that was added since has a number above all that were given before.
    """
    missing = set(newer.first_numbers.values()) - set(older.first_numbers.values())
    return any(number <= older.highest_number for number in missing)


def _added(older: TableHandle, newer: TableHandle, entity: Entity) -> Iterator[Property]:
    """The properties that only the newer version has, but for those that began with a moment nobody knows."""
    known = set(older.first_numbers.values())
    for name, prop in entity.properties.items():
        number = newer.first_numbers[name]
        begins_now = not prop.type.nullable and prop.default is not None and prop.default.is_now
        if number not in known and (number in newer.column_given or not begins_now):
            yield prop


def began_with(newer: TableHandle, prop: Property, values: pa.Array) -> pa.Array:
    """What entities had in an added property, for as many as have these values in it now."""
    number = newer.first_numbers[prop.name]
    if number in newer.column_given:
        return pa.repeat(from_stored(newer.column_given[number], arrow_type(prop.type)), len(values))
    # A table of an earlier release does not say, and its default is seldom another one than it was.
    default = None if prop.type.nullable else default_scalar(prop, this_moment())
    return pa.nulls(len(values), values.type) if default is None else pa.repeat(default, len(values))
