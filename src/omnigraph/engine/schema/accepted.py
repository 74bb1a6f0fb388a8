"""The accepted schema of a graph, as its three files and its manifest say together."""

from __future__ import annotations

import json
import logging
import time

from omnigraph.catalog.identity import hash_ir, ir_json, schema_ir
from omnigraph.catalog.migration import with_key_orders
from omnigraph.catalog.model import Catalog
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.manifest.publish import Manifest
from omnigraph.engine.schema.files import any_staged, recorded_orders, state_text
from omnigraph.engine.schema.history import schema_of
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import ConflictError, FormatError, GraphError

_log = logging.getLogger(__name__)
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
    source, catalog = _read_files(store, manifest)
    if record is not None and catalog.schema_hash != record.schema_hash:
        raise ConflictError(
            f"{layout.SCHEMA_SOURCE} is not the schema that is published: the schema files were exchanged outside"
            " omnigraph; put the accepted ones back"
        )
    return source, catalog


def restore_derived_files(store: TableStore, manifest: Manifest) -> bool:
    """Write the two files that follow from the schema's text, when both of them are missing; True when it did.

    Raises:
        ConflictError: the text is not the published schema, or branches exist that may have been written under another.
    """
    objects = store.objects
    if objects.has(layout.SCHEMA_IR) or objects.has(layout.SCHEMA_STATE) or any_staged(objects):
        return False
    _, catalog = load_contract(store, manifest)
    objects.write_text(layout.SCHEMA_IR, ir_json(schema_ir(catalog)))
    objects.write_text(layout.SCHEMA_STATE, state_text(catalog))
    _log.warning("%s and %s were missing and are written anew", layout.SCHEMA_IR, layout.SCHEMA_STATE)
    return True


def _read_files(store: TableStore, manifest: Manifest) -> tuple[str, Catalog]:
    """The schema's text and its catalog, if the three files agree."""
    texts = {name: store.objects.read_text_if_exists(name) for name in layout.SCHEMA_FILES}
    source, ir_text, state_json = (texts[name] for name in layout.SCHEMA_FILES)
    underivable = source is None or (ir_text is None) != (state_json is None)
    if underivable or (ir_text is None and len(manifest.branches()) > 1):
        missing = " and ".join(name for name, text in texts.items() if text is None)
        raise ConflictError(f"'{store.root}' lacks {missing}: restore what is missing, the data is untouched")
    assert source is not None
    try:
        catalog = compile_schema(source, stored=True)
    except GraphError as exc:
        raise ConflictError(f"{layout.SCHEMA_SOURCE} does not compile any more: {exc}") from exc
    if ir_text is None or state_json is None:
        record = manifest.snapshot().state.schema
        return source, catalog if record is None else with_key_orders(catalog, record.key_orders)
    accepted, orders = _accepted(state_json)
    if catalog.schema_hash != accepted:
        raise ConflictError(
            f"{layout.SCHEMA_SOURCE} was edited outside omnigraph: it no longer is the schema the data was written"
            " with; put the accepted text back"
        )
    if _hash_of(ir_text) != accepted:
        raise ConflictError(
            f"{layout.SCHEMA_IR} was edited outside omnigraph: it is not what {layout.SCHEMA_STATE} names; put the"
            f" accepted one back, or remove both files to have them made from {layout.SCHEMA_SOURCE}"
        )
    return source, with_key_orders(catalog, orders)


def _accepted(text: str) -> tuple[str, dict[str, tuple[str, ...]]]:
    """The hash of the accepted schema, and the key orders its text no longer tells."""
    try:
        state = json.loads(text)
        accepted = str(state["schema_ir_hash"])
        format_version = state["format_version"]
        orders = recorded_orders(state)
    except (ValueError, KeyError, TypeError) as exc:
        raise FormatError(f"{layout.SCHEMA_STATE} is unreadable: {exc}") from exc
    if format_version != 1:
        raise FormatError(f"{layout.SCHEMA_STATE} has format {format_version}, newer than this release: upgrade first")
    return accepted, orders


def _hash_of(ir_text: str) -> str | None:
    try:
        return hash_ir(json.loads(ir_text))
    except ValueError:
        return None
