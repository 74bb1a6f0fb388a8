"""Reads beside ladybug, sqlite, numpy and pylance on the same data and questions; more searches: `benchmarks.search`.

    python -m benchmarks.read                     # 100,000 people, 1 M Knows, 200,000 posts with text and vectors
    python -m benchmarks.read --scale 0.1         # a tenth of it
    python -m benchmarks.read --only traversal    # fixed, traversal, search, fresh, commit, branch or large
    python -m benchmarks.read --keep DIR          # build the data once and use it again
    python -m benchmarks.read --only traversal --lines filter   # the questions so named

The first line tells the graph all figures are of. Every figure is milliseconds, p50 and p95 of warm calls over many
parameters, result converted to rows. Where a question has a parameter the programs answer in turn, so that other work
on the machine hits all alike: read ratios, or p10, which it disturbs least. Memory is the highest resident size of this
process while a question was asked (the kernel's mark is reset before each) and by how much that is above what the
process held before; programs share the process, so the growth is the question's own. Other programs answer through
their own Python interface.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph import connect, create
from omnigraph.graph import Graph

SCHEMA = """
node Person { key: String @key  name: String  age: I32  city: String }
node Post { slug: String @key  body: String @index  embedding: Vector(384) @index }
edge Knows: Person -> Person { since: I32? }
edge Created: Person -> Post
"""
CITIES = ["Accra", "Bergen", "Cusco", "Dakar", "Essen", "Fez", "Graz", "Hanoi", "Izmir", "Jaffa"]
DIMENSION = 384
PARTS = ("fixed", "traversal", "search", "fresh", "commit", "branch", "large")


@dataclass
class Data:
    """The generated tables; `people` and `posts` are how many there are."""

    tables: dict[str, pa.Table]
    people: int
    posts: int

    def __str__(self) -> str:
        return ", ".join(f"{table.num_rows:,} {name}" for name, table in self.tables.items())


def generate(scale: float) -> Data:
    """Seeded data: people with a skewed number of friends, posts of Zipf-distributed words with unit vectors."""
    rng = np.random.default_rng(20260301)
    data, posts = generate_people(scale, rng), int(200_000 * scale)
    words = _words(rng, 20_000)
    post = pa.table(
        {
            "slug": pa.array(np.char.add("post", np.char.zfill(np.arange(posts).astype(str), 7))),
            "body": _bodies(rng, words, posts),
            "embedding": _vectors(rng, posts),
        }
    )
    authors = data.tables["Person"]["key"].take(pa.array(rng.integers(0, data.people, posts)))
    created = pa.table({"src": authors, "dst": post["slug"]})
    return Data({**data.tables, "Post": post, "Created": created}, data.people, posts)


def generate_people(scale: float, rng: np.random.Generator) -> Data:
    """The people of it, and whom they know."""
    people, edges = int(100_000 * scale), int(1_000_000 * scale)
    keys = np.char.add("p", np.char.zfill(np.arange(people).astype(str), 7))
    person = pa.table(
        {
            "key": pa.array(keys),
            "name": pa.array(np.char.add("Person ", np.arange(people).astype(str))),
            "age": pa.array(rng.integers(18, 90, people), pa.int32()),
            "city": pa.array(CITIES).take(pa.array(rng.integers(0, len(CITIES), people))),
        }
    )
    popular = np.minimum((people * rng.power(0.6, edges * 2)).astype(np.int64), people - 1)
    pairs = np.unique(np.stack([rng.integers(0, people, edges * 2), popular], axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    pairs = pairs[np.sort(rng.permutation(len(pairs))[:edges])]
    since = pa.array(np.random.default_rng(7).integers(1990, 2025, len(pairs)), pa.int32())
    knows = pa.table({"src": pa.array(keys[pairs[:, 0]]), "dst": pa.array(keys[pairs[:, 1]]), "since": since})
    return Data({"Person": person, "Knows": knows}, people, 0)


def _words(rng: np.random.Generator, count: int) -> list[str]:
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choice(syllables, rng.integers(2, 5)))] = None
    return list(found)


def _bodies(rng: np.random.Generator, words: list[str], count: int) -> pa.Array:
    sizes = rng.integers(8, 30, count)
    picks = np.minimum(rng.zipf(1.3, int(sizes.sum())) - 1, len(words) - 1)
    chosen = pa.array(words).take(pa.array(picks))
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    return pa.compute.binary_join(pa.ListArray.from_arrays(pa.array(offsets), chosen), " ")


def _vectors(rng: np.random.Generator, count: int) -> pa.Array:
    matrix = rng.standard_normal((count, DIMENSION), dtype=np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), DIMENSION)


# --- the programs -----------------------------------------------------------------------------------------------------


def build_graph(data: Data, root: Path) -> Graph:
    """Load everything in one commit and build the declared indexes."""
    graph = create(root, SCHEMA)
    tables = dict(data.tables)
    for name in {"Knows", "Created"} & tables.keys():
        tables[name] = tables[name].rename_columns(["from", "to", *tables[name].column_names[2:]])
    graph.load(tables, mode="overwrite", engine="local")
    return graph


def build_sqlite(data: Data, path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path)
    db.execute("create table person (id integer primary key, key text unique, name text, age integer, city text)")
    db.execute("create table knows (src integer, dst integer, since integer)")
    person = data.tables["Person"]
    rows = zip(range(data.people), *(person[name].to_pylist() for name in ("key", "name", "age", "city")), strict=True)
    db.executemany("insert into person values (?, ?, ?, ?, ?)", rows)
    ends = [
        pa.compute.cast(pa.compute.utf8_slice_codeunits(data.tables["Knows"][n], 1), pa.int64()) for n in ("src", "dst")
    ]
    since = data.tables["Knows"]["since"].to_pylist()
    edges = zip(ends[0].to_pylist(), ends[1].to_pylist(), since, strict=True)
    db.executemany("insert into knows values (?, ?, ?)", edges)
    db.execute("create index knows_src on knows (src, dst, since)")
    db.execute("create index knows_dst on knows (dst, src, since)")
    db.execute("analyze")
    db.commit()
    return db


def build_ladybug(data: Data, folder: Path) -> Any:
    import ladybug

    for name, table in data.tables.items():
        if name in ("Person", "Knows"):
            pq.write_table(table, folder / f"{name}.parquet")
    connection = ladybug.Connection(ladybug.Database(str(folder / "ladybug.db")))
    connection.execute("create node table Person (key string primary key, name string, age int32, city string)")
    connection.execute("create rel table Knows (from Person to Person, since int32)")
    connection.execute(f"copy Person from '{folder / 'Person.parquet'}'")
    connection.execute(f"copy Knows from '{folder / 'Knows.parquet'}'")
    return connection


# --- memory -----------------------------------------------------------------------------------------------------------


def reset_peak() -> float:
    """Let the kernel's mark of the highest resident size begin anew at what the process holds now, in megabytes.

    Where the system offers no such thing the mark stays what it is, and growth reads as zero unless there was some.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak_mb()


