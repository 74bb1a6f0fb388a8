"""A graph written as files per type, with what the export says about them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from omnigraph.engine.ingest.progress import Phases
from omnigraph.engine.operations.bulk import BulkPlace
from omnigraph.engine.operations.export_files import ExportResult, FileExport
from omnigraph.graph import Graph
from omnigraph.pipeline import SparkEngine


def exported_files(
    graph: Graph, target: Path, *, spark: Any = None, progress: Callable[[Any], None] | None = None, **options: Any
) -> ExportResult:
    """Export the newest state of main, by Spark where a session is given."""
    export = FileExport.of(graph.context, graph.snapshot(), str(target), **options)
    if spark is None:
        return export.run(Phases(progress))
    return SparkEngine().export(export, BulkPlace(spark), progress)
