"""Images of entities for review: whole, but of a vector or a blob only its size and a digest.

Two images are equal exactly when the rows are, so a digest over them tells whether what somebody looked at is still
what is there.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.catalog.types import Scalar
from omnigraph.catalog.wide import one_array
from omnigraph.engine.changes.images import Image, Side
from omnigraph.engine.changes.located import Located
from omnigraph.engine.changes.rows import read_column
from omnigraph.engine.storage.handle import Addresses, TableHandle
from omnigraph.plan.results import column_to_json

WIDE_IMAGES = 256
"""Images that are read at once, vectors and blobs included."""


def brief_images(entity: NodeType | EdgeType, rows: Located) -> list[Image | None]:
    """The images of some entities, None where there is none; of a vector or a blob its size and a digest."""
    found: list[Image | None] = [None] * len(rows)
    for handle, places in rows.groups():
        at = rows.at[places]
        for start in range(0, len(at), WIDE_IMAGES):
            part = slice(start, start + WIDE_IMAGES)
            for place, image in zip(places[part].tolist(), _brief(Side(handle, entity), at[part]), strict=True):
                found[place] = image
    return found


def _brief(side: Side, addresses: Addresses) -> list[Image]:
    names = list(side.entity.properties)
    wide = {name: prop.type.scalar for name, prop in side.entity.properties.items()}
    vectors = [name for name in names if wide[name] is Scalar.VECTOR]
    blobs = [name for name in names if wide[name] is Scalar.BLOB]
    is_edge = isinstance(side.entity, EdgeType)
    plain = [name for name in names if name not in blobs]
    table = side.handle.take_addresses(addresses, [*plain, *(("src", "dst") if is_edge else ())])
    columns: dict[str, list[Any]] = {}
    for name in names:
        if name in blobs:
            columns[name] = _blob_digests(side.handle, name, addresses)
        elif name in vectors:
            columns[name] = _vector_digests(one_array(table.column(name)))
        else:
            columns[name] = column_to_json(table.column(name))
    ends = zip(table.column("src").to_pylist(), table.column("dst").to_pylist(), strict=True) if is_edge else None
    return [
        Image({name: columns[name][row] for name in names}, next(ends) if ends is not None else None)
        for row in range(len(addresses))
    ]


def _vector_digests(vectors: pa.Array) -> list[Any]:
    width = vectors.type.list_size
    numbers = vectors.flatten() if not vectors.null_count else vectors.drop_null().flatten()
    items = iter(np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float32).reshape(-1, width))
    # Both zeros are one value, and adding a zero makes them one.
    return [
        {"dimension": width, "digest": _digest((next(items) + 0.0).tobytes())} if there else None
        for there in vectors.is_valid().to_pylist()
    ]


def _blob_digests(handle: TableHandle, name: str, addresses: Addresses) -> list[Any]:
    found: list[Any] = []
    for blob in read_column(handle, name, addresses).to_pylist():
        if blob is None or blob["data"] is None:
            found.append(None if blob is None else blob["uri"])
        else:
            found.append({"length": len(blob["data"]), "digest": _digest(blob["data"])})
    return found


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
