"""What everybody works with who makes, finishes or undoes a write."""

from __future__ import annotations

from msgspec import Struct, field

from omnigraph.engine.coordination.intents import IntentStore
from omnigraph.engine.manifest.listener import Nobody, PublishListener
from omnigraph.engine.manifest.publish import Manifest
from omnigraph.engine.storage.tables import TableStore


class RecoveryContext(Struct, frozen=True, eq=False):
    """The storage of one graph as those see it who write or recover; one per graph and process."""

    store: TableStore
    manifest: Manifest
    intents: IntentStore
    listener: PublishListener = field(default_factory=Nobody)
    """Who hears of what is committed."""
