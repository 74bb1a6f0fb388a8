"""Which engine a load or a merge runs on when the caller leaves it open.

Both engines give the same graph, so the choice is about time and memory alone. The engine in this process starts at
once, works on one core and holds its input; Spark starts in seconds, works on all cores and holds little. What each
costs was measured (decision 0026); the numbers here are those of one machine, which is enough to tell sizes apart.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from msgspec import Struct

from omnigraph.engine.ingest.files import FileFormat, InputFile, find_files, is_stream, only_spark_reads
from omnigraph.engine.ingest.memory import machine_memory_mb
from omnigraph.engine.ingest.sources import input_paths, is_frame
from omnigraph.errors import InputError

LOCAL_SECONDS_PER_MB = 0.025
SPARK_CORE_SECONDS_PER_MB = 0.029
SPARK_JOB_SECONDS = 0.8
SPARK_START_SECONDS = 9.5
LOCAL_MEMORY_PER_MB = 2.0
MEMORY_SHARE = 0.25
MERGED_ROWS_MAX = 8_000_000
MERGED_BYTES_PER_ROW = 400
# Text grows when it becomes columns and back; packed formats grow more.
_EXPANSION = {FileFormat.JSONL: 1.0, FileFormat.CSV: 1.5, FileFormat.PARQUET: 4.0}
_GZIP_EXPANSION = 6.0


class EngineChoice(Struct, frozen=True):
    """The engine, and a sentence that says why."""

    engine: str
    reason: str


def settle_engine(
    engine: str, source: Any, *, needs_spark: bool, spark_running: bool, spark_installed: bool
) -> EngineChoice:
    """The engine of a load and why: the one that was asked for, the one that can do what was asked, or the better one.

    Raises:
        InputError: there is no such engine, or it cannot do what is asked.
    """
    if engine not in ("auto", "local", "spark"):
        raise InputError(f"an engine is 'auto', 'local' or 'spark', not '{engine}'")
    if engine == "local" and needs_spark:
        raise InputError("error files and Spark settings need engine 'spark' or 'auto'")
    if engine != "auto":
        return EngineChoice(engine, "it was asked for")
    if needs_spark:
        return EngineChoice("spark", "the load asks for something that Spark does")
    return choose_engine(source, spark_running=spark_running, spark_installed=spark_installed)


def choose_engine(source: Any, *, spark_running: bool = False, spark_installed: bool = True) -> EngineChoice:
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
        spark_running=spark_running,
        spark_installed=spark_installed,
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


def choose_by_rows(rows: int, *, memory_mb: int | None = None, spark_installed: bool = True) -> EngineChoice:
    """Choose for a merge by the rows of its largest table that either side has touched.

    This process starts at once and holds where each of them lies; Spark wins by memory.

    >>> choose_by_rows(20_000, memory_mb=24_000).engine, choose_by_rows(20_000_000, memory_mb=24_000).engine
    ('local', 'spark')
    """
    memory = machine_memory_mb() if memory_mb is None else memory_mb
    shown = f"at most {rows:,} rows of a type to compare"
    if rows <= MERGED_ROWS_MAX and rows * MERGED_BYTES_PER_ROW / 2**20 <= memory * MEMORY_SHARE:
        return EngineChoice("local", f"{shown}, which this process can hold")
    if not spark_installed:
        return EngineChoice("local", f"{shown}, and Spark is not installed")
    return EngineChoice("spark", f"{shown}, more than this process should hold in memory")


def _seconds(seconds: float) -> str:
    return "a moment" if seconds < 1 else f"{seconds:,.0f} s"


def _size(part: Any) -> float:
    """What a part of a source amounts to as text; what is in memory already counts as it is."""
    if isinstance(part, pa.Table):
        return float(part.nbytes)
    paths = [path for path in input_paths(part) or () if not is_stream(path)]
    return sum(_expanded(file) for path in paths for file in find_files(path))


def _expanded(file: InputFile) -> float:
    return file.size * (_GZIP_EXPANSION if file.compressed else _EXPANSION[file.format])
