"""Every table at one version: what a query reads, and what a write is based on."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

from omnigraph.engine.manifest.listed import state_table
from omnigraph.engine.manifest.records import WRITTEN_BY, TableEntry
from omnigraph.engine.manifest.state import ManifestState
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.storage.transactions import OPERATION_ID
from omnigraph.errors import InternalError, StorageError, VersionReclaimedError
from omnigraph.ids import CommitId, TableKey
from omnigraph.shown import Shown, Table

StateIdentity: TypeAlias = tuple[Hashable, ...]


@dataclass(frozen=True, repr=False)
class Snapshot(Shown):
    """One immutable state of the graph on one branch. It never changes, whatever others commit."""

    state: ManifestState
    store: TableStore

    def _table(self) -> Table:
        return state_table(f"{self.branch} at {self.head or self.id}, version {self.version}", self.entries)

    @property
    def branch(self) -> str:
        """The branch it was read from."""
        return self.state.branch

    @property
    def version(self) -> int:
        """The manifest version, which is the graph version."""
        return self.state.version

    @cached_property
    def head(self) -> CommitId | None:
        """The commit this state is."""
        return self.state.head

    @cached_property
    def identity(self) -> StateIdentity:
        """Names this state for ever: a branch made anew may count to the same version, but a commit occurs once.

        States from before commits were recorded are told apart by their tables.
        """
        entries = () if self.head is not None else tuple(self.entries.values())
        tables = tuple((entry.path, entry.branch, entry.version, entry.e_tag) for entry in entries)
        return self.branch, self.version, self.head, tables

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
            handle.table_key = table_key
            return handle
        except StorageError as exc:
            if exc.kind != "not_found":
                raise
            raise reclaimed(table_key, entry.version) from exc

    def _check_writer(self, handle: TableHandle, entry: TableEntry) -> None:
        """Refuse a version that only has the same number: that of a branch which was deleted and created anew."""
        writer = entry.metadata.get(WRITTEN_BY)
        if entry.branch is None or writer is None or handle.written_by == writer:
            return
        [made] = self.store.transactions(entry.path, entry.branch, after=entry.version - 1, upto=entry.version)
        if made.properties.get(OPERATION_ID) != writer:
            raise VersionReclaimedError(
                f"version {entry.version} of '{entry.table_key}' was on a branch that has been deleted; read the one"
                f" that is called '{entry.branch}' now",
                table_key=entry.table_key,
                version=entry.version,
            )
        handle.written_by = writer


def reclaimed(table: str, version: int) -> VersionReclaimedError:
    """What is said of a version that is not there any more."""
    return VersionReclaimedError(
        f"version {version} of '{table}' has been removed by cleanup; read a newer commit",
        table_key=table,
        version=version,
    )
