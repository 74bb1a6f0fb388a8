"""Create a graph: claim the root, write the schema, create the tables, and commit by creating the manifest.

Creating `__manifest` is the moment the graph exists. Before it, a failure removes what this call made; after it,
nothing is ever cleaned up, because a failed acknowledgement must not delete the schema of a live graph.
"""

from __future__ import annotations

import json
import logging

from omnigraph import failpoints
from omnigraph.catalog.arrow import table_schema
from omnigraph.catalog.identity import ir_json, schema_ir
from omnigraph.catalog.model import Catalog
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.manifest import records
from omnigraph.engine.manifest.bootstrap import complete_creation
from omnigraph.engine.manifest.records import CommitRecord, TableEntry
from omnigraph.engine.manifest.state import genesis
from omnigraph.engine.schema.files import state_text
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.lance_internals.environment import check_commits_end
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import AlreadyExistsError, GraphError, StorageError
from omnigraph.ids import CommitId, new_ulid, now_micros

_OF_THE_SYSTEM = (".DS_Store", "lost+found")
"""What an operating system puts into folders and volumes by itself."""

logger = logging.getLogger(__name__)


def create_graph(store: TableStore, schema_source: str, *, force: bool = False) -> Catalog:
    """Create an empty graph with this schema at the store's root.

    `force` takes over schema files that a failed creation left behind; it never touches an existing graph.

    Raises:
        ParseError, SchemaError: the schema is not valid; nothing was written.
        AlreadyExistsError: the root holds a graph or something else, or is being made into one.
        StorageError: the environment would let every write hang.
    """
    catalog = compile_schema(schema_source)
    check_commits_end()
    store.renew_if_replaced()
    _refuse_used_root(store, force=force)
    store.objects.require_conditional_puts()
    if not _claim(store) and not force:
        raise AlreadyExistsError(
            f"'{store.root}' is being initialized, or an earlier attempt was cut short; pass --force to take over"
        )
    try:
        _write_schema(store, schema_source, catalog)
        entries = _create_tables(store, catalog)
        _create_manifest(store, entries)
    except GraphError:
        _undo(store)
        raise
    failpoints.maybe_fail(failpoints.INIT_POST_MANIFEST_CREATE)
    complete_creation(store)
    failpoints.maybe_fail(failpoints.INIT_AFTER_COORDINATOR)
    return catalog


def _claim(store: TableStore) -> bool:
    """True when the root is ours to fill. It is the first write there, so the one that meets a forbidden place."""
    try:
        return store.objects.write_text_if_absent(layout.INIT_CLAIM, json.dumps({"claimed_at": now_micros()}))
    except StorageError as exc:
        raise StorageError(f"cannot create a graph at '{store.root}': {exc.message}", kind=exc.kind) from exc


def _refuse_used_root(store: TableStore, *, force: bool) -> None:
    if store.exists(layout.MANIFEST):
        raise AlreadyExistsError(f"graph already initialized at '{store.root}'; open it, or choose another location")
    if not force and any(store.objects.exists(name) for name in layout.SCHEMA_FILES):
        raise AlreadyExistsError(f"graph already initialized at '{store.root}'; pass --force to overwrite")
    strangers = _strangers(store)
    if strangers:
        shown = ", ".join(strangers[:3]) + (", …" if len(strangers) > 3 else "")
        raise AlreadyExistsError(
            f"'{store.root}' holds other things ({shown}), and a graph has a folder of its own: choose another one,"
            " such as graph.omni inside it"
        )


def _strangers(store: TableStore) -> list[str]:
    """What lies at the root and is not of a graph; where an attempt was cut short, its leftovers are."""
    names = [name for name in store.objects.names_at_root() if name not in _OF_THE_SYSTEM]
    if not {*layout.SCHEMA_FILES, layout.INIT_CLAIM}.intersection(names):
        return names
    return [name for name in names if name.removesuffix(layout.STAGING_SUFFIX) not in layout.ROOT_NAMES]


def _write_schema(store: TableStore, schema_source: str, catalog: Catalog) -> None:
    store.objects.write_text(layout.SCHEMA_SOURCE, schema_source)
    failpoints.maybe_fail(failpoints.INIT_AFTER_SCHEMA_WRITTEN)
    store.objects.write_text(layout.SCHEMA_IR, ir_json(schema_ir(catalog)))
    store.objects.write_text(layout.SCHEMA_STATE, state_text(catalog))
    failpoints.maybe_fail(failpoints.INIT_AFTER_CONTRACT_WRITTEN)


def _create_tables(store: TableStore, catalog: Catalog) -> list[TableEntry]:
    entries = []
    for key, entity in catalog.tables.items():
        path = layout.table_path(key)
        if store.exists(path):
            # Left by an attempt that never created a manifest, so nobody can have read or written it.
            store.objects.delete_prefix(path)
        handle = store.create(path, table_schema(entity))
        entries.append(TableEntry(key, path, handle.version, None, 0))
    return entries


def _create_manifest(store: TableStore, entries: list[TableEntry]) -> None:
    commit = CommitRecord(CommitId(new_ulid()), None, 1, None, None, None, now_micros())
    rows = genesis(entries, commit).to_table()
    try:
        store.create(layout.MANIFEST, records.MANIFEST_SCHEMA, rows)
        failpoints.maybe_fail(failpoints.INIT_MANIFEST_ACK_LOST)
    except StorageError as exc:
        if exc.kind == "precondition":
            raise AlreadyExistsError(f"graph already initialized at '{store.root}'") from exc
        raise


def _undo(store: TableStore) -> None:
    """Remove what this call made, unless the manifest exists after all; trouble here never hides the first error."""
    try:
        if store.exists(layout.MANIFEST):
            return
        for name in layout.SCHEMA_FILES:
            store.objects.delete(name)
        for folder in ("nodes", "edges"):
            store.objects.delete_prefix(folder)
        store.objects.delete(layout.INIT_CLAIM)
    except GraphError as exc:
        logger.warning("what a failed creation left at %s could not be removed: %s", store.root, exc)
