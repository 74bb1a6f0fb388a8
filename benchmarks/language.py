"""How long the languages take: compiling queries, reading schemas and files, and how that grows.

    python benchmarks/language.py
    python benchmarks/language.py --beside DIR    # cold compiles beside the sources of another release, in turns

Each figure is processor time, the best of several runs: nothing here waits, and other work on the machine only ever
adds. A line ends with its aim, where it has one, and whether it was met.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import omnigraph
from omnigraph.catalog.model import Catalog
from omnigraph.catalog.resolve import compile_schema
from omnigraph.language import parse_query_file, parse_schema
from omnigraph.plan import compile_query
from omnigraph.plan.check import clear_cache

RESULTS = Path(__file__).parent / "results" / "language.json"
SCHEMA = """
node Vessel { code: String @key  name: String @index  kind: enum(cargo, tanker, tug)  length_m: F64? }
node Berth { code: String @key  depth_m: F32 }
edge MooredAt: Vessel -> Berth @card(0..1) { since: DateTime? }
edge Tows: Vessel -> Vessel { line: enum(short, long)? }
"""
QUERY = """query idle_tugs_near_{n}($berth: String, $min_len: F64) {{
    match {{
        $b: Berth {{ code: $berth }}
        $ship mooredAt $b              // reverse use: ship is inferred to be a Vessel
        $ship.length_m >= $min_len
        $tug: Vessel {{ kind: "tug" }}
        not {{ $tug tows $ship }}
    }}
    return {{ $tug.code, $ship.code, $tug.name as name }}
    order {{ name desc, $tug.code }} limit 20
}}
"""
NODE = """node Type{n} @description("Things of kind {n}") {{
    code: String @key
    name: String @index
    kind: enum(alpha, beta, gamma) @index
    amount: F64?
    created: DateTime?
    tags: [String]?
    @range(amount, 0.0..1000.0)
}}
"""
EDGE = "edge Link{n}: Type{a} -> Type{b} @card(0..9) {{ since: Date? weight: F64? @unique(src, dst) }}\n"


def schema_text(nodes: int, edges: int) -> str:
    types = [NODE.format(n=n) for n in range(nodes)]
    links = [EDGE.format(n=n, a=n % nodes, b=(n * 7 + 3) % nodes) for n in range(edges)]
    return "".join([*types, *links])


def queries_text(count: int) -> str:
    return "\n".join(QUERY.format(n=n) for n in range(count))


def best_seconds(action: Callable[[], object], *, repeat: int, number: int = 1) -> float:
    """The best time of one call, over `repeat` measurements of `number` calls."""
    action()
    times = []
    for _ in range(repeat):
        gc.collect()
        start = time.process_time()
        for _ in range(number):
            action()
        times.append((time.process_time() - start) / number)
    return min(times)


def cold(catalog: Catalog, source: str) -> object:
    clear_cache()
    return compile_query(catalog, source)


def first_use_seconds() -> float:
    """What the very first compile of a process costs: importing and building both grammars."""
    program = (
        "import time\n"
        "from omnigraph.catalog.resolve import compile_schema\n"
        "from omnigraph.plan import compile_query\n"
        "catalog = compile_schema('node A { x: I32 }')\n"
        "compile_query(catalog, 'query q() { match { $a: A } return { $a.x } }')\n"
        "print(time.process_time())"
    )
    times = [
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout)
        for _ in range(3)
    ]
    return min(times)


TODAY = """query q($k: String, $n: I64) {
    match { $v: Vessel { kind: "tug" } $v mooredAt $b  $b.depth_m > 3.0  $v.length_m != 5.0  not { $v tows $_ } }
    return { $v.code, $b.code as berth, count($v) as n }
    order { n desc } limit 10
}"""
"""Nothing in it is newer than the language itself."""


def compile_seconds(sources: str) -> float:
    """Processor time of a cold compile of queries that every release knows, by the sources in a folder."""
    program = (
        "import sys, time\n"
        "from omnigraph.catalog.resolve import compile_schema\n"
        "from omnigraph.plan import compile_query\n"
        "from omnigraph.plan.check import clear_cache\n"
        "schema, *texts = sys.argv[1:]\n"
        "catalog, best = compile_schema(schema), 1e9\n"
        "for turn in range(9):\n"
        "    begin = time.process_time()\n"
        "    for _ in range(10):\n"
        "        for text in texts:\n"
        "            clear_cache(); compile_query(catalog, text)\n"
        "    best = min(best, (time.process_time() - begin) / 10 / len(texts))\n"
        "print(best)"
    )
    command = [sys.executable, "-c", program, SCHEMA, QUERY.format(n=0), TODAY]
    settings = {**os.environ, "PYTHONPATH": sources}
    return float(subprocess.run(command, capture_output=True, check=True, text=True, env=settings).stdout)


def compare(sources: str) -> tuple[float, float]:
    """Cold compiles here and there, in turns, so that whatever else the machine does hits both; the best of each."""
    here = str(Path(omnigraph.__file__).parents[1])
    turns = [(compile_seconds(here), compile_seconds(sources)) for _ in range(3)]
    return min(turn[0] for turn in turns), min(turn[1] for turn in turns)


def show_comparison(sources: str) -> None:
    """Print how the compiles of another release compare."""
    ours, theirs = compare(sources)
    verdict = "met" if ours / theirs < 1.1 else "MISSED"
    print(f"cold compile {ours * 1e3:.3f} ms, there {theirs * 1e3:.3f} ms: {ours / theirs:.2f}x  aim 1.1  {verdict}")


def main() -> None:
    if sys.argv[1:2] == ["--beside"]:
        show_comparison(sys.argv[2])
        return
    catalog, query = compile_schema(SCHEMA), QUERY.format(n=0)
    big_schema, big_file = schema_text(60, 170), queries_text(600)
    compile_query(catalog, query)
    hit = best_seconds(lambda: compile_query(catalog, query), repeat=7, number=20_000)
    compiled = best_seconds(lambda: cold(catalog, query), repeat=7, number=100)
    parsed = best_seconds(lambda: parse_schema(big_schema), repeat=7)
    resolved = best_seconds(lambda: compile_schema(big_schema), repeat=7)
    read = best_seconds(lambda: parse_query_file(big_file), repeat=5)
    schema_small = best_seconds(lambda: parse_schema(schema_text(15, 42)), repeat=9, number=3)
    file_small = best_seconds(lambda: parse_query_file(queries_text(150)), repeat=9, number=2)
    lines: list[tuple[str, float, str, float | None]] = [
        ("compile a 10-line query, again (cached)", hit * 1e6, "µs", 20),
        ("compile a 10-line query, cold", compiled * 1e3, "ms", 3),
        ("parse a schema of 60 node and 170 edge types", parsed * 1e3, "ms", 150),
        ("compile that schema into a catalog", resolved * 1e3, "ms", 300),
        ("parse a file of 600 queries", read * 1e3, "ms", 1000),
        ("growth of schema parsing, 4x the input", parsed / schema_small, "x", 5),
        ("growth of query parsing, 4x the input", read / file_small, "x", 5),
        ("first compile of a process, imports included", first_use_seconds() * 1e3, "ms", None),
    ]
    for name, value, unit, aim in lines:
        verdict = "" if aim is None else f"aim {aim:g}  {'met' if value < aim else 'MISSED'}"
        print(f"{name:<48} {value:>10.2f} {unit:<2}  {verdict}")
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(
        json.dumps({name: {"value": value, "unit": unit, "aim": aim} for name, value, unit, aim in lines})
    )


if __name__ == "__main__":
    main()
