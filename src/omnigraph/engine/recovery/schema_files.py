"""The three schema files change together, although they are three.

A schema change first writes the new ones beside the old, under the suffix `.staging`, then publishes, then renames.
Whether it happened is decided by the publish alone; these files only follow. Before the publish, a complete and
agreeing trio is the sign that every table is ready; an incomplete one is thrown away.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from omnigraph.catalog.identity import hash_ir, ir_json, schema_ir, schema_state
from omnigraph.catalog.migration import key_orders
from omnigraph.catalog.model import Catalog
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.manifest.records import SchemaRecord
from omnigraph.engine.recovery.intent import Intent, WriterKind
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import ConflictError, GraphError
from omnigraph.failpoints import SCHEMA_BETWEEN_RENAMES, SCHEMA_BETWEEN_STAGING_FILES, maybe_fail

if TYPE_CHECKING:
    from omnigraph.engine.recovery.observe import RecoveryContext

_log = logging.getLogger(__name__)
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
        agrees = hash_ir(json.loads(ir)) == accepted == compile_schema(source).schema_hash
    except (ValueError, KeyError, TypeError, GraphError):
        return None
    return SchemaRecord(accepted, recorded_orders(facts)) if agrees else None


def is_ready(objects: ObjectStore, intent: Intent) -> bool:
    """True when the staged trio is whole and is the one this intent recorded."""
    record = staged_record(objects)
    return record is not None and record.schema_hash == intent.target_schema_hash


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


def settle_leftovers(ctx: RecoveryContext) -> None:
    """Decide about staged files that no intent speaks for: what is published wins.

    Raises:
        ConflictError: the live files do not fit either; an operator has to look.
    """
    objects = ctx.store.objects
    if not any_staged(objects) or any(i.writer_kind is WriterKind.SCHEMA_APPLY for i in ctx.intents.pending()):
        return
    published = ctx.manifest.snapshot().schema_hash
    staged = staged_record(objects)
    live = _live_hash(objects)
    if published is not None and (staged is None or staged.schema_hash == published) and live != published:
        _log.warning("the files of a published schema change are put in place")
        promote(objects)
    elif live is not None and published in (None, live):
        _log.warning("the files of a schema change that was not published are removed")
        discard(objects)
    else:
        raise ConflictError(
            f"schema files with the ending {layout.STAGING_SUFFIX} are left, and neither they nor the live ones are"
            " the published schema: put the right ones in place"
        )


def _live_hash(objects: ObjectStore) -> str | None:
    """The hash of the live files if they agree."""
    source, state = (objects.read_text_if_exists(name) for name in (layout.SCHEMA_SOURCE, layout.SCHEMA_STATE))
    try:
        accepted = str(json.loads(state or "")["schema_ir_hash"])
        return accepted if compile_schema(source or "").schema_hash == accepted else None
    except (ValueError, KeyError, TypeError, GraphError):
        return None
