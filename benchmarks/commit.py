"""What a commit costs, beside raw pylance, ladybug and sqlite doing the same work in the same run.

    python benchmarks/commit.py                        # everything
    python benchmarks/commit.py --only real            # small commits and deletions on the real graph
    python benchmarks/commit.py --only real --keep DIR # build that graph once and use it again
    python benchmarks/commit.py [--commits 100,5000] [--rows 1000000] [--out results/commit.json]

Every line begins with the graph it was measured on: *empty* (created for the run), *new* (likewise, and some hundred or
thousands of commits old), *real* (100,000 Person with a String key, 1 M Knows, 200,000 Post with text and
384-dimensional vectors, as `benchmarks/read.py` generates it) or the number of rows it was given. What is compared
alternates step by step, so that other work on the machine hits both alike; read ratios, not milliseconds. Where it says
cpu, the processor time of the calling thread is meant. A line ends with its aim, where it has one, and whether it was
met.
"""

from __future__ import annotations

import argparse
import json
import os
import random
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

from omnigraph import connect, create
from omnigraph.engine.operations.load import load
from omnigraph.engine.operations.mutate import mutate
from omnigraph.engine.storage import staged
from omnigraph.engine.write.context import GraphContext
from omnigraph.errors import ConflictError
from omnigraph.plan import compile_query
from omnigraph.plan.statements import WritePlan

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.read import Data, build_graph, build_ladybug, build_sqlite, generate

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
    print(f"{name:<66}{value:>10.2f} {unit}{verdict}", flush=True)


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
        report(f"empty: one node and one edge, {name}, p50", float(np.percentile(values, 50)), "ms")
        report(f"empty: one node and one edge, {name}, p99", float(np.percentile(values, 99)), "ms")
    median = {name: float(np.percentile(values, 50)) for name, values in spent.items()}
    report("empty: fast against raw pylance, p50", median["fast"] / median["raw"], "x", 2.0)
    report("empty: full against raw pylance, p50", median["full"] / median["raw"], "x")


# --- the real graph ---------------------------------------------------------------------------------------------------

INSERT = (
    "query pair($k: String, $o: String)"
    ' { insert Person { key: $k, name: "New", age: 30, city: "Fez" } insert Knows { from: $k, to: $o } }'
)
DELETE = "query gone($k: String) { delete Person where key = $k }"
TABLES = ("node:Person", "edge:Knows")


class RealGraph:
    """Omnigraph: checked, visible at once for all tables, and kept as history."""

    def __init__(self, root: Path, durability: str, people: int) -> None:
        self.graph, self.people = connect(root, durability=durability), people

    def insert(self, number: int) -> None:
        self.graph.mutate(INSERT, {"k": f"new{number}", "o": f"p{number * 37 % self.people:07d}"})

    def delete(self, number: int) -> None:
        self.graph.mutate(DELETE, {"k": f"p{number * 7:07d}"})


class BareLance:
    """The same tables by plain pylance: an append to each of two and an overwrite of a third, nothing checked."""

    FRESH_AFTER = 40

    def __init__(self, source: Path, root: Path, people: int) -> None:
        graph = connect(source, read_only=True)
        self.paths = [graph.snapshot().entry(key).path for key in TABLES]
        self.source, self.root, self.people, self.written = source, root, people, 0
        self._reset()

    def _reset(self) -> None:
        """Start anew now and then: nothing folds these fragments, and their number would slow pylance down.

        What was written stays until the end: file systems are slow to create files where many were just removed.
        """
        folder = self.root / str(self.written)
        for path in (*self.paths, "__manifest"):
            # Lance never changes a file, so a link is as good as a copy.
            shutil.copytree(self.source / path, folder / path, copy_function=os.link)
        self.nodes, self.edges = (lance.dataset(folder / path) for path in self.paths)
        self.manifest = lance.dataset(folder / "__manifest")
        self.rows = pa.concat_tables([self.manifest.to_table()] * 3)

    def insert(self, number: int) -> None:
        key = f"new{number}"
        node = {"id": key, "key": key, "name": "New", "age": 30, "city": "Fez"}
        edge = {"id": f"e{number}", "src": key, "dst": f"p{number * 37 % self.people:07d}"}
        self.nodes = self._append(self.nodes, node)
        self.edges = self._append(self.edges, edge)
        staged = write_fragments(self.rows, self.manifest, mode="overwrite", return_transaction=True)
        self.manifest = LanceDataset.commit(self.manifest, staged, max_retries=0)

    def settle(self) -> None:
        self.written += 1
        if self.written % self.FRESH_AFTER == 0:
            self._reset()

    def delete(self, number: int) -> None:
        key = f"p{number * 7:07d}"
        self.nodes.delete(f"id = '{key}'")
        self.edges.delete(f"src = '{key}' or dst = '{key}'")
        staged = write_fragments(self.rows, self.manifest, mode="overwrite", return_transaction=True)
        self.manifest = LanceDataset.commit(self.manifest, staged, max_retries=0)

    @staticmethod
    def _append(dataset: LanceDataset, row: dict[str, Any]) -> LanceDataset:
        rows = pa.Table.from_pylist([row], schema=dataset.schema)
        staged = write_fragments(rows, dataset, mode="append", return_transaction=True)
        return LanceDataset.commit(dataset, staged, max_retries=0)


