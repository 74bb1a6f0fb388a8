"""Patterns that more rows match than 64 bits count are refused where the number matters; it never wraps around."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import omnigraph
from omnigraph.engine.read.frame import COUNT_MAX, Frame, added, added_by_group
from omnigraph.errors import LimitError
from omnigraph.graph import Graph

NODES = 8
"""All joined to all and to themselves, so that each hop makes eight times as many rows: 21 variables make 2^63."""
HALVES = [n + 0.5 for n in range(NODES)]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    root = tmp_path_factory.mktemp("large") / "graph"
    with omnigraph.create(root, "node N { k: String @key  n: I64  half: F64 }\nedge E: N -> N") as graph:
        nodes = [{"type": "N", "data": {"k": str(n), "n": n, "half": half}} for n, half in enumerate(HALVES)]
        ends = [(str(one), str(other)) for one in range(NODES) for other in range(NODES)]
        graph.load([*nodes, *({"edge": "E", "from": one, "to": other} for one, other in ends)])
        yield graph


def chain(variables: int) -> str:
    return " ".join(f"$v{n} e $v{n + 1}" for n in range(variables - 1))


def product(variables: int) -> str:
    return " ".join(f"$v{n}: N" for n in range(variables))


def rows(graph: Graph, body: str) -> list[list[object]]:
    return [list(row.values()) for row in graph.query(f"query q() {{ {body} }}")]


@pytest.mark.parametrize("pattern", [chain, product])
def test_rows_are_counted_up_to_the_last_bit_and_refused_beyond(graph, pattern):
    for variables in (7, 20):
        assert rows(graph, f"match {{ {pattern(variables)} }} return {{ count($v0) as n }}") == [[NODES**variables]]
    for variables in (21, 22, 43):
        with pytest.raises(LimitError, match="add a condition") as caught:
            rows(graph, f"match {{ {pattern(variables)} }} return {{ count($v0) as n }}")
        assert (caught.value.resource, caught.value.limit) == ("rows", COUNT_MAX)


def test_groups_are_counted_and_summed_where_all_rows_are_too_many(graph):
    returned = "$v0.k as k, count($v1) as n, avg($v0.n) as a"
    found = rows(graph, f"match {{ {chain(21)} }} return {{ {returned} }} order {{ k }}")
    assert found == [[str(n), NODES**20, float(n)] for n in range(NODES)]


def test_floats_are_summed_as_often_as_their_rows_count(graph):
    found = rows(graph, f"match {{ {chain(20)} }} return {{ sum($v19.half) as s, avg($v19.half) as a }}")
    assert found == [[sum(HALVES) * NODES**19, 4.0]]


@pytest.mark.parametrize("returned", ["collect($v0.n) as n", "$v0.k as k"])
def test_rows_that_would_be_listed_are_counted_first(graph, returned):
    with pytest.raises(LimitError, match="rows at once"):
        rows(graph, f"match {{ {chain(18)} }} return {{ {returned} }}")


def test_an_optional_block_of_too_many_rows_is_refused(graph):
    with pytest.raises(LimitError, match="rows at once"):
        rows(graph, f"match {{ $v0: N optional {{ {chain(13)} }} }} return {{ count($v0) as n }}")


def test_weights_are_added_and_multiplied_exactly_or_not_at_all():
    half = np.array([1 << 62, (1 << 62) - 1], dtype=np.int64)
    assert added(half) == COUNT_MAX
    assert added_by_group(half, np.array([1, 1]), 2).tolist() == [0, COUNT_MAX]
    assert Frame(2, {}, half).weighted(np.array([1, 2])).weights.tolist() == [1 << 62, (1 << 63) - 2]
    for beyond in (
        lambda: added(np.array([1 << 62, 1 << 62])),
        lambda: added_by_group(np.array([1 << 62, 5, 1 << 62]), np.array([0, 1, 0]), 2),
        lambda: Frame(2, {}, half).weighted(np.array([2, 1])),
        lambda: Frame(2, {}, half).multiplied_total(np.array([1, 3])),
    ):
        with pytest.raises(LimitError):
            beyond()
