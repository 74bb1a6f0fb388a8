"""A few rows of a long column that is not in memory: fetched one by one, until reading it whole is worth it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.engine.read.columns import tables
from omnigraph.engine.read.columns.tables import TableView
from omnigraph.engine.storage.cache import ByteCache
from omnigraph.engine.storage.handle import TableHandle

SCHEMA = "node P { k: String @key  i: I32  t: String }"


def _opened(root: Path, counts: list[int], text: str = "") -> omnigraph.Graph:
    graph = omnigraph.create(root, SCHEMA)
    first = 0
    for count in counts:
        numbers = np.arange(first, first + count, dtype=np.int32)
        keys = pa.array(numbers).cast(pa.string())
        rows = pa.table({"k": keys, "i": numbers, "t": pa.array([text or "t"]).take(pa.array(np.zeros(count, int)))})
        graph.load({"P": rows}, engine="local")
        first += count
    graph.close()
    return omnigraph.connect(root)


class Fetches:
    """Counts the fetches of a view whose cache holds nothing at first, and checks what they give."""

    def __init__(self, graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
        self.view = TableView(graph.snapshot().open("node:P"), ByteCache())  # type: ignore[arg-type]
        self.count = 0
        plain = TableHandle.take_addresses

        def counted(handle: TableHandle, *given: object) -> pa.Table:
            self.count += 1
            return plain(handle, *given)  # type: ignore[arg-type]

        monkeypatch.setattr(TableHandle, "take_addresses", counted)

    def until_whole(self, column: str, rows: int, calls: int = 1_000) -> int:
        """After how many fetches of so many rows the column is read whole; every answer is compared with a scan."""
        self.count = 0
        whole = self.view.handle.scan([column]).column(column)
        gone = [self.view.handle.deleted_offsets(fragment) for fragment in self.view.fragments]
        dead = np.concatenate([start + offsets for start, offsets in zip(self.view.starts, gone, strict=False)])
        live = np.setdiff1d(np.arange(self.view.position_count), dead)
        rng = np.random.default_rng(rows)
        for call in range(calls):
            places = rng.integers(0, len(live), rows)
            assert self.view.take(column, live[places]).to_pylist() == whole.take(places).to_pylist()
            if self.count == call:
                return call
        raise AssertionError(f"{column} is not read whole after {calls} calls")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in {"COLD_ROWS_MIN": 1, "FETCH_BYTES": 100, "FETCHED_ROW_BYTES": 0}.items():
        monkeypatch.setattr(tables, name, value)
    return monkeypatch


def test_a_narrow_column_is_read_whole_sooner_than_a_wide_one(tmp_path: Path, small: pytest.MonkeyPatch) -> None:
    fetches = Fetches(_opened(tmp_path / "g", [100], text="x" * 100), small)
    narrow, wide = fetches.until_whole("i", rows=4), fetches.until_whole("t", rows=4)
    assert 4 <= narrow <= 6, "400 bytes, and a bit of what says where there is none"
    assert 100 <= wide <= 110, "10,400 bytes"


def test_rows_and_fragments_cost_as_well_as_calls(tmp_path: Path, small: pytest.MonkeyPatch) -> None:
    small.setattr(tables, "GROUP_ROWS_MAX", 1)
    graph = _opened(tmp_path / "g", [50, 50])
    calls = Fetches(graph, small).until_whole("i", rows=1)
    fragments = Fetches(graph, small).until_whole("i", rows=8)
    small.setattr(tables, "FETCHED_ROW_BYTES", 100)
    rows = Fetches(graph, small).until_whole("i", rows=8)
    assert calls > fragments > rows == 1


def test_deleted_rows_beside_those_that_are_fetched_cost_as_well(tmp_path: Path, small: pytest.MonkeyPatch) -> None:
    graph = _opened(tmp_path / "g", [100], text="x" * 100)
    without = Fetches(graph, small).until_whole("t", rows=4)
    graph.mutate("query d() { delete P where i < 50 }")
    assert Fetches(graph, small).until_whole("t", rows=4) < without // 3


def test_a_long_column_of_numbers_is_read_whole_after_a_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = _opened(tmp_path / "g", [tables.COLD_ROWS_MIN])
    assert 1 <= Fetches(graph, monkeypatch).until_whole("i", rows=8) <= 4
