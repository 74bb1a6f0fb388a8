"""A schema as updates read it: a record names an entity that is there, and holds only what changes.

Nothing is required, because what a record leaves out stays; nothing has a default, because a default is for what is
new. Enums, ranges and patterns hold for whatever is given. What the schema demands beyond that is asked of the whole
entity, once the rest of it is known.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from omnigraph.catalog.model import Catalog, EntityType

_E = TypeVar("_E", bound=EntityType)


def partial(catalog: Catalog) -> Catalog:
    """The catalog that records of updates are read by."""
    nodes = {name: _partial(node) for name, node in catalog.nodes.items()}
    edges = {name: _partial(edge) for name, edge in catalog.edges.items()}
    return replace(catalog, nodes=nodes, edges=edges)


def _partial(entity: _E) -> _E:
    properties = {
        name: replace(prop, type=prop.type.with_nullable(True), default=None)
        for name, prop in entity.properties.items()
    }
    return replace(entity, properties=properties, partial=True)
