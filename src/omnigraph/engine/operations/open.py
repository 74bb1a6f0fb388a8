"""Open a graph: check that one is there, that this release can read it, and that its schema files agree."""

from __future__ import annotations

import json

from omnigraph.catalog.model import Catalog
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.manifest.bootstrap import complete_creation
from omnigraph.engine.manifest.publish import Manifest
from omnigraph.engine.recovery import sweep
from omnigraph.engine.staging.context import GraphContext
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import ConflictError, FormatError, GraphError, GraphNotFoundError, StorageError


def open_graph(store: TableStore, *, read_only: bool = False) -> GraphContext:
    """The graph at the store's root.

    A read-write open also finishes a creation that was cut short after the graph existed, and resolves writes that
    a crash cut short; a read-only one writes nothing at all.

    Raises:
        GraphNotFoundError: there is no graph here.
        FormatError: it is of a newer format, or corrupt.
        ConflictError: the schema files contradict each other.
        InternalError: an unfinished write cannot be resolved; its sidecar is kept.
    """
    manifest = Manifest(store)
    try:
        manifest.snapshot()
    except StorageError as exc:
        if exc.kind == "not_found" or not store.exists(layout.MANIFEST):
            raise GraphNotFoundError(
                f"there is no graph at '{store.root}'; create one with omnigraph.create or `omnigraph init`"
            ) from exc
        raise
    source, catalog = load_contract(store)
    context = GraphContext(store, manifest, catalog, source, read_only)
    if not read_only:
        if store.objects.exists(layout.INIT_CLAIM):
            complete_creation(store)
        sweep(context.recovery)
    return context


def load_contract(store: TableStore) -> tuple[str, Catalog]:
    """The accepted schema and its catalog, after checking that the three schema files agree.

    Raises:
        ConflictError: they do not; somebody edited one of them by hand.
    """
    source = store.objects.read_text_if_exists(layout.SCHEMA_SOURCE)
    state_text = store.objects.read_text_if_exists(layout.SCHEMA_STATE)
    if source is None or state_text is None:
        raise ConflictError(
            f"'{store.root}' lacks {layout.SCHEMA_SOURCE if source is None else layout.SCHEMA_STATE}:"
            " restore the file, the data is untouched"
        )
    try:
        state = json.loads(state_text)
        accepted = state["schema_ir_hash"]
        format_version = state["format_version"]
    except (ValueError, KeyError, TypeError) as exc:
        raise FormatError(f"{layout.SCHEMA_STATE} is unreadable: {exc}") from exc
    if format_version != 1:
        raise FormatError(f"{layout.SCHEMA_STATE} has format {format_version}, newer than this release: upgrade first")
    try:
        catalog = compile_schema(source)
    except GraphError as exc:
        raise ConflictError(f"{layout.SCHEMA_SOURCE} does not compile any more: {exc}") from exc
    if catalog.schema_hash != accepted:
        raise ConflictError(
            f"{layout.SCHEMA_SOURCE} was edited outside omnigraph: it no longer is the schema the data was written"
            " with; put the accepted text back"
        )
    return source, catalog
