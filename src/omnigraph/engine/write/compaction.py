"""Small fragments are rewritten behind the calls that left them, and the next write takes the result along.

Every small write adds a fragment, and commits cost what a table has of them, so small ones are folded into one
(`storage.folding`). Rewriting them takes longer than the write itself, so a thread of the graph does it between two
writes. It commits nothing: what it wrote is a file that no version has, until a write whose table still has exactly the
fragments it was made of names it in its own strict commit. If the thread fails, is killed or comes too late, a file is
left over that `cleanup` takes away, and the fragments are folded another time. Where no thread gets to it, as in a
process that writes once and ends, a write folds by itself once there are twice as many.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection

import pyarrow as pa
from msgspec import Struct

from omnigraph.engine.coordination.heartbeat import Heartbeat
from omnigraph.engine.storage import folding
from omnigraph.engine.storage.columns import ColumnCache
from omnigraph.engine.storage.folding import Folded, covered_by_index, fold_small
from omnigraph.engine.storage.fragments import read_file
from omnigraph.engine.storage.handle import FragmentInfo, TableHandle
from omnigraph.engine.storage.lance_internals.files import branch_location, data_file, file_name
from omnigraph.engine.storage.layout import is_local
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.engine.storage.staged import new_files
from omnigraph.errors import GraphError
from omnigraph.ids import now_micros

logger = logging.getLogger(__name__)

IN_CALL_FACTOR = 2
"""With so many times the small fragments that are folded behind a write, it does so itself."""
TABLES_MAX = 64
"""Tables with a fold that was made and not taken; the oldest is let go beyond that."""
SEARCHED = ("id", "src", "dst")
"""The columns that nearly every write searches."""


class FoldAhead(Struct, frozen=True):
    """A fold of one table: what it was made of, when, and what it is."""

    objects: ObjectStore
    began: int
    made_of: tuple[FragmentInfo, ...]
    folded: Folded
    files: tuple[str, ...]

    def is_kept(self) -> bool:
        """False when its files are gone, or others were not told all the time since that they are somebody's.

        To be asked by a write that is staging, which tells them now.
        """
        return Heartbeat.at(self.objects).covers(self.began) and all(map(self.objects.has, self.files))

    def fits(self, base: TableHandle, touched: Collection[int]) -> bool:
        """Whether a version has exactly these fragments, and a write leaves them alone.

        The files of a fragment and its deletion file say which rows it has, whatever version it is found in.
        """
        has = {fragment.id: fragment for fragment in base.fragments()}
        return all(has.get(f.id) == f and f.id not in touched for f in self.made_of) and not (
            self.folded.replaced & covered_by_index(base)
        )


class FoldsAhead:
    """The folds of one graph and the thread that makes them, which runs only while there is one to make."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: dict[str, tuple[ObjectStore, TableHandle]] = {}
        self._ready: dict[str, FoldAhead] = {}
        self._thread: threading.Thread | None = None
        self._stopped = False

    def offer(self, objects: ObjectStore, handle: TableHandle) -> None:
        """Have the small fragments of a table folded, if they are many and nobody has done so already."""
        if not _has_many(handle):
            return
        with self._lock:
            if self._stopped:
                return
            ready = self._ready.get(handle.uri)
            if ready is not None and ready.fits(handle, ()) and ready.is_kept():
                return
            self._wanted[handle.uri] = (objects, handle)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="omnigraph-fold")
                self._thread.start()

    def fold(self, base: TableHandle, touched: Collection[int]) -> Folded:
        """What a write to this version folds: what is ready and fits, or nothing, or what cannot wait any longer."""
        with self._lock:
            ready = self._ready.get(base.uri)
        if ready is not None and ready.fits(base, touched) and ready.is_kept():
            return ready.folded
        return fold_small(base, touched) if _has_many(base, IN_CALL_FACTOR) else Folded()

    def stop(self) -> None:
        """Make no more folds, and wait for the one that is being made."""
        with self._lock:
            self._stopped = True
            self._wanted.clear()
            self._ready.clear()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._wanted:
                    self._thread = None
                    return
                uri = next(iter(self._wanted))
                objects, handle = self._wanted.pop(uri)
                ready = self._ready.get(uri)
            if ready is not None and ready.fits(handle, ()):
                # Asked for again while it was being made.
                continue
            try:
                made = _make(objects, handle)
            except (GraphError, OSError) as exc:
                # Nothing is lost but time: the next offer, or a write with too many fragments, does it again.
                logger.info("small fragments of %s are not folded yet: %s", handle.path, exc)
                continue
            with self._lock:
                if made is not None and not self._stopped:
                    self._ready.pop(uri, None)
                    self._ready[uri] = made
                    while len(self._ready) > TABLES_MAX:
                        self._ready.pop(next(iter(self._ready)))


def _has_many(handle: TableHandle, factor: int = 1) -> bool:
    fragments = handle.fragments()
    least = factor * folding.FOLD_FRAGMENTS
    return len(fragments) >= least and sum([f.physical_rows < folding.FOLD_ROWS for f in fragments]) >= least


def _make(objects: ObjectStore, handle: TableHandle) -> FoldAhead | None:
    began, folded = Heartbeat.at(objects).staging(lambda: _fold(handle))
    if not folded.kept:
        return None
    has = {fragment.id: fragment for fragment in handle.fragments()}
    place = branch_location(handle.path, handle.branch)
    files = tuple(f"{place}/{name}" for name in new_files(folded.kept))
    return FoldAhead(objects, began, tuple(has[number] for number in sorted(folded.replaced)), folded, files)


def _fold(handle: TableHandle) -> tuple[int, Folded]:
    """Fold, once the note of this process is there, and tell since when it was."""
    began = now_micros()
    folded = fold_small(handle, ())
    for fragment in folded.kept if is_local(handle.uri) else ():
        _remember_columns(handle, fragment.id, [file_name(file) for file in fragment.files])
    folded.ahead = True
    return began, folded


def _remember_columns(handle: TableHandle, fragment_id: int, files: list[str]) -> None:
    """Keep the columns that writes search, which the first write after the fold would otherwise read."""
    names = [name for name in SEARCHED if name in handle.field_ids]
    [file] = files
    rows = pa.Table.from_batches(read_file(handle.uri, data_file(file), names))
    info = FragmentInfo(fragment_id, rows.num_rows, 0, (file,), None)
    for name in names:
        ColumnCache.shared().keep(info, handle.field_ids[name], rows.column(name).combine_chunks())
