"""What the language can do beyond the base, beside ladybug and sqlite on the same data and questions.

    python -m benchmarks.additions                  # 100,000 people, 1 M Knows; 1 M items; 1 M keyed edges
    python -m benchmarks.additions --scale 0.1      # a tenth of it
    python -m benchmarks.additions --beside DIR     # compiles beside the sources of another release as well
    python -m benchmarks.additions --only shortest  # some of: compile, distinct, shortest, or, upsert, update, schema

Figures are milliseconds, p50 and p95 of warm calls over many parameters, answers compared before they are measured;
writes are wall clock and processor time, the best of several. A line with an aim says whether it was met.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph import create
from omnigraph.graph import Graph

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import language, schema
from benchmarks.read import Data, Report, build_graph, build_ladybug, build_sqlite, generate_people

RESULTS = Path(__file__).parent / "results" / "additions.json"
PARTS = ("compile", "distinct", "shortest", "or", "upsert", "update", "schema")
PAIRS = 60
WRITTEN = 10_000

DISTINCT: dict[str, tuple[str, str, str]] = {
    "count(distinct) over 2 hops": (
        "query q($k: String) { match { $a: Person { key: $k } $a knows $b $b knows $c }"
        " return { count(distinct $c) as n } }",
        "select count(distinct l.dst) as n from person a join knows k on k.src = a.id join knows l on l.src = k.dst"
        " where a.key = :k",
        "match (a:Person {key: $k})-[:Knows]->(b)-[:Knows]->(c) return count(distinct c.key) as n",
    ),
    "count(distinct) over 3 hops": (
        "query q($k: String) { match { $a: Person { key: $k } $a knows $b $b knows $c $c knows $d }"
        " return { count(distinct $d) as n } }",
        "select count(distinct m.dst) as n from person a join knows k on k.src = a.id join knows l on l.src = k.dst"
        " join knows m on m.src = l.dst where a.key = :k",
        "match (a:Person {key: $k})-[:Knows]->(b)-[:Knows]->(c)-[:Knows]->(d) return count(distinct d.key) as n",
    ),
    "count(distinct city) over 3 hops": (
        "query q($k: String) { match { $a: Person { key: $k } $a knows $b $b knows $c $c knows $d }"
        " return { count(distinct $d.city) as n } }",
        "select count(distinct d.city) as n from person a join knows k on k.src = a.id join knows l on l.src = k.dst"
        " join knows m on m.src = l.dst join person d on d.id = m.dst where a.key = :k",
        "match (a:Person {key: $k})-[:Knows]->(b)-[:Knows]->(c)-[:Knows]->(d) return count(distinct d.city) as n",
    ),
}
SHORTEST = (
    "query q($k: String, $l: String) { match { $a: Person { key: $k } $b: Person { key: $l }"
    " path $p = shortest $a knows{1,6} $b } return { length($p) as n } }"
)
SHORTEST_CYPHER = (
    "match (a:Person {key: $k})-[e:Knows* SHORTEST 1..6]->(b:Person {key: $l}) return cast(length(e), 'int64') as n"
)

Ask = Callable[[Any], Any]


class Others:
    """The other programs, with the data of the people in them."""

    def __init__(self, data: Data, folder: Path) -> None:
        self.sqlite = build_sqlite(data, folder / "people.sqlite")
        found = importlib.util.find_spec("ladybug") is not None
        self.ladybug = build_ladybug(data, folder) if found else None
        if not found:
            print("  ladybug is not installed (pip install omnigraph[bench]) and is left out", flush=True)

    def of_sqlite(self, text: str) -> Ask:
        """A question for sqlite, asked with named parameters."""
        return lambda given: _rows(self.sqlite.execute(text, given))

    def of_ladybug(self, text: str) -> dict[str, Ask]:
        """A question for ladybug, where it is installed."""
        if self.ladybug is None:
            return {}
        return {"ladybug": lambda given: self.ladybug.execute(text, given).rows_as_dict().get_all()}


def _rows(cursor: sqlite3.Cursor) -> list[dict[str, Any]]:
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def ask_all(report: Report, question: str, programs: dict[str, Ask], arguments: list[dict[str, Any]]) -> None:
    """Make sure that all programs answer alike, and measure each."""
    for argument in arguments[:5]:
        report.agree(question, {name: ask(argument) for name, ask in programs.items()})
    for name, ask in programs.items():
        report.measure(question, name, ask, arguments)


def measure_compile(report: Report, sources: str | None) -> None:
    """Cold compiles of queries that every release knows, beside those of the sources in a folder."""
    question = "compile a query of before, cold"
    if sources is None:
        print(
            f"  {question:<38} left out: --beside names the sources of the release before (its folder src)", flush=True
        )
        return
    ours, theirs = language.compare(sources)
    report.note(question, "omnigraph", ours * 1e3)
    report.note(question, "before", theirs * 1e3)
    aim(report, question, "before", 1.1)


def measure_distinct(report: Report, graph: Graph, others: Others, keys: list[str]) -> None:
    """Distinct nodes and values behind two and three hops of one person."""
    for question, (ours, sql, cypher) in DISTINCT.items():
        programs: dict[str, Ask] = {
            "omnigraph": lambda given, text=ours: graph.query(text, given).to_pylist(),
            "sqlite": others.of_sqlite(sql),
            **others.of_ladybug(cypher),
        }
        ask_all(report, question, programs, [{"k": key} for key in keys])
        aim(report, question, "ladybug", 1.0)
        if "3 hops" in question:
            aim(report, question, "sqlite", 1.0)


def measure_shortest(report: Report, graph: Graph, others: Others, keys: list[str]) -> None:
    """A shortest path between random pairs."""
    pairs = [{"k": a, "l": b} for a, b in zip(keys, [*keys[1:], keys[0]], strict=True) if a != b]
    programs: dict[str, Ask] = {"omnigraph": lambda given: graph.query(SHORTEST, given).to_pylist()}
    ask_all(report, "shortest path of a pair", {**programs, **others.of_ladybug(SHORTEST_CYPHER)}, pairs)
    aim(report, "shortest path of a pair", "ladybug", 1.0)


def measure_or(report: Report, folder: Path, rows: int) -> None:
    """An `or` over a property with an index and one without, of a table that is large."""
    numbers = np.arange(rows)
    rng = np.random.default_rng(3)
    items = pa.table(
        {
            "key": pa.array(np.char.add("i", numbers.astype(str))),
            "code": pa.array(np.char.add("c", rng.integers(0, rows // 20, rows).astype(str))),
            "size": pa.array(rng.integers(0, rows // 20, rows), pa.int32()),
        }
    )
    graph = create(folder / "items.omni", "node Item { key: String @key  code: String @index  size: I32 }")
    graph.load({"Item": items}, mode="append", engine="local")
    graph.maintenance.optimize()
    db = sqlite3.connect(folder / "items.sqlite")
    db.execute("create table item (key text primary key, code text, size integer)")
    db.executemany("insert into item values (?, ?, ?)", zip(*(c.to_pylist() for c in items.columns), strict=True))
    db.execute("create index item_code on item (code)")
    db.commit()
    query = (
        "query q($c: String, $s: I32) { match { $i: Item $i.code = $c or $i.size = $s }"
        " return { $i.key as key } order { key } }"
    )
    sql = "select key from item where code = :c or size = :s order by key"
    arguments = [{"c": f"c{n}", "s": int(n)} for n in rng.integers(0, rows // 20, 40)]
    programs: dict[str, Ask] = {
        "omnigraph": lambda given: graph.query(query, given).to_pylist(),
        "sqlite": lambda given: _rows(db.execute(sql, given)),
    }
    ask_all(report, "or, indexed and not", programs, arguments)
    aim(report, "or, indexed and not", "sqlite", 1.0)


# --- writes -----------------------------------------------------------------------------------------------------------

SCHEMA = "node P { key: String @key  n: I32?  m: String? }\nedge K: P -> P { n: I32?  m: String?  @key(src, dst) }\n"


def build_keyed(folder: Path, rows: int) -> tuple[Graph, pa.Table, pa.Table]:
    """So many nodes and so many keyed edges, whose ends are a ring with steps."""
    keys = np.char.add("p", np.char.zfill(np.arange(rows).astype(str), 7))
    some = {"n": pa.array(np.arange(rows) % 100, pa.int32()), "m": pa.array(["a word or two"] * rows)}
    nodes = pa.table({"key": pa.array(keys), **some})
    edges = pa.table({"from": pa.array(keys), "to": pa.array(np.roll(keys, 7)), **some})
    graph = create(folder / "keyed.omni", SCHEMA)
    graph.load({"P": nodes, "K": edges}, mode="append", engine="local")
    return graph, nodes, edges


def measure_writes(report: Report, folder: Path, rows: int, parts: set[str]) -> None:
    """An upsert of keyed edges beside one of nodes, half of them new; updates of the same, of one column."""
    graph, nodes, edges = build_keyed(folder, rows)
    rng = np.random.default_rng(4)
    half = WRITTEN // 2

    def upsert(turn: int, *, of_edges: bool) -> None:
        known = pa.array(np.sort(rng.choice(rows, half, replace=False)))
        if of_edges:
            fresh = edges.take(known).set_column(
                1, "to", nodes["key"].take(pa.array((known.to_numpy() + 11 + turn) % rows))
            )
            table, name = pa.concat_tables([edges.take(known), fresh]), "K"
        else:
            keys = pa.array([f"new-{turn}-{n}" for n in range(half)])
            fresh = nodes.slice(0, half).set_column(0, "key", keys)
            table, name = pa.concat_tables([nodes.take(known), fresh]), "P"
        graph.load({name: table}, mode="merge", engine="local", durability="fast")

    def update(turn: int, *, of_edges: bool) -> None:
        known = pa.array(np.sort(rng.choice(rows, WRITTEN, replace=False)))
        names = ["from", "to", "n"] if of_edges else ["key", "n"]
        table = (edges if of_edges else nodes).select(names).take(known)
        graph.load({"K" if of_edges else "P": table}, mode="update", engine="local", durability="fast")

    for part, act in (("upsert", upsert), ("update", update)):
        if part in parts:
            times: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
            for turn in range(6):
                for of_edges in (False, True):
                    began, used = time.perf_counter(), time.process_time()
                    act(turn, of_edges=of_edges)
                    times[of_edges].append((time.process_time() - used, time.perf_counter() - began))
            for of_edges, what in ((False, "nodes"), (True, "keyed edges")):
                cpu, wall = (min(column[1:]) * 1e3 for column in zip(*times[of_edges], strict=True))
                report.note(f"{part} {WRITTEN:,} of {rows:,}", what, cpu)
                print(f"  {'':<38} {what:<10} {wall:>10.3f} ms wall", flush=True)
            aim(report, f"{part} {WRITTEN:,} of {rows:,}", "nodes", 2.0, ours="keyed edges")


def aim(report: Report, question: str, other: str, most: float, ours: str = "omnigraph") -> None:
    """Say how many times as long as another program we take."""
    line = report.lines[question]
    if other in line:
        ratio = line[ours] / line[other]
        line[f"{ours} / {other}"] = round(ratio, 3)
        print(
            f"  {question:<38} {ratio:>10.2f}x {other}   aim {most:g}  {'met' if ratio < most else 'MISSED'}",
            flush=True,
        )


def main() -> None:
    """Measure the chosen parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS)
    parser.add_argument("--beside", metavar="DIR", help="the folder src of another release, to compile beside")
    chosen = parser.parse_args()
    parts = set(chosen.only)
    report = Report()
    if "compile" in parts:
        measure_compile(report, chosen.beside)
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as place:
        folder = Path(place)
        if parts & {"distinct", "shortest"}:
            data = generate_people(chosen.scale, np.random.default_rng(20260301))
            graph, others = build_graph(data, folder / "people.omni"), Others(data, folder)
            keys = [f"p{n:07d}" for n in np.random.default_rng(5).integers(0, data.people, PAIRS)]
            for part, measure in (("distinct", measure_distinct), ("shortest", measure_shortest)):
                if part in parts:
                    measure(report, graph, others, keys)
        if "or" in parts:
            measure_or(report, folder, int(1_000_000 * chosen.scale))
        if parts & {"upsert", "update"}:
            measure_writes(report, folder, int(1_000_000 * chosen.scale), parts)
        if "schema" in parts:
            schema.measure(int(1_000_000 * chosen.scale))
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(report.lines, indent=1))


if __name__ == "__main__":
    main()
