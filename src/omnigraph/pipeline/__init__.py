"""Bulk data in and out of a graph through Spark. Start at `run_job`.

Names are resolved when they are first used, so that finding Java or hearing of progress imports neither Spark nor
Lance.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph.pipeline.choice import choose_engine
    from omnigraph.pipeline.export import export_graph
    from omnigraph.pipeline.job import run_job
    from omnigraph.pipeline.local import local_source
    from omnigraph.pipeline.progress import local_listener
    from omnigraph.pipeline.reader import GraphFrames

_HOMES = {
    "GraphFrames": "omnigraph.pipeline.reader",
    "choose_engine": "omnigraph.pipeline.choice",
    "export_graph": "omnigraph.pipeline.export",
    "local_listener": "omnigraph.pipeline.progress",
    "local_source": "omnigraph.pipeline.local",
    "run_job": "omnigraph.pipeline.job",
}

__all__ = ["GraphFrames", "choose_engine", "export_graph", "local_listener", "local_source", "run_job"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
