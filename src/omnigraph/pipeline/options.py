"""What the options of a read or write through `format("omnigraph")` name."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.engine.operations.open import open_graph
from omnigraph.engine.storage.layout import normalise_root
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import InputError


def location(options: Mapping[str, str]) -> str:
    """The graph's location in the options of a read or write."""
    path = options.get("path") or options.get("root")
    if not path:
        raise InputError('name the graph: spark.read.format("omnigraph").option("type", …).load("path/to/graph")')
    return normalise_root(path)


def type_option(options: Mapping[str, str]) -> str:
    """The type in the options of a read or write."""
    name = options.get("type")
    if not name:
        raise InputError('name the type: .option("type", "Person")')
    return name


def open_context(root: str, *, read_only: bool) -> GraphContext:
    """The graph at a location, opened in this process."""
    return open_graph(TableStore.at(root), read_only=read_only)
