"""The type that somebody names."""

from __future__ import annotations

import re

from omnigraph.catalog.model import Catalog, EdgeType, NodeType
from omnigraph.catalog.suggestion import did_you_mean
from omnigraph.errors import InputError
from omnigraph.ids import TableKey

_COUNTER = re.compile(r"__index_level_\d+__")


def counts_rows(column: str) -> bool:
    """True for the numbers of its rows, which pandas stores beside the columns of a frame that was filtered."""
    return _COUNTER.fullmatch(column) is not None


def entity_of(name: str, catalog: Catalog) -> NodeType | EdgeType:
    """The type a user names: `Person`, `Knows` (edges in any case), or exactly `node:Person`, `edge:Knows`.

    Raises:
        InputError: there is no such type, or a node and an edge type share the name.
    """
    exact = catalog.tables.get(TableKey(name))
    if exact is not None:
        return exact
    node, edge = catalog.nodes.get(name), catalog.edges_by_lower_name.get(name.lower())
    if node is not None and edge is not None:
        raise InputError(f"'{name}' is a node type and an edge type: write 'node:{name}' or 'edge:{edge.name}'")
    found: NodeType | EdgeType | None = node or edge
    if found is None:
        known = sorted([*catalog.nodes, *catalog.edges])
        guess = did_you_mean(name.rpartition(":")[2], known)
        raise InputError(f"'{name}' is not a type of this schema, which has {', '.join(known) or 'none'}{guess}")
    return found


def entity_named(name: str, catalog: Catalog) -> NodeType | EdgeType:
    """The type of a table, its name like that of `entity_of`, where edges are in any case behind `edge:` as well.

    Raises:
        InputError: there is no such type, or a node and an edge type share the name.
    """
    kind, _, bare = name.rpartition(":")
    node, edge = catalog.nodes.get(bare), catalog.edges_by_lower_name.get(bare.lower())
    if not kind and node is not None and edge is not None:
        raise InputError(f"'{name}' is a node type and an edge type: write 'node:{name}' or 'edge:{name}'")
    found = {"": node or edge, "node": node, "edge": edge}.get(kind)
    if found is None:
        raise InputError(f"the schema has no type '{name}'{did_you_mean(bare, [*catalog.nodes, *catalog.edges])}")
    return found
