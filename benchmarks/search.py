"""Vector, text and combined search beside pylance and numpy on the same data.

    python benchmarks/search.py                  # 200,000 posts, vectors of 384 numbers like embeddings of text
    python benchmarks/search.py --vectors even   # vectors spread evenly, the hardest case
    python benchmarks/search.py --scale 0.1      # a tenth of it

Every figure is milliseconds, p50 and p95 of warm calls, result converted to rows, with the peak memory of the process
while it was taken. pylance is asked through its own interface, with the index this schema declares (one part, exact)
and with one of 256 parts (approximate; the share of the true ten nearest it finds is printed).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.query import MatchQuery

from omnigraph.graph import create

DIMENSION = 384
SCHEMA = f"node Post {{ slug: String @key  kind: I32  body: String @index  embedding: Vector({DIMENSION}) @index }}"
DECLARED = f"$q: Vector({DIMENSION})"
NEAR = (
    f"query q({DECLARED}) {{ match {{ $p: Post }} return {{ $p.slug }}"
    " order { nearest($p.embedding, $q) } limit 10 }"
)
NEAR_SOME = (
    f"query q({DECLARED}) {{ match {{ $p: Post {{ kind: 3 }} }} return {{ $p.slug }}"
    " order { nearest($p.embedding, $q) } limit 10 }"
)
WORDS = "query q($t: String) { match { $p: Post } return { $p.slug } order { bm25($p.body, $t) } limit 10 }"
WORDS_SOME = (
    "query q($t: String) { match { $p: Post { kind: 3 } } return { $p.slug } order { bm25($p.body, $t) } limit 10 }"
)
BOTH = (
    f"query q({DECLARED}, $t: String) {{ match {{ $p: Post }} return {{ $p.slug }}"
    " order { rrf(nearest($p.embedding, $q), bm25($p.body, $t)) } limit 10 }"
)
INSERT = (
    "query m($s: String, $t: String, $q: Vector(384)) { insert Post { slug: $s, kind: 3, body: $t, embedding: $q } }"
)


def embeddings(rng: np.random.Generator, count: int) -> np.ndarray:
    """Unit vectors like a model makes them: topics, and directions that matter less and less."""
    weights = np.arange(1, DIMENSION + 1, dtype=np.float32) ** np.float32(-0.35)
    topics = rng.standard_normal((500, DIMENSION), dtype=np.float32) * weights
    matrix = topics[rng.integers(0, 500, count)]
    matrix += 0.7 * rng.standard_normal((count, DIMENSION), dtype=np.float32) * weights
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def even(rng: np.random.Generator, count: int) -> np.ndarray:
    """Unit vectors of any direction."""
    matrix = rng.standard_normal((count, DIMENSION), dtype=np.float32)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def words_of(rng: np.random.Generator, count: int) -> list[str]:
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choice(syllables, rng.integers(2, 5)))] = None
    return list(found)


def bodies(rng: np.random.Generator, words: list[str], count: int) -> pa.Array:
    sizes = rng.integers(8, 30, count)
    picks = np.minimum(rng.zipf(1.3, int(sizes.sum())) - 1, len(words) - 1)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(words).take(pa.array(picks)))
    return pa.compute.binary_join(lists, " ")


def memory(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(field))


class Report:
    """The figures of a run, printed as they come."""

    def __init__(self) -> None:
        self.lines: dict[str, dict[str, float]] = {}

    def measure(self, question: str, call: Callable[[Any], Any], arguments: Sequence[Any]) -> None:
        for argument in arguments[:10]:
            call(argument)
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        times: list[float] = []
        begin = time.perf_counter()
        while len(times) < 3 * len(arguments) and time.perf_counter() - begin < 4:
            start = time.perf_counter()
            call(arguments[len(times) % len(arguments)])
            times.append((time.perf_counter() - start) * 1000)
        self.note(question, statistics.median(times), float(np.quantile(times, 0.95)), memory("VmHWM"))

    def note(self, question: str, p50: float, p95: float | None = None, peak: float | None = None) -> None:
        line = {"p50": round(p50, 3)}
        if p95 is not None and peak is not None:
            line |= {"p95": round(p95, 3), "peak_mb": round(peak)}
        self.lines[question] = line
        print(f"  {question:<44}" + "".join(f" {name} {value:>9,.2f}" for name, value in line.items()), flush=True)


FRESH = """
import json, sys, time
from omnigraph.graph import connect
text, params = sys.argv[2], json.loads(sys.argv[3])
begin = time.perf_counter()
connect(sys.argv[1]).query(text, params).to_pylist()
print((time.perf_counter() - begin) * 1000)
"""


def ask_fresh(root: Path, text: str, params: dict[str, Any]) -> float:
    command = [sys.executable, "-c", FRESH, str(root), text, json.dumps(params)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return float(done.stdout.split()[-1])


def slugs(rows: list[dict[str, Any]]) -> set[str]:
    return {next(iter(row.values())) for row in rows}


def run(kind: str, count: int, folder: Path) -> Report:
    rng = np.random.default_rng(20260301)
    words = words_of(rng, 20_000)
    matrix = {"embeddings": embeddings, "even": even}[kind](rng, count + 40)
    queries = [(vector + 0.02 * even(rng, 1)[0]).astype(np.float32) for vector in matrix[count:]]
    matrix = np.ascontiguousarray(matrix[:count])
    texts = [" ".join(rng.choice(words[50:3000], 2)) for _ in range(40)]
    posts = pa.table(
        {
            "slug": pa.array(np.char.add("post", np.char.zfill(np.arange(count).astype(str), 7))),
            "kind": pa.array(rng.integers(0, 10, count), pa.int32()),
            "body": bodies(rng, words, count),
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), DIMENSION),
        }
    )
    root = folder / "graph"
    graph = create(root, SCHEMA)
    graph.load({"Post": posts}, mode="overwrite", engine="local")
    near = [{"q": query.tolist()} for query in queries]
    said = [{"t": text} for text in texts]
    both = [one | other for one, other in zip(near, said, strict=True)]

    def ask(text: str) -> Callable[[dict[str, Any]], Any]:
        return lambda params: graph.query(text, params).to_pylist()

    report = Report()
    for name, text, params in (("vectors", NEAR, near[0]), ("words", WORDS, said[0])):
        report.note(f"first search ever, {name}, fresh process", ask_fresh(root, text, params))
        again = [ask_fresh(root, text, params) for _ in range(3)]
        report.note(f"first search of a fresh process, {name}", statistics.median(again))
    for name, text, params in (
        ("nearest 10, exact", NEAR, near),
        ("nearest 10 of a tenth", NEAR_SOME, near),
        ("bm25 10", WORDS, said),
        ("bm25 10 of a tenth", WORDS_SOME, said),
        ("hybrid 10", BOTH, both),
    ):
        report.measure(f"omnigraph: {name}", ask(text), params)
    exact = [slugs(ask(NEAR)(params)) for params in near]
    for query, found in zip(queries[:5], exact, strict=False):
        true = np.argsort(((matrix - query) ** 2).sum(axis=1))[:10]
        if found != {f"post{number:07d}" for number in true}:
            raise SystemExit("a nearest row was missed")
    for name, text, params in (("vectors", NEAR, near), ("words", WORDS, said), ("both", BOTH, both)):
        times = []
        for turn in range(5):
            graph.mutate(INSERT, {"s": f"{name}{turn}", "t": texts[turn], "q": queries[turn].tolist()})
            begin = time.perf_counter()
            ask(text)(params[turn])
            times.append((time.perf_counter() - begin) * 1000)
        report.note(f"omnigraph: after a one-row commit, {name}", statistics.median(times))
    report.measure("numpy: matrix x vector", lambda query: matrix @ query, queries)
    measure_pylance(report, posts, queries, texts, exact, folder)
    return report


def measure_pylance(
    report: Report, posts: pa.Table, queries: list[Any], texts: list[str], exact: list[set[str]], folder: Path
) -> None:
    for parts in (1, 256):
        table = lance.write_dataset(posts, folder / f"post{parts}.lance")
        table.create_index("embedding", "IVF_FLAT", num_partitions=parts, metric="l2")

        def near(query: Any, table: Any = table) -> Any:
            wanted = {"column": "embedding", "q": query, "k": 10}
            scan = table.scanner(columns=["slug"], nearest=wanted, disable_scoring_autoprojection=True)
            return scan.to_table().to_pylist()

        report.measure(f"pylance: nearest 10, {parts} part(s)", near, queries)
        found = [len(slugs(near(query)) & true) / 10 for query, true in zip(queries, exact, strict=True)]
        report.note(f"pylance: share found, {parts} part(s)", float(np.mean(found)))
    table.create_scalar_index("body", "INVERTED")

    def words(text: str) -> Any:
        query = MatchQuery(text, "body")
        scan = table.scanner(columns=["slug"], full_text_query=query, limit=10, disable_scoring_autoprojection=True)
        return scan.to_table().to_pylist()

    report.measure("pylance: bm25 10", words, texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--vectors", choices=["embeddings", "even"], default="embeddings")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="omnigraph-search-"))
    try:
        report = run(options.vectors, int(200_000 * options.scale), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    body = {"scale": options.scale, "vectors": options.vectors, "milliseconds": report.lines}
    (results / f"search-{options.vectors}.json").write_text(json.dumps(body, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
