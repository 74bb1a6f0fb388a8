"""Finding the entities a statement means, earlier statements of the same write included.

An entity that the write has changed is seen only in its new form, one it has removed not at all. Committed rows are
searched column by column in memory; only the rows that match are read whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct

from omnigraph.catalog import wide
from omnigraph.catalog.model import EdgeType
from omnigraph.engine.storage.columns import Offsets
from omnigraph.engine.storage.handle import Addresses
from omnigraph.engine.values.entities import Entity, row_schema
from omnigraph.engine.values.temporal import Mask
from omnigraph.engine.write.asked import Asked, Hidden, Probe, nothing_hidden
from omnigraph.engine.write.overlay import Marks
from omnigraph.engine.write.rows import NO_ADDRESSES
from omnigraph.engine.write.transaction import Transaction


class Found(Struct, frozen=True):
    """Committed rows that match, by address, in storage order unless said otherwise.

    Of edges the sources are known, unless they are of a type whose sources may have any number of them.
    """

    ids: pa.Array
    addresses: Addresses
    sources: pa.Array | None = None

    def at(self, places: Offsets) -> Found:
        """The rows at these places, in this order."""
        sources = None if self.sources is None else wide.take(self.sources, places)
        return Found(wide.take(self.ids, places), self.addresses[places], sources)

    def slice(self, start: int, end: int) -> Found:
        """The rows of a range."""
        sources = None if self.sources is None else self.sources.slice(start, end - start)
        return Found(self.ids.slice(start, end - start), self.addresses[start:end], sources)


def joined_once(parts: Sequence[Found]) -> Found:
    """Everything that was found, each row once, by ascending address."""
    if len(parts) == 1:
        return parts[0]
    addresses, places = np.unique(np.concatenate([part.addresses for part in parts]), return_index=True)
    sources = [part.sources for part in parts if part.sources is not None]
    return Found(
        wide.take(wide.concat([part.ids for part in parts]), places),
        addresses,
        wide.take(wide.concat(sources), places) if len(sources) == len(parts) else None,
    )


def find_committed(transaction: Transaction, entity: Entity, asked: Asked) -> Found:
    """Committed entities that are meant, whatever this write has done to them.

    A risky test is not asked of what this write has changed.
    """
    pending = transaction.pending(entity.table_key)

    def hidden(ids: pa.Array, addresses: Addresses) -> Mask:
        return nothing_hidden(ids, addresses) if pending is None else pending.overlay.has(ids)

    return _search(transaction, entity, asked, (), hidden)[0]


def rows_equal_to(transaction: Transaction, entity: Entity, column: str, values: pa.Array) -> tuple[Found, pa.Array]:
    """Committed entities whose column is one of the values, and the value of each."""
    found, (held,) = _search(transaction, entity, Asked(Probe(column, values)), (column,))
    return found, held


def _search(
    transaction: Transaction, entity: Entity, asked: Asked, columns: Sequence[str], hidden: Hidden = nothing_hidden
) -> tuple[Found, list[pa.Array]]:
    """The live rows that are meant, and columns of them."""
    wanted = ["id", *(["src"] if isinstance(entity, EdgeType) else []), *columns]
    held, addresses = transaction.view.select(entity.table_key, asked, wanted, hidden)
    return _found(entity, held, addresses), held[len(wanted) - len(columns) :]


def _found(entity: Entity, columns: Sequence[pa.Array], addresses: Addresses) -> Found:
    return Found(columns[0], addresses, columns[1] if isinstance(entity, EdgeType) else None)


def without_pending(transaction: Transaction, entity: Entity, found: Found) -> Found:
    """Those of the committed rows that this write has not changed."""
    pending = transaction.pending(entity.table_key)
    if pending is None or not len(found.ids):
        return found
    hidden = pending.overlay.has(found.ids)
    return found.at(np.flatnonzero(~hidden).astype(np.int64)) if hidden.any() else found


def find_pending(transaction: Transaction, entity: Entity, asked: Asked) -> tuple[pa.Table, Marks, Addresses]:
    """Images this write has made of entities that are meant now."""
    pending = transaction.pending(entity.table_key)
    images = None if pending is None else pending.overlay.matching(asked)
    if images is None:
        return row_schema(entity).empty_table(), np.empty(0, dtype=np.uint8), NO_ADDRESSES
    return images.rows, images.under, images.addresses
