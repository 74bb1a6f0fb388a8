"""What merges and the feed of changes cost, each figure beside its bound, and beside what one would use instead.

    python -m benchmarks.merge [--rows 1000000] [--large 5000000] [--vectors 100000] [--commits 5000] [--out …]

One run prints all of it, and in the end every bound once more. Read ratios, not milliseconds. `doltlite` is measured
where it is installed (`pip install 'omnigraph[bench]'`), `git` where there is one.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from benchmarks import changes

from omnigraph import connect, create
from omnigraph.engine.changes.rows import same_rows
from omnigraph.engine.storage import adopting, staged
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.graph import Graph
from omnigraph.ids import TableKey

PEOPLE = "node P { k: String @key  n: I64?  city: String?  note: String? }"
DOCS = "node D {{ k: String @key  n: I64?  v: Vector({width})? }}"
RESULTS = Path(__file__).parent / "results" / "merge.json"
P, D = TableKey("node:P"), TableKey("node:D")
figures: dict[str, Any] = {}
headings: list[str] = []
"""The figures that others are told below, indented."""


def report(name: str, value: float, unit: str, aim: float | None = None, *, least: bool = False) -> None:
    met = aim is None or (value >= aim if least else value <= aim)
    if not name.startswith(" "):
        headings.append(name)
    whole = f"{headings[-1]}, {name.strip()}" if name.startswith(" ") else name
    figures[whole] = {"value": round(value, 4), "unit": unit, "aim": aim, "met": met}
    verdict = "" if aim is None else f"   aim {'>=' if least else '<='} {aim:.4g}: {'met' if met else 'MISSED'}"
    print(f"{name:<76}{value:>10.3f} {unit}{verdict}", flush=True)


def summary() -> None:
    """Every bound, and whether it is kept."""
    bounds = {name: figure for name, figure in figures.items() if figure["aim"] is not None}
    print(f"\n{sum(figure['met'] for figure in bounds.values())} of {len(bounds)} bounds are met")
    for name, figure in bounds.items():
        print(f"  {'met   ' if figure['met'] else 'MISSED'} {name}: {figure['value']:g}, bound {figure['aim']:.4g}")


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1_000


def best(work: Callable[[], Any], times: int = 5) -> float:
    return min(timed(work) for _ in range(times))


def people(start: int, count: int, extra: int = 0) -> pa.Table:
    numbers = np.arange(start, start + count)
    return pa.table(
        {
            "k": pa.array([f"p{number:09d}" for number in numbers]),
            "n": pa.array(numbers + extra, pa.int64()),
            "city": pa.array([f"city {number % 997}" for number in numbers]),
            "note": pa.array([f"note {number} " * 6 for number in numbers]),
        }
    )


def docs(start: int, count: int, width: int, extra: int = 0) -> pa.Table:
    numbers = np.arange(start, start + count)
    vectors = np.random.default_rng(start).random(count * width, dtype=np.float32)
    return pa.table(
        {
            "k": pa.array([f"d{number:09d}" for number in numbers]),
            "n": pa.array(numbers + extra, pa.int64()),
            "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors), width),
        }
    )


def load(graph: Graph, name: str, rows: pa.Table, mode: str = "merge", branch: str = "main") -> None:
    graph.load({name: rows}, mode, branch=branch)


def of_people(folder: Path, rows: int) -> Graph:
    graph = create(folder, PEOPLE)
    for start in range(0, rows, 250_000):
        load(graph, "P", people(start, min(250_000, rows - start)), "append")
    return graph


def change(graph: Graph, branch: str, count: int, at: int, total: int) -> None:
    """Four tenths updates, three tenths inserts, three tenths deletes."""
    updates, inserts, deletes = count * 4 // 10, count * 3 // 10, count * 3 // 10
    load(graph, "P", pa.concat_tables([people(at, updates, 1), people(total + at, inserts)]), branch=branch)
    # A run of rows of their own city, so that one condition names them.
    gone = at + updates
    rows = people(gone, deletes)
    marked = rows.set_column(rows.schema.get_field_index("city"), "city", pa.array([f"gone {at}"] * deletes))
    load(graph, "P", marked, branch=branch)
    graph.mutate("query d($c: String) { delete P where city = $c }", {"c": f"gone {at}"}, branch=branch)


# --- plans -----------------------------------------------------------------------------------------------------------


def plans(folder: Path, rows: int, large: int) -> None:
    small = _plan_of_ten(folder / "small", max(rows // 20, 1_000))
    big = _plan_of_ten(folder / "large", large)
    report(f"plan of 10 changes, {large:,} rows against {max(rows // 20, 1_000):,}", big / small, "times", 2)
    graph = of_people(folder / "plan", rows)
    graph.branches.create("review")
    change(graph, "review", 10, rows // 2, rows)
    plan = best(lambda: graph.branches.plan_merge("review"))
    base, head = graph.snapshot().open(P), graph.snapshot("review").open(P)
    full = timed(lambda: _compare_everything(base, head))
    report(f"plan of 10 changes in {rows:,} rows", plan, "ms")
    report("  against comparing every row", plan / full, "times", 1 / 100)
    graph.maintenance.optimize()
    after = best(lambda: graph.branches.plan_merge("review"), 3)
    report("  after the target was compacted, against comparing every row", after / full, "times", 1 / 10)
    with counting() as counts:
        graph.branches.plan_merge("review")
    # A plan counts exactly, so the updates themselves are compared, each with what it was.
    report("  after the target was compacted: rows of which a value is read", counts["values"], "", 2 * 4)


def _plan_of_ten(folder: Path, rows: int) -> float:
    graph = of_people(folder, rows)
    graph.branches.create("review")
    change(graph, "review", 10, rows // 2, rows)
    found = best(lambda: graph.branches.plan_merge("review"))
    shutil.rmtree(folder)
    return found


def _compare_everything(base: TableHandle, head: TableHandle) -> None:
    """Read both versions whole, and compare what both have."""
    one, other = (side.scan(["id"], with_row_address=True) for side in (base, head))
    found = one.join(other, keys="id", right_suffix="_too", join_type="inner")
    left, right = (found.column(name).to_numpy().astype(np.uint64) for name in ("_rowaddr", "_rowaddr_too"))
    same_rows(base, head, left, right)


# --- merges ----------------------------------------------------------------------------------------------------------


def forward(folder: Path, rows: int, width: int = 256) -> None:
    files, others = 10, ("first", "second", "third")
    taken = {}
    for name, count in (("few", min(10_000, rows)), ("many", rows)):
        graph = create(folder / name, DOCS.format(width=width))
        load(graph, "D", docs(0, 10, width), "append")
        for branch in ("review", *others):
            graph.branches.create(branch)
        for number in range(files):
            load(graph, "D", docs(100 + number * count, count // files, width), "append", branch="review")
        with counting() as counts:
            # The same rows into several targets: the best of them is what it costs.
            taken[name] = min(timed(lambda g=graph, t=t: g.branches.merge("review", t)) for t in ("main", *others))  # type: ignore[misc]
        report(f"fast-forward of {count:,} x {width}: reads of rows", counts["read"], "", 0)
        report(f"fast-forward of {count:,} x {width}: bytes of data files written", counts["bytes"], "", 0)
        if name == "many":
            handle = graph.snapshot().open(D)
            streamed = timed(lambda handle=handle: _stream(handle, folder / "streamed"))  # type: ignore[misc]
            report(f"fast-forward of {count:,} x {width}", taken[name], "ms")
            report("  against streaming its rows", taken[name] / streamed, "times", 1 / 20)
    report("  against one of 10,000 rows in as many files", taken["many"] / taken["few"], "times", 3)


@contextmanager
def counting() -> Iterator[dict[str, int]]:
    """Counts, at the boundary to storage: reads of rows, rows of which more than the id is read, and bytes written."""
    counts = {"read": 0, "values": 0, "bytes": 0}
    names = ("take_addresses", "scan", "read_fragment_columns")
    originals = {name: getattr(TableHandle, name) for name in (*names, "scan_batches")}
    write = staged._write

    def counted(name: str) -> Callable[..., Any]:
        def call(handle: TableHandle, *args: Any, **named: Any) -> Any:
            found = originals[name](handle, *args, **named)
            if handle.path.startswith(("nodes/", "edges/")):
                counts["read"] += 1
                if name == "scan_batches" or any(column in figures_of for column in found.column_names):
                    counts["values"] += 1 if name == "scan_batches" else found.num_rows
            return found

        return call

    def writing(base: TableHandle, *args: Any, **named: Any) -> Any:
        fragments = write(base, *args, **named)
        if base.path.startswith(("nodes/", "edges/")):
            counts["bytes"] += sum(file.file_size_bytes or 1 for each in fragments for file in each.files)
        return fragments

    figures_of = {"n", "city", "note", "v"}
    try:
        for name in originals:
            setattr(TableHandle, name, counted(name))
        for module in (adopting, staged):
            setattr(module, "_write", writing)  # noqa: B010
        yield counts
    finally:
        for name, original in originals.items():
            setattr(TableHandle, name, original)
        for module in (adopting, staged):
            setattr(module, "_write", write)  # noqa: B010


def _stream(handle: TableHandle, folder: Path) -> None:
    graph = create(folder, DOCS.format(width=handle.schema.field("v").type.list_size))
    store = graph.context.store
    store.create("streamed", handle.schema, handle.scan_batches().read_all())


def small_ones(folder: Path, rows: int) -> None:
    graph = of_people(folder / "small-merges", rows)
    mutation = min(timed(lambda turn=turn: _mutate_some(graph, turn, rows)) for turn in range(5))  # type: ignore[misc]
    first = []
    second = []
    for number in range(5):
        name = f"b{number}"
        graph.branches.create(name)
        change(graph, name, 10, rows // 4 + number * 100, rows)
        load(graph, "P", people(number, 1, 5 + number))
        first.append(timed(lambda name=name: graph.branches.merge(name)))  # type: ignore[misc]
        change(graph, name, 10, rows // 2 + number * 100, rows)
        load(graph, "P", people(50 + number, 1, 5))
        second.append(timed(lambda name=name: graph.branches.merge(name)))  # type: ignore[misc]
    report(f"merge of 10 changes in {rows:,} rows", min(first), "ms")
    report("  against one mutation with its updates and inserts", min(first) / mutation, "times", 4)
    report("second merge of a branch after 10 more changes, against the first", min(second) / min(first), "times", 2)


def _mutate_some(graph: Graph, turn: int, rows: int) -> None:
    """Four updates and three inserts as one mutation; deletions cannot be in the same one."""
    updates = [f'update P set {{ n: {-turn - 1} }} where k = "p{rows // 3 + turn * 10 + n:09d}"' for n in range(4)]
    inserts = [f'insert P {{ k: "m{turn}-{n}", n: 1, city: "c", note: "n" }}' for n in range(3)]
    graph.mutate(f"query q() {{ {' '.join([*updates, *inserts])} }}")


class Peak:
    """The most memory this process has above what it had at the start."""

    def __enter__(self) -> Peak:
        self._process = psutil.Process()
        self.start = self.most = self._process.memory_info().rss
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.005):
            self.most = max(self.most, self._process.memory_info().rss)

    def __exit__(self, *failure: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def megabytes(self) -> float:
        return float(self.most - self.start) / (1 << 20)


def memory(folder: Path, rows: int, width: int = 3_072) -> None:
    """Touched on both sides with equal values: every vector has to be compared."""
    root = folder / "memory"
    _in_a_process(_make_touched, str(root), rows, width)
    taken, megabytes = _in_a_process(_merge_touched, str(root), rows, width)
    report(f"merge of {rows:,} x {width} touched on both sides", taken, "ms")
    report("  memory above the start", megabytes, "MB", 256)


def _make_touched(root: str, rows: int, width: int) -> tuple[float, float]:
    graph = create(root, DOCS.format(width=width))
    step = 2_000
    for start in range(0, rows, step):
        load(graph, "D", docs(start, min(step, rows - start), width), "append")
    graph.branches.create("review")
    for start in range(0, rows, step):
        for branch in ("review", "main"):
            load(graph, "D", docs(start, min(step, rows - start), width, extra=1), branch=branch)
    load(graph, "D", docs(rows, 1, width), branch="review")
    return 0.0, 0.0


def _merge_touched(root: str, rows: int, width: int) -> tuple[float, float]:
    graph = connect(root)
    graph.branches.list()
    with Peak() as peak:
        taken = timed(lambda: graph.branches.merge("review"))
    return taken, peak.megabytes


def _in_a_process(work: Callable[..., tuple[float, float]], *args: Any) -> tuple[float, float]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, args)


# --- many writers ----------------------------------------------------------------------------------------------------


def together(folder: Path, rows: int, processes: int = 4, each: int = 8) -> None:
    root = str(folder / "together")
    graph = of_people(Path(root), rows)
    for number in range(processes):
        for turn in range(each):
            graph.branches.create(f"w{number}-{turn}")
            load(graph, "P", people(rows + number * 1_000 + turn, 1), branch=f"w{number}-{turn}")
    merges = _at_once(_merge_some, root, processes, each)
    writes = _at_once(_write_some, root, processes, each)
    report(f"{processes} processes merging small branches, commits a second", processes * each / merges, "/s")
    report("  against plain mutations", writes / merges, "times", 1 / 3, least=True)


def _at_once(work: Callable[[str, int, int], None], root: str, processes: int, each: int) -> float:
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes) as pool:
        pool.starmap(_warm, [(root,)] * processes)
        start = time.perf_counter()
        pool.starmap(work, [(root, number, each) for number in range(processes)], chunksize=1)
        return time.perf_counter() - start


def _warm(root: str) -> None:
    connect(root, read_only=True)


def _merge_some(root: str, number: int, each: int) -> None:
    graph = connect(root)
    for turn in range(each):
        graph.branches.merge(f"w{number}-{turn}")


def _write_some(root: str, number: int, each: int) -> None:
    graph = connect(root)
    for turn in range(each):
        graph.mutate("query i($k: String) { insert P { k: $k, n: 1 } }", {"k": f"x{number}-{turn}"})


# --- the feed --------------------------------------------------------------------------------------------------------


def feed(folder: Path, rows: int, commits: int) -> None:
    """To hear of single rows, in milliseconds of all processors; `benchmarks.changes` measures the same."""
    changes.feed(folder, of_people(folder / "followed", rows), rows, commits, report)


# --- instead ---------------------------------------------------------------------------------------------------------


def others(folder: Path, rows: int, changes: int) -> None:
    graph = of_people(folder / "ours", rows)
    graph.branches.create("review")
    change(graph, "review", changes, rows // 2, rows)
    change(graph, "main", changes, rows // 8, 2 * rows)
    ours = timed(lambda: graph.branches.merge("review"))
    report(f"merge of {changes:,} changes on both sides of {rows:,} rows", ours, "ms")
    if shutil.which("git"):
        report(
            "  against git, the rows as sorted lines of JSON", ours / _git(folder / "git", rows, changes), "times", 1
        )
    if importlib.util.find_spec("doltlite"):
        report("  against doltlite", ours / _doltlite(folder, rows, changes), "times", 1)
    else:
        print("  doltlite is not installed: pip install 'omnigraph[bench]'", flush=True)


def _lines(rows: int, changed: range, removed: range, added: range) -> Iterator[str]:
    for number in [*range(rows), *added]:
        if number not in removed:
            row = {"k": f"p{number:09d}", "n": number + (number in changed), "city": f"city {number % 997}"}
            yield json.dumps({**row, "note": f"note {number} " * 6}) + "\n"


def _sides(rows: int, changes: int) -> dict[str, tuple[range, range, range]]:
    found = {}
    for name, at, fresh in (("review", rows // 2, rows), ("main", rows // 8, 2 * rows)):
        updates, others = changes * 4 // 10, changes * 3 // 10
        middle = at + updates
        found[name] = (range(at, middle), range(middle, middle + others), range(fresh + at, fresh + at + others))
    return found


def _git(folder: Path, rows: int, changes: int) -> float:
    folder.mkdir()

    def git(*words: str) -> None:
        identity = ["-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "gc.auto=0"]
        subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)

    def commit(*sides: range) -> None:
        with (folder / "p.jsonl").open("w") as file:
            file.writelines(_lines(rows, *sides))
        git("add", "p.jsonl")
        git("commit", "-m", "rows")

    git("init", "-b", "main")
    nothing = range(0)
    commit(nothing, nothing, nothing)
    sides = _sides(rows, changes)
    git("checkout", "-b", "review")
    commit(*sides["review"])
    git("checkout", "main")
    commit(*sides["main"])
    # New rows lie at the end on both sides, where a text has no keys to tell them apart: git is given the union.
    (folder / ".gitattributes").write_text("*.jsonl merge=union\n")
    return timed(lambda: git("merge", "review", "-m", "merged"))


DOLTLITE = """
import doltlite  # before sqlite3, whose place it takes
import json, sqlite3, sys, time

