"""The three schema files change together, although they are three.

A schema change first writes the new ones beside the old, under the suffix `.staging`, then publishes, then renames.
Whether it happened is decided by the publish alone; these files only follow. Before the publish, a complete and
agreeing trio is the sign that every table is ready; an incomplete one is thrown away.
"""

from __future__ import annotations

import json
from typing import Any

from omnigraph.catalog.identity import hash_ir, ir_json, schema_ir, schema_state
from omnigraph.catalog.migration import key_orders
from omnigraph.catalog.model import Catalog
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.manifest.records import SchemaRecord
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import GraphError
from omnigraph.failpoints import SCHEMA_BETWEEN_RENAMES, SCHEMA_BETWEEN_STAGING_FILES, maybe_fail

KEY_ORDERS = "key_orders"


def state_text(catalog: Catalog) -> str:
    """The text of the state file, with the key orders that the schema's text no longer tells."""
    body: dict[str, Any] = schema_state(catalog)
    orders = key_orders(catalog)
    if orders:
        body[KEY_ORDERS] = {name: list(order) for name, order in sorted(orders.items())}
    return json.dumps(body, indent=2) + "\n"


def recorded_orders(state: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """The key orders a state file holds."""
    return {str(name): tuple(order) for name, order in (state.get(KEY_ORDERS) or {}).items()}


def staged_name(name: str) -> str:
    """Where a schema file waits for its publish."""
    return f"{name}{layout.STAGING_SUFFIX}"


def stage_files(objects: ObjectStore, source: str, catalog: Catalog) -> None:
    """Write the new trio beside the old one."""
    texts = (source, ir_json(schema_ir(catalog)), state_text(catalog))
    for number, (name, text) in enumerate(zip(layout.SCHEMA_FILES, texts, strict=True)):
        if number:
            maybe_fail(SCHEMA_BETWEEN_STAGING_FILES)
        objects.write_text(staged_name(name), text)


def any_staged(objects: ObjectStore) -> bool:
    """True while a schema change is, or was left, between its first staged file and its last rename."""
    return any(objects.has(staged_name(name)) for name in layout.SCHEMA_FILES)


def staged_record(objects: ObjectStore) -> SchemaRecord | None:
    """The schema a complete staged trio stands for; None when it is incomplete or contradicts itself."""
    texts = [objects.read_text_if_exists(staged_name(name)) for name in layout.SCHEMA_FILES]
    source, ir, state = texts
    if source is None or ir is None or state is None:
        return None
    try:
        facts = json.loads(state)
        accepted = str(facts["schema_ir_hash"])
        agrees = hash_ir(json.loads(ir)) == accepted == compile_schema(source, stored=True).schema_hash
    except (ValueError, KeyError, TypeError, GraphError):
        return None
    return SchemaRecord(accepted, recorded_orders(facts)) if agrees else None


def is_ready(objects: ObjectStore, schema_hash: str | None) -> bool:
    """True when the staged trio is whole and is this schema."""
    record = staged_record(objects)
    return record is not None and record.schema_hash == schema_hash


def promote(objects: ObjectStore) -> None:
    """Rename what is staged over what is live; each rename that was done before is skipped."""
    renamed = 0
    for name in layout.SCHEMA_FILES:
        if not objects.has(staged_name(name)):
            continue
        if renamed:
            maybe_fail(SCHEMA_BETWEEN_RENAMES)
        objects.rename_text(staged_name(name), name)
        renamed += 1


def discard(objects: ObjectStore) -> None:
    """Remove what is staged."""
    for name in layout.SCHEMA_FILES:
        objects.delete(staged_name(name))


def live_hash(objects: ObjectStore) -> str | None:
    """The hash of the live files if they agree, or None."""
    source, state = (objects.read_text_if_exists(name) for name in (layout.SCHEMA_SOURCE, layout.SCHEMA_STATE))
    try:
        accepted = str(json.loads(state or "")["schema_ir_hash"])
        return accepted if compile_schema(source or "", stored=True).schema_hash == accepted else None
    except (ValueError, KeyError, TypeError, GraphError):
        return None
