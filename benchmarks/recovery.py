"""What recovery costs: in peace, and after a crash.

    python benchmarks/recovery.py [--commits 300] [--out results/recovery.json]

In peace every write asks once whether anybody left an unfinished one. After a crash the next write resolves it. Both
are measured beside ordinary commits of the same run, alternating, so read the ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omnigraph import connect, create, failpoints
from omnigraph.engine.recovery import heal
from omnigraph.errors import RecoveryRequiredError
from omnigraph.graph import Graph
from omnigraph.testing.failpoints import InjectedFailure, configured

SCHEMA = "node P { k: String @key }\nedge K: P -> P"
QUERY = "query pair($k: String) { insert P { k: $k } insert K { from: $k, to: $k } }"
RESULTS = Path(__file__).parent / "results" / "recovery.json"


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1_000


def measure_peace(graph: Graph, commits: int) -> dict[str, float]:
    """The heal of a graph without unfinished writes, beside whole commits."""
    heals, writes = [], []
    for number in range(commits):
        heals.append(timed(lambda: heal(graph.context.recovery)))
        writes.append(timed(lambda n=number: graph.mutate(QUERY, {"k": f"k{n}"})))
    return {"heal": statistics.median(heals), "commit": statistics.median(writes)}


def measure_crash(graph: Graph, name: str, rounds: int) -> float:
    """The first write after one that was cut short, healing included."""
    times = []
    for number in range(rounds):
        with configured(f"{name}=1*return"), contextlib.suppress(RecoveryRequiredError, InjectedFailure):
            graph.mutate(QUERY, {"k": f"{name}-{number}"})
        times.append(timed(lambda n=number: graph.mutate(QUERY, {"k": f"after-{name}-{n}"})))
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=300)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    folder = Path(tempfile.mkdtemp(prefix="omnigraph-recovery-"))
    try:
        graph = create(folder / "graph", SCHEMA)
        figures = measure_peace(graph, arguments.commits)
        figures["heal share of a commit, %"] = 100 * figures["heal"] / figures["commit"]
        figures["open, nothing pending"] = statistics.median(
            timed(lambda: connect(folder / "graph")) for _ in range(20)
        )
        figures["write that finishes a crashed one"] = measure_crash(graph, failpoints.MUTATION_POST_FINALIZE, 20)
        figures["write after one that undid itself"] = measure_crash(graph, failpoints.MUTATION_POST_TABLE_COMMIT, 20)
    finally:
        shutil.rmtree(folder)
    for name, value in figures.items():
        print(f"{name:<40}{value:>10.3f}{'' if '%' in name else ' ms'}")
    print(f"heal in peace under 5 % of a commit: {'met' if figures['heal share of a commit, %'] < 5 else 'MISSED'}")
    arguments.out.parent.mkdir(exist_ok=True)
    arguments.out.write_text(json.dumps({name: round(value, 4) for name, value in figures.items()}, indent=2) + "\n")


if __name__ == "__main__":
    main()
