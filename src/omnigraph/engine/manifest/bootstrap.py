"""The last steps of a creation, which may have to be done by a later open."""

from __future__ import annotations

from omnigraph.engine.manifest.commit_rows import ACTORS_SCHEMA, COMMITS_SCHEMA
from omnigraph.engine.manifest.publish import Manifest
from omnigraph.engine.manifest.records import CONFIG
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import StorageError


def complete_creation(store: TableStore) -> None:
    """Finish what comes after the manifest exists: its configuration, the commit tables, the claim. Safe to repeat."""
    store.ensure_config(layout.MANIFEST, CONFIG)
    for path, schema in ((layout.COMMIT_ACTORS, ACTORS_SCHEMA), (layout.GRAPH_COMMITS, COMMITS_SCHEMA)):
        if not store.exists(path):
            try:
                store.create(path, schema)
            except StorageError as exc:
                if exc.kind != "precondition":
                    raise
    Manifest(store).history.project()
    store.objects.delete(layout.INIT_CLAIM)
