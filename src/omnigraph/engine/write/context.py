"""What every operation of one open graph works with."""

from __future__ import annotations

from functools import cached_property

from msgspec import Struct, field

from omnigraph.catalog.model import Catalog
from omnigraph.engine.changes.kept import KeptDiffs
from omnigraph.engine.manifest.listener import Nobody, PublishListener
from omnigraph.engine.manifest.publish import Manifest
from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.recovery import IntentStore, RecoveryContext
from omnigraph.engine.schema.history import schema_of
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.values.external import ExternalBlobs
from omnigraph.engine.write.compaction import FoldsAhead
from omnigraph.engine.write.gate import WriteGate, admit
from omnigraph.engine.write.limits import WriteLimits
from omnigraph.engine.write.queue import WriteQueues
from omnigraph.ids import MAIN, Moment, check_actor, parse_branch


class GraphContext(Struct, frozen=True, eq=False, dict=True):
    """One graph, opened: its storage, its manifest and the schema it was opened with.

    `read_only` contexts refuse every write before it starts; a `gate` decides who may write.
    """

    store: TableStore
    manifest: Manifest
    catalog: Catalog
    schema_source: str
    read_only: bool = False
    external_blobs: ExternalBlobs = field(default_factory=ExternalBlobs)
    gate: WriteGate | None = None
    folds: FoldsAhead = field(default_factory=FoldsAhead)
    kept_diffs: KeptDiffs = field(default_factory=KeptDiffs)
    listener: PublishListener = field(default_factory=Nobody)
    """Who hears of what is committed: the reader of the graph, where there is one."""
    queues: WriteQueues | None = None
    """Where writes wait for each other to be published together; None where each is published by itself."""
    limits: WriteLimits = field(default_factory=WriteLimits)
    """How large a mutation or a load may be."""

    @property
    def root(self) -> str:
        """The canonical location of the graph."""
        return self.store.root

    def admit(
        self, action: str, actor: str | None, *, branch: str | None = None, target_branch: str | None = None
    ) -> str | None:
        """The actor of a write, once it is a name and may do this.

        Raises:
            InputError: it is not the name of an actor.
            PolicyError: the gate denies it, or there is one and no actor.
        """
        checked = check_actor(actor)
        admit(self.gate, action, checked, branch=branch, target_branch=target_branch)
        return checked

    def snapshot(self, branch: str, at: Moment | None = None) -> Snapshot:
        """The state of a branch that a read is meant to see: the newest, or one of the past."""
        if branch == MAIN and at is None:
            return self.manifest.snapshot()
        name = parse_branch(branch)
        return self.manifest.snapshot(name) if at is None else self.manifest.history.snapshot_at(at, name)

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
        return RecoveryContext(self.store, self.manifest, IntentStore(self.store.objects), self.listener)
