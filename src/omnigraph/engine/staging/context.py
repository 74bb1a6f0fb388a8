"""What every operation of one open graph works with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from omnigraph.catalog.model import Catalog
from omnigraph.engine.manifest.publish import Manifest
from omnigraph.engine.recovery import IntentStore, RecoveryContext
from omnigraph.engine.storage.tables import TableStore


@dataclass(frozen=True)
class GraphContext:
    """One graph, opened: its storage, its manifest and the schema it was opened with.

    `read_only` contexts refuse every write before it starts.
    """

    store: TableStore
    manifest: Manifest
    catalog: Catalog
    schema_source: str
    read_only: bool = False

    @property
    def root(self) -> str:
        """The canonical location of the graph."""
        return self.store.root

    @cached_property
    def recovery(self) -> RecoveryContext:
        """What healing, rolling back and judging drift work with."""
        return RecoveryContext(self.store, self.manifest, IntentStore(self.store.objects))
