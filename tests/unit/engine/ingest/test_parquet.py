"""Parquet files of this machine are read as a stream, however they are cut into row groups."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph.catalog.resolve import compile_schema
from omnigraph.engine.ingest import files, shape
from omnigraph.engine.ingest.sources import Feed
from omnigraph.ids import node_key

DIMENSION = 256
ROWS = 40_000
CATALOG = compile_schema(f"node Item {{ name: String @key  vec: Vector({DIMENSION}) }}")


def _items(rows: int) -> pa.Table:
    numbers = np.random.default_rng(rows).random(rows * DIMENSION, dtype=np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers), DIMENSION)
    return pa.table({"name": pa.array(np.arange(rows)).cast(pa.string()), "vec": vectors})


def _batches(path: Path) -> Iterator[pa.Table]:
    (file,) = files.find_files(path)
    for piece in files.cut(file):
        for shaped in shape.shape_feed(Feed(piece, node_key("Item")), CATALOG):
            assert not shaped.problems
            yield from shaped.tables[node_key("Item")]


@contextmanager
def _arrow_memory() -> Iterator[pa.MemoryPool]:
    """A count of its own of what Arrow holds meanwhile."""
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counted)
    try:
        yield counted
    finally:
        pa.set_memory_pool(before)


@pytest.mark.parametrize("group_rows", [ROWS, ROWS // 8])
def test_a_row_group_is_never_held_whole(tmp_path: Path, group_rows: int) -> None:
    path = tmp_path / "items.parquet"
    pq.write_table(_items(ROWS), path, row_group_size=group_rows)
    assert path.stat().st_size > 32 << 20
    with _arrow_memory() as memory:
        sizes = [(batch.num_rows, batch.nbytes) for batch in _batches(path)]
    assert sum(rows for rows, _ in sizes) == ROWS
    assert max(size for _, size in sizes) < 8 << 20
    assert memory.max_memory() < 24 << 20


@pytest.mark.parametrize("group_rows", [300, 70, 1])
@pytest.mark.parametrize("column_bytes", [1, 500, 128 << 10])
def test_what_is_streamed_is_what_the_file_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_rows: int, column_bytes: int
) -> None:
    monkeypatch.setattr(files, "COLUMN_BYTES", column_bytes)
    monkeypatch.setattr(shape, "BATCH_BYTES", 64 * DIMENSION * 4)
    path = tmp_path / "items.parquet"
    items = _items(300)
    pq.write_table(items, path, row_group_size=group_rows)
    found = pa.concat_tables(_batches(path))
    assert found["name"].to_pylist() == items["name"].to_pylist()
    assert found["vec"].combine_chunks().flatten().equals(items["vec"].combine_chunks().flatten())


def test_the_next_batch_is_decoded_while_one_is_used() -> None:
    asked = [threading.Event() for _ in range(3)]

    def batches() -> Iterator[pa.RecordBatch]:
        for number, event in enumerate(asked):
            event.set()
            yield pa.record_batch({"n": [number]})

    found = shape._one_ahead(batches())
    for number in range(3):
        assert next(found).to_pydict() == {"n": [number]}
        assert all(event.wait(10) for event in asked[: number + 2]), "the next one was not begun"
        assert not any(event.is_set() for event in asked[number + 2 :]), "more than one is held"
    assert next(found, None) is None


def test_a_file_that_breaks_off_says_so_and_no_thread_stays() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [1]})
        raise OSError("the disk is gone")

    before = threading.active_count()
    found = shape._one_ahead(batches())
    assert next(found).num_rows == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(found)
    assert threading.active_count() == before
    left = shape._one_ahead(iter([pa.record_batch({"n": [1]})] * 3))
    assert next(left).num_rows == 1
    left.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_a_value_that_does_not_fit_is_told_and_not_that_its_column_is_missing(tmp_path):
    """The others of the column are there, so only the null that was given is one that is required."""
    graph = omnigraph.create(tmp_path / "g", "node P { k: String @key  n: I64 }")
    table = pa.table({"k": ["a", "b", "c"], "n": [1.0, 2.5, None]})
    pq.write_table(table, tmp_path / "p.parquet")
    with pytest.raises(omnigraph.ConstraintError) as refused:
        graph.load(tmp_path / "p.parquet", type="P")
    told = sorted(str(each) for each in refused.value.violations)
    assert len(told) == 2
    assert "row 2: P.n: 2.5 is not an integer" in told[0]
    assert "row 3: P.n is required" in told[1]


def test_a_file_that_is_damaged_inside_is_the_callers(tmp_path):
    graph = omnigraph.create(tmp_path / "g", "node P { k: String @key  n: I64 }")
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"k": [f"{n:x}" * 5 for n in range(9_000)], "n": list(range(9_000))}), path)
    data = bytearray(path.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 500] = bytes(500)
    path.write_bytes(data)
    with pytest.raises(omnigraph.InputError, match=r"p\.parquet is not a readable Parquet file"):
        graph.load(path, type="P")
    assert len(graph.history.list()) == 1


@pytest.mark.parametrize("kind", ["Date", "DateTime"])
def test_unsigned_numbers_that_are_no_day_and_no_instant_are_told(tmp_path, kind):
    graph = omnigraph.create(tmp_path / "g", f"node P {{ k: String @key  at: {kind} }}")
    numbers = pa.array([7, 2**64 - 1], pa.uint64())
    pq.write_table(pa.table({"k": ["a", "b"], "at": numbers}), tmp_path / "p.parquet")
    for given in (tmp_path / "p.parquet", pa.table({"k": ["a", "b"], "at": numbers})):
        with pytest.raises(omnigraph.ConstraintError, match=r"2: P\.at: 18446744073709551615 exceeds"):
            graph.load(given, type="P")
    graph.load(pa.table({"k": ["a"], "at": numbers[:1]}), type="P")
    assert len(graph.query("query q() { match { $p: P } return { $p.at } }")) == 1
