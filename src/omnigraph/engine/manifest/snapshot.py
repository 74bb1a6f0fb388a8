"""Every table at one version: what a query reads, and what a write is based on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from threading import Thread
from types import MappingProxyType
from typing import Any, Protocol

from omnigraph.dataclass import dataclass
from omnigraph.engine.manifest.records import WRITTEN_BY, TableEntry
from omnigraph.engine.manifest.state import ManifestState
from omnigraph.engine.storage.handle import TABLE_KEY, TableHandle
from omnigraph.engine.storage.tables import OPERATION_ID, TableStore
from omnigraph.errors import GraphError, InternalError, StorageError, VersionReclaimedError
from omnigraph.ids import CommitId, TableKey

READER = "reader"
"""Where in the memo of a state whoever reads it can be told what will replace it."""
logger = logging.getLogger(__name__)


class ReadsTables(Protocol):
    """A reader of one state."""

    def follow(self, handles: Mapping[TableKey, TableHandle]) -> None:
        """Get ready to read the state in which these tables have taken the place of others."""
        ...

    def settle(self, snapshot: Snapshot) -> None:
        """The state is published: what was made ready for it may be used."""
        ...


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
            handle.memo[TABLE_KEY] = table_key
            return handle
        except StorageError as exc:
            if exc.kind != "not_found":
                raise
            raise VersionReclaimedError(
                f"version {entry.version} of '{table_key}' has been removed by cleanup; read a newer commit",
                table_key=table_key,
                version=entry.version,
            ) from exc

    def hand_over(self, handles: Mapping[TableKey, TableHandle]) -> Callable[[Snapshot], None]:
        """Tell the reader of this state, if it has one, which tables a commit is about to put in their place.

        The reader gets ready beside the caller, who has the commit to publish and waits for storage meanwhile. What is
        returned wants to be told the state that was published.
        """
        reader: ReadsTables | None = self.memo.get(READER)
        if reader is None:
            return _ignore
        thread = Thread(target=_following, args=(partial(reader.follow, dict(handles)),), name="omnigraph-follow")
        thread.start()
        return lambda published: None if thread.is_alive() else _following(partial(reader.settle, published))

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


def _ignore(published: Snapshot) -> None:
    """For those who have no reader."""


def _following(do: Callable[[], None]) -> None:
    try:
        do()
    except (GraphError, OSError) as exc:
        # Nothing is lost but time: the first query that needs the tables reads them itself, and says what is wrong.
        logger.info("the next state could not be read ahead: %s", exc)
