"""Vector, text and combined search beside numpy, pylance and sqlite on the same data.

    python -m benchmarks.search                  # 200,000 posts, vectors of 384 numbers like embeddings of text
    python -m benchmarks.search --vectors even   # vectors spread evenly, the hardest case
    python -m benchmarks.search --scale 0.1      # a tenth of it
    python -m benchmarks.search --only commits   # fresh, warm, commits, texts or others

Every figure is milliseconds, p50 and p95 of warm calls, result converted to rows, with the peak memory of the process
while it was taken and how much of it came on top of what the process held before. pylance is asked through its own
interface, with the index this schema declares (one part, exact) and with one of 256 parts (approximate; the share of
the true ten nearest it finds is printed); sqlite by its full-text table. After commits of one row of each kind, the
first question is timed beside warm ones between the commits.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.query import MatchQuery

from omnigraph import create
from omnigraph.graph import Graph

DIMENSION = 384
SCHEMA = f"""
node Post {{ slug: String @key  kind: I32  body: String @index  embedding: Vector({DIMENSION}) @index }}
node Tag {{ name: String @key }}
"""
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
WORD_QUERY = "query q($t: String) { match { $p: Post %s($p.body, $t) } return { $p.slug } limit 10 }"
QUESTIONS = {
    "nearest 10, exact": NEAR,
    "nearest 10 of a tenth": NEAR_SOME,
    "bm25 10": WORDS,
    "bm25 10 of a tenth": WORDS_SOME,
    "hybrid 10": BOTH,
    "search": WORD_QUERY % "search",
    "match_text": WORD_QUERY % "match_text",
    "fuzzy": WORD_QUERY % "fuzzy",
}
AFTER_COMMITS = ("nearest 10, exact", "bm25 10", "hybrid 10", "search", "match_text", "fuzzy")
COMMITS = {
    "an insert": (
        f"query m($s: String, $t: String, {DECLARED})"
        " { insert Post { slug: $s, kind: 3, body: $t, embedding: $q } }"
    ),
    "an update": "query m($old: String, $t: String) { update Post set { body: $t } where slug = $old }",
    "a deletion": "query m($old: String) { delete Post where slug = $old }",
    "another type": "query m($s: String) { insert Tag { name: $s } }",
}
NOTES = "node Note { slug: String @key  at: Vector(256) }"
NEAR_TEXT = "query q($t: String) { match { $n: Note } return { $n.slug } order { nearest($n.at, $t) } limit 10 }"
NEAR_VECTOR = NEAR_TEXT.replace("$t: String", "$t: Vector(256)")


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
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        before = memory("VmHWM")
        for argument in arguments[:10]:
            call(argument)
        times: list[float] = []
        begin = time.perf_counter()
        while len(times) < 3 * len(arguments) and time.perf_counter() - begin < 4:
            start = time.perf_counter()
            call(arguments[len(times) % len(arguments)])
            times.append((time.perf_counter() - start) * 1000)
        peak = memory("VmHWM")
        p50, p95 = statistics.median(times), float(np.quantile(times, 0.95))
        self.note(question, p50=p50, p95=p95, peak_mb=round(peak), grown_mb=round(peak - before, 1))

    def note(self, question: str, **figures: float) -> None:
        self.lines[question] = {name: round(value, 3) for name, value in figures.items()}
        print(f"  {question:<48}" + "".join(f" {name} {value:>9,.2f}" for name, value in figures.items()), flush=True)


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


@dataclass
class Data:
    """What is stored and what is asked."""

    posts: pa.Table
    matrix: np.ndarray
    queries: list[np.ndarray]
    texts: list[str]

    def params(self) -> list[dict[str, Any]]:
        return [{"q": query.tolist(), "t": text} for query, text in zip(self.queries, self.texts, strict=True)]


def generate(kind: str, count: int) -> Data:
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
    return Data(posts, matrix, queries, texts)


def asked(text: str, params: dict[str, Any]) -> dict[str, Any]:
    """The parameters a query declares."""
    return {name: value for name, value in params.items() if f"${name}:" in text}


def measure_fresh(report: Report, root: Path, data: Data) -> None:
    for name, text in (("vectors", NEAR), ("words", WORDS), ("both", BOTH)):
        params = asked(text, data.params()[0])
        report.note(f"first search ever, {name}, fresh process", p50=ask_fresh(root, text, params))
        again = [ask_fresh(root, text, params) for _ in range(3)]
        report.note(f"first search of a fresh process, {name}", p50=statistics.median(again))


def measure_warm(report: Report, graph: Graph, data: Data, names: Sequence[str] = tuple(QUESTIONS)) -> None:
    for name in names:
        text = QUESTIONS[name]
        params = [asked(text, each) for each in data.params()]
        report.measure(f"omnigraph: {name}", lambda each, text=text: graph.query(text, each).to_pylist(), params)


def measure_commits(report: Report, graph: Graph, data: Data) -> None:
    """The first question after a commit of one row, and the warm ones between such commits."""
    number = 0
    for name in AFTER_COMMITS:
        text = QUESTIONS[name]
        params = [asked(text, each) for each in data.params()]

        def ask(turn: int, text: str = text, params: list[dict[str, Any]] = params) -> float:
            begin = time.perf_counter()
            graph.query(text, params[turn % len(params)]).to_pylist()
            return (time.perf_counter() - begin) * 1000

        for turn in range(10):
            ask(turn)
        for kind, change in COMMITS.items():
            first, warm = [], []
            for turn in range(7):
                number += 1
                values = data.params()[turn] | {"s": f"new{number}", "old": f"post{number:07d}"}
                graph.mutate(change, asked(change, values))
                first.append(ask(turn))
                ask(turn + 1)
                warm.extend(ask(turn + 2 + each) for each in range(4))
            figures = {"first": statistics.median(first), "warm": statistics.median(warm)}
            report.note(f"after {kind}: {name}", **figures, times=figures["first"] / figures["warm"])


def measure_texts(report: Report, folder: Path) -> None:
    """A text given to `nearest`, embedded by the offline provider; vectors beside it."""
    rng = np.random.default_rng(4)
    root = folder / "notes"
    graph = create(root, NOTES)
    vectors = rng.standard_normal((2000, 256)).astype(np.float32)
    rows = [{"slug": f"n{number}", "at": vector.tolist()} for number, vector in enumerate(vectors)]
    graph.load([{"type": "Note", "data": row} for row in rows], mode="overwrite", engine="local")
    texts = [{"t": text} for text in ("a ship in a storm", "how to bake bread", "songs of the north", "train times")]
    for name, text, params in (
        ("a vector", NEAR_VECTOR, [{"t": vector.tolist()} for vector in vectors[:4]]),
        ("a text", NEAR_TEXT, texts),
    ):
        fresh = [ask_fresh(root, text, params[0]) for _ in range(3)]
        report.note(f"first nearest of a fresh process, {name}", p50=statistics.median(fresh))
        report.measure(
            f"omnigraph: nearest of 2,000, {name}",
            lambda each, text=text: graph.query(text, each).to_pylist(),
            params * 10,
        )


def nearest_found(graph: Graph, data: Data) -> list[set[str]]:
    """What `nearest` answers, checked against plain distances for some of the queries."""
    found = [slugs(graph.query(NEAR, {"q": query.tolist()}).to_pylist()) for query in data.queries]
    for query, names in zip(data.queries[:5], found, strict=False):
        true = np.argsort(((data.matrix - query) ** 2).sum(axis=1))[:10]
        if names != {f"post{number:07d}" for number in true}:
            raise SystemExit("a nearest row was missed")
    return found


def run(kind: str, count: int, folder: Path, chosen: Sequence[str]) -> Report:
    report = Report()
    data = generate(kind, count)
    root = folder / "graph"
    graph = create(root, SCHEMA)
    graph.load({"Post": data.posts}, mode="overwrite", engine="local")
    if "fresh" in chosen:
        measure_fresh(report, root, data)
    if "warm" in chosen:
        measure_warm(report, graph, data)
    if "others" in chosen:
        measure_others(report, graph, data, folder)
    if "commits" in chosen:
        measure_commits(report, graph, data)
    if "texts" in chosen:
        measure_texts(report, folder)
    return report


def measure_others(report: Report, graph: Graph, data: Data, folder: Path) -> None:
    exact = nearest_found(graph, data)
    report.measure("numpy: matrix x vector", lambda query: data.matrix @ query, data.queries)
    measure_sqlite(report, data)
    measure_pylance(report, data.posts, data.queries, data.texts, exact, folder)


def measure_sqlite(report: Report, data: Data) -> None:
    db = sqlite3.connect(":memory:")
    db.execute("create virtual table post using fts5 (slug unindexed, body, tokenize = 'porter unicode61')")
    columns = (data.posts[name].to_pylist() for name in ("slug", "body"))
    db.executemany("insert into post values (?, ?)", zip(*columns, strict=True))
    best = "select slug from post where post match ? order by bm25(post) limit 10"
    texts = [text.replace(" ", " OR ") for text in data.texts]
    report.measure("sqlite: bm25 10", lambda text: db.execute(best, (text,)).fetchall(), texts)


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
        report.note(f"pylance: nearest 10, {parts} part(s), found", share=float(np.mean(found)))
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
    parser.add_argument("--only", default="fresh,warm,others,commits,texts")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="omnigraph-search-"))
    try:
        report = run(options.vectors, int(200_000 * options.scale), folder, options.only.split(","))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    whole = options.scale == 1.0 and options.only == parser.get_default("only")
    body = {"scale": options.scale, "vectors": options.vectors, "milliseconds": report.lines}
    name = f"search-{options.vectors}{'' if whole else '-partial'}.json"
    (results / name).write_text(json.dumps(body, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
