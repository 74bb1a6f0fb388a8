"""What the same merge costs elsewhere: on Spark beside one process, and on an object store by copies beside rewriting.

    python -m benchmarks.merge_elsewhere [--rows 1000000] [--vectors 100000] [--out results/merge_elsewhere.json]
    python -m benchmarks.merge_elsewhere --only store --store s3://bucket/folder

Read ratios, not milliseconds. Both engines merge into branches that are alike, and must give the same rows and the same
report. Without `--store` a folder stands for one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.merge import DOCS, D, P, Peak, change, docs, figures, load, of_people, report, timed

from omnigraph import connect, create
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import StorageError
from omnigraph.ids import new_ulid

RESULTS = Path(__file__).parent / "results" / "merge_elsewhere.json"


# --- Spark -----------------------------------------------------------------------------------------------------------


def on_spark(folder: Path, rows: int, changes: int) -> None:
    """One merge into two branches that are alike, done here and by Spark; a fifth of it is in conflict."""
    graph = of_people(folder / "engines", rows)
    graph.branches.create("review")
    change(graph, "review", changes, rows // 2, rows)
    change(graph, "main", changes, rows // 2 + changes // 5, 2 * rows)
    told, taken = {}, {}
    for engine in ("local", "spark"):
        graph.branches.create(engine)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            told[engine], found = pool.apply(_merge_on, (graph.uri, engine))
        taken[engine], megabytes, started, planned = found
        if started:
            report("start of the Spark session", started, "ms")
        report(f"first plan of a process, {engine}", planned, "ms")
        report(f"merge of {changes:,} changes on both sides of {rows:,} rows, {engine}", taken[engine], "ms")
        report(f"  memory of the {'driver' if engine == 'spark' else 'process'} above its start", megabytes, "MB")
    assert told["local"] == told["spark"], told
    one, other = (graph.snapshot(name).open(P).scan().sort_by("id") for name in ("local", "spark"))
    assert one.equals(other), "the engines give different rows"
    report("  Spark against local", taken["spark"] / taken["local"], "times")
    print(f"  both: {told['local']}", flush=True)


def _merge_on(root: str, engine: Any) -> tuple[dict[str, Any], tuple[float, float, float, float]]:
    """Merge into the branch named as the engine; what the result says, and what it took."""
    started = 0.0
    if engine == "spark":
        from omnigraph.pipeline.session import obtain_session

        started = timed(lambda: obtain_session(master="local[2]").range(10).count())
    graph = connect(root)
    graph.branches.list()
    results = []
    with Peak() as peak:
        # Executors are started and import what they need with the first job.
        planned = timed(lambda: graph.branches.plan_merge("review", engine, strategy="theirs", engine=engine))
        taken = timed(lambda: results.append(graph.branches.merge("review", engine, strategy="theirs", engine=engine)))
    plan = results[0].plan
    assert plan.engine == engine
    own = ("engine", "engine_reason", "target", "target_commit")
    found = {name: value for name, value in results[0].plan.to_json().items() if name not in own}
    return found, (taken, peak.megabytes, started, planned)


# --- an object store -------------------------------------------------------------------------------------------------


def on_store(place: str, rows: int, width: int = 256, files: int = 10) -> None:
    """The same fast-forward by copies that the store makes, and by writing its rows."""
    graph = create(f"{place.rstrip('/')}/{new_ulid()}", DOCS.format(width=width))
    load(graph, "D", docs(0, 10, width), "append")
    for branch in ("review", "rewritten"):
        graph.branches.create(branch)
    for number in range(files):
        load(graph, "D", docs(100 + number * rows, rows // files, width), "append", branch="review")
    copies = []
    copy = ObjectStore.copy

    def counted(objects: ObjectStore, source: str, target: str) -> None:
        copies.append(target)
        copy(objects, source, target)

    def refused(objects: ObjectStore, source: str, target: str) -> None:
        raise StorageError("copies are turned off", kind="unsupported")

    taken = {}
    try:
        for into, instead in (("main", counted), ("rewritten", refused)):
            setattr(ObjectStore, "copy", instead)  # noqa: B010
            start = time.perf_counter()
            [found] = graph.branches.merge("review", into).plan.types
            taken[into] = (time.perf_counter() - start) * 1_000
            assert (str(found.how), found.reason is None) == (
                ("mirrored", True) if into == "main" else ("rewritten", False)
            )
    finally:
        setattr(ObjectStore, "copy", copy)  # noqa: B010
    megabytes = rows * width * 4 / 1e6
    report(f"fast-forward of {megabytes:,.0f} MB in {files} files on a store", taken["main"], "ms")
    report("  copies made by the store", len(copies), "", files)
    report("  against writing its rows", taken["main"] / taken["rewritten"], "times")
    assert graph.snapshot().open(D).scan(["id"]).num_rows == graph.snapshot("rewritten").open(D).scan(["id"]).num_rows


def main() -> None:
    """Run everything and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--store", help="where the graph for merges on an object store is made")
    parser.add_argument("--only", choices=("spark", "store"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    parts: dict[str, Callable[[Path], None]] = {
        "spark": lambda folder: on_spark(folder, asked.rows, asked.rows // 10),
        "store": lambda folder: on_store(asked.store or str(folder), asked.vectors),
    }
    for name, part in parts.items():
        if asked.only in (None, name):
            with tempfile.TemporaryDirectory(prefix="omnigraph-merge-") as folder:
                part(Path(folder))
    asked.out.parent.mkdir(exist_ok=True)
    asked.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
