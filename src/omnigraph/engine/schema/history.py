"""The schemas a graph has had, so that the past is read with the schema of then.

The manifest names the schema of each of its versions by hash. The text of every schema that was ever replaced, or
replaced another, lies in `_schema_history/`, written before the version that needs it is published. A graph whose
schema never changed has neither.
"""

from __future__ import annotations

import threading

from omnigraph.catalog.migration import with_key_orders
from omnigraph.catalog.model import Catalog
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.manifest.records import SchemaRecord
from omnigraph.engine.manifest.state import ManifestState
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import FormatError

GENESIS = f"{layout.SCHEMA_HISTORY}/genesis.pg"
"""The schema a graph was created with, kept once it has another one."""

COMPILED_MAX = 128
_compiled: dict[tuple[str, str, tuple[object, ...]], tuple[str, Catalog]] = {}
_lock = threading.Lock()


def history_path(schema_hash: str) -> str:
    """Where the text of a schema is kept."""
    return f"{layout.SCHEMA_HISTORY}/{schema_hash.removeprefix('sha256:')}.pg"


def keep_texts(objects: ObjectStore, state: ManifestState, *, accepted: str, desired: str, desired_hash: str) -> None:
    """Keep the texts of both sides of a schema change; safe to repeat."""
    if state.schema is None:
        objects.write_text_if_absent(GENESIS, accepted)
    objects.write_text(history_path(desired_hash), desired)


def schema_of(objects: ObjectStore, record: SchemaRecord | None) -> tuple[str, Catalog] | None:
    """The text and catalog a manifest version was written under; None when the graph never had another schema.

    Raises:
        FormatError: the text is missing or is not the one that was recorded.
    """
    path = GENESIS if record is None else history_path(record.schema_hash)
    # The first schema's file has the same name in every graph, also in one made anew at an old place.
    key = (objects.root, path, objects.fingerprint([path]) if record is None else ())
    with _lock:
        found = _compiled.get(key)
    if found is None:
        text = objects.read_text_if_exists(path)
        if text is None:
            if record is None:
                return None
            raise FormatError(f"{path} is missing: the schema of an earlier version can no longer be read")
        found = (text, compile_schema(text, stored=True))
        if record is not None and found[1].schema_hash != record.schema_hash:
            raise FormatError(f"{path} was edited: it is not the schema that was recorded")
        with _lock:
            while len(_compiled) >= COMPILED_MAX:
                del _compiled[next(iter(_compiled))]
            _compiled[key] = found
    text, catalog = found
    return text, catalog if record is None else with_key_orders(catalog, record.key_orders)