path, rows, sides = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
at = sqlite3.connect(path)
at.execute("CREATE TABLE p (k TEXT PRIMARY KEY, n INTEGER, city TEXT, note TEXT)")

def put(numbers, extra=0):
    found = ((f"p{number:09d}", number + extra, f"city {number % 997}", f"note {number} " * 6) for number in numbers)
    at.executemany("INSERT OR REPLACE INTO p VALUES (?, ?, ?, ?)", found)

def commit():
    at.commit()
    at.execute("SELECT dolt_commit('-A', '-m', 'rows')").fetchall()

put(range(rows))
commit()
at.execute("SELECT dolt_branch('review')").fetchall()
for name, (changed, removed, added) in sides.items():
    at.execute(f"SELECT dolt_checkout('{name}')").fetchall()
    put(range(*changed), 1)
    put(range(*added))
    at.executemany("DELETE FROM p WHERE k = ?", ((f"p{number:09d}",) for number in range(*removed)))
    commit()
at.execute("SELECT dolt_checkout('main')").fetchall()
expected = rows + sum(len(range(*added)) - len(range(*removed)) for _, removed, added in sides.values())
start = time.perf_counter()
at.execute("SELECT dolt_merge('review')").fetchall()
taken = (time.perf_counter() - start) * 1_000
assert at.execute("SELECT count(*) FROM p").fetchone() == (expected,)
print(taken)
"""


def _doltlite(folder: Path, rows: int, changes: int) -> float:
    """In a process of its own, because it takes the place of the database that Python brings."""
    sides = {name: [[each.start, each.stop] for each in ranges] for name, ranges in _sides(rows, changes).items()}
    words = [sys.executable, "-c", DOLTLITE, str(folder / "doltlite.db"), str(rows), json.dumps(sides)]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Run everything and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--large", type=int, default=5_000_000)
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--commits", type=int, default=5_000)
    parser.add_argument("--only", choices=("plans", "forward", "small", "memory", "together", "feed", "others"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    parts: dict[str, Callable[[Path], None]] = {
        "plans": lambda folder: plans(folder, asked.rows, asked.large),
        "forward": lambda folder: forward(folder, asked.rows),
        "small": lambda folder: small_ones(folder, asked.rows),
        "memory": lambda folder: memory(folder, asked.vectors),
        "together": lambda folder: together(folder, min(asked.rows, 100_000)),
        "feed": lambda folder: feed(folder, asked.rows, asked.commits),
        "others": lambda folder: others(folder, asked.rows, min(10_000, asked.rows // 20)),
    }
    for name, part in parts.items():
        if asked.only in (None, name):
            with tempfile.TemporaryDirectory(prefix="omnigraph-merge-") as folder:
                part(Path(folder))
    summary()
    asked.out.parent.mkdir(exist_ok=True)
    asked.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
