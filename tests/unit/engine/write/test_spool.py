"""Inputs that are stored while they are read: the same graph as if they had been held, and one commit or none."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph import create
from omnigraph.engine.ingest import inputs, shape, spool
from omnigraph.errors import ConstraintError, GraphError, KeyConflictError

SCHEMA = """
node Post { name: String @key  code: I32? @unique  body: String?  at: Vector(3)? }
node Note { text: String }
edge Cites: Post -> Post { why: String? }
"""
ROWS = 400
ALL = "query q() { match { $p: Post } return { $p.name, $p.code, $p.body, $p.at } order { $p.name } }"
CITES = "query q() { match { $a cites $b } return { $a.name as a, $b.name as b } order { $a.name, $b.name } }"


def posts(count: int = ROWS, first: int = 0, word: str = "text") -> pa.Table:
    rows = range(first, first + count)
    return pa.table(
        {
            "name": [f"p{row:05}" for row in rows],
            "code": pa.array(rows, pa.int32()),
            "body": [None if row % 9 == 0 else f"{word} {row}" for row in rows],
            "at": pa.array([None if row % 7 == 0 else [row, 1, 2] for row in rows], pa.list_(pa.float32(), 3)),
        }
    )


def cites(count: int = ROWS) -> pa.Table:
    return pa.table({"from": [f"p{row:05}" for row in range(count)], "to": ["p00001"] * count})


def given(form: str, folder: Path, table: pa.Table, name: str = "posts"):
    """The rows of a table as a file or stream that is read a few at a time."""
    if form == "stream":
        return table.to_reader(max_chunksize=50)
    path = folder / f"{name}.parquet"
    pq.write_table(table, path, row_group_size=90)
    return str(path)


@pytest.fixture(params=["held", "stored"])
def bound(request, monkeypatch):
    """Run a test with everything held in memory, and with everything but the first batch stored as it comes."""
    monkeypatch.setattr(inputs, "PIECE_ROWS", 40)
    monkeypatch.setattr(inputs, "BYTES_AT_ONCE", 64)
    monkeypatch.setattr(shape, "BATCH_ROWS", 40)
    monkeypatch.setattr(spool, "HELD_BYTES", 1 << 40 if request.param == "held" else 100)
    stored: list[str] = []
    keep = spool.WrittenFragments.keep
    monkeypatch.setattr(
        spool.WrittenFragments, "keep", lambda self, key, *rest: (stored.append(key), keep(self, key, *rest))[1]
    )
    yield stored
    assert not stored or request.param == "stored"


def commits(graph) -> int:
    return len(list(graph.history.list()))


@pytest.mark.parametrize("form", ["parquet", "stream"])
def test_what_is_stored_while_it_is_read_is_what_was_given(tmp_path, bound, request, form):
    graph = create(tmp_path / "graph", SCHEMA)
    before = commits(graph)
    source = {
        "Post": given(form, tmp_path, posts()),
        "Cites": given(form, tmp_path, cites(), "cites"),
        "Note": given(form, tmp_path, pa.table({"text": [f"note {row}" for row in range(ROWS)]}), "notes"),
    }
    result = graph.load(source, mode="append", engine="local")
    assert (result.nodes, result.edges) == ({"Note": ROWS, "Post": ROWS}, {"Cites": ROWS})
    assert commits(graph) == before + 1
    assert [list(row.values()) for row in graph.query(ALL)] == [list(row.values()) for row in posts().to_pylist()]
    assert [row["a"] for row in graph.query(CITES)] == [f"p{row:05}" for row in range(ROWS)]
    assert sorted(bound) == (
        ["edge:Cites", "node:Note", "node:Post"] if request.node.callspec.params["bound"] == "stored" else []
    )
    assert not graph.maintenance.verify().problems


@pytest.mark.parametrize("mode", ["merge", "overwrite"])
@pytest.mark.parametrize("form", ["parquet", "stream"])
def test_rows_that_replace_others_are_told_apart_from_new_ones(tmp_path, bound, form, mode):
    graph = create(tmp_path / "graph", SCHEMA)
    graph.load({"Post": posts()}, mode="append", engine="local")
    newer = posts(ROWS, ROWS // 2, "newer")
    graph.load({"Post": given(form, tmp_path, newer)}, mode=mode, engine="local")
    kept = posts(ROWS // 2).to_pylist() if mode == "merge" else []
    expected = [list(row.values()) for row in [*kept, *newer.to_pylist()]]
    assert [list(row.values()) for row in graph.query(ALL)] == expected
    assert not graph.maintenance.verify().problems


def test_a_branch_without_a_line_of_its_own_takes_them_too(tmp_path, bound):
    graph = create(tmp_path / "graph", SCHEMA)
    graph.load({"Post": posts(10)}, mode="append", engine="local")
    graph.branches.create("side")
    graph.load({"Post": given("stream", tmp_path, posts(ROWS, 10))}, mode="append", branch="side", engine="local")
    graph.load({"Post": given("stream", tmp_path, posts(ROWS, 900))}, mode="merge", branch="side", engine="local")
    assert (len(graph.query(ALL)), len(graph.query(ALL, branch="side"))) == (10, 10 + 2 * ROWS)


def broken(table: pa.Table, column: str, row: int, value: object) -> pa.Table:
    values = table.column(column).to_pylist()
    values[row] = value
    return table.set_column(table.schema.get_field_index(column), column, pa.array(values, table.column(column).type))


@pytest.mark.parametrize("form", ["parquet", "stream"])
@pytest.mark.parametrize(
    ("table", "error", "words"),
    [
        (broken(posts(), "at", 350, [1, float("nan"), 2]), ConstraintError, "351"),
        (broken(posts(), "name", 390, None), ConstraintError, "391"),
        (broken(posts(), "code", 399, 3), ConstraintError, "unique"),
        (broken(posts(), "name", 399, "p00001"), ConstraintError, "p00001"),
        (broken(posts(), "name", 5, "old"), KeyConflictError, "old"),
    ],
    ids=["value", "required", "unique", "twice", "taken"],
)
def test_a_fault_late_in_the_input_leaves_the_graph_as_it_was(tmp_path, bound, form, table, error, words):
    graph = create(tmp_path / "graph", SCHEMA)
    graph.load({"Post": posts(1, 5000).set_column(0, "name", pa.array(["old"]))}, mode="append", engine="local")
    before = commits(graph)
    with pytest.raises(error, match=words):
        graph.load({"Post": given(form, tmp_path, table)}, mode="append", engine="local")
    assert commits(graph) == before
    assert [row["p.name"] for row in graph.query(ALL)] == ["old"]
    graph.load({"Post": given(form, tmp_path, posts())}, mode="append", engine="local")
    assert len(graph.query(ALL)) == ROWS + 1


def test_a_stream_that_fails_says_so_in_its_own_words(tmp_path, bound):
    graph = create(tmp_path / "graph", SCHEMA)

    def batches():
        yield from posts().to_batches(max_chunksize=50)
        raise RuntimeError("the source went away")

    stream = pa.RecordBatchReader.from_batches(posts().schema, batches())
    with pytest.raises((RuntimeError, GraphError), match="the source went away"):
        graph.load({"Post": stream}, mode="append", engine="local")
    assert len(graph.query(ALL)) == 0


MEASURED = """
import sys
import pyarrow as pa
from omnigraph import create
root, form = sys.argv[1:]
graph = create(root + "/graph", "node Post { name: String @key  at: Vector(384) }")
file = root + "/posts.parquet"
if form == "parquet":
    source = file
