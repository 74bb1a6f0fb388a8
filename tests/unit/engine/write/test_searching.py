"""However a write looks for values, it finds the rows that a scan of the whole table finds."""

from __future__ import annotations

import random
import subprocess
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.amounts import always_first

from omnigraph.engine.manifest.snapshot import Snapshot
from omnigraph.engine.operations.optimize import optimize
from omnigraph.engine.storage import columns, folding
from omnigraph.engine.storage.cache import SHARED
from omnigraph.engine.storage.columns import CachedColumn, ColumnCache
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.write.committed import ADDRESS, SnapshotView
from omnigraph.graph import Graph, connect, create

SCHEMA = """
node Person { key: String @key  mail: String? @unique  number: I64? @unique  weight: F64? @unique  born: Date? @unique }
edge Knows: Person -> Person
"""
COLUMNS = {
    "node:Person": ["id", "mail", "number", "weight", "born"],
    "edge:Knows": ["id", "src", "dst"],
}
ELSEWHERE = """
import sys
from omnigraph.graph import connect
connect(sys.argv[1]).mutate("query q($k: String) { insert Person { key: $k } insert Knows { from: $k, to: $k } }",
                            {"k": sys.argv[2]})
"""


def scanned(graph: Graph, key: str, column: str, wanted: pa.Array, branch: str) -> list[tuple[object, int]]:
    """The plain way: every live row of the table, compared."""
    rows = graph.snapshot(branch).open(key).scan(["id", column] if column != "id" else ["id"], with_row_address=True)
    rows = rows.filter(pc.is_in(rows[column], value_set=wanted, skip_nulls=True))
    return sorted(zip(rows["id"].to_pylist(), rows[ADDRESS].to_pylist(), strict=True))


def searched(view: SnapshotView, key: str, column: str, wanted: pa.Array) -> list[tuple[object, int]]:
    rows = view.rows_where_in(key, column, wanted, ["id"], with_address=True)
    return sorted(zip(rows["id"].to_pylist(), rows[ADDRESS].to_pylist(), strict=True))


def located(view: SnapshotView, key: str, wanted: pa.Array) -> list[tuple[object, int]]:
    addresses, found = view.locate(key, wanted)
    assert view.contains(key, wanted).to_pylist() == found.tolist()
    return sorted(zip(wanted.filter(pa.array(found)).to_pylist(), addresses[found].tolist(), strict=True))


def check(graph: Graph, chance: random.Random, branch: str = "main") -> None:
    """Warm, again, and cold: a search gives what the scan gives, for one value, several and many."""
    snapshot = graph.snapshot(branch)
    cold = Snapshot(snapshot.state, TableStore(graph.context.root))
    for key, names in COLUMNS.items():
        if not snapshot.entry(key).row_count:
            continue
        for column in names:
            values = snapshot.open(key).scan([column])[column].combine_chunks()
            some = [None, *chance.sample(values.to_pylist(), min(3, len(values)))]
            questions = [pa.array(some[:count], values.type) for count in (1, 2, 4)]
            if pa.types.is_string(values.type):
                questions += [pa.array(["", "nobody", "p", "p1\0", "é", "\U0001f600"]), pc.unique(values)]
            for wanted in questions:
                expected = scanned(graph, key, column, wanted, branch)
                for view in (SnapshotView(snapshot), SnapshotView(snapshot), SnapshotView(cold, ColumnCache())):
                    assert searched(view, key, column, wanted) == expected, (key, column, wanted.to_pylist())
                    if column == "id":
                        assert located(view, key, wanted) == expected
                        singly = [place for n in range(len(wanted)) for place in located(view, key, wanted.slice(n, 1))]
                        assert sorted(singly) == expected


def people(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "key": [f"p{n}é" if n % 3 else f"common-prefix-of-many-keys-{n}" for n in numbers],
            "mail": [f"{n}@x" if n % 2 else None for n in numbers],
            "number": pa.array([n - 50 if n % 5 else None for n in numbers], pa.int64()),
            "weight": pa.array([n / 4 if n % 7 else None for n in numbers], pa.float64()),
        }
    )