class Sqlite:
    """Person and Knows in sqlite, indexed both ways; like durability fast it survives a killed process."""

    def __init__(self, data: Data, folder: Path) -> None:
        self.db = build_sqlite(data, folder / "people.sqlite")
        self.db.execute("pragma journal_mode = wal")
        self.db.execute("pragma synchronous = off")
        self.people = data.people

    def insert(self, number: int) -> None:
        identity = self.people + number
        with self.db:
            self.db.execute("insert into person values (?, ?, 'New', 30, 'Fez')", (identity, f"new{number}"))
            self.db.execute("insert into knows values (?, ?, null)", (identity, number * 37 % self.people))

    def delete(self, number: int) -> None:
        with self.db:
            (identity,) = self.db.execute("select id from person where key = ?", (f"p{number * 7:07d}",)).fetchone()
            self.db.execute("delete from knows where src = ? or dst = ?", (identity, identity))
            self.db.execute("delete from person where id = ?", (identity,))


class Ladybug:
    """Person and Knows in ladybug, one transaction each."""

    def __init__(self, data: Data, folder: Path) -> None:
        self.connection, self.people = build_ladybug(data, folder), data.people

    def insert(self, number: int) -> None:
        self.connection.execute(
            "match (o:Person {key: $o}) create (n:Person {key: $k, name: 'New', age: 30, city: 'Fez'})-[:Knows]->(o)",
            {"k": f"new{number}", "o": f"p{number * 37 % self.people:07d}"},
        )

    def delete(self, number: int) -> None:
        self.connection.execute("match (a:Person {key: $k}) detach delete a", {"k": f"p{number * 7:07d}"})


class InLance:
    """The processor time that the calling thread spends inside Lance, told from what is our own."""

    def __init__(self) -> None:
        self.seconds, self._thread = 0.0, threading.get_ident()

    def __enter__(self) -> InLance:
        self._before = (staged.write_fragments, LanceDataset.commit)
        staged.write_fragments = self._timed(staged.write_fragments)
        LanceDataset.commit = self._timed(LanceDataset.commit)  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        staged.write_fragments, LanceDataset.commit = self._before  # type: ignore[method-assign]

    def _timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **named: Any) -> Any:
            if threading.get_ident() != self._thread:
                return work(*args, **named)
            began = time.thread_time()
            try:
                return work(*args, **named)
            finally:
                self.seconds += time.thread_time() - began

        return run


def own_work(graph: RealGraph, rounds: int) -> None:
    """What is left of the processor time of a commit without the calls of Lance; alone, as it looks into them."""
    spent = []
    for number in range(1_000_000, 1_000_000 + rounds):
        with InLance() as lance_time:
            began = time.thread_time()
            graph.insert(number)
            spent.append((time.thread_time() - began - lance_time.seconds) * 1_000)
    report("real: one node and one edge, fast, own work, p10", float(np.percentile(spent, 10)), "ms")
    report("real: one node and one edge, fast, own work, p50", float(np.percentile(spent, 50)), "ms", 3.0)


def real_graph(folder: Path, keep: Path | None, rounds: int, scale: float) -> None:
    """One node and one edge, then a node with its edges, on the real graph, everybody in turn."""
    data = generate(scale)
    print(f"real: {data}", flush=True)
    source = (keep or folder) / f"graph-{scale}"
    if not source.exists():
        build_graph(data, source)
    programs: dict[str, Any] = {}
    for durability in ("fast", "full"):
        copy = shutil.copytree(source, folder / durability)
        programs[durability] = RealGraph(copy, durability, data.people)
    programs |= {
        "bare Lance": BareLance(source, folder / "bare", data.people),
        "sqlite": Sqlite(data, folder),
        "ladybug": Ladybug(data, folder),
    }
    _in_turn("one node and one edge", {name: each.insert for name, each in programs.items()}, rounds, programs)
    report_aims("one node and one edge", p50=1.25)
    _in_runs("one node and one edge", programs["fast"], programs["bare Lance"], rounds)
    own_work(programs["fast"], rounds)
    _in_turn("a node with its edges deleted", {name: each.delete for name, each in programs.items()}, rounds, programs)
    report_aims("a node with its edges deleted")


