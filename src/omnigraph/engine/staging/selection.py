"""Finding the entities a statement means, earlier statements of the same write included.

An entity that the write has changed is seen only in its new form, one it has removed not at all. Committed rows are
searched column by column in memory; only the rows that match are read whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.catalog.arrow import blob_columns
from omnigraph.catalog.model import NodeType
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.dataclass import dataclass
from omnigraph.engine.staging.blobs import read_blobs
from omnigraph.engine.staging.columns import ColumnCache, Offsets
from omnigraph.engine.staging.committed import live_offsets
from omnigraph.engine.staging.entities import Entity, row_schema
from omnigraph.engine.staging.predicates import satisfied
from omnigraph.engine.staging.rows import NO_ADDRESSES, Marks, is_among
from omnigraph.engine.staging.temporal import Mask
from omnigraph.engine.staging.transaction import Transaction
from omnigraph.engine.storage.handle import Addresses, FragmentInfo, TableHandle
from omnigraph.plan.operators import ComparisonOperator, PropertyTest

_TAKE_ROWS_MAX = 4_096


@dataclass(frozen=True)
class Found:
    """Committed rows that match, by address, in storage order."""

    ids: pa.Array
    addresses: Addresses


def find_committed(transaction: Transaction, entity: Entity, test: PropertyTest, value: Any) -> Found:
    """Committed entities that satisfy the test and that this write has neither changed nor removed."""
    key = entity.table_key
    transaction.view.read.add(key)
    if not transaction.snapshot.entry(key).row_count or value is None:
        return Found(pa.array([], pa.string()), NO_ADDRESSES)
    handle = transaction.snapshot.open(key)
    cache = ColumnCache.shared()
    ids, addresses = [], []
    for fragment in handle.fragments():
        offsets = live_offsets(handle, fragment, _matching(cache, handle, fragment, entity, test, value))
        if len(offsets):
            ids.append(cache.column(handle, fragment, "id").values.take(pa.array(offsets)))
            addresses.append((np.uint64(fragment.id) << np.uint64(32)) | offsets.astype(np.uint64))
    if not ids:
        return Found(pa.array([], pa.string()), NO_ADDRESSES)
    found = Found(pa.concat_arrays(ids), np.concatenate(addresses))
    return _without_pending(transaction, entity, found)


def _matching(
    cache: ColumnCache, handle: TableHandle, fragment: FragmentInfo, entity: Entity, test: PropertyTest, value: Any
) -> Offsets:
    name = test.property
    is_text = name in ("src", "dst") or entity.properties[name].type.scalar is Scalar.STRING
    if test.operator is ComparisonOperator.EQ and is_text:
        # The id of a node with one String key is that key, and its column is the one most writes need anyway.
        if isinstance(entity, NodeType) and entity.key == (name,):
            name = "id"
        return cache.column(handle, fragment, name).find(pa.array([value], pa.string()))
    column = cache.column(handle, fragment, name).values
    return np.flatnonzero(_mask(column, entity, test, value)).astype(np.int64)


def _mask(column: pa.Array, entity: Entity, test: PropertyTest, value: Any) -> Mask:
    prop = entity.properties.get(test.property)
    kind = PropertyType(Scalar.STRING) if prop is None else prop.type
    return satisfied(column, kind, test.operator, value)


def _without_pending(transaction: Transaction, entity: Entity, found: Found) -> Found:
    pending = transaction.pending(entity.table_key)
    if pending is None:
        return found
    images = pending.final_images(row_schema(entity))[0].column("id").combine_chunks()
    hidden = is_among(found.ids, images) | is_among(found.ids, pending.gone)
    if not hidden.any():
        return found
    return Found(found.ids.filter(pa.array(~hidden)), found.addresses[~hidden])


def find_pending(
    transaction: Transaction, entity: Entity, test: PropertyTest, value: Any
) -> tuple[pa.Table, Marks, Addresses]:
    """Images this write has made of entities that now satisfy the test."""
    pending = transaction.pending(entity.table_key)
    schema = row_schema(entity)
    if pending is None:
        return schema.empty_table(), np.empty(0, dtype=np.uint8), NO_ADDRESSES
    rows, under, addresses = pending.final_images(schema)
    if not rows.num_rows:
        return rows, under, addresses
    mask = _mask(rows.column(test.property).combine_chunks(), entity, test, value)
    return rows.filter(pa.array(mask)), under[mask], addresses[mask]


def read_rows(handle: TableHandle, entity: Entity, addresses: Addresses) -> pa.Table:
    """Whole rows by address, blobs as they were given, in the order asked for."""
    schema = row_schema(entity)
    blobs = blob_columns(entity)
    plain = [name for name in schema.names if name not in blobs]
    rows = _take(handle, addresses, plain)
    columns = {name: rows.column(name) for name in plain}
    for name in blobs:
        columns[name] = read_blobs(handle, name, handle.row_ids(addresses))
    return pa.Table.from_arrays([columns[name] for name in schema.names], names=schema.names)


def _take(handle: TableHandle, addresses: Addresses, columns: list[str]) -> pa.Table:
    if len(addresses) <= _TAKE_ROWS_MAX:
        return handle.take_addresses(addresses, columns)
    parts, places = [], []
    owners = addresses >> np.uint64(32)
    for fragment in handle.fragments():
        mine = np.flatnonzero(owners == fragment.id)
        if len(mine):
            offsets = (addresses[mine] & np.uint64(0xFFFFFFFF)).astype(np.int64)
            parts.append(handle.read_fragment_columns(fragment, columns).take(pa.array(offsets)))
            places.append(mine)
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.concat_tables(parts).take(pa.array(order))
