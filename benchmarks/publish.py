"""What a table commit and a publish cost, and whether they stay that cheap.

Prints one JSON document: p50 and p99 in milliseconds of the stages of one small write (stage, commit, publish) at
100 and at 5,000 commits, their ratio, the same for full durability, and a raw pylance append plus overwrite beside it.

    python benchmarks/publish.py [--commits 5000] [--keep DIRECTORY]
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.fragment import write_fragments

from omnigraph.engine.manifest.delta import Lineage, UpdateTable
from omnigraph.engine.manifest.publish import Manifest
from omnigraph.engine.operations.create import create_graph
from omnigraph.engine.storage.durability import Durability
from omnigraph.engine.storage.staged import stage_changes
from omnigraph.engine.storage.tables import TableStore
from omnigraph.ids import CommitId, new_ulid, node_key, now_micros

SCHEMA = "node Person { name: String @key }"
PERSON = node_key("Person")
WINDOW = 100
"""Writes a percentile is taken over."""

Timings = dict[str, list[float]]


def _row(schema: pa.Schema, name: str) -> pa.Table:
    return pa.table({"id": [name], "name": [name]}, schema=schema)


def _write(store: TableStore, manifest: Manifest, number: int, timings: Timings) -> None:
    """One small write: three inserts of new people, then one update of somebody known, in turn."""
    start = time.perf_counter()
    snapshot = manifest.snapshot()
    base = snapshot.open(PERSON)
    name = f"p{number % 4000}"
    if number % 4 == 3:
        found = base.scan(["id"], pc.field("id") == f"p{number - 1}", with_row_id=True, with_row_address=True)
        staged = stage_changes(
            base,
            updated_rows=_row(base.schema, f"p{number - 1}"),
            updated_addresses=found["_rowaddr"].to_numpy(),
            updated_row_ids=found["_rowid"].to_numpy(),
        )
    else:
        name = f"p{number}"
        staged = stage_changes(base, new_rows=_row(base.schema, name))
    assert staged is not None
    staged_at = time.perf_counter()
    table = store.commit(base, staged, {"omnigraph.operation_id": "bench", "omnigraph.step": "1"})
    committed_at = time.perf_counter()
    entry = snapshot.entry(PERSON)
    change = UpdateTable(PERSON, table.version, None, entry.row_count + staged.row_delta)
    lineage = Lineage(CommitId(new_ulid()), "bench", now_micros())
    manifest.publish("main", [change], lineage=lineage, expected={PERSON: entry.version})
    store.remember(table)
    end = time.perf_counter()
    timings["stage"].append(staged_at - start)
    timings["commit"].append(committed_at - staged_at)
    timings["publish"].append(end - committed_at)
    timings["whole"].append(end - start)


def _percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    return {"p50": round(statistics.median(ordered) * 1e3, 2), "p99": round(p99 * 1e3, 2)}


def _summary(timings: Timings, upto: int) -> dict[str, dict[str, float]]:
    return {name: _percentiles(values[upto - WINDOW : upto]) for name, values in timings.items()}


def run(root: Path, commits: int, durability: Durability) -> Timings:
    """Write so often into a new graph; the time of every stage of every write."""
    store = TableStore(str(root), durability=durability)
    create_graph(store, SCHEMA)
    manifest = Manifest(store)
    timings: Timings = {"stage": [], "commit": [], "publish": [], "whole": []}
    for number in range(commits):
        _write(store, manifest, number, timings)
    assert len(manifest.history.list()) == commits + 1
    return timings


def raw(root: Path, commits: int) -> dict[str, float]:
    """The same bytes without us: one pylance append to a table, one overwrite of a table of 40 rows."""
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("name", pa.string())])
    table = lance.write_dataset(_row(schema, "a"), str(root / "t"), enable_stable_row_ids=True)
    rows = pa.table({"id": [str(i) for i in range(40)], "name": ["x" * 80] * 40}, schema=schema)
    manifest = lance.write_dataset(rows, str(root / "m"), enable_stable_row_ids=True)
    times = []
    for number in range(commits):
        start = time.perf_counter()
        append = write_fragments(_row(schema, f"p{number}"), table, mode="append", return_transaction=True)
        table = LanceDataset.commit(table, append, max_retries=0)
        swap = write_fragments(rows, manifest, mode="overwrite", return_transaction=True)
        manifest = LanceDataset.commit(manifest, swap, max_retries=0)
        times.append(time.perf_counter() - start)
    return _percentiles(times[-WINDOW:])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=5000)
    parser.add_argument("--keep", type=Path, help="leave the graphs here instead of removing them")
    arguments = parser.parse_args()
    base = Path(arguments.keep or tempfile.mkdtemp(prefix="omnigraph-bench-"))
    try:
        fast = run(base / "fast", arguments.commits, Durability.FAST)
        full = run(base / "full", 2 * WINDOW, Durability.FULL)
        early, late = _summary(fast, 100 + WINDOW), _summary(fast, arguments.commits)
        report = {
            "commits": arguments.commits,
            "fast_early": early,
            "fast_late": late,
            "p50_late_over_early": {k: round(late[k]["p50"] / early[k]["p50"], 2) for k in late},
            "full": _summary(full, 2 * WINDOW),
            "raw_append_and_overwrite": raw(base / "raw", 2 * WINDOW),
        }
        print(json.dumps(report, indent=2))
    finally:
        if arguments.keep is None:
            shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