else:
    # Mapped, because reading a file of Parquet takes twice its size for a while, and the pool remembers the most.
    source = pa.ipc.open_file(pa.memory_map(root + "/posts.arrow")).read_all()
pool = pa.default_memory_pool()
before = pool.bytes_allocated()
graph.load({"Post": source}, mode="append", engine="local")
found = graph.query("query q() { match { $p: Post } return { $p.name } }")
print(max(pool.max_memory() - before, 0) >> 20, before >> 20, len(found))
"""


@pytest.mark.long
@pytest.mark.parametrize("form", ["parquet", "table"])
def test_memory_does_not_grow_with_the_input(tmp_path, form):
    rows, width = 120_000, 384
    numbers = np.random.default_rng(1).random(rows * width, dtype=np.float32)
    table = pa.table(
        {
            "name": [f"p{row}" for row in range(rows)],
            "at": pa.FixedSizeListArray.from_arrays(pa.array(numbers), width),
        }
    )
    pq.write_table(table, tmp_path / "posts.parquet", row_group_size=5_000)
    with pa.ipc.new_file(tmp_path / "posts.arrow", table.schema) as writer:
        writer.write_table(table)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path), form], check=True, capture_output=True, text=True
    )
    peak, held, found = map(int, done.stdout.split())
    assert found == rows
    size = table.nbytes >> 20
    # What is above the input: a part of it, whether the input is on disk or in memory already.
    assert peak < size * 0.7, (peak, held, size)
