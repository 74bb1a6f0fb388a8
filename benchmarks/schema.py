"""What a change of schema costs: time, bytes and commits.

    python -m benchmarks.schema                      # 100,000 rows
    python -m benchmarks.schema --rows 1000000

Each line is one change of a graph with one table: what it did, how long the whole apply took, its processor
time, and how many bytes the graph grew by. A change that writes no column is there to be compared with.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import omnigraph

SCHEMA = "node Item { key: String @key  small: I32  big: I32?  ratio: F32  word: String }\n"


def size_of(root: Path) -> int:
    """The bytes of every file below a folder."""
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def build(root: Path, rows: int) -> omnigraph.Graph:
    """A graph with one table of rows."""
    graph = omnigraph.create(root, SCHEMA)
    numbers = np.arange(rows)
    table = pa.table(
        {
            "key": pa.array(np.char.add("item-", numbers.astype(str))),
            "small": pa.array(numbers % 1_000, pa.int32()),
            "big": pa.array(numbers, pa.int32(), mask=numbers % 10 == 0),
            "ratio": pa.array(numbers / 7, pa.float32()),
            "word": pa.array(np.char.add("word-", (numbers % 100).astype(str))),
        }
    )
    graph.load({"Item": table}, mode="append")
    return graph


CHANGES: list[tuple[str, Callable[[str], str]]] = [
    ("add a nullable property (no column written)", lambda s: s.replace("word:", "note: String?  word:")),
    ("widen I32 to I64", lambda s: s.replace("small: I32", "small: I64")),
    ("widen F32 to F64", lambda s: s.replace("ratio: F32", "ratio: F64")),
    ("add a required property with a default", lambda s: s.replace("word:", "level: I32 @default(3)  word:")),
    ("make required, a default for one row in ten", lambda s: s.replace("big: I32?", "big: I32 @default(0)")),
    ("add @range (checked, nothing written)", lambda s: s.replace("word:", "@range(small, 0..) word:")),
    ("add @unique (checked, nothing written)", lambda s: s.replace("big: I32", "@unique(key, big) big: I32")),
]


def measure(rows: int) -> None:
    """Run every change after the other, and print a line for each."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "graph.omni"
        graph = build(root, rows)
        print(f"{rows:,} rows, {size_of(root) / 1e6:.1f} MB")
        print(f"{'change':<48}{'seconds':>9}{'cpu':>8}{'MB':>8}{'commits':>9}")
        for name, change in CHANGES:
            before, commits = size_of(root), len(graph.history.list())
            began, used = time.perf_counter(), time.process_time()
            graph.schema.apply(change(graph.schema.source))
            seconds, cpu = time.perf_counter() - began, time.process_time() - used
            grown, made = (size_of(root) - before) / 1e6, len(graph.history.list()) - commits
            print(f"{name:<48}{seconds:>9.3f}{cpu:>8.3f}{grown:>8.2f}{made:>9}")


def main() -> None:
    """Measure the changes of a table of some size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=100_000)
    measure(parser.parse_args().rows)


if __name__ == "__main__":
    main()
