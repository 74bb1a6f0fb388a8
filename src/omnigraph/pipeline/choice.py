"""Which engine a load runs on when the caller leaves it open.

Both engines give the same graph, so the choice is about time and memory alone. The engine in this process starts at
once, works on one core and holds its input; Spark starts in seconds, works on all cores and holds little. What each
costs was measured (decision 0506); the numbers here are those of one machine, which is enough to tell sizes apart.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from omnigraph.pipeline.files import FileFormat, InputFile, find_files, only_spark_reads
from omnigraph.pipeline.memory import machine_memory_mb
from omnigraph.pipeline.sources import input_paths, is_frame

LOCAL_SECONDS_PER_MB = 0.025
SPARK_CORE_SECONDS_PER_MB = 0.029
SPARK_JOB_SECONDS = 0.8
SPARK_START_SECONDS = 9.5
LOCAL_MEMORY_PER_MB = 2.0
MEMORY_SHARE = 0.25
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
    foreign = [os.fspath(p) for part in parts for p in input_paths(part) or () if only_spark_reads(os.fspath(p))]
    if foreign:
        return EngineChoice("spark", f"only Spark may know how to read {foreign[0]}")
    return choose_by_size(
        sum(_size(part) for part in parts) / 2**20,
        cores=os.cpu_count() or 1,
        memory_mb=machine_memory_mb(),
        spark_running=spark_running or _has_session(),
        spark_installed=importlib.util.find_spec("pyspark") is not None,
    )


def choose_by_size(
    size_mb: float, *, cores: int, memory_mb: int, spark_running: bool, spark_installed: bool = True
) -> EngineChoice:
    """Choose by megabytes of text on a machine.

    >>> choose_by_size(300, cores=8, memory_mb=64_000, spark_running=False).engine
    'local'
    >>> choose_by_size(3_000, cores=8, memory_mb=64_000, spark_running=False).engine
    'spark'
    """
    shown = f"about {size_mb:,.0f} MB of input"
    if not spark_installed:
        return EngineChoice("local", f"{shown}, and Spark is not installed")
    if size_mb * LOCAL_MEMORY_PER_MB > memory_mb * MEMORY_SHARE:
        return EngineChoice("spark", f"{shown}, more than this process should hold in memory")
    here = size_mb * LOCAL_SECONDS_PER_MB
    start = SPARK_JOB_SECONDS + (0.0 if spark_running else SPARK_START_SECONDS)
    there = start + size_mb * SPARK_CORE_SECONDS_PER_MB / cores
    estimate = f"{_seconds(here)} in this process, {_seconds(there)} on Spark"
    return EngineChoice("local" if here <= there else "spark", f"{shown}: {estimate} by estimate")


def _seconds(seconds: float) -> str:
    return "a moment" if seconds < 1 else f"{seconds:,.0f} s"


def _has_session() -> bool:
    """Whether a session is running already; who never imported Spark has none."""
    if "pyspark.sql" not in sys.modules:
        return False
    from omnigraph.pipeline.session import active_session

    return active_session() is not None


def _size(part: Any) -> float:
    """What a part of a source amounts to as text; what is in memory already counts as it is."""
    if isinstance(part, pa.Table):
        return float(part.nbytes)
    paths = input_paths(part)
    return 0.0 if paths is None else sum(_expanded(file) for path in paths for file in find_files(path))


def _expanded(file: InputFile) -> float:
    return file.size * (_GZIP_EXPANSION if file.compressed else _EXPANSION[file.format])
