"""What changed rows hold: images of entities before and after, as the wire has them.

Vectors and blobs are left out unless they are asked for, because a reader of changes seldom wants megabytes; where an
update changed one, its column is named all the same.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

import numpy as np
from msgspec import Struct

from omnigraph.catalog.arrow import blob_columns
from omnigraph.catalog.identity import type_id
from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.catalog.types import Scalar
from omnigraph.engine.changes.added import began_with
from omnigraph.engine.changes.equality import Bools, equal_values
from omnigraph.engine.changes.rows import Kind, RowChanges, read_column
from omnigraph.engine.storage.handle import Addresses, TableHandle
from omnigraph.plan.results import column_to_json

IMAGES_AT_ONCE = 1_024


class Op(StrEnum):
    """What happened to an entity."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


class Values(StrEnum):
    """How much of a changed entity is told."""

    NONE = "none"
    """Only which entity it is, and what happened to it."""
    CHANGED = "changed"
    """Everything of what was inserted or deleted, and of an update the columns that differ; no vectors, no blobs."""
    FULL = "full"
    """Every property on both sides, vectors and blobs included."""


@dataclass(frozen=True)
class Image:
    """An entity as it was, or is: its properties as JSON-ready values, and the ends of an edge."""

    properties: Mapping[str, Any]
    ends: tuple[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        """The image as the wire has it."""
        found: dict[str, Any] = {"properties": dict(self.properties)}
        if self.ends is not None:
            found["endpoints"] = {"from": self.ends[0], "to": self.ends[1]}
        return found


@dataclass(frozen=True)
class Change:
    """One entity that two states do not have alike."""

    kind: str
    """`node` or `edge`."""
    type_name: str
    id: str
    op: Op
    before: Image | None = None
    after: Image | None = None
    columns: tuple[str, ...] = ()
    """What an update changed, by name; `from` and `to` for the ends of an edge."""

    def to_json(self) -> dict[str, Any]:
        """The change as the wire has it."""
        type_told = {"id": _type_id(self.kind, self.type_name), "name": self.type_name}
        found: dict[str, Any] = {"kind": self.kind, "type": type_told, "id": self.id, "op": str(self.op)}
        if self.columns:
            found["columns"] = list(self.columns)
        for side, image in (("before", self.before), ("after", self.after)):
            if image is not None:
                found[side] = image.to_json()
        return found


_type_id = cache(type_id)


class Side(Struct, frozen=True):
    """One of the two versions a row is read from, with what its schema calls the columns."""

    handle: TableHandle
    entity: NodeType | EdgeType


_OPS = {Kind.INSERT: Op.INSERT, Kind.UPDATE: Op.UPDATE, Kind.DELETE: Op.DELETE}


def changes(kind: str, older: Side | None, newer: Side | None, rows: RowChanges, values: Values) -> Iterator[Change]:
    """The changed rows as changes, in their order, some at a time."""
    shown = newer or older
    if shown is None:
        return
    for start in range(0, len(rows), IMAGES_AT_ONCE):
        part = rows.slice(start, IMAGES_AT_ONCE)
        before = read_images(older, part.before, part.kinds != Kind.INSERT, values)
        after = read_images(newer, part.after, part.kinds != Kind.DELETE, values)
        columns = _changed_columns(older, newer, part) if values is not Values.NONE else {}
        called = _older_names(older, newer)
        for place, (id, code) in enumerate(zip(part.ids.to_pylist(), part.kinds.tolist(), strict=True)):
            changed = columns.get(place, ())
            then = tuple(called[name] for name in changed if name in called)
            narrow = code == Kind.UPDATE and values is Values.CHANGED
            yield Change(
                kind,
                shown.entity.name,
                id,
                _OPS[code],
                _narrowed(before[place], then) if narrow else before[place],
                _narrowed(after[place], changed) if narrow else after[place],
                changed,
            )


def _older_names(older: Side | None, newer: Side | None) -> dict[str, str]:
    """What the older state calls the columns that both have, by their names of now."""
    if older is None or newer is None:
        return {}
    known = {number: name for name, number in older.handle.first_numbers.items()}
    return {now: known[number] for now, number in newer.handle.first_numbers.items() if number in known}


def _narrowed(image: Image | None, changed: tuple[str, ...]) -> Image | None:
    """Of an update only what differs."""
    if image is None:
        return None
    return Image({name: value for name, value in image.properties.items() if name in changed}, image.ends)


def read_images(side: Side | None, addresses: Addresses, wanted: Bools, values: Values) -> list[Image | None]:
    """The images of some rows, None where none is wanted."""
    found: list[Image | None] = [None] * len(addresses)
    places = np.flatnonzero(wanted)
    if side is None or values is Values.NONE or not len(places):
        return found
    names = _shown_columns(side.entity, values)
    is_edge = isinstance(side.entity, EdgeType)
    blobs = [name for name in names if name in blob_columns(side.entity)]
    plain = [name for name in names if name not in blobs]
    table = side.handle.take_addresses(addresses[places], [*plain, *(("src", "dst") if is_edge else ())])
    columns = {name: column_to_json(table.column(name)) for name in plain}
    for name in blobs:
        columns[name] = _blob_values(side.handle, name, addresses[places])
    rows = zip(*(columns[name] for name in names), strict=True) if names else [()] * len(places)
    ends = zip(table.column("src").to_pylist(), table.column("dst").to_pylist(), strict=True) if is_edge else None
    for place, row in zip(places.tolist(), rows, strict=True):
        found[place] = Image(dict(zip(names, row, strict=True)), next(ends) if ends is not None else None)
    return found


def _shown_columns(entity: NodeType | EdgeType, values: Values) -> list[str]:
    wide = {name for name, prop in entity.properties.items() if prop.type.scalar in (Scalar.VECTOR, Scalar.BLOB)}
    return [name for name in entity.properties if values is Values.FULL or name not in wide]


def _blob_values(handle: TableHandle, name: str, addresses: Addresses) -> list[Any]:
    """Blobs as load records have them: the bytes as `base64:…`, a reference as its URI."""
    found = []
    for blob in read_column(handle, name, addresses).to_pylist():
        inline = None if blob is None else blob["data"]
        reference = None if blob is None else blob["uri"]
        found.append(reference if inline is None else "base64:" + base64.b64encode(inline).decode("ascii"))
    return found


def _changed_columns(older: Side | None, newer: Side | None, rows: RowChanges) -> dict[int, tuple[str, ...]]:
    """For each update, by its place, the columns whose values differ; an added one from what entities had in it."""
    places = np.flatnonzero(rows.kinds == Kind.UPDATE)
    if older is None or newer is None or not len(places):
        return {}
    called = _older_names(older, newer)
    ends = {"src": "from", "dst": "to"} if isinstance(newer.entity, EdgeType) else {}
    differing: dict[str, Bools] = {}
    for now in (*ends, *newer.entity.properties):
        right = read_column(newer.handle, now, rows.after[places])
        if now in called:
            left = read_column(older.handle, called[now], rows.before[places])
        else:
            left = began_with(newer.handle, newer.entity.properties[now], right)
        differing[ends.get(now, now)] = ~equal_values(left, right)
    return {
        place: tuple(name for name, mask in differing.items() if mask[row]) for row, place in enumerate(places.tolist())
    }
