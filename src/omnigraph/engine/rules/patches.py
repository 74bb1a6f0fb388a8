"""Records of an update become whole entities: what they give is new, the rest is what is there.

Both engines complete records here, the one in this process on the rows of a load and Spark's executors on batches of
theirs, so that a record is refused for the same reasons in the same words.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.catalog.keys import id_from_key
from omnigraph.catalog.model import EdgeType
from omnigraph.engine.rules.checks import Violation, check_rows
from omnigraph.engine.rules.statement import Identity
from omnigraph.engine.storage.handle import Addresses
from omnigraph.engine.values.columns import PROBLEMS_MAX
from omnigraph.engine.values.entities import GIVEN, LINE, RECORD, SOURCE, Entity, row_schema
from omnigraph.ids import TableKey

Mask = npt.NDArray[np.bool_]


class Committed(Protocol):
    """What is there, found by id."""

    def locate(self, table_key: TableKey, ids: pa.Array) -> tuple[Addresses, Mask]:
        """The address of each id's row, and whether there is one."""

    def whole_rows(self, entity: Entity, addresses: Addresses) -> pa.Table:
        """Whole rows by address, blobs as they were given, in the order asked for."""


class Completed(Struct, frozen=True):
    """Whole images of the entities that records change, where these lie, and what is wrong, by ascending row.

    The images are only of use while nothing is wrong.
    """

    rows: pa.Table
    addresses: Addresses
    wrong: list[Violation]


def complete(entity: Entity, rows: pa.Table, committed: Committed) -> Completed:
    """Complete the records of an update; `rows` have been read by the partial form of `entity`."""
    rule, ids = Identity(entity), wide.one_array(rows.column("id"))
    addresses, found = committed.locate(entity.table_key, ids)
    unknown = np.flatnonzero(~found)
    if len(unknown):
        return Completed(rows, addresses, [Violation(row, rule.unknown(ids[row].as_py())) for row in _shown(unknown)])
    before = committed.whole_rows(entity, addresses)
    images = _images(entity, rows, before)
    moved = np.flatnonzero(_moved(entity, rows, before, images))
    wrong = [Violation(row, rule.moved(ids[row].as_py())) for row in _shown(moved)]
    return Completed(images, addresses, wrong or check_rows(entity, images))


def _images(entity: Entity, rows: pa.Table, before: pa.Table) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    for field in row_schema(entity):
        held = wide.one_array(before.column(field.name))
        if field.name in entity.properties:
            given = np.asarray(rows.column(f"{GIVEN}{field.name}"), dtype=np.bool_)
            held = _chosen(given, wide.one_array(rows.column(field.name)), held)
        columns[field.name] = held
    for name in (RECORD, LINE, SOURCE):
        if name in rows.column_names:
            columns[name] = wide.one_array(rows.column(name))
    return pa.table(columns)


def _chosen(given: Mask, new: pa.Array, old: pa.Array) -> pa.Array:
    """New values where they are given, old ones elsewhere."""
    if given.all() or not given.any():
        return new if given.all() else old
    places = np.arange(len(given), dtype=np.int64)
    stored = [part.storage if isinstance(part, pa.ExtensionArray) else part for part in (new, old)]
    taken = wide.take(wide.concat(wide.alike(*stored)), np.where(given, places, places + len(given)))
    return pa.ExtensionArray.from_storage(new.type, taken) if isinstance(new, pa.ExtensionArray) else taken


def _moved(entity: Entity, rows: pa.Table, before: pa.Table, images: pa.Table) -> Mask:
    """Which records would give an entity another key, or an edge another end."""
    moved = np.zeros(rows.num_rows, dtype=np.bool_)
    if isinstance(entity, EdgeType):
        for name in ("src", "dst"):
            # A record without an end leaves it as it is.
            differs = pc.not_equal(*wide.alike(*(wide.one_array(each.column(name)) for each in (rows, before))))
            moved |= np.asarray(pc.fill_null(differs, False))
    own = [name for name in entity.key if name in entity.properties]
    if own:
        given = np.logical_or.reduce([np.asarray(rows.column(f"{GIVEN}{name}"), dtype=np.bool_) for name in own])
        whole = np.logical_and.reduce([np.asarray(images.column(name).is_valid()) for name in own])
        # A null in a key is told as what it is: a value that is required.
        chosen = np.flatnonzero(given & whole & ~moved)
        if len(chosen):
            keys = {name: wide.take(images.column(name), chosen) for name in entity.key}
            ids = wide.take(rows.column("id"), chosen)
            moved[chosen] |= np.asarray(pc.not_equal(*wide.alike(id_from_key(entity, keys), ids)))
    return moved


def _shown(rows: npt.NDArray[np.int64]) -> list[int]:
    shown: list[int] = rows[:PROBLEMS_MAX].tolist()
    return shown
