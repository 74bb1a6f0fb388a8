"""Running a plan on a snapshot: start at `execute`."""

from omnigraph.engine.reading.context import ReadOptions
from omnigraph.engine.reading.execute import ReadResult, execute
from omnigraph.engine.reading.explaining import explain_analyze, explain_order

__all__ = ["ReadOptions", "ReadResult", "execute", "explain_analyze", "explain_order"]
