"""One blob of one entity: how large it is, where it lies, and its bytes.

A blob is read by type, id and property. Managed bytes lie in the table; a reference is only a URI, whose content is
not the graph's to promise, so reading one is refused with the URI in the message.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.catalog.model import Catalog, EdgeType, NodeType
from omnigraph.catalog.types import Scalar
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.errors import InputError, NotFoundError
from omnigraph.failpoints import BLOB_READ_POST_CAPTURE, maybe_fail
from omnigraph.ids import TableKey

EXTERNAL_KIND = 3
"""The kind of a stored blob whose bytes lie elsewhere."""
ENTITIES = ("node", "edge")
HASHED_BYTES_MAX = 1 << 20
"""Blobs up to this size are tagged by their content, larger ones by where they are stored."""


class BlobSelector(Struct, frozen=True):
    """Which blob: the property of an entity. `entity` is `node` or `edge` where both have a type of this name."""

    type_name: str
    id: str
    property: str
    entity: str | None = None

    def __str__(self) -> str:
        return f"{self.type_name} '{self.id}', property '{self.property}'"


@dataclass(frozen=True)
class BlobInfo:
    """What is known of a blob: `size` of managed bytes, or the `uri` of external ones.

    `etag` differs whenever the bytes do; `commit_id` is the commit whose state was looked at.
    """

    entity: str
    size: int | None
    uri: str | None
    row_id: int
    etag: str | None = None
    commit_id: str | None = None

    @property
    def kind(self) -> str:
        """`managed` or `external`."""
        return "managed" if self.uri is None else "external"


def stat_blob(catalog: Catalog, snapshot: Snapshot, selector: BlobSelector) -> BlobInfo:
    """Describe one blob.

    Raises:
        InputError: there is no such type, or the property is not a Blob.
        NotFoundError: there is no entity of this id, or its blob is null.
    """
    found = _type_of(catalog, selector)
    maybe_fail(BLOB_READ_POST_CAPTURE)
    handle = snapshot.open(found.table_key)
    rows = handle.scan([selector.property], pc.field("id") == selector.id, with_row_id=True)
    if not rows.num_rows:
        raise NotFoundError(f"there is no {selector.type_name} '{selector.id}'")
    stored = rows.column(selector.property)[0].as_py()
    if stored is None:
        raise NotFoundError(f"{selector} is null")
    external = stored["kind"] == EXTERNAL_KIND
    return BlobInfo(
        entity="edge" if isinstance(found, EdgeType) else "node",
        size=None if external else int(stored["size"]),
        uri=str(stored["blob_uri"]) if external else None,
        row_id=int(rows.column("_rowid")[0].as_py()),
        commit_id=snapshot.head,
    )


def tagged_blob(catalog: Catalog, snapshot: Snapshot, selector: BlobSelector) -> BlobInfo:
    """Describe one blob with its tag, for which a small one is read; raises as `stat_blob` does."""
    info = stat_blob(catalog, snapshot, selector)
    if info.uri is not None:
        return info
    if info.size is not None and info.size <= HASHED_BYTES_MAX:
        content = read_blob(catalog, snapshot, selector) if info.size else b""
        return replace(info, etag=f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    place = snapshot.entry(TableKey(f"{info.entity}:{selector.type_name}"))
    told = repr((place.path, place.branch, place.version, info.row_id, selector.property, info.size))
    return replace(info, etag=f'"v-{hashlib.sha256(told.encode()).hexdigest()[:32]}"')


def read_blob(
    catalog: Catalog, snapshot: Snapshot, selector: BlobSelector, *, offset: int = 0, length: int | None = None
) -> bytes:
    """The bytes of one blob, or `length` of them from `offset` on; a length past the end is cut there.

    Raises:
        InputError: there is no such type, the property is not a Blob, the range is empty or starts behind the end, or
            the blob is a reference: then the message names its URI.
        NotFoundError: there is no entity of this id, or its blob is null.
    """
    info = stat_blob(catalog, snapshot, selector)
    if info.uri is not None or info.size is None:
        raise InputError(f"{selector} is kept outside the graph, at {info.uri}: read it there")
    if offset < 0 or (offset and offset >= info.size):
        raise InputError(f"{selector} has {info.size} bytes: there is nothing from byte {offset} on")
    if length is not None and length < 1:
        raise InputError("a range of a blob has at least one byte")
    wanted = info.size - offset if length is None else min(length, info.size - offset)
    return snapshot.open(_type_of(catalog, selector).table_key).read_blob(
        selector.property, info.row_id, offset, wanted
    )


def _type_of(catalog: Catalog, selector: BlobSelector) -> NodeType | EdgeType:
    """The type a selector names, whose property is known to be a Blob."""
    if selector.entity not in (None, *ENTITIES):
        raise InputError(f"an entity is a 'node' or an 'edge', not '{selector.entity}'")
    node = catalog.nodes.get(selector.type_name) if selector.entity != "edge" else None
    edge = catalog.edges.get(selector.type_name) if selector.entity != "node" else None
    found = node or edge
    if found is None:
        raise InputError(f"the schema has no {selector.entity or 'type'} '{selector.type_name}'")
    if node is not None and edge is not None:
        raise InputError(f"'{selector.type_name}' is a node and an edge: say which is meant")
    prop = found.properties.get(selector.property)
    if prop is None or prop.type.scalar is not Scalar.BLOB:
        raise InputError(f"'{selector.type_name}.{selector.property}' is not a Blob property")
    return found
