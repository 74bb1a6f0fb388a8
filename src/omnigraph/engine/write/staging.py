"""The files of a write: which thread writes them, and when.

Files that nothing refers to may come at any time. So a small write has them written by other threads while this one
still judges whether it breaks a rule of the schema, and they may come while it arms; they are waited for before the
first effect, and removed again when there is none. A large write is judged first, because its files would be much to
write for nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial

from msgspec import Struct

from omnigraph.engine.commit.ahead import Ahead
from omnigraph.engine.commit.cancellation import Cancellation
from omnigraph.engine.commit.request import Coming, Stage
from omnigraph.engine.manifest.records import TableEntry
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.lance_internals.files import branch_location
from omnigraph.engine.storage.staged import StagedWrite
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.write.rows import Resolved, WriteKind
from omnigraph.errors import GraphError, InternalError
from omnigraph.ids import TableKey

logger = logging.getLogger(__name__)

AHEAD_ROWS = 1_024
"""Up to so many rows that are written or removed, the files of a write are written while it is judged."""
PARALLEL_ROWS = 50_000
STAGING_THREADS = 8


class TableWrite(Struct):
    """The one change of one table, ready to be staged and committed."""

    table_key: TableKey
    entry: TableEntry
    kind: WriteKind
    stage: Stage
    forks: bool = False
    base: TableHandle | None = None
    """The version that the change is staged on; None for a table that the branch has yet to fork."""
    staged: StagedWrite | None = None
    coming: Coming | None = None
    """How `staged` will be had, while another thread may still be writing its files."""
    rows: Resolved | None = None
    staged_elsewhere: bool = False
    removable: bool = False
    """True when what is staged names every file that was written for it, and nobody else counts on them."""
    then: Callable[[], Stage | None] | None = None
    """Asked once the change is staged: a second commit to the table, for what is better appended behind the first."""

    @property
    def is_staged(self) -> bool:
        """False when there was nothing to stage."""
        return self.staged is not None or self.coming is not None

    @property
    def place(self) -> TableHandle:
        """The version that the change is staged on, where there is one beforehand."""
        if self.base is None:
            raise InternalError(f"the branch has yet to fork '{self.table_key}'")
        return self.base


class Staging:
    """The files of the tables of one write: `begin` before it is judged, `finish` after, `discard` when it is over."""

    def __init__(self, store: TableStore, cancellation: Cancellation, writes: Sequence[TableWrite]) -> None:
        self._store, self._cancellation = store, cancellation
        self._writes = [write for write in writes if not write.forks]
        self._rows = sum(write.rows.touched for write in self._writes if write.rows is not None)
        self._begun: dict[TableKey, Ahead[StagedWrite]] = {}
        self._had: set[TableKey] = set()

    def begin(self) -> None:
        """Have the files of a small write written beside what comes next."""
        small = self._rows <= AHEAD_ROWS and self._store.is_local
        if small and all(write.removable for write in self._writes):
            for write in self._writes:
                if write.rows is not None and write.rows.touched:
                    self._begun[write.table_key] = Ahead(partial(self._stage, write))

    def finish(self) -> None:
        """Write what no thread was asked to, and tell each table what was staged for it, or how it will be had."""
        missing = []
        for write in self._writes:
            if write.table_key in self._begun:
                write.coming = Coming(partial(self._arrived, write))
            else:
                missing.append(write)
        if len(missing) > 1 and (self._rows >= PARALLEL_ROWS or self._store.waits):
            with ThreadPoolExecutor(min(STAGING_THREADS, len(missing))) as pool:
                running = [pool.submit(copy_context().run, self._stage, write) for write in missing]
            written = [done.result() for done in running]
        else:
            written = [self._stage(write) for write in missing]
        for write, staged in zip(missing, written, strict=True):
            write.staged = staged

    def discard(self) -> None:
        """Remove what was written for nothing; once all of it was waited for, it belongs to the commit."""
        for write in self._writes:
            begun = self._begun.get(write.table_key)
            if begun is not None:
                staged = begun.result()
                if staged is not None:
                    self._remove(write.place, staged)
                del self._begun[write.table_key]

    def _arrived(self, write: TableWrite) -> StagedWrite:
        """What was staged for a table; written now, if no thread has come to it or it could not."""
        staged = self._begun[write.table_key].result() or self._stage(write)
        if staged is None:
            raise InternalError(f"nothing was staged for '{write.table_key}', which changes")
        write.staged = staged
        self._had.add(write.table_key)
        if len(self._had) == len(self._begun):
            self._begun.clear()
        return staged

    def _stage(self, write: TableWrite) -> StagedWrite | None:
        """Write and sync the files of one table; which durability is asked for comes with the context."""
        self._cancellation.check()
        staged = write.stage(write.place)
        return None if staged is None else self._store.sync_staged(write.place, staged)

    def _remove(self, base: TableHandle, staged: StagedWrite) -> None:
        if staged.has_older_files:
            return  # Some were made beforehand, for whichever write comes first; `cleanup` takes away the rest.
        place = branch_location(base.path, base.branch)
        try:
            for file in staged.files:
                self._store.objects.delete(f"{place}/{file}")
        except GraphError as exc:
            logger.info("files of a write that was refused stay until the next cleanup: %s", exc)
