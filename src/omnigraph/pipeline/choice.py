"""Which engine a load runs on when the caller leaves it open.

Both engines give the same graph, so the choice is about time and memory alone. Spark starts in seconds, works in
several processes and never holds the input in memory; the engine in this process starts at once and holds all of it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from omnigraph.pipeline.files import FileFormat, InputFile, find_files
from omnigraph.pipeline.sources import input_paths, is_frame

SPARK_FROM_BYTES = 256 << 20
WARM_SPARK_FROM_BYTES = 128 << 20
# Text grows when it becomes columns and back; packed formats grow more.
_EXPANSION = {FileFormat.JSONL: 1.0, FileFormat.CSV: 1.5, FileFormat.PARQUET: 4.0}
_GZIP_EXPANSION = 6.0


@dataclass(frozen=True)
class EngineChoice:
    """The engine, and a sentence that says why."""

    engine: str
    reason: str


def choose_engine(source: Any, *, spark_running: bool = False) -> EngineChoice:
    """Choose `spark` or `local` for a source by what it is and how large it is.

    Raises:
        NotFoundError: a file of the source is not there.
    """
    parts = list(source.values()) if isinstance(source, Mapping) else [source]
    if any(is_frame(part) for part in parts):
        return EngineChoice("spark", "the input is a Spark DataFrame")
    size = sum(_size(part) for part in parts)
    limit = WARM_SPARK_FROM_BYTES if spark_running else SPARK_FROM_BYTES
    shown = f"about {size / 2**20:,.0f} MB of input"
    if size < limit:
        return EngineChoice("local", f"{shown}, less than the {limit >> 20} MB from which Spark pays off")
    if importlib.util.find_spec("pyspark") is None:
        return EngineChoice("local", f"{shown}, and Spark is not installed")
    return EngineChoice("spark", f"{shown}, more than the {limit >> 20} MB from which Spark pays off")


def _size(part: Any) -> float:
    """What a part of a source amounts to as text; what is in memory already counts little."""
    if isinstance(part, pa.Table):
        return float(part.nbytes)
    paths = input_paths(part)
    return 0.0 if paths is None else sum(_expanded(file) for path in paths for file in find_files(path))


def _expanded(file: InputFile) -> float:
    return file.size * (_GZIP_EXPANSION if file.compressed else _EXPANSION[file.format])
