"""What a table commit and a publish cost, and whether they stay that cheap.

Builds a young graph (100 commits), an old one (5,000 commits) and a young one with full durability, then writes one row
to each in turn, beside a raw pylance append and overwrite, so that whatever else the machine does hits all of them
alike. Prints one JSON document: p50 and p99 in milliseconds of the stages of a write, and the ratios.

    python benchmarks/publish.py [--commits 5000] [--writes 200]
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
YOUNG = 100

Timings = dict[str, list[float]]


def _row(schema: pa.Schema, name: str) -> pa.Table:
    return pa.table({"id": [name], "name": [name]}, schema=schema)


def _write(store: TableStore, manifest: Manifest, number: int, timings: Timings) -> None:
    """One small write: three inserts of new people, then one update of somebody known, in turn."""
    start = time.perf_counter()
    snapshot = manifest.snapshot()
    base = snapshot.open(PERSON)
    if number % 4 == 3:
        found = base.scan(["id"], pc.field("id") == f"p{number - 1}", with_row_id=True, with_row_address=True)
        staged = stage_changes(
            base,
            updated_rows=_row(base.schema, f"p{number - 1}"),
            updated_addresses=found["_rowaddr"].to_numpy(),
            updated_row_ids=found["_rowid"].to_numpy(),
        )
    else:
        staged = stage_changes(base, new_rows=_row(base.schema, f"p{number}"))
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


class Writer:
    """One graph that is written to, and the time of every stage of every write."""

    def __init__(self, root: Path, commits: int, durability: Durability = Durability.FAST) -> None:
        self.store = TableStore(str(root), durability=durability)
        create_graph(self.store, SCHEMA)
        self.manifest = Manifest(self.store)
        self.number = 0
        self.timings = _empty()
        for _ in range(commits):
            self.write()
        self.timings = _empty()

    def write(self) -> None:
        """One write more."""
        _write(self.store, self.manifest, self.number, self.timings)
        self.number += 1

    def summary(self) -> dict[str, dict[str, float]]:
        """Percentiles of every stage, after checking that nothing got lost."""
        assert len(self.manifest.history.list()) == self.number + 1
        return {name: _percentiles(values) for name, values in self.timings.items()}


def _empty() -> Timings:
    return {"stage": [], "commit": [], "publish": [], "whole": []}


class Raw:
    """The same bytes without us: one pylance append to a table, one overwrite of a table of 40 rows."""

    def __init__(self, root: Path) -> None:
        self.schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("name", pa.string())])
        self.rows = pa.table({"id": [str(i) for i in range(40)], "name": ["x" * 80] * 40}, schema=self.schema)
        self.table = lance.write_dataset(_row(self.schema, "a"), str(root / "t"), enable_stable_row_ids=True)
        self.manifest = lance.write_dataset(self.rows, str(root / "m"), enable_stable_row_ids=True)
        self.times: list[float] = []

    def write(self) -> None:
        """One append and one overwrite."""
        start = time.perf_counter()
        row = _row(self.schema, f"p{len(self.times)}")
        append = write_fragments(row, self.table, mode="append", return_transaction=True)
        self.table = LanceDataset.commit(self.table, append, max_retries=0)
        swap = write_fragments(self.rows, self.manifest, mode="overwrite", return_transaction=True)
        self.manifest = LanceDataset.commit(self.manifest, swap, max_retries=0)
        self.times.append(time.perf_counter() - start)


def measure(base: Path, commits: int, writes: int) -> dict[str, object]:
    """Build the graphs, write to all of them in turn, and report."""
    young, old = Writer(base / "young", YOUNG), Writer(base / "old", commits)
    full, raw = Writer(base / "full", YOUNG, Durability.FULL), Raw(base / "raw")
    for _ in range(writes):
        for writer in (young, old, full, raw):
            writer.write()
    early, late, synced, plain = young.summary(), old.summary(), full.summary(), _percentiles(raw.times)
    return {
        "writes": writes,
        f"at_{YOUNG}_commits": early,
        f"at_{commits}_commits": late,
        "p50_old_over_young": {name: round(late[name]["p50"] / early[name]["p50"], 2) for name in late},
        "full": synced,
        "p50_full_over_fast": round(synced["whole"]["p50"] / early["whole"]["p50"], 2),
        "raw_append_and_overwrite": plain,
        "p50_ours_over_raw": round(early["whole"]["p50"] / plain["p50"], 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=5000)
    parser.add_argument("--writes", type=int, default=200)
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="omnigraph-bench-"))
    try:
        print(json.dumps(measure(base, arguments.commits, arguments.writes), indent=2))
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
