"""A few rows from several groups: what is gathered one by one is what whole columns hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import omnigraph
from omnigraph.engine.read.columns import tables
from omnigraph.engine.read.columns.dictionary import IdDictionary
from omnigraph.engine.read.columns.nodes import NodeView

SCHEMA = "node P { k: String @key  i: I32  u: U64?  f: F32  g: F64?  city: String? }"
PARTS = 5
ROWS = 40


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> omnigraph.Graph:
    graph = omnigraph.create(str(tmp_path_factory.mktemp("few") / "g"), SCHEMA)
    for part in range(PARTS):
        rows = [_row(part * ROWS + number) for number in range(ROWS)]
        graph.load([{"type": "P", "data": row} for row in rows], engine="local")
    return graph


def _row(number: int) -> dict[str, Any]:
    row: dict[str, Any] = {"k": f"k{number}", "i": number - 50, "f": number / 8, "city": f"city{number % 7}"}
    # Only one part has nulls, so that some groups do and others do not.
    if number // ROWS != 2 or number % 3:
        row |= {"u": 2**63 + number, "g": number * 1.5}
    if number % 31 == 7:
        del row["city"]
    return row


@pytest.mark.parametrize("column", ["i", "u", "f", "g", "city"])
@pytest.mark.parametrize("gathered_rows", [0, 5, 128])
def test_rows_of_several_groups_are_what_a_scan_holds(
    graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch, column: str, gathered_rows: int
) -> None:
    monkeypatch.setattr(tables, "GROUP_ROWS_MAX", ROWS)
    monkeypatch.setattr(tables, "GATHERED_ROWS", gathered_rows)
    graph.close()
    opened = omnigraph.connect(graph.uri)
    handle = opened.snapshot().open("node:P")  # type: ignore[arg-type]
    view = NodeView(handle)
    assert len(view.groups) == PARTS
    whole = handle.scan([column]).column(column)
    rng = np.random.default_rng(3)
    for count in (2, 4, 5, 6, 60, 127, 128, 129, 300):
        for places in (rng.integers(0, PARTS * ROWS, count), rng.integers(0, 2 * ROWS, count)):
            taken = view.take(column, places)
            assert taken.type == whole.type
            assert taken.to_pylist() == whole.take(places).to_pylist()
    opened.close()


def test_grouped_texts_come_from_their_codes(graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "GROUP_ROWS_MAX", ROWS)
    ask = "query q() { match { $p: P { } $p.i > $low } return { $p.city as city, count($p) as n } order { city } }"
    ask = ask.replace("q()", "q($low: I32)")
    opened = omnigraph.connect(graph.uri)
    for low in (-60, -50, 0, 140, 148, 200):
        for _ in range(4):  # Codes are made once a column was asked for often enough.
            rows = opened.query(ask, {"low": low}).to_pylist()
            held = [_row(number).get("city") for number in range(PARTS * ROWS) if number - 50 > low]
            assert {row["city"]: row["n"] for row in rows} == {city: held.count(city) for city in set(held)}
    opened.close()


def test_a_dictionary_names_its_codes_alike_one_by_one_and_together() -> None:
    import pyarrow as pa

    dictionary = IdDictionary()
    for count in (3, 40, 5_000, 7):
        dictionary.encode(pa.array([f"{count}:{number}" for number in range(count)]))
        codes = np.random.default_rng(count).integers(0, len(dictionary), 50)
        assert dictionary.texts_of(codes.tolist()) == dictionary.ids_of(codes).to_pylist()
    dictionary.folded()
    assert dictionary.texts_of(codes.tolist()) == dictionary.ids_of(codes).to_pylist()
    assert dictionary.texts_of([]) == []
