"""A function is one entry of the table: everything else follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
import pytest

import omnigraph
from omnigraph.catalog.types import Scalar
from omnigraph.errors import TypeCheckError
from omnigraph.plan.functions import TABLE, Family, Function, Takes, strict

SCHEMA = "node Word { text: String @key  size: I32? }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[omnigraph.Graph]:
    with omnigraph.create(tmp_path / "words.omni", SCHEMA) as made:
        made.mutate('query add() { insert Word { text: "abc", size: 3 } insert Word { text: "de" } }')
        yield made


def test_one_entry_adds_a_function_to_conditions_results_and_orders(
    graph: omnigraph.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        TABLE, "reversed", Function("reversed", (Takes.STRING,), strict(Scalar.STRING), pc.utf8_reverse)
    )
    source = """query backwards() {
        match { $w: Word reversed($w.text) != "x" }
        return { reversed($w.text) as r } order { reversed($w.text) desc }
    }"""
    assert [row["r"] for row in graph.query(source)] == ["ed", "cba"]
    with pytest.raises(TypeCheckError, match="reversed takes a String here"):
        graph.query("query q() { match { $w: Word } return { reversed($w.size) as r } }")


def test_a_misspelt_function_suggests_the_nearest(graph: omnigraph.Graph) -> None:
    with pytest.raises(TypeCheckError, match="did you mean 'lower'"):
        graph.query("query q() { match { $w: Word } return { lowr($w.text) as r } }")
    with pytest.raises(TypeCheckError, match="substring takes 3 arguments, not 1"):
        graph.query("query q() { match { $w: Word } return { substring($w.text) as r } }")


def test_every_function_of_values_says_what_it_takes_and_gives() -> None:
    for function in TABLE.values():
        assert function.summary
        if function.family is Family.SCALAR:
            assert function.gives is not None
        else:
            assert function.lowering is not None


def test_an_index_answers_or_and_in_with_what_a_scan_finds(graph: omnigraph.Graph) -> None:
    source = """query some($l: [String]) {
        match { $w: Word $w.text in $l or $w.size = 3 } return { $w.text } order { $w.text } }"""
    for wanted in (["de"], [], ["de", "abc", "zz"]):
        found = [row["w.text"] for row in graph.query(source, {"l": wanted})]
        assert found == sorted({"abc", *(word for word in wanted if word != "zz")})
