"""Folders of tables that no state of the graph knows.

A change of the schema creates its tables before it publishes them. One that stood still, was taken for dead and undone,
may create one after that; nobody will ever see it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from omnigraph.engine.coordination.intent import WriterKind
from omnigraph.engine.coordination.lock import HeldLock
from omnigraph.engine.coordination.schema_lock import locked_schema
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.lance_internals.files import TABLE_FOLDERS
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import ConflictError

_log = logging.getLogger(__name__)
_KINDS = ("nodes", "edges")


def unregistered(objects: ObjectStore, snapshots: Iterable[Snapshot]) -> list[str]:
    """The folders where tables lie, of which none of these states knows one, now or at an earlier time."""
    folders = [path for kind in _KINDS for path in sorted(objects.list_folders(kind))]
    locations = [location for snapshot in snapshots for location in snapshot.state.locations.values()]
    registered = {location.path for location in locations}
    # A type that was dropped and declared anew has a new place; earlier commits still read the old ones.
    earlier = {
        layout.table_path(location.table_key, incarnation)
        for location in locations
        for incarnation in range(1, location.incarnation)
    }
    return [path for path in folders if path not in registered | earlier]


def count_files(objects: ObjectStore, path: str) -> tuple[int, int]:
    """How many files a table has directly in its folders, and their bytes."""
    sizes = [int(entry["size"]) for folder in TABLE_FOLDERS for entry in objects.entries(f"{path}/{folder}")]
    return len(sizes), sum(sizes)


def drop_orphan_tables(context: GraphContext) -> dict[str, tuple[int, int]]:
    """Remove the folders of tables that nobody knows; returns them, with what `count_files` said of each.

    While the schema is locked nobody creates tables, and whoever has lost that lock will not publish any. Where
    somebody changes the schema they are left to the next cleanup.
    """
    if not unregistered(context.store.objects, context.manifest.snapshots()):
        return {}
    try:
        return locked_schema(context.recovery, None, partial(_drop, context))
    except ConflictError as busy:
        _log.info("tables that nobody knows stay for now: %s", busy)
        return {}


def _drop(context: GraphContext, lock: HeldLock) -> dict[str, tuple[int, int]]:
    objects, removed = context.store.objects, dict[str, tuple[int, int]]()
    if any(intent.writer_kind is WriterKind.SCHEMA_APPLY for intent in context.recovery.intents.pending()):
        return removed  # Recovery may finish it, and then they are known.
    for path in unregistered(objects, context.manifest.snapshots()):
        found = count_files(objects, path)
        if not lock.is_held:
            raise ConflictError("this process stood still while it held the schema lock, and lost it — retry")
        _log.warning("the table in %s, which no state of the graph knows, is removed", path)
        objects.delete_prefix(path)
        removed[path] = found
    return removed