def _in_turn(what: str, work: dict[str, Callable[[int], None]], rounds: int, programs: dict[str, Any]) -> None:
    wall: dict[str, list[float]] = {name: [] for name in work}
    cpu: dict[str, list[float]] = {name: [] for name in work}
    warm, order, chance = 40, list(work.items()), random.Random(7)
    for number in range(rounds + warm):
        # Nobody always follows the same one, which may leave caches cold or files to be written.
        chance.shuffle(order)
        for name, do in order:
            began, spent = time.perf_counter(), time.thread_time()
            do(number)
            if number >= warm:
                cpu[name].append((time.thread_time() - spent) * 1_000)
                wall[name].append((time.perf_counter() - began) * 1_000)
        programs["bare Lance"].settle()
    for name in work:
        # Beside other work on the machine the low percentile is nearest to what the work itself takes.
        report(f"real: {what}, {name}, p10", float(np.percentile(wall[name], 10)), "ms")
        report(f"real: {what}, {name}, p50", float(np.percentile(wall[name], 50)), "ms")
        report(f"real: {what}, {name}, p95", float(np.percentile(wall[name], 95)), "ms")
        report(f"real: {what}, {name}, cpu p50", float(np.percentile(cpu[name], 50)), "ms")


def _in_runs(what: str, ours: RealGraph, bare: BareLance, rounds: int, run: int = 20) -> None:
    """Commits that follow one another, as those of a program that loads record by record do.

    In turn with others each commit begins with what these have left in the caches of the processor.
    """
    wall: dict[str, list[float]] = {"fast": [], "bare Lance": []}
    number, order, chance = 2_000_000, list(zip(wall, (ours, bare), strict=True)), random.Random(7)
    for at in range(-run, rounds, run):
        chance.shuffle(order)
        for name, program in order:
            for _ in range(run):
                number += 1
                spent = timed(partial(program.insert, number))
                if at >= 0:
                    wall[name].append(spent)
                if program is bare:
                    bare.settle()
    ratios = {q: np.percentile(wall["fast"], q) / np.percentile(wall["bare Lance"], q) for q in (10, 50)}
    for name in wall:
        report(f"real: {what} after another, {name}, p50", float(np.percentile(wall[name], 50)), "ms")
    report(f"real: {what} after another, fast against bare Lance, p10", float(ratios[10]), "x")
    report(f"real: {what} after another, fast against bare Lance, p50", float(ratios[50]), "x", 1.25)


def report_aims(what: str, p50: float | None = None) -> None:
    """How the two durabilities compare with the bare calls, and how far the slow ones are from the usual."""
    asked = ("fast, p10", "fast, p50", "fast, p95", "full, p50", "bare Lance, p10", "bare Lance, p50")
    value = {name: figures[f"real: {what}, {name}"]["value"] for name in asked}
    bare = value["bare Lance, p50"]
    report(f"real: {what}, fast against bare Lance, p10", value["fast, p10"] / value["bare Lance, p10"], "x")
    report(f"real: {what}, fast against bare Lance, p50", value["fast, p50"] / bare, "x", p50)
    report(f"real: {what}, full against bare Lance, p50", value["full, p50"] / bare, "x")
    report(f"real: {what}, fast, p95 against p50", value["fast, p95"] / value["fast, p50"], "x", 2.0)


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
        report(f"new, {mark} commits old: disk", disk / 2**20, "MB")


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
    report(f"new: {what}", median[0], "ms")
    report(f"new, {mark} commits old: {what}", median[1], "ms")
    report(f"new, {mark} commits old: {what}, against new", median[1] / median[0], "x", aim)


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
    report(f"{rows:,} rows: upsert of 10,000 rows, first in the process", ours[0], "ms")
    report(f"{rows:,} rows: upsert of 10,000 rows, p50", float(np.median(ours[1:])), "ms")
    report(f"{rows:,} rows: the same by pylance merge_insert, p50", float(np.median(theirs[1:])), "ms")
    report(
        f"{rows:,} rows: upsert against merge_insert, p50", float(np.median(ours[1:]) / np.median(theirs[1:])), "x", 2.0
    )


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
    report(f"{rows:,} edges: a node with its edges deleted, first", spent[0], "ms")
    report(f"{rows:,} edges: a node with its edges deleted, p50", float(np.median(spent[2:])), "ms", 50.0)


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
    report(f"empty: {count} threads inserting", (count * each - len(conflicts)) / spent * 1_000, "commits/s")
    report(f"empty: {count} threads inserting, conflicts", len(conflicts), f"of {count * each}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--commits", default="100,5000", help="where a long history is compared with a fresh one")
    parser.add_argument("--history", type=Path, default=None, help="a folder whose old graph is continued and kept")
    parser.add_argument("--keep", type=Path, default=None, help="a folder in which the real graph is kept")
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the real graph, to try the program")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    marks = [int(mark) for mark in options.commits.split(",")]
    parts: dict[str, Callable[[Path], None]] = {
        "real": lambda folder: real_graph(folder, options.keep, options.rounds, options.scale),
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
