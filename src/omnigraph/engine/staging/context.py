"""What every operation of one open graph works with."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property

from omnigraph.catalog.model import Catalog
from omnigraph.dataclass import dataclass
from omnigraph.engine.manifest.publish import Manifest
from omnigraph.engine.manifest.schemas import schema_of
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery import IntentStore, RecoveryContext
from omnigraph.engine.staging.external import ExternalBlobs
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
    external_blobs: ExternalBlobs = field(default_factory=ExternalBlobs)

    @property
    def root(self) -> str:
        """The canonical location of the graph."""
        return self.store.root

    def catalog_of(self, snapshot: Snapshot, *, past: bool = False) -> Catalog:
        """The catalog a snapshot was written under, which an earlier or a newer one is not always the graph's now.

        `past` says that the snapshot may be from before the first change of the schema.
        """
        record = snapshot.state.schema
        if record is None and not past:
            return self.catalog
        if record is not None and record.schema_hash == self.catalog.schema_hash:
            return self.catalog
        found = schema_of(self.store.objects, record)
        return self.catalog if found is None else found[1]

    @cached_property
    def recovery(self) -> RecoveryContext:
        """What healing, rolling back and judging drift work with."""
        return RecoveryContext(self.store, self.manifest, IntentStore(self.store.objects))