@pytest.fixture(params=["small", "stored"])
def graph(request, tmp_path, monkeypatch):
    """A graph whose searches meet every threshold with a few rows, and one with the thresholds as they are."""
    if request.param == "small":
        monkeypatch.setattr(columns, "SMALL_ROWS", 8)
        monkeypatch.setattr(columns, "JOINED_ROWS", 3)
        monkeypatch.setattr(folding, "FOLD_FRAGMENTS", 8)
        monkeypatch.setattr(folding, "FOLD_RUN", 4)
    SHARED.clear()
    made = create(tmp_path / "g", SCHEMA)
    yield made
    made.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", always_first(1, range(3)))
def test_a_search_finds_what_a_scan_finds_after_any_history(graph, seed):
    chance = random.Random(seed)
    graph.load({"Person": people(0, 60)}, mode="append", engine="local")
    keys = people(0, 60)["key"].to_pylist()
    for step in range(20):
        what = chance.choice(["pair", "pair", "pair", "load", "delete", "update", "forget", "elsewhere", "optimize"])
        if what == "pair":
            graph.mutate(
                "query q($k: String, $o: String) { insert Person { key: $k } insert Knows { from: $k, to: $o } }",
                {"k": f"s{step}", "o": chance.choice(keys)},
            )
            keys.append(f"s{step}")
        elif what == "load":
            table = people(100 * (step + 1), chance.choice([2, 20]))
            graph.load({"Person": table}, mode="append", engine="local")
            keys += table["key"].to_pylist()
        elif what == "delete":
            gone = keys.pop(chance.randrange(len(keys)))
            graph.mutate("query q($k: String) { delete Person where key = $k }", {"k": gone})
        elif what == "update":
            key = chance.choice(keys)
            graph.mutate("query q($k: String, $n: I64) { update Person set { number: $n } where key = $k }",
                         {"k": key, "n": 10_000 + step})  # fmt: skip
        elif what == "forget":
            SHARED.clear()
        elif what == "elsewhere" and seed == 0:
            subprocess.run([sys.executable, "-c", ELSEWHERE, graph.context.root, f"e{step}"], check=True)
            keys.append(f"e{step}")
        elif what == "optimize" and step % 3 == 0:
            optimize(graph.context)
        check(graph, chance)
    second = connect(graph.context.root)
    check(second, chance)
    second.close()


@pytest.mark.long
def test_a_search_on_a_branch_finds_what_a_scan_of_it_finds(graph):
    chance = random.Random(9)
    graph.load({"Person": people(0, 40)}, mode="append", engine="local")
    graph.branches.create("draft")
    pair = "query q($k: String) { insert Person { key: $k } insert Knows { from: $k, to: $k } }"
    for step in range(12):
        graph.mutate(pair, {"k": f"same{step}"}, branch="draft")
        graph.mutate(pair, {"k": f"same{step}"})
        graph.mutate("query q($k: String) { delete Person where key = $k }", {"k": f"same{step // 2}"}, branch="draft")
        check(graph, chance)
        check(graph, chance, "draft")


def test_a_small_write_searches_a_few_columns_however_many_small_ones_came_before(tmp_path, monkeypatch):
    """One search for all fragments of small writes, and one for each large one."""
    graph = create(tmp_path / "g", SCHEMA)
    graph.load({"Person": people(0, 5_000)}, mode="append", engine="local")
    pair = "query q($k: String, $o: String) { insert Person { key: $k } insert Knows { from: $k, to: $o } }"
    for number in range(25):
        graph.mutate(pair, {"k": f"n{number}", "o": "p1é"})
    counted = []
    for name in ("find", "compare"):
        original = getattr(CachedColumn, name, None) or CachedColumn._compare
        count = lambda self, wanted, do=original: counted.append(1) or do(self, wanted)  # noqa: E731
        monkeypatch.setattr(CachedColumn, name, count, raising=False)
    graph.mutate(pair, {"k": "last", "o": "p2é"})
    assert len(counted) <= 8
    graph.close()
