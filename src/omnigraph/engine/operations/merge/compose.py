"""Rows put together from several: the properties each side changed, or those somebody set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.catalog.model import EdgeType
from omnigraph.engine.changes.equality import Bools, equal_values
from omnigraph.engine.changes.located import Located
from omnigraph.engine.changes.rows import Ints, read_column
from omnigraph.engine.storage.handle import Addresses, TableHandle
from omnigraph.engine.values.entities import Entity, row_schema
from omnigraph.engine.write.assign import assigned
from omnigraph.engine.write.committed import read_rows
from omnigraph.errors import InputError
from omnigraph.plan.operators import Parameter
from omnigraph.plan.parameters import bind

COMPOSED_ROWS = 1_024
"""Rows whose columns are compared at once."""


class Mixed(Struct, frozen=True):
    """Entities that become ours with some columns of theirs; nothing is read until they are written."""

    ids: pa.Array
    ours: Located
    theirs: Located
    from_theirs: Mapping[str, Bools]

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, chosen: Bools | Ints) -> Mixed:
        """Some of the entities."""
        places = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        masks = {name: mask[places] for name, mask in self.from_theirs.items()}
        return Mixed(wide.take(self.ids, places), self.ours.where(places), self.theirs.where(places), masks)

    def read(self, entity: Entity, names: list[str] | None = None) -> pa.Table:
        """The rows; only some columns where they are named, none of them of blobs."""
        schema = row_schema(entity)
        wanted = schema.names if names is None else names

        def read(handle: TableHandle, at: Addresses) -> pa.Table:
            return read_rows(handle, entity, at) if names is None else handle.take_addresses(at, names)

        ours, theirs = (side.read(read, schema) for side in (self.ours, self.theirs))
        columns = []
        for name in wanted:
            mine, other = wide.alike(wide.one_array(ours.column(name)), wide.one_array(theirs.column(name)))
            mask = self.from_theirs.get(name)
            if mask is None or not mask.any():
                columns.append(mine)
                continue
            rows = np.arange(len(mine))
            columns.append(wide.take(wide.concat([mine, other]), np.where(mask, rows + len(mine), rows)))
        return pa.Table.from_arrays(columns, names=wanted)


def changed_apart(entity: Entity, base: Located, theirs: Located, ours: Located) -> tuple[Bools, dict[str, Bools]]:
    """Which entities the two sides have changed in different columns, or alike; and which columns theirs changed.

    A property and the vector that stands for its text are one: changed apart, they would contradict each other.
    """
    fits = np.ones(len(base), dtype=np.bool_)
    from_theirs: dict[str, Bools] = {}
    for group in column_groups(entity):
        by_theirs, by_ours, apart = (np.zeros(len(base), dtype=np.bool_) for _ in range(3))
        for name in group:
            for rows in _chunks(len(base)):
                then, left, right = (_column(side.where(rows), name) for side in (base, theirs, ours))
                by_theirs[rows] |= ~equal_values(*wide.alike(then, left))
                by_ours[rows] |= ~equal_values(*wide.alike(then, right))
                apart[rows] |= ~equal_values(*wide.alike(left, right))
        fits &= ~(by_theirs & by_ours & apart)
        from_theirs.update(dict.fromkeys(group, by_theirs))
    return fits, from_theirs


def differing_columns(entity: Entity, theirs: Located, ours: Located) -> dict[str, Bools]:
    """For each column in which of the entities the two sides differ; both have them all."""
    ends = ("src", "dst") if isinstance(entity, EdgeType) else ()
    found = {}
    for name in (*ends, *entity.properties):
        mask = np.zeros(len(theirs), dtype=np.bool_)
        for rows in _chunks(len(theirs)):
            left, right = (_column(side.where(rows), name) for side in (theirs, ours))
            mask[rows] = ~equal_values(*wide.alike(left, right))
        found[name] = mask
    return found


def column_groups(entity: Entity) -> Iterator[tuple[str, ...]]:
    """The columns that may change apart from each other."""
    standing_for: dict[str, str] = {}
    for prop in entity.properties.values():
        if prop.embedding is not None:
            standing_for[prop.name] = prop.embedding.source
    if isinstance(entity, EdgeType):
        yield from (("src",), ("dst",))
    for name in entity.properties:
        if name not in standing_for:
            yield (name, *(vector for vector, text in standing_for.items() if text == name))


def _column(rows: Located, name: str) -> pa.Array:
    """One column of entities that are all present, in their order."""
    parts, places = [], []
    for handle, mine in rows.groups():
        parts.append(read_column(handle, name, rows.at[mine]))
        places.append(mine)
    if len(parts) == 1:
        return parts[0]
    return wide.take(wide.concat(parts), np.argsort(np.concatenate(places), kind="stable"))


def _chunks(count: int) -> Iterator[Ints]:
    for start in range(0, count, COMPOSED_ROWS):
        yield np.arange(start, min(start + COMPOSED_ROWS, count))


def with_properties(entity: Entity, rows: pa.Table, properties: Mapping[str, Any]) -> pa.Table:
    """Rows with some properties set to values as JSON has them.

    Raises:
        InputError: there is no such property, or it is part of the key.
        ParameterError, ConstraintError: a value does not fit its property.
    """
    for name in properties:
        if name not in entity.properties:
            raise InputError(f"a resolution sets '{name}', which {entity.name} does not have")
        if name in entity.key:
            raise InputError(f"a resolution sets '{name}', which is part of the key of {entity.name} and never changes")
    declared = [Parameter(name, entity.properties[name].type) for name in properties]
    for name, value in bind(declared, dict(properties)).items():
        column = assigned(entity, entity.properties[name], value, rows.num_rows)
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows
