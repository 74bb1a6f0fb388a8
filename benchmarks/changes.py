"""What a diff costs, beside comparing every row, and what the feed of changes costs, in one run.

    python -m benchmarks.changes [--rows 1000000] [--commits 5000] [--out results/changes.json]

A table of people is changed on a branch by a few rows and by many; the same differences are asked of a table a
twentieth the size. A follower hears of commits of one row, in a large table and a small one, in a young history and an
old one. Read ratios, not milliseconds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import create
from omnigraph.graph import Graph

SCHEMA = "node P { k: String @key  n: I64?  city: String?  note: String? }"
RESULTS = Path(__file__).parent / "results" / "changes.json"
figures: dict[str, Any] = {}


def report(name: str, value: float, unit: str, aim: float | None = None) -> None:
    figures[name] = {"value": round(value, 4), "unit": unit, "aim": aim}
    verdict = "" if aim is None else f"   aim < {aim:g}: {'met' if value < aim else 'MISSED'}"
    print(f"{name:<64}{value:>10.3f} {unit}{verdict}", flush=True)


def best(work: Callable[[], Any], times: int = 5) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append((time.perf_counter() - start) * 1_000)
    return min(taken)


def people(start: int, count: int) -> pa.Table:
    numbers = np.arange(start, start + count)
    return pa.table(
        {
            "k": pa.array([f"p{number:09d}" for number in numbers]),
            "n": pa.array(numbers, pa.int64()),
            "city": pa.array([f"city {number % 997}" for number in numbers]),
            "note": pa.array([f"note {number} " * 6 for number in numbers]),
        }
    )


def graph_of(folder: Path, rows: int) -> Graph:
    graph = create(folder, SCHEMA)
    for start in range(0, rows, 250_000):
        graph.load({"P": people(start, min(250_000, rows - start))}, "append", engine="local", durability="fast")
    return graph


def few(graph: Graph, branch: str) -> None:
    graph.branches.create(branch)
    update = "query u($k: String) { update P set { n: 1000000001 } where k = $k }"
    for number in range(4):
        graph.mutate(update, {"k": f"p{number * 7:09d}"}, branch=branch)
    for number in range(3):
        graph.mutate("query i($k: String) { insert P { k: $k } }", {"k": f"new{number}"}, branch=branch)
        graph.mutate("query d($k: String) { delete P where k = $k }", {"k": f"p{number * 13 + 5:09d}"}, branch=branch)


def many(graph: Graph, branch: str, count: int) -> None:
    graph.branches.create(branch)
    rows = people(0, count)
    changed = rows.set_column(1, "n", pc.add(rows["n"], 1))
    graph.load({"P": changed}, "merge", branch=branch, engine="local", durability="fast")


def plain(graph: Graph, one: str, other: str) -> int:
    """How many people differ, by comparing all of them."""
    columns = ["id", "n", "city", "note"]
    left, right = (graph.snapshot(branch).open("node:P").scan(columns) for branch in (one, other))
    joined = left.join(right, "id", join_type="full outer", right_suffix="_r")
    same = pc.and_(pc.equal(joined["n"], joined["n_r"]), pc.equal(joined["note"], joined["note_r"]))
    return int(pc.sum(pc.invert(pc.fill_null(same, False))).as_py())


UPDATE = "query u($k: String, $n: I64) { update P set { n: $n } where k = $k }"
HEARD = 25
"""Commits a follower hears of one by one, of which the quickest counts."""


fresh = itertools.count(1)


def touch(graph: Graph, rows: int, number: int) -> None:
    """A commit that changes one row."""
    graph.mutate(UPDATE, {"k": f"p{number % rows:09d}", "n": -next(fresh)})


def hear(graph: Graph, rows: int) -> float:
    """What it takes to hear of a commit of one row, for who has heard of the one before it.

    In milliseconds of all processors: it is so little that what else a machine does would be measured instead.
    """
    taken = []
    cursor = graph.changes.poll(start="now").cursor
    for number in range(HEARD):
        touch(graph, rows, number * 31)
        start = time.process_time()
        page = graph.changes.poll(cursor, values="full")
        taken.append((time.process_time() - start) * 1_000)
        assert [len(block.changes) for block in page.blocks] == [1]
        cursor = page.cursor
    return min(taken)


def feed(
    folder: Path,
    large: Graph,
    rows: int,
    commits: int,
    report: Callable[[str, float, str, float | None], None] = report,
) -> None:
    """Hear of single rows: in many rows and in few, after many commits and after few."""
    few_rows = max(rows // 100, 100)
    small = graph_of(folder / "feed", few_rows)
    hear(large, rows)  # The first poll of a graph reads what every later one knows.
    hear(small, few_rows)
    in_many, in_few = hear(large, rows), hear(small, few_rows)
    report(f"feed, a commit of one row in {rows:,} rows", in_many, "ms", None)
    report(f"the same ÷ in {few_rows:,} rows", in_many / in_few, "×", 2)
    young = _hear_at(small, few_rows, 100)
    old = _hear_at(small, few_rows, commits)
    report(f"feed, commit {commits:,} ÷ commit 100", old / young, "×", 1.5)


def _hear_at(graph: Graph, rows: int, commits: int) -> float:
    """What hearing of a commit takes once there have been so many."""
    made = len(graph.history.list())
    for number in range(made, commits - HEARD):
        touch(graph, rows, number * 17)
    return hear(graph, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, default=5_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="omnigraph-changes-"))
    try:
        large, small = graph_of(folder / "large", options.rows), graph_of(folder / "small", options.rows // 20)
        for graph in (large, small):
            few(graph, "few")
        many(large, "many", 10_000)
        assert len(large.diff("main", "few")) == 10
        assert len(large.diff("main", "many")) == 10_000
        ten = best(lambda: large.diff("main", "few"))
        whole = best(lambda: plain(large, "main", "few"), 2)
        report(f"10 changes in {options.rows:,} rows", ten, "ms")
        report("the same ÷ comparing every row", ten / whole, "×", 1 / 100)
        report("the same ÷ in a twentieth of the rows", ten / best(lambda: small.diff("main", "few")), "×", 2)
        lots = best(lambda: large.diff("main", "many"))
        report("10,000 changes", lots, "ms")
        report("10,000 changes, every value read", best(lambda: list(large.diff("main", "many")), 2), "ms")
        large.maintenance.optimize()
        report("10 changes, main compacted meanwhile", best(lambda: large.diff("main", "few")), "ms")
        feed(folder, large, options.rows, options.commits)
    finally:
        shutil.rmtree(folder)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
