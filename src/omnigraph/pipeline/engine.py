"""Spark as the bulk engine of a graph. Nothing of Spark is imported before it is used."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph.engine.operations.bulk import BulkPlace
    from omnigraph.engine.operations.export_files import ExportResult, FileExport
    from omnigraph.engine.operations.merge.progress import Watch
    from omnigraph.engine.operations.outcomes import LoadResult
    from omnigraph.engine.write.context import GraphContext
    from omnigraph.ids import Moment
    from omnigraph.pipeline.reader import GraphFrames
    from omnigraph.pipeline.workers import SparkWorkers


class SparkEngine:
    """The `BulkEngine` that runs on Spark."""

    @property
    def is_installed(self) -> bool:
        """Whether Spark can be imported."""
        return importlib.util.find_spec("pyspark") is not None

    @property
    def is_running(self) -> bool:
        """Whether a session is running already; who never imported Spark has none."""
        if "pyspark.sql" not in sys.modules:
            return False
        from omnigraph.pipeline.session import active_session

        return active_session() is not None

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
        """Load a source as one commit; see `run_job`."""
        from omnigraph.pipeline.job import run_job

        return run_job(
            context,
            source,
            mode=mode,
            branch=branch,
            actor=actor,
            columns=columns,
            spark=place.session,
            master=place.master,
            conf=place.conf,
            progress=progress,
            errors_to=errors_to,
            message=message,
        )

    def export(self, export: FileExport, place: BulkPlace, progress: Callable[[Any], None] | None) -> ExportResult:
        """Write a snapshot as files; see `run_export`."""
        from omnigraph.pipeline.export import run_export

        return run_export(export, place, progress)

    def merge_workers(self, watch: Watch) -> SparkWorkers:
        """Executors for a merge; see `SparkWorkers`."""
        from omnigraph.pipeline.session import obtain_session
        from omnigraph.pipeline.workers import SparkWorkers

        return SparkWorkers(obtain_session(notify=watch.say))

    def frames(self, context: GraphContext, session: Any, *, branch: str, at: Moment | None) -> GraphFrames:
        """A snapshot as DataFrames."""
        from omnigraph.pipeline.reader import GraphFrames

        return GraphFrames(context, session, branch=branch, at=at)