def peak_mb() -> float:
    """The highest resident size since the last reset, in megabytes."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) / 1024


# --- measuring --------------------------------------------------------------------------------------------------------


@dataclass
class Report:
    """The figures of a run, printed as they come."""

    lines: dict[str, dict[str, float]] = field(default_factory=dict)

    def measure(
        self, question: str, program: str, call: Callable[[Any], Any], arguments: Sequence[Any], least: int = 3
    ) -> float:
        """Warm calls over all arguments, for at most a few seconds but `least` times."""
        before = reset_peak()
        for argument in arguments[:3]:
            call(argument)
        times: list[float] = []
        begin = time.perf_counter()
        while len(times) < 3 * len(arguments) and (time.perf_counter() - begin < 4.0 or len(times) < least):
            start = time.perf_counter()
            call(arguments[len(times) % len(arguments)])
            times.append((time.perf_counter() - start) * 1000)
        peak = peak_mb()
        self.note(
            question, program, statistics.median(times), float(np.quantile(times, 0.95)), memory=(peak, peak - before)
        )
        return statistics.median(times)

    def in_turn(self, question: str, programs: dict[str, Callable[[Any], Any]], arguments: Sequence[Any]) -> None:
        """Warm calls over all arguments three times, each program before any goes on to the next."""
        times: dict[str, list[float]] = {name: [] for name in programs}
        for argument in [*arguments[:3], *arguments, *arguments, *arguments]:
            for name, call in programs.items():
                start = time.perf_counter()
                call(argument)
                times[name].append((time.perf_counter() - start) * 1000)
        for name, spent in times.items():
            p10, p50, p95 = (float(value) for value in np.quantile(spent[3:], [0.1, 0.5, 0.95]))
            self.note(question, name, p50, p95, p10=p10)

    def note(
        self,
        question: str,
        program: str,
        p50: float,
        p95: float | None = None,
        *,
        p10: float | None = None,
        memory: tuple[float, float] | None = None,
    ) -> None:
        """Keep and print one figure, with the peak and the growth of memory in megabytes where they are known."""
        line = self.lines.setdefault(question, {})
        line[program] = round(p50, 4)
        tail = ""
        if p10 is not None:
            line[f"{program} p10"] = round(p10, 4)
            tail += f"   p10 {p10:>9.3f}"
        if p95 is not None:
            line[f"{program} p95"] = round(p95, 4)
            tail += f"   p95 {p95:>9.3f}"
        if memory is not None:
            line[f"{program} peak MB"], line[f"{program} growth MB"] = (round(value, 1) for value in memory)
            tail += f"   peak {memory[0]:>6,.0f} MB (+{memory[1]:,.1f})"
        print(f"  {question:<38} {program:<10} {p50:>10.3f} ms{tail}", flush=True)

    def agree(self, question: str, answers: dict[str, Any]) -> None:
        """Stop when programs disagree: a fast wrong answer is no figure."""
        kinds = {json.dumps(answer, sort_keys=True, default=str) for answer in answers.values()}
        if len(kinds) > 1:
            raise SystemExit(f"{question}: answers differ: {answers}")


TRAVERSALS: dict[str, tuple[str, str, str]] = {
    "point lookup": (
        "query q($k: String) { match { $a: Person { key: $k } } return { $a.name as name, $a.age as age } }",
        "select name, age from person where key = :k",
        "match (a:Person {key: $k}) return a.name as name, a.age as age",
    ),
    "1 hop count": (
        "query q($k: String) { match { $a: Person { key: $k } $a knows $b } return { count($b) as n } }",
        "select count(*) as n from person a join knows k on k.src = a.id where a.key = :k",
        "match (a:Person {key: $k})-[:Knows]->(b) return count(*) as n",
    ),
    "2 hops count": (
        "query q($k: String) { match { $a: Person { key: $k } $a knows $b $b knows $c } return { count($c) as n } }",
        "select count(*) as n from person a join knows k on k.src = a.id join knows l on l.src = k.dst"
        " where a.key = :k",
        "match (a:Person {key: $k})-[:Knows]->(b)-[:Knows]->(c) return count(*) as n",
    ),
    "3 hops count": (
        "query q($k: String) { match { $a: Person { key: $k } $a knows $b $b knows $c $c knows $d }"
        " return { count($d) as n } }",
        "select count(*) as n from person a join knows k on k.src = a.id join knows l on l.src = k.dst"
        " join knows m on m.src = l.dst where a.key = :k",
        "match (a:Person {key: $k})-[:Knows]->(b)-[:Knows]->(c)-[:Knows]->(d) return count(*) as n",
    ),
    "3 hops, pairs listed and filtered": (
        "query q($k: String) { match { $a: Person { key: $k } $a knows $b $b knows $c $c knows $d $d.age > 80"
        " $c.age > 80 } return { count($d) as n } }",
        "select count(*) as n from person a join knows k on k.src = a.id join knows l on l.src = k.dst"
        " join person c on c.id = l.dst join knows m on m.src = l.dst join person d on d.id = m.dst"
        " where a.key = :k and d.age > 80 and c.age > 80",
        "match (a:Person {key: $k})-[:Knows]->(b)-[:Knows]->(c)-[:Knows]->(d) where d.age > 80 and c.age > 80"
        " return count(*) as n",
    ),
    "top 10 over 2 hops": (
        "query q($k: String) { match { $a: Person { key: $k } $a knows $b $b knows $c }"
        " return { $c.key as key, count($b) as n } order { n desc, key } limit 10 }",
        "select c.key as key, count(*) as n from person a join knows k on k.src = a.id join knows l on l.src = k.dst"
        " join person c on c.id = l.dst where a.key = :k group by c.key order by n desc, key limit 10",
        "match (a:Person {key: $k})-[:Knows]->(b)-[:Knows]->(c) return c.key as key, count(*) as n"
        " order by n desc, key limit 10",
    ),
    "friends of friends, filter, group": (
        "query q($k: String) { match { $a: Person { key: $k } $a knows $b $b knows $c $c.age > 40 }"
        " return { $c.city as city, count($c) as n } order { n desc, city } }",
        "select c.city as city, count(*) as n from person a join knows k on k.src = a.id join knows l on l.src = k.dst"
        " join person c on c.id = l.dst where a.key = :k and c.age > 40 group by c.city order by n desc, city",
        "match (a:Person {key: $k})-[:Knows]->(b)-[:Knows]->(c) where c.age > 40 return c.city as city, count(*) as n"
        " order by n desc, city",
    ),
    "friends of friends, edge and node filtered": (
        "query q($k: String) { match { $a: Person { key: $k } $a $e:knows $b $b $f:knows $c $e.since > 2005"
        " $c.age > 40 } return { $c.city as city, count($c) as n } order { n desc, city } }",
        "select c.city as city, count(*) as n from person a join knows k on k.src = a.id join knows l on l.src = k.dst"
        " join person c on c.id = l.dst where a.key = :k and k.since > 2005 and c.age > 40 group by c.city"
        " order by n desc, city",
        "match (a:Person {key: $k})-[e:Knows]->(b)-[f:Knows]->(c) where e.since > 2005 and c.age > 40"
        " return c.city as city, count(*) as n order by n desc, city",
    ),
    "most connected": (
        "query q() { match { $a knows $b } return { $a.key as key, count($b) as n } order { n desc, key } limit 10 }",
        "select a.key as key, count(*) as n from knows k join person a on a.id = k.src group by k.src"
        " order by n desc, key limit 10",
        "match (a:Person)-[:Knows]->(b) return a.key as key, count(*) as n order by n desc, key limit 10",
    ),
    "triangles of one person": (
        "query q($k: String) { match { $a: Person { key: $k } $a knows $b $b knows $c $a knows $c }"
        " return { count($c) as n } }",
        "select count(*) as n from person a join knows k on k.src = a.id join knows l on l.src = k.dst"
        " join knows m on m.src = a.id and m.dst = l.dst where a.key = :k",
        "match (a:Person {key: $k})-[:Knows]->(b)-[:Knows]->(c), (a)-[:Knows]->(c) return count(*) as n",
    ),
}

WHOLE: dict[str, tuple[str, str, str]] = {
    "all: 1 hop count": (
        "query q() { match { $a knows $b } return { count($b) as n } }",
        "select count(*) as n from knows",
        "match (a:Person)-[:Knows]->(b) return count(*) as n",
    ),
    "all: 2 hops count": (
        "query q() { match { $a knows $b $b knows $c } return { count($c) as n } }",
        "select count(*) as n from knows k join knows l on l.src = k.dst",
        "match (a:Person)-[:Knows]->(b)-[:Knows]->(c) return count(*) as n",
    ),
    "all: 3 hops count": (
        "query q() { match { $a knows $b $b knows $c $c knows $d } return { count($d) as n } }",
        "select count(*) as n from knows k join knows l on l.src = k.dst join knows m on m.src = l.dst",
        "match (a:Person)-[:Knows]->(b)-[:Knows]->(c)-[:Knows]->(d) return count(*) as n",
    ),
    "all: friends of friends by city": (
        "query q() { match { $a knows $b $b knows $c } return { $c.city as city, count($c) as n }"
        " order { n desc, city } }",
        "select c.city as city, count(*) as n from knows k join knows l on l.src = k.dst"
        " join person c on c.id = l.dst group by c.city order by n desc, city",
        "match (a:Person)-[:Knows]->(b)-[:Knows]->(c) return c.city as city, count(*) as n order by n desc, city",
    ),
    "all: top 10 by friends of friends": (
        "query q() { match { $a knows $b $b knows $c } return { $a.key as key, count($c) as n }"
        " order { n desc, key } limit 10 }",
        "select a.key as key, count(*) as n from knows k join knows l on l.src = k.dst join person a on a.id = k.src"
        " group by a.id order by n desc, key limit 10",
        "match (a:Person)-[:Knows]->(b)-[:Knows]->(c) return a.key as key, count(*) as n order by n desc, key limit 10",
    ),
    "all: triangles": (
        "query q() { match { $a knows $b $b knows $c $a knows $c } return { count($c) as n } }",
        "select count(*) as n from knows k join knows l on l.src = k.dst"
        " join knows m on m.src = k.src and m.dst = l.dst",
        "match (a:Person)-[:Knows]->(b)-[:Knows]->(c), (a)-[:Knows]->(c) return count(*) as n",
    ),
}
"""The classic questions asked of every person at once."""


def measure_traversals(report: Report, data: Data, graph: Graph, folder: Path, others: bool, lines: str = "") -> None:
    rng = np.random.default_rng(5)
    keys = [f"p{n:07d}" for n in rng.integers(0, data.people, 60)]
    db = build_sqlite(data, folder / "data.sqlite") if others else None
    has_ladybug = others and importlib.util.find_spec("ladybug") is not None
    if others and not has_ladybug:
        print("  ladybug is not installed (pip install omnigraph[bench]) and is left out", flush=True)
    ladybug = build_ladybug(data, folder) if has_ladybug else None
    for question, (ours, sql, cypher) in {**TRAVERSALS, **WHOLE}.items():
        if lines not in question:
            continue
        arguments = keys if "$k" in ours else [None]

        def ask_graph(key: Any, text: str = ours) -> Any:
            return graph.query(text, {"k": key} if key else {}).to_pylist()

        def ask_sqlite(key: Any, text: str = sql) -> Any:
            cursor = db.execute(text, {"k": key} if key else {})
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

        def ask_ladybug(key: Any, text: str = cypher) -> Any:
            return ladybug.execute(text, {"k": key} if key else {}).rows_as_dict().get_all()

        programs = {"omnigraph": ask_graph}
        if others:
            programs["sqlite"] = ask_sqlite
        if has_ladybug:
            programs["ladybug"] = ask_ladybug
        for argument in arguments[:5]:
            report.agree(question, {name: ask(argument) for name, ask in programs.items()})
        if "$k" in ours:
            report.in_turn(question, programs, arguments)
            continue
        for name, ask in programs.items():
            report.measure(question, name, ask, arguments, least=1 if question in WHOLE else 3)


def measure_search(report: Report, data: Data, graph: Graph, folder: Path, others: bool) -> None:
    """Vectors, words and both over the posts of this graph; `benchmarks.search` asks more, and of other vectors."""
    search = importlib.import_module("benchmarks.search" if __package__ else "search")
    posts = data.tables["Post"]
    matrix = posts["embedding"].combine_chunks().values.to_numpy().reshape(-1, DIMENSION)
    rng = np.random.default_rng(6)
    queries = list(search.even(rng, 40))
    words = sorted({word for body in posts["body"].slice(0, 2_000).to_pylist() for word in body.split()})
    texts = [" ".join(rng.choice(words, 2)) for _ in queries]
    found = search.Report()
    asked = search.Data(posts, matrix, queries, texts)
    search.measure_warm(found, graph, asked, ("nearest 10, exact", "bm25 10", "hybrid 10"))
    if others:
        search.measure_others(found, graph, asked, folder)
    report.lines |= {f"search, {question}": figures for question, figures in found.lines.items()}


# --- fixed cost, fresh processes, commits -----------------------------------------------------------------------------


def measure_fixed(report: Report, graph: Graph) -> None:
    """What a call costs that does next to nothing: compile (cached), snapshot, plan, result."""
    report.measure(
        "fixed cost of a call",
        "omnigraph",
        lambda _: graph.query('query q() { match { $a: Person { key: "none" } } return { $a.name } }').to_arrow(),
        [None] * 200,
    )


FRESH = """
import sys, time
begin = time.perf_counter()
import omnigraph
graph = omnigraph.connect
loaded = time.perf_counter()
graph = omnigraph.connect(sys.argv[1])
rows = graph.query(sys.argv[2], {"k": "p0000007"}).to_pylist()
asked = time.perf_counter()
status = open("/proc/self/status").read() if sys.platform == "linux" else "VmHWM: 0"
peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
print((loaded - begin) * 1000, (asked - loaded) * 1000, peak)
"""


def fresh_settings(bytecode: Path) -> dict[str, str]:
    """The environment of a fresh process that keeps compiled modules, as an installed package has them, in a folder."""
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return settings | {"PYTHONPYCACHEPREFIX": str(bytecode)}


def ask_fresh(root: Path, text: str, bytecode: Path) -> tuple[float, float, float]:
    """Milliseconds to import the engine, then to connect and ask, and the peak memory, in a process of its own."""
    command = [sys.executable, "-c", FRESH, str(root), text]
    settings = fresh_settings(bytecode)
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=settings)
    loaded, asked, peak = (float(value) for value in done.stdout.split()[-3:])
    return loaded, asked, peak


def ask_by_shell(root: Path, text: str, bytecode: Path) -> float:
    """Milliseconds that one `omnigraph query` takes, from the start of its process to the end."""
    program = Path(sys.executable).parent / "omnigraph"
    command = [str(program), "query", "--store", str(root), "-e", text, "--params", '{"k": "p0000007"}', "--json"]
    begin = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True, timeout=300, env=fresh_settings(bytecode))
    return (time.perf_counter() - begin) * 1000


def measure_fresh(report: Report, root: Path, folder: Path) -> None:
    """The first query of a new process, imports told apart and together, and of a new shell command."""
    bytecode = folder / "bytecode"
    ask_fresh(root, TRAVERSALS["3 hops count"][0], bytecode)
    ask_by_shell(root, TRAVERSALS["3 hops count"][0], bytecode)
    imports: list[float] = []
    for question in ("point lookup", "1 hop count", "3 hops count", "top 10 over 2 hops"):
        found = [ask_fresh(root, TRAVERSALS[question][0], bytecode) for _ in range(5)]
        imports.extend(loaded for loaded, _, _ in found)
        times = [asked for _, asked, _ in found]
        peak = max(memory for _, _, memory in found)
        report.note(f"first query: {question}", "omnigraph", statistics.median(times), max(times), memory=(peak, peak))
    report.note("import of the engine", "omnigraph", statistics.median(imports), max(imports))
    for question in ("point lookup", "3 hops count"):
        text = TRAVERSALS[question][0]
        whole = [sum(ask_fresh(root, text, bytecode)[:2]) for _ in range(10)]
        report.note(f"from import omnigraph: {question}", "omnigraph", statistics.median(whole), max(whole))
        shell = [ask_by_shell(root, text, bytecode) for _ in range(10)]
        report.note(f"omnigraph query: {question}", "omnigraph", statistics.median(shell), max(shell))


def measure_commits(report: Report, graph: Graph) -> None:
    """The first query after a one-row commit of each kind, beside a warm one and one after a pause as long.

    A processor that did something else for some milliseconds is slower at first, whatever it is asked; the pause tells
    that from what the commit costs.
    """
    insert = "query m($f: String, $t: String) { insert Knows { from: $f, to: $t } }"
    add = 'query m($k: String) { insert Person { key: $k, name: "New", age: 30, city: "Fez" } }'
    remove = "query m($k: String) { delete Person where key = $k }"
    unique = time.time_ns()
    commits: dict[str, Callable[[int], Any]] = {
        "an edge": lambda n: graph.mutate(insert, {"f": "p0000042", "t": f"p{n + 50:07d}"}),
        "a node": lambda n: graph.mutate(add, {"k": f"new{unique}-{n}"}),
        "a deletion": lambda n: graph.mutate(remove, {"k": f"new{unique}-{n}"}),
        "a pause": lambda n: time.sleep(0.012),
    }
    for question in ("2 hops count", "top 10 over 2 hops", "most connected"):
        text = TRAVERSALS[question][0]
        params = {"k": "p0000042"} if "$k" in text else {}

        def ask(text: str = text, params: dict[str, str] = params) -> float:
            begin = time.perf_counter()
            graph.query(text, params).to_pylist()
            return (time.perf_counter() - begin) * 1000

        warm: list[float] = []
        for kind, commit in commits.items():
            first = []
            for number in range(20):
                commit(number)
                first.append(ask())
                warm.extend(ask() for _ in range(5))
            report.note(f"after {kind}: {question}", "omnigraph", statistics.median(first), max(first))
        report.note(f"warm: {question}", "omnigraph", statistics.median(warm), float(np.quantile(warm, 0.95)))


def measure_branches(report: Report, graph: Graph) -> None:
    """What one of many who each have a branch waits for: making it, its first write, and what it asks after that."""
    write = (
        'query m($k: String) { insert Person { key: $k, name: "New", age: 30, city: "Fez" }'
        ' insert Knows { from: $k, to: "p0000042" } }'
    )
    text, params = TRAVERSALS["2 hops count"][0], {"k": "p0000042"}
    steps: dict[str, Callable[[str], Any]] = {
        "make it": lambda name: graph.branches.create(name),
        "first write": lambda name: graph.mutate(write, {"k": f"{name}-1"}, branch=name),
        "2 hops after it": lambda name: graph.query(text, params, branch=name).to_pylist(),
        "second write": lambda name: graph.mutate(write, {"k": f"{name}-2"}, branch=name),
        "2 hops after that": lambda name: graph.query(text, params, branch=name).to_pylist(),
        "2 hops on main": lambda name: graph.query(text, params).to_pylist(),
        "merge it": lambda name: graph.branches.merge(name),
        "delete it": lambda name: graph.branches.delete(name),
    }
    graph.query(text, params).to_pylist()
    times: dict[str, list[float]] = {step: [] for step in steps}
    for number in range(22):
        for step, do in steps.items():
            begin = time.perf_counter()
            do(f"agent-{number}")
            times[step].append((time.perf_counter() - begin) * 1000)
    for step, spent in times.items():
        report.note(f"a branch: {step}", "omnigraph", statistics.median(spent[2:]), max(spent[2:]))


def measure_opening(report: Report, root: Path) -> None:
    """A graph that is opened for each question, in a process that has asked before."""
    lookup = "query q($k: String) { match { $a: Person { key: $k } } return { $a.key as key } }"

    def ask(key: str) -> None:
        with connect(root) as graph:
            assert len(graph.query(lookup, {"k": key}).to_pylist()) == 1

    report.measure("open, look one up, close", "omnigraph", ask, [f"p{n:07d}" for n in range(20)])


def measure_large(report: Report, folder: Path) -> None:
    """Ten million edges: how long until the first answer, and three hops then."""
    people, edges = 1_000_000, 10_000_000
    rng = np.random.default_rng(9)
    keys = pa.array(np.char.add("p", np.char.zfill(np.arange(people).astype(str), 7)))
    root = folder / "large"
    if not root.exists():
        graph = create(root, "node Person { key: String @key }\nedge Knows: Person -> Person")
        ends = {name: keys.take(pa.array(rng.integers(0, people, edges))) for name in ("from", "to")}
        begin = time.perf_counter()
        graph.load({"Person": pa.table({"key": keys}), "Knows": pa.table(ends)}, mode="overwrite", engine="local")
        report.note("10 M edges: load", "omnigraph", (time.perf_counter() - begin) * 1000)
        graph.maintenance.optimize()
    bytecode = folder / "bytecode"
    text = TRAVERSALS["3 hops count"][0]
    lookup = "query q($k: String) { match { $a: Person { key: $k } } return { $a.key as key } }"
    cache = root / "_cache"
    shutil.rmtree(cache, ignore_errors=True)
    ask_fresh(root, lookup, bytecode)
    for question, asked in {
        "point lookup, nothing kept": lookup,
        "3 hops, adjacency made": text,
        "3 hops, adjacency kept": text,
    }.items():
        _, milliseconds, peak = ask_fresh(root, asked, bytecode)
        report.note(f"10 M edges, fresh: {question}", "omnigraph", milliseconds, memory=(peak, peak))
    graph = connect(root)
    begin = time.perf_counter()
    graph.query(text, {"k": "p0000007"}).to_pylist()
    report.note("10 M edges: first 3 hops", "omnigraph", (time.perf_counter() - begin) * 1000)
    starts = [f"p{n:07d}" for n in rng.integers(0, people, 50)]
    report.measure("10 M edges: 3 hops", "omnigraph", lambda k: graph.query(text, {"k": k}).to_pylist(), starts)
    report.measure(
        "10 M edges: within 3 hops",
        "omnigraph",
        lambda k: graph.query(
            "query q($k: String) { match { $a: Person { key: $k } $a knows{1,3} $b } return { count($b) as n } }",
            {"k": k},
        ).to_pylist(),
        starts,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--lines", default="", help="only traversals whose name has this in it")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--alone", action="store_true", help="leave the other programs out")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="omnigraph-read-"))
    folder.mkdir(parents=True, exist_ok=True)
    chosen = options.only.split(",") if options.only else PARTS
    report = Report()
    begin = time.perf_counter()
    data = generate(options.scale)
    name = "real" if options.scale == 1.0 else f"{options.scale:g} of real"
    print(f"graph: {name} ({data}), generated in {time.perf_counter() - begin:.1f} s", flush=True)
    root = folder / f"graph-{options.scale}"
    begin = time.perf_counter()
    graph = connect(root) if root.exists() else build_graph(data, root)
    print(f"graph ready in {time.perf_counter() - begin:.1f} s", flush=True)
    scratch = Path(tempfile.mkdtemp(prefix="omnigraph-others-"))
    try:
        if "fixed" in chosen:
            measure_fixed(report, graph)
        if "traversal" in chosen:
            measure_traversals(report, data, graph, scratch, not options.alone, options.lines)
        if "search" in chosen:
            measure_search(report, data, graph, scratch, not options.alone)
        if "fresh" in chosen:
            measure_fresh(report, root, scratch)
        if "commit" in chosen:
            # A copy: the other programs hold what was generated, and a folder that is kept shall stay as it was.
            copy = shutil.copytree(root, scratch / "commits")
            measure_commits(report, connect(copy))
        if "branch" in chosen:
            copy = shutil.copytree(root, scratch / "branches")
            with connect(copy) as branching:
                measure_branches(report, branching)
            graph.close()
            measure_opening(report, copy)
        if "large" in chosen:
            measure_large(report, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the whole run {peak:,.0f} MB")
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    is_whole = not options.only and not options.lines and options.scale == 1.0 and not options.alone
    name = "read.json" if is_whole else "read-partial.json"
    body = {
        "scale": options.scale,
        "graph": str(data),
        "peak_mb": round(peak),
        "load_average": [round(value, 1) for value in os.getloadavg()],
        "cores": os.cpu_count(),
        "milliseconds": report.lines,
    }
    (results / name).write_text(json.dumps(body, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
