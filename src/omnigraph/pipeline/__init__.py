"""Bulk data in and out of a graph through Spark. Start at `run_job`.

Names are resolved when they are first used, so that finding Java imports neither Spark nor Lance.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from omnigraph.pipeline.engine import SparkEngine

if TYPE_CHECKING:
    from omnigraph.pipeline.job import run_job
    from omnigraph.pipeline.reader import GraphFrames

_HOMES = {"GraphFrames": "omnigraph.pipeline.reader", "run_job": "omnigraph.pipeline.job"}

__all__ = ["GraphFrames", "SparkEngine", "run_job"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
