"""What a commit costs, beside raw pylance doing the same work in the same run.

    python benchmarks/commit.py [--commits 100,5000] [--rows 1000000] [--out results/commit.json]

Runs that are compared alternate step by step, so that other work on the machine hits both alike; read ratios, not
milliseconds. A line ends with its aim, where it has one, and whether it was met.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance import LanceDataset
from lance.fragment import write_fragments

from omnigraph.engine.operations.load import load
from omnigraph.engine.operations.mutate import mutate
from omnigraph.engine.staging.context import GraphContext
from omnigraph.errors import ConflictError
from omnigraph.graph import connect, create
from omnigraph.plan import compile_query
from omnigraph.plan.operators import WritePlan

SCHEMA = "node P { k: String @key  n: I64? }\nedge K: P -> P { w: F64? }"
RESULTS = Path(__file__).parent / "results" / "commit.json"
PAIR = "query pair($k: String, $n: I64) { insert P { k: $k, n: $n } insert K { from: $k, to: $k, w: 1.0 } }"
FIRST_COMMIT = """
import sys, time, lance, pyarrow.dataset
from omnigraph.graph import connect
query = "query pair($k: String) { insert P { k: $k } insert K { from: $k, to: $k } }"
start = time.perf_counter()
connect(sys.argv[1]).mutate(query, {"k": sys.argv[2]})
print((time.perf_counter() - start) * 1_000)
"""
figures: dict[str, Any] = {}


def report(name: str, value: float, unit: str, aim: float | None = None) -> None:
    figures[name] = {"value": round(value, 3), "unit": unit, "aim": aim}
    verdict = "" if aim is None else f"   aim < {aim:g}: {'met' if value < aim else 'MISSED'}"
    print(f"{name:<58}{value:>10.2f} {unit}{verdict}", flush=True)


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1_000


class Pairs:
    """A graph into which one node and one edge are written per commit."""

    def __init__(self, folder: Path, durability: str) -> None:
        self.folder = folder
        if folder.exists():
            self.graph = connect(folder, durability=durability)
        else:
            self.graph = create(folder, SCHEMA, durability=durability)
        self.context: GraphContext = self.graph.context
        plan = compile_query(self.context.catalog, PAIR, None)
        assert isinstance(plan, WritePlan)
        self.plan, self.count = plan, self.context.manifest.snapshot().version

    def commit(self) -> None:
        self.count += 1
        mutate(self.context, self.plan, {"k": f"k{self.count}", "n": self.count})

    def list(self, limit: int) -> None:
        assert len(self.graph.history.list(limit=limit)) == limit

    def revisit(self) -> None:
        """Read a snapshot of long ago by its commit, which the manifest has let go."""
        early = self.graph.snapshot(at=30)
        assert early.head is not None
        assert self.graph.snapshot(at=early.head).version == 30

    def first_commit(self) -> float:
        """What the first commit costs in a process of its own, opening the graph included."""
        self.count += 1
        arguments = [str(self.folder), f"k{self.count}"]
        answer = subprocess.run(
            [sys.executable, "-c", FIRST_COMMIT, *arguments], check=True, capture_output=True, text=True
        )
        return float(answer.stdout)


class RawPairs:
    """The same rows by plain pylance: an append to each of two tables and an overwrite of a third."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self._reset()

    def _reset(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        options: dict[str, Any] = {"enable_stable_row_ids": True, "data_storage_version": "2.2"}
        self.nodes = lance.write_dataset(self._node(0), self.folder / "n", **options)
        self.edges = lance.write_dataset(self._edge(0), self.folder / "e", **options)
        self.manifest = lance.write_dataset(self._rows(), self.folder / "m", **options)

    def _node(self, n: int) -> pa.Table:
        return pa.table({"id": [f"k{n}"], "k": [f"k{n}"], "n": [n]})

    def _edge(self, n: int) -> pa.Table:
        return pa.table({"id": [f"e{n}"], "src": [f"k{n}"], "dst": [f"k{n}"], "w": [1.0]})

    def _rows(self) -> pa.Table:
        return pa.table({"object_id": [f"o{n}" for n in range(60)], "metadata": ["{}" * 40] * 60, "version": range(60)})

    def commit(self) -> None:
        self.count += 1
        self.nodes = self._append(self.nodes, self._node(self.count))
        self.edges = self._append(self.edges, self._edge(self.count))
        staged = write_fragments(self._rows(), self.manifest, mode="overwrite", return_transaction=True)
        self.manifest = LanceDataset.commit(self.manifest, staged, max_retries=0)

    def settle(self) -> None:
        """Start anew now and then: nothing folds these fragments, and their number would slow pylance down."""
        if self.count % 40 == 0:
            self._reset()

    @staticmethod
    def _append(dataset: LanceDataset, rows: pa.Table) -> LanceDataset:
        staged = write_fragments(rows, dataset, mode="append", return_transaction=True)
        return LanceDataset.commit(dataset, staged, max_retries=0)


def small_commits(folder: Path, rounds: int) -> None:
    graphs = {name: Pairs(folder / name, name) for name in ("fast", "full")}
    raw = RawPairs(folder / "raw")
    spent: dict[str, list[float]] = {"fast": [], "full": [], "raw": []}
    for number in range(rounds + 10):
        for name, graph in graphs.items():
            spent[name].append(timed(graph.commit))
        spent["raw"].append(timed(raw.commit))
        raw.settle()
        if number == 9:
            spent = {name: [] for name in spent}
    for name, values in spent.items():
        report(f"one node and one edge, {name}, p50", float(np.percentile(values, 50)), "ms")
        report(f"one node and one edge, {name}, p99", float(np.percentile(values, 99)), "ms")
    median = {name: float(np.percentile(values, 50)) for name, values in spent.items()}
    report("fast against raw pylance, p50", median["fast"] / median["raw"], "x", 2.0)
    report("full against raw pylance, p50", median["full"] / median["raw"], "x")


def long_history(folder: Path, marks: list[int], rounds: int = 150) -> None:
    """An old graph beside a fresh one, written in turn: whatever grows with the history shows in the ratios.

    A graph that is already in the folder is continued, so that a history of many hours is built once.
    """
    old = Pairs(folder / "old", "fast")
    for mark in marks:
        while old.count < mark:
            old.commit()
        young = Pairs(folder / f"young-{mark}", "fast")
        for _ in range(100):
            young.commit()
        _compare("p50 of a commit", mark, old.commit, young.commit, rounds, aim=1.3)
        _compare("history.list(limit=20)", mark, partial(old.list, 20), partial(young.list, 20), 20)
        _compare("history.list(limit=80)", mark, partial(old.list, 80), partial(young.list, 80), 20)
        _compare("snapshot at an old commit", mark, old.revisit, young.revisit, 20)
        _compare("first commit of a process", mark, old.first_commit, young.first_commit, 5)
        disk = sum(file.stat().st_size for file in (folder / "old").rglob("*") if file.is_file())
        report(f"disk after {mark} commits", disk / 2**20, "MB")


def _compare(
    what: str,
    mark: int,
    old: Callable[[], float | None],
    young: Callable[[], float | None],
    rounds: int,
    aim: float | None = None,
) -> None:
    """Run both in turn; whoever measures itself returns milliseconds."""
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for work, values in zip((young, old), spent, strict=True):
            start = time.perf_counter()
            own = work()
            values.append((time.perf_counter() - start) * 1_000 if own is None else own)
    median = [float(np.percentile(values, 50)) for values in spent]
    report(f"{what}, young", median[0], "ms")
    report(f"{what}, at {mark} commits", median[1], "ms")
    report(f"{what}, at {mark} against 100", median[1] / median[0], "x", aim)


def upsert(folder: Path, rows: int) -> None:
    context = create(folder / "graph", SCHEMA).context
    keys = [f"key-{n:09d}" for n in range(rows)]
    load(context, {"P": pa.table({"k": keys, "n": range(rows)})}, mode="append")
    raw = lance.write_dataset(
        pa.table({"id": keys, "k": keys, "n": range(rows)}), folder / "raw", enable_stable_row_ids=True
    )
    raw.create_scalar_index("id", "BTREE")
    chance = np.random.default_rng(7)
    ours, theirs = [], []
    for number in range(5):
        old = [keys[int(at)] for at in chance.choice(rows, 5_000, replace=False)]
        batch = old + [f"new-{number}-{n}" for n in range(5_000)]
        values = pa.array(range(10_000), pa.int64())
        source = {"P": pa.table({"k": batch, "n": values})}
        ours.append(timed(lambda source=source: load(context, source, mode="merge")))
        given = pa.table({"id": batch, "k": batch, "n": values})
        raw = lance.dataset(folder / "raw")
        merge = raw.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        theirs.append(timed(lambda merge=merge, given=given: merge.execute(given)))
    report(f"upsert of 10,000 rows into {rows:,}, first in the process", ours[0], "ms")
    report(f"upsert of 10,000 rows into {rows:,}, p50", float(np.median(ours[1:])), "ms")
    report("the same by pylance merge_insert, p50", float(np.median(theirs[1:])), "ms")
    report("upsert against merge_insert, p50", float(np.median(ours[1:]) / np.median(theirs[1:])), "x", 2.0)


def cascade(folder: Path, rows: int) -> None:
    context = create(folder / "graph", SCHEMA).context
    people = rows // 100
    keys = [f"p{n}" for n in range(people)]
    ends = np.arange(rows) % people
    sources = pa.array(keys).take(pa.array(ends))
    targets = pa.array(keys).take(pa.array((ends * 7 + np.arange(rows) // people) % people))
    load(
        context,
        {"P": pa.table({"k": keys}), "K": pa.table({"from": sources, "to": targets})},
        mode="append",
    )
    plan = compile_query(context.catalog, "query gone($k: String) { delete P where k = $k }", None)
    assert isinstance(plan, WritePlan)
    spent = []
    for number in range(12):
        start = time.perf_counter()
        result = mutate(context, plan, {"k": keys[number * 31]})
        spent.append((time.perf_counter() - start) * 1_000)
        assert result.affected_edges >= 100
    report(f"delete of a node with its edges of {rows:,}, first", spent[0], "ms")
    report(f"delete of a node with its edges of {rows:,}, p50", float(np.median(spent[2:])), "ms", 50.0)


def threads(folder: Path, count: int, each: int) -> None:
    graph = Pairs(folder / "graph", "fast")
    conflicts = []

    def work(number: int) -> None:
        for step in range(each):
            try:
                mutate(graph.context, graph.plan, {"k": f"t{number}-{step}", "n": step})
            except ConflictError as conflict:
                conflicts.append(conflict)

    graph.commit()
    running = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    spent = timed(lambda: ([t.start() for t in running], [t.join() for t in running]))
    report(f"{count} threads inserting", (count * each - len(conflicts)) / spent * 1_000, "commits/s")
    report(f"{count} threads inserting, conflicts", len(conflicts), f"of {count * each}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--commits", default="100,5000", help="where a long history is compared with a fresh one")
    parser.add_argument("--history", type=Path, default=None, help="a folder whose old graph is continued and kept")
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    marks = [int(mark) for mark in options.commits.split(",")]
    parts: dict[str, Callable[[Path], None]] = {
        "small": lambda folder: small_commits(folder, options.rounds),
        "threads": lambda folder: threads(folder, 8, 25),
        "upsert": lambda folder: upsert(folder, options.rows),
        "cascade": lambda folder: cascade(folder, options.rows),
        "history": lambda folder: long_history(options.history or folder, marks),
    }
    for name, part in parts.items():
        if not options.only or name in options.only.split(","):
            folder = Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
            try:
                part(folder)
            finally:
                shutil.rmtree(folder)
    if options.out is not None:
        options.out.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
