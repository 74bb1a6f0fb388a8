"""Bulk data in and out of a graph through Spark. Start at `run_job`.

Names are resolved when they are first used, so that finding Java or hearing of progress imports neither Spark nor
Lance.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph.pipeline.choice import choose_engine
    from omnigraph.pipeline.job import run_job
    from omnigraph.pipeline.reader import GraphFrames
    from omnigraph.pipeline.tables import read_tables

_HOMES = {
    "GraphFrames": "omnigraph.pipeline.reader",
    "choose_engine": "omnigraph.pipeline.choice",
    "read_tables": "omnigraph.pipeline.tables",
    "run_job": "omnigraph.pipeline.job",
}

__all__ = ["GraphFrames", "choose_engine", "read_tables", "run_job"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
