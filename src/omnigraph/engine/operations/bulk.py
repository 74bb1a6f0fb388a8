"""What loads, merges and exports more than one process should: one small protocol, which Spark implements.

The engine of this process knows nothing of Spark. Whoever opens a graph and has a bulk engine hands it over; a graph
without one does everything in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import ExecutionError, InputError
from omnigraph.ids import Moment

if TYPE_CHECKING:  # The verbs that a bulk engine can take over; who loads a few rows needs no merge.
    from omnigraph.engine.operations.export_files import ExportResult, FileExport
    from omnigraph.engine.operations.merge.progress import Watch
    from omnigraph.engine.operations.merge.workers import Workers
    from omnigraph.engine.operations.outcomes import LoadResult


class BulkPlace(Struct, frozen=True):
    """Where a bulk engine works: a session of the caller's, or the master and settings to start one with."""

    session: Any = None
    master: str | None = None
    conf: Mapping[str, str] | None = None

    @property
    def is_given(self) -> bool:
        """True when the caller said anything about it."""
        return bool(self.session or self.master or self.conf)


class BulkEngine(Protocol):
    """An engine with workers of its own."""

    @property
    def is_installed(self) -> bool:
        """Whether it can be used at all."""

    @property
    def is_running(self) -> bool:
        """Whether it is up already, so that using it costs no start."""

    def load(
        self,
        context: GraphContext,
        source: Any,
        *,
        mode: str,
        branch: str,
        actor: str | None,
        columns: Mapping[str, Mapping[str, str]] | None,
        place: BulkPlace,
        progress: Callable[[Any], None] | None,
        errors_to: str | None,
        message: str | None,
    ) -> LoadResult:
        """Load a source as one commit."""

    def export(self, export: FileExport, place: BulkPlace, progress: Callable[[Any], None] | None) -> ExportResult:
        """Write a snapshot as files."""

    def merge_workers(self, watch: Watch) -> Workers:
        """Its workers for a merge; starts it if need be, and says so."""

    def frames(self, context: GraphContext, session: Any, *, branch: str, at: Moment | None) -> Any:
        """A snapshot as data of the engine itself."""


def takes_bulk(engine: str, export: FileExport, place: BulkPlace, bulk: BulkEngine | None) -> bool:
    """Whether an export is one for the bulk engine: it was asked for, or it is there and the export is large.

    Raises:
        InputError: there is no such engine.
    """
    if engine not in ("auto", "local", "spark"):
        raise InputError(f"an engine is 'auto', 'local' or 'spark', not '{engine}'")
    is_there = bulk is not None and bulk.is_installed
    return engine == "spark" or (engine == "auto" and (place.is_given or (export.is_large and is_there)))


def required(bulk: BulkEngine | None) -> BulkEngine:
    """The bulk engine of a graph.

    Raises:
        ExecutionError: the graph was opened without one.
    """
    if bulk is None:
        raise ExecutionError("this graph was opened without Spark: open it with omnigraph.connect")
    return bulk
