"""Open a graph: check that one is there, that this release can read it, and that its schema files agree."""

from __future__ import annotations

import re

from omnigraph.engine.coordination.schema_lock import clear_leftover_lock
from omnigraph.engine.manifest.bootstrap import complete_creation
from omnigraph.engine.manifest.publish import Manifest
from omnigraph.engine.recovery import IntentStore, RecoveryContext, sweep
from omnigraph.engine.recovery.leftovers import settle_leftovers
from omnigraph.engine.schema.accepted import load_contract, restore_derived_files
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.lance_internals.environment import check_commits_end
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import GraphNotFoundError, StorageError

_PORT = re.compile(r":\d+(?:/|$)")
"""What the address of a server has, and that of a store hardly ever."""


def open_graph(store: TableStore, *, read_only: bool = False) -> GraphContext:
    """The graph at the store's root.

    A read-write open also brings a graph of an earlier format to today's, finishes a creation that was cut short after
    the graph existed, and resolves writes that a crash cut short; a read-only one writes nothing at all.

    Raises:
        GraphNotFoundError: there is no graph here.
        FormatError: it is of a newer format, or corrupt.
        ConflictError: the schema files contradict each other.
        InternalError: an unfinished write cannot be resolved; its sidecar is kept.
        StorageError: the environment would let every write hang.
    """
    if not read_only:
        check_commits_end()
    store.renew_if_replaced()
    manifest = Manifest(store)
    try:
        if store.objects.is_impossible():
            raise StorageError(f"opening {store.root}: it is no folder", kind="not_found")
        # A graph that is not there raises first: asking the store writes, and nothing shall be written then.
        manifest.snapshot()
        if not read_only:
            store.objects.require_conditional_puts()
            manifest.make_current()
    except StorageError as exc:
        if exc.kind == "not_found" or not store.exists(layout.MANIFEST):
            way = "create one with omnigraph.create or `omnigraph init`"
            if _PORT.search(store.root):
                way = f"the address of a server begins with http:// or https://; {way}"
            raise GraphNotFoundError(f"there is no graph at '{store.root}'; {way}") from exc
        raise
    if not read_only:
        if store.objects.exists(layout.INIT_CLAIM):
            complete_creation(store)
        recovery = RecoveryContext(store, manifest, IntentStore(store.objects))
        sweep(recovery)
        settle_leftovers(recovery)
        clear_leftover_lock(recovery)
        restore_derived_files(store, manifest)
    # Read after recovery, which may just have put other schema files in place.
    source, catalog = load_contract(store, manifest)
    return GraphContext(store, manifest, catalog, source, read_only)
