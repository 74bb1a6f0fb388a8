"""The accepted schema of a graph, as its three files and its manifest say together."""

from __future__ import annotations

import json
import time

from omnigraph.catalog.migration import with_key_orders
from omnigraph.catalog.model import Catalog
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.manifest.publish import Manifest
from omnigraph.engine.manifest.schemas import schema_of
from omnigraph.engine.recovery.schema_files import any_staged, recorded_orders
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import ConflictError, FormatError, GraphError

_LOOKS = 4
_LOOK_PAUSE_SECONDS = 0.02


def load_contract(store: TableStore, manifest: Manifest) -> tuple[str, Catalog]:
    """The accepted schema and its catalog, after checking that the schema files agree with each other.

    While files are being exchanged by a schema change, the schema is the one the manifest names.

    Raises:
        ConflictError: they do not; somebody edited one of them by hand.
    """
    for _ in range(_LOOKS - 1):
        try:
            return _look_at_contract(store, manifest)
        except ConflictError:
            # Perhaps files were exchanged between reading one and the next; then the second look agrees.
            time.sleep(_LOOK_PAUSE_SECONDS)
    return _look_at_contract(store, manifest)


def _look_at_contract(store: TableStore, manifest: Manifest) -> tuple[str, Catalog]:
    record = manifest.snapshot().state.schema
    if record is not None and any_staged(store.objects):
        published = schema_of(store.objects, record)
        if published is not None:
            return published
    source, catalog = _read_files(store)
    if record is not None and catalog.schema_hash != record.schema_hash:
        raise ConflictError(
            f"{layout.SCHEMA_SOURCE} is not the schema that is published: the schema files were exchanged outside"
            " omnigraph; put the accepted ones back"
        )
    return source, catalog


def _read_files(store: TableStore) -> tuple[str, Catalog]:
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
        orders = recorded_orders(state)
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
    return source, with_key_orders(catalog, orders)
