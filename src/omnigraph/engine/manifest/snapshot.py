"""Every table at one version: what a query reads, and what a write is based on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from omnigraph.dataclass import dataclass
from omnigraph.engine.manifest.records import WRITTEN_BY, TableEntry
from omnigraph.engine.manifest.state import ManifestState
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.tables import OPERATION_ID, TableStore
from omnigraph.errors import InternalError, StorageError, VersionReclaimedError
from omnigraph.ids import CommitId, TableKey


@dataclass(frozen=True)
class Snapshot:
    """One immutable state of the graph on one branch. It never changes, whatever others commit."""

    state: ManifestState
    store: TableStore

    @property
    def branch(self) -> str:
        """The branch it was read from."""
        return self.state.branch

    @property
    def version(self) -> int:
        """The manifest version, which is the graph version."""
        return self.state.version

    @property
    def head(self) -> CommitId | None:
        """The commit this state is."""
        return self.state.head

    @property
    def memo(self) -> dict[Any, Any]:
        """What readers derive from this state, shared by every snapshot of it."""
        return self.state.memo

    @property
    def schema_hash(self) -> str | None:
        """The hash of the schema it was written under; None while that is the one the graph was created with."""
        return None if self.state.schema is None else self.state.schema.schema_hash

    @property
    def id(self) -> str:
        """A name for exactly this state, usable wherever a commit id is."""
        return f"manifest:{self.branch}:v{self.version}"

    @cached_property
    def entries(self) -> Mapping[TableKey, TableEntry]:
        """The visible tables in key order."""
        return MappingProxyType(self.state.entries)

    def entry(self, table_key: TableKey) -> TableEntry:
        """The table of a type.

        Raises:
            InternalError: the catalog knows a type that the manifest does not.
        """
        try:
            return self.entries[table_key]
        except KeyError:
            raise InternalError(f"'{table_key}' is not published in {self.id}") from None

    def open(self, table_key: TableKey) -> TableHandle:
        """The table of a type at this snapshot's version.

        Raises:
            VersionReclaimedError: cleanup has removed that version, or its branch was deleted.
        """
        entry = self.entry(table_key)
        try:
            handle = self.store.open_pinned(entry.path, branch=entry.branch, version=entry.version, tag=entry.e_tag)
            self._check_writer(handle, entry)
            return handle
        except StorageError as exc:
            if exc.kind != "not_found":
                raise
            raise VersionReclaimedError(
                f"version {entry.version} of '{table_key}' has been removed by cleanup; read a newer commit",
                table_key=table_key,
                version=entry.version,
            ) from exc

    def _check_writer(self, handle: TableHandle, entry: TableEntry) -> None:
        """Refuse a version that only has the same number: that of a branch which was deleted and created anew."""
        writer = entry.metadata.get(WRITTEN_BY)
        if entry.branch is None or writer is None or handle.memo.get(WRITTEN_BY) == writer:
            return
        [made] = self.store.transactions(entry.path, entry.branch, after=entry.version - 1, upto=entry.version)
        if made.properties.get(OPERATION_ID) != writer:
            raise VersionReclaimedError(
                f"version {entry.version} of '{entry.table_key}' was on a branch that has been deleted; read the one"
                f" that is called '{entry.branch}' now",
                table_key=entry.table_key,
                version=entry.version,
            )
        handle.memo[WRITTEN_BY] = writer
