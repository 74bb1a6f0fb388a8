"""Running a plan on a snapshot: start at `execute`."""

from omnigraph.engine.read.context import ReadOptions
from omnigraph.engine.read.execute import ReadResult, execute
from omnigraph.engine.read.explain import explain_analyze, explain_order

__all__ = ["ReadOptions", "ReadResult", "execute", "explain_analyze", "explain_order"]
