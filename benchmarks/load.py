"""Bulk loads beside what else could be done with the same data, in one run.

    python -m benchmarks.load                 # 100,000 nodes, 1,000,000 edges
    python -m benchmarks.load --full          # 1,000,000 nodes, 10,000,000 edges, and a merge of 1 M into 5 M
    python -m benchmarks.load --only break-even
    python -m benchmarks.load --only vectors-here  # in this process, beside Lance
    python -m benchmarks.load --only vectors       # the same, and a cluster of two executors of 1 GB

The heading of a part tells what is loaded into which graph. Every line is seconds and the peak memory of all processes
involved; ratios are against Spark's own Parquet write.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import lance
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from omnigraph import create
from omnigraph.graph import Graph
from omnigraph.pipeline import run_job
from omnigraph.pipeline.session import obtain_session

SCHEMA = """
node Person { name: String @key  age: I32?  city: String?  score: F64? }
edge Knows: Person -> Person { since: Date?  weight: F64? }
"""
CITIES = pa.array(["Accra", "Bergen", "Cusco", "Dakar", "Essen", "Fez", "Graz", "Hanoi"])
ROW_GROUP = 250_000
DIMENSIONS = 3_072
HERE_ROWS, HERE_DIMENSIONS = 200_000, 384


@dataclass
class Report:
    """What was measured."""

    lines: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, name: str, seconds: float, **more: float) -> None:
        self.lines[name] = {"seconds": round(seconds, 2), **{key: round(value, 1) for key, value in more.items()}}
        extra = "  ".join(f"{key} {value:,.1f}" for key, value in more.items())
        print(f"  {name:<46} {seconds:>8.2f} s   {extra}", flush=True)


class Memory:
    """Peak memory of this process and all it started, by what each process is for.

    Shared pages are counted once (proportional set size), so the parts add up to what the machine has to hold.
    """

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self.peaks: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(0.25):
            now: dict[str, float] = {}
            for process in [me, *me.children(recursive=True)]:
                try:
                    role = "driver" if process == me else _role(process)
                    now[role] = now.get(role, 0.0) + process.memory_full_info().pss / 2**20
                except psutil.Error:
                    continue
            self.peak_mb = max(self.peak_mb, sum(now.values()))
            self.peaks = {name: max(now.get(name, 0.0), self.peaks.get(name, 0.0)) for name in {*now, *self.peaks}}


def _role(process: psutil.Process) -> str:
    """What a process below the driver does."""
    words = " ".join(process.cmdline())
    if "CoarseGrainedExecutorBackend" in words:
        return "executor_jvm"
    if "pyspark.daemon" in words or "pyspark/daemon" in words:
        return "workers"
    return "driver_jvm" if "SparkSubmit" in words else "other"


@contextmanager
def measured(report: Report, name: str, *, by_role: bool = False, **more: float) -> Iterator[dict[str, float]]:
    extra: dict[str, float] = dict(more)
    with Memory() as memory:
        began = time.perf_counter()
        yield extra
        seconds = time.perf_counter() - began
    if "rows" in extra:
        extra["rows/s"] = extra["rows"] / seconds
    if by_role:
        extra.update({f"{role}_mb": peak for role, peak in sorted(memory.peaks.items())})
    report.add(name, seconds, peak_mb=memory.peak_mb, **extra)


def people(count: int, *, first: int = 0, seed: int = 1) -> pa.Table:
    random = np.random.default_rng(seed)
    numbers = pa.array(np.arange(first, first + count)).cast(pa.string())
    return pa.table(
        {
            "name": pc.binary_join_element_wise(pa.scalar("p"), numbers, ""),
            "age": pa.array(random.integers(0, 100, count, dtype=np.int32)),
            "city": CITIES.take(pa.array(random.integers(0, len(CITIES), count))),
            "score": pa.array(random.random(count)),
        }
    )


def friendships(count: int, nodes: int, *, seed: int = 2) -> pa.Table:
    random = np.random.default_rng(seed)
    ends = [pa.array(random.integers(0, nodes, count)).cast(pa.string()) for _ in range(2)]
    return pa.table(
        {
            "from": pc.binary_join_element_wise(pa.scalar("p"), ends[0], ""),
            "to": pc.binary_join_element_wise(pa.scalar("p"), ends[1], ""),
            "since": pa.array(random.integers(10_000, 20_000, count, dtype=np.int32)).cast(pa.date32()),
            "weight": pa.array(random.random(count)),
        }
    )


def generate(folder: Path, nodes: int, edges: int) -> dict[str, str]:
    folder = folder / f"parquet-{nodes}-{edges}"
    paths = {"Person": str(folder / "people.parquet"), "Knows": str(folder / "knows.parquet")}
    if not folder.exists():
        folder.mkdir(parents=True)
        pq.write_table(people(nodes), paths["Person"], row_group_size=ROW_GROUP)
        pq.write_table(friendships(edges, nodes), paths["Knows"], row_group_size=ROW_GROUP)
    return paths


def write_jsonl(folder: Path, nodes: int, edges: int) -> Path:
    """The same data as JSON lines, composed column by column."""
    path = folder / f"graph-{nodes}-{edges}.jsonl"
    if path.exists():
        return path
    with path.open("wb") as file:
        for start in range(0, nodes, 200_000):
            part = people(min(200_000, nodes - start), first=start)
            file.write(_lines(['{"type":"Person","data":{"name":"', part["name"], '","age":', part["age"], ',"city":"',
                               part["city"], '","score":', part["score"], "}}\n"]))  # fmt: skip
        for start in range(0, edges, 500_000):
            part = friendships(min(500_000, edges - start), nodes, seed=start + 2)
            file.write(_lines(['{"edge":"Knows","from":"', part["from"], '","to":"', part["to"],
                               '","data":{"since":"', part["since"], '","weight":', part["weight"],
                               "}}\n"]))  # fmt: skip
    return path


def _lines(parts: list[Any]) -> bytes:
    texts = [part if isinstance(part, str) else part.cast(pa.string()).combine_chunks() for part in parts]
    joined = pc.binary_join_element_wise(*[pa.scalar(t) if isinstance(t, str) else t for t in texts], "")
    return "".join(joined.to_pylist()).encode()


def fresh(folder: Path, name: str) -> Graph:
    shutil.rmtree(folder / name, ignore_errors=True)
    return create(folder / name, SCHEMA)


def compare_loads(folder: Path, report: Report, session: Any, nodes: int, edges: int) -> None:
    print(f"\n{nodes:,} nodes and {edges:,} edges from Parquet, into a new graph")
    paths = generate(folder, nodes, edges)
    rows = nodes + edges
    run_job(fresh(folder, "warm").context, generate(folder / "small", 1_000, 1_000), mode="append", spark=session)
    with measured(report, "Spark: read and write Parquet", rows=rows):
        for name, path in paths.items():
            session.read.parquet(path).write.mode("overwrite").parquet(str(folder / f"out-{name}.parquet"))
    with measured(report, "pylance: write the same Arrow data, no checks", rows=rows):
        for name, path in paths.items():
            target = str(folder / f"plain-{name}.lance")
            lance.write_dataset(pq.ParquetFile(path).iter_batches(65_536), target, mode="overwrite",
                                schema=pq.read_schema(path))  # fmt: skip
    graph = fresh(folder, "graph")
    with measured(report, "omnigraph: load on Spark, one commit", rows=rows) as extra:
        result = run_job(graph.context, paths, mode="append", spark=session)
        extra.update({f"{name}_s": seconds for name, seconds in result.phases.items() if seconds >= 0.1})
    assert result.rows == {"edge:Knows": edges, "node:Person": nodes}
    base = report.lines["Spark: read and write Parquet"]["seconds"]
    ours = report.lines["omnigraph: load on Spark, one commit"]["seconds"]
    print(f"  ratio to Spark's Parquet write: {ours / base:.2f}")
    with measured(report, "omnigraph: overwrite with the same data", rows=rows):
        run_job(graph.context, paths, mode="overwrite", spark=session)
    compare_ladybug(folder, report, paths, rows)


def compare_ladybug(folder: Path, report: Report, paths: dict[str, str], rows: int) -> None:
    name = next((each for each in ("real_ladybug", "ladybug") if importlib.util.find_spec(each)), None)
    if name is None:
        print("  ladybug is not installed: pip install real-ladybug to compare with its COPY")
        return
    ladybug = importlib.import_module(name)
    target = folder / "ladybug.db"
    for leftover in folder.glob("ladybug.db*"):
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    # COPY takes the columns of a node table in order, and those of a relationship after its two ends.
    with measured(report, "ladybug: COPY from Parquet", rows=rows):
        connection = ladybug.Connection(ladybug.Database(str(target)))
        connection.execute(
            "CREATE NODE TABLE Person(name STRING, age INT32, city STRING, score DOUBLE, PRIMARY KEY(name))"
        )
        connection.execute("CREATE REL TABLE Knows(FROM Person TO Person, since DATE, weight DOUBLE)")
        connection.execute(f"COPY Person FROM '{paths['Person']}'")
        connection.execute(f"COPY Knows FROM '{paths['Knows']}'")


def compare_lines(folder: Path, report: Report, session: Any, nodes: int, edges: int) -> None:
    path = write_jsonl(folder, nodes, edges)
    size = os.path.getsize(path) / 2**20
    print(f"\nthe same as JSON lines ({size:,.0f} MB), into a new graph")
    with measured(report, "omnigraph: JSON lines on Spark", rows=nodes + edges, mb=size):
        run_job(fresh(folder, "lines").context, path, mode="append", spark=session)
    out = str(folder / "out-lines.parquet")
    data = "struct<name: string, age: int, city: string, score: double, since: date, weight: double>"
    with measured(report, "Spark: parse the lines with a schema, write Parquet", rows=nodes + edges):
        lines = session.read.schema(f"type string, edge string, `from` string, `to` string, data {data}")
        lines.json(str(path)).write.mode("overwrite").parquet(out)
    with measured(report, "Spark: copy the lines into Parquet", rows=nodes + edges):
        session.read.text(str(path)).write.mode("overwrite").parquet(out)


def growth(folder: Path, report: Report, session: Any, nodes: int, edges: int) -> None:
    print("\ngrowth: ten times the rows, each into a new graph")
    seconds = []
    run_job(fresh(folder, "warm").context, generate(folder / "small", 1_000, 1_000), mode="append", spark=session)
    for factor in (1, 10):
        paths = generate(folder / f"x{factor}", nodes * factor // 10, edges * factor // 10)
        graph = fresh(folder, f"growth{factor}")
        with measured(report, f"omnigraph: load {(nodes + edges) * factor // 10:,} rows"):
            began = time.perf_counter()
            run_job(graph.context, paths, mode="append", spark=session)
            seconds.append(time.perf_counter() - began)
    print(f"  ten times the rows take {seconds[1] / seconds[0]:.1f} times the time")


def merge(folder: Path, report: Report, session: Any, existing: int, incoming: int) -> None:
    print(f"\nmerge of {incoming:,} rows, half of them new, into {existing:,}")
    graph = fresh(folder, "merge")
    whole, part = str(folder / "whole.parquet"), str(folder / "part.parquet")
    pq.write_table(people(existing), whole, row_group_size=ROW_GROUP)
    changed = people(incoming, first=existing - incoming // 2, seed=9)
    pq.write_table(changed, part, row_group_size=ROW_GROUP)
    run_job(graph.context, {"Person": whole}, mode="append", spark=session)
    with measured(report, "omnigraph: merge", rows=incoming) as extra:
        result = run_job(graph.context, {"Person": part}, mode="merge", spark=session)
        extra.update({f"{name}_s": seconds for name, seconds in result.phases.items() if seconds >= 0.1})
    after = graph.snapshot().open("node:Person")
    assert after.count_rows() == existing + incoming - incoming // 2
    ids = after.scan(["id"])["id"]
    assert pc.count_distinct(ids).as_py() == len(ids)
    with measured(report, "omnigraph: overwrite of the same table", rows=existing):
        run_job(graph.context, {"Person": whole}, mode="overwrite", spark=session)


class Above:
    """Seconds, processor time and the peak of resident memory above what was there at the start."""

    def __enter__(self) -> Above:
        self._process = psutil.Process()
        self._before = self._peak = self._process.memory_info().rss
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        self._began, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds, self.cpu = time.perf_counter() - self._began, time.process_time() - self._cpu
        self._stop.set()
        self._thread.join()
        self.above_mb = (self._peak - self._before) / 2**20

    def _watch(self) -> None:
        while not self._stop.wait(0.005):
            self._peak = max(self._peak, self._process.memory_info().rss)


VECTOR_FORMS = {
    "write": "lance.write_dataset of vectors",
    "write-parquet": "lance.write_dataset of vectors from Parquet",
    "arrow": "omnigraph: vectors from Arrow",
    "parquet": "omnigraph: vectors from Parquet",
    "optimize": "omnigraph: optimize of vectors",
}


def vectors_here(folder: Path, report: Report) -> None:
    """The same vectors through Lance alone and through a load in this process, each in a fresh process of its own."""
    print(f"\n{HERE_ROWS:,} rows of {HERE_DIMENSIONS} dimensions into a new graph, here; memory is above the input")
    path = folder / "here.parquet"
    pq.write_table(vector_table(), path, row_group_size=20_000)
    plain = None
    for form, name in VECTOR_FORMS.items():
        command = [sys.executable, "-m", "benchmarks.load", "--vector-form", form, "--folder", str(folder)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        plain = plain or found
        ratios = {key: found[key] / plain[key] for key in ("seconds", "cpu")}
        report.add(
            name,
            found["seconds"],
            cpu=found["cpu"],
            above_mb=found["above_mb"],
            times=ratios["seconds"],
            times_cpu=ratios["cpu"],
        )


def vector_form(folder: Path, form: str) -> None:
    """One line of `vectors_here`, measured in this process and printed as JSON."""
    root = folder / f"here-{form}"
    shutil.rmtree(root, ignore_errors=True)
    path = str(folder / "here.parquet")
    source: Any = path if "parquet" in form else vector_table()
    schema = f"node Item {{ name: String @key  vec: Vector({HERE_DIMENSIONS}) @index }}"
    graph = None if form.startswith("write") else create(root, schema)
    if graph is not None:
        # The first load of a process imports what loads need, which is no part of what is measured here.
        graph.load({"Item": vector_table(rows=1, first="w")}, mode="append", engine="local")
    if graph is not None and form == "optimize":
        graph.load({"Item": source}, mode="append", engine="local")
    with Above() as measure:
        if form == "write-parquet":
            lance.write_dataset(pads.dataset(source).scanner().to_reader(), str(root))
        elif graph is None:
            lance.write_dataset(source, str(root))
        elif form == "optimize":
            graph.maintenance.optimize()
        else:
            graph.load({"Item": source}, mode="append", engine="local")
    shutil.rmtree(root)
    print(json.dumps({"seconds": measure.seconds, "cpu": measure.cpu, "above_mb": measure.above_mb}))


def vector_table(rows: int = HERE_ROWS, first: str = "i") -> pa.Table:
    numbers = np.random.default_rng(1).random(rows * HERE_DIMENSIONS, dtype=np.float32)
    names = pc.binary_join_element_wise(pa.scalar(first), pa.array(np.arange(rows)).cast(pa.string()), "")
    return pa.table({"name": names, "vec": pa.FixedSizeListArray.from_arrays(pa.array(numbers), HERE_DIMENSIONS)})


def vectors(folder: Path, report: Report, rows: int) -> None:
    """A merge of long vectors on executors of 1 GB; the session is a cluster of its own."""
    print(f"\nmerge of {rows:,} rows of {DIMENSIONS:,} dimensions, two executors and a driver of 1 GB each")
    schema = f"node Item {{ code: I64 @key  vec: Vector({DIMENSIONS}) }}"
    shutil.rmtree(folder / "vectors", ignore_errors=True)
    graph = create(folder / "vectors", schema)
    session = obtain_session(
        master="local-cluster[2,1,1024]", conf={"spark.executor.memory": "1g", "spark.driver.memory": "1g"}
    )
    try:
        for mode, first in (("append", 0), ("merge", rows // 2)):
            path = write_vectors(folder / f"vectors-{first}-{rows}.parquet", rows, first)
            with measured(report, f"omnigraph: {mode} of vectors", by_role=True, rows=rows):
                run_job(graph.context, {"Item": str(path)}, mode=mode, spark=session)
    finally:
        session.stop()
    assert graph.snapshot().open("node:Item").count_rows() == rows + rows // 2


def write_vectors(path: Path, rows: int, first: int) -> Path:
    if path.exists():
        return path
    kind = pa.list_(pa.float32(), DIMENSIONS)
    random = np.random.default_rng(first)
    with pq.ParquetWriter(path, pa.schema([("code", pa.int64()), ("vec", kind)])) as writer:
        for start in range(0, rows, 2_000):
            count = min(2_000, rows - start)
            numbers = pa.array(random.random(count * DIMENSIONS, dtype=np.float32))
            codes = pa.array(np.arange(first + start, first + start + count))
            writer.write_table(pa.table({"code": codes, "vec": pa.FixedSizeListArray.from_arrays(numbers, type=kind)}))
    return path


BREAK_EVEN_MB = (10, 50, 100, 200, 400)
ROWS_PER_MB = 10_000


def break_even(folder: Path, report: Report, session: Any, start_seconds: float) -> None:
    """Both engines on the same lines, and the sizes at which a running and a fresh session begin to win."""
    from omnigraph.engine.operations.load import load

    print("\nbreak-even of the two engines (JSON lines, each into a new graph)")
    small = write_jsonl(folder, 100, 900)
    began = time.perf_counter()
    run_job(fresh(folder, "spark").context, small, mode="append", spark=session)
    start_seconds += time.perf_counter() - began
    report.add("Spark: start and a first load of 1,000 rows", start_seconds)
    with measured(report, "local: 1,000 rows"):
        load(fresh(folder, "local").context, small, mode="append")
    gains: list[tuple[float, float]] = []
    for megabytes in BREAK_EVEN_MB:
        rows = megabytes * ROWS_PER_MB
        path = write_jsonl(folder, rows // 10, rows - rows // 10)
        size = os.path.getsize(path) / 2**20
        with measured(report, f"local: {rows:,} rows", mb=size):
            load(fresh(folder, "local").context, path, mode="append")
        with measured(report, f"spark: {rows:,} rows", mb=size):
            run_job(fresh(folder, "spark").context, path, mode="append", spark=session)
        seconds = [report.lines[f"{engine}: {rows:,} rows"]["seconds"] for engine in ("local", "spark")]
        gains.append((size, seconds[0] - seconds[1]))
    for name, needed in (("a running session", 0.0), ("a session that has to start", start_seconds)):
        print(f"  {name} wins from {_crossing(gains, needed)}")


def _crossing(gains: list[tuple[float, float]], needed: float) -> str:
    """Where the seconds Spark saves reach what it costs, between two sizes that were measured."""
    for (size, gain), (larger, more) in pairwise(gains):
        if gain < needed <= more:
            return f"{size + (larger - size) * (needed - gain) / (more - gain):,.0f} MB"
    return f"less than {gains[0][0]:,.0f} MB" if gains[0][1] >= needed else f"more than {gains[-1][0]:,.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the sizes of the published figures")
    parts = ["loads", "lines", "growth", "merge", "break-even", "vectors", "vectors-here"]
    parser.add_argument("--only", choices=parts)
    parser.add_argument("--vector-form", choices=list(VECTOR_FORMS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help="where data goes; a temporary folder by default")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    nodes, edges = (1_000_000, 10_000_000) if options.full else (100_000, 1_000_000)
    folder = Path(options.folder or tempfile.mkdtemp(prefix="omnigraph-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    report = Report()
    if options.vector_form:
        vector_form(folder, options.vector_form)
        return
    if options.only in ("vectors", "vectors-here"):
        try:
            vectors_here(folder, report)
            if options.only == "vectors":
                vectors(folder, report, 100_000 if options.full else 10_000)
        finally:
            if options.folder is None:
                shutil.rmtree(folder, ignore_errors=True)
        return
    began = time.perf_counter()
    session = obtain_session(notify=print)
    start_seconds = time.perf_counter() - began
    report.add("Spark: start", start_seconds)
    try:
        if options.only in (None, "loads"):
            compare_loads(folder, report, session, nodes, edges)
        if options.only in (None, "lines"):
            compare_lines(folder, report, session, nodes, edges)
        if options.only in (None, "growth"):
            growth(folder, report, session, nodes, edges)
        if options.only in (None, "merge"):
            merge(folder, report, session, nodes * 5, nodes)
        if options.only in (None, "break-even"):
            break_even(folder, report, session, start_seconds)
    finally:
        session.stop()
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        Path(options.json).write_text(json.dumps(report.lines, indent=2) + "\n")


if __name__ == "__main__":
    main()
