"""A condition that some values make fail is not asked about rows that another clause leaves out."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph
from omnigraph import ExecutionError, Graph

SCHEMA = "node A { k: String @key  i: I64?  u: U64? }  edge Aa: A -> A { w: I64? }"
ROWS = [
    {"type": "A", "data": {"k": "zero", "i": 0, "u": 2**64 - 1}},
    {"type": "A", "data": {"k": "three", "i": 3}},
    {"type": "A", "data": {"k": "four", "i": 4}},
    {"edge": "Aa", "from": "three", "to": "four"},
]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.create(tmp_path / "graph", SCHEMA) as graph:
        graph.load(ROWS)
        yield graph


def found(graph: Graph, match: str) -> set[str]:
    rows = graph.query(f"query q() {{ match {{ {match} }} return {{ $a.k as k }} }}")
    return {row["k"] for row in rows.to_pylist()}


GUARDED = {
    "$a aa $b  10 % $a.i > 0": {"three"},
    "$a: A  10 % $a.i > 0  $a aa $b": {"three"},
    "$a $e:aa $b  10 % $a.i > 0  $e.w is null": {"three"},
    "$a: A  $a.i != 0  10 % $a.i > 0": {"three", "four"},
    "$a: A  not { $a.i = 0 }  10 % $a.i > 0": {"three", "four"},
    "$a: A  exists { $a aa $_ }  10 % $a.i > 0": {"three"},
    "$a: A  exists { 10 % $a.i > 0 }  not { $a.i = 0 }": {"three", "four"},
    "$a: A  not { 10 % $a.i = 1 }  not { $a.i = 0 }": {"four"},
    "$a: A  path $p = shortest $a aa{1,3} $b  10 % $a.i > 0": {"three"},
    "$a: A  either { $a aa $b } or { $b aa $a }  10 % $a.i > 0": {"three", "four"},
    "$a: A  $b: A  $b.i = 10 % $a.i  not { $a.i = 0 }": set(),
    "$a: A  optional { $a aa $b  10 % $a.i > 5 }  $a.i > 3": {"four"},
}


@pytest.mark.parametrize("match", GUARDED)
def test_what_another_clause_leaves_out_fails_nothing(graph: Graph, match: str) -> None:
    assert found(graph, match) == GUARDED[match]


@pytest.mark.parametrize(
    "match",
    ["$a: A  10 % $a.i > 0", "$a: A  not { $a.k = $a.id and 10 % $a.i = 9 }", "$a: A  $b: A  10 % $a.i = $b.i"],
)
def test_what_no_other_clause_leaves_out_fails(graph: Graph, match: str) -> None:
    with pytest.raises(ExecutionError, match=r"10 % \$a\.i: the remainder of a division by zero"):
        found(graph, match)


def test_rows_are_counted_as_often_as_there_are_ways_to_them(graph: Graph) -> None:
    text = "query q() { match { $a: A $b: A $c: A not { $a.i = 0 } 10 % $a.i > 0 } return { count($b) as n } }"
    assert graph.query(text).to_pylist() == [{"n": 18}]


def test_a_number_that_does_not_fit_is_refused_in_our_words(graph: Graph) -> None:
    with pytest.raises(ExecutionError, match=r"coalesce\(\$a\.u, 0\): the result does not fit 64 bits"):
        graph.query("query q() { match { $a: A } return { coalesce($a.u, 0) as u } }")
