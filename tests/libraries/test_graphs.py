"""States, queries and neighbourhoods in graph libraries; algorithms against plain computations and against Spark's."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import InputError, PreconditionFailedError

pytest.importorskip("scipy")
networkx = pytest.importorskip("networkx")

SCHEMA = """
node Person { name: String @key  age: I32?  rank: F64?  group: I64? }
node Town { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge LivesIn: Person -> Town
"""


def filled(root: Path, seed: int, people: int = 40, edges: int = 90) -> tuple[omnigraph.Graph, list[tuple[str, str]]]:
    """A random graph with loops, parallel edges, lonely nodes and nodes that are gone again."""
    chosen = random.Random(seed)
    names = [f"p{number:02d}" for number in range(people)]
    pairs = [(chosen.choice(names[:-3]), chosen.choice(names[:-3])) for _ in range(edges)]
    pairs += [pairs[0], (names[0], names[0])]
    graph = omnigraph.create(root, schema=SCHEMA)
    graph.load({"Person": pa.table({"name": [*names, "gone"], "age": [*range(people), None]})})
    graph.load({"Town": pa.table({"name": ["rome"]})})
    graph.load({"Knows": pa.table({"from": [a for a, _ in pairs], "to": [b for _, b in pairs]})})
    graph.load([{"from": names[0], "to": "rome"}], type="LivesIn")
    graph.mutate('query q() { delete Person where name = "gone" }')
    graph.mutate(f'query q() {{ delete Person where name = "{names[1]}" }}')
    return graph, [pair for pair in pairs if names[1] not in pair]


@pytest.fixture(params=[1, 2, 3])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[omnigraph.Graph, Any]:
    """A graph, and the same in NetworkX, made from what was loaded."""
    graph, pairs = filled(tmp_path / "g.omni", request.param)
    plain = networkx.MultiDiGraph()
    plain.add_nodes_from(row["n"] for row in graph.query("query q() { match { $p: Person } return { $p.name as n } }"))
    plain.add_edges_from(pairs)
    return graph, plain


def by_id(table: pa.Table, column: str) -> dict[str, Any]:
    return dict(zip(table["id"].to_pylist(), table[column].to_pylist(), strict=True))


def test_a_state_is_the_same_graph_in_networkx(both: tuple[omnigraph.Graph, Any]) -> None:
    graph, plain = both
    found = graph.to_networkx(edges=["Knows"])
    assert sorted(found.nodes) == sorted(("Person", name) for name in plain)
    assert sorted((a, b) for (_, a), (_, b) in found.edges()) == sorted(plain.edges())
    assert found.nodes["Person", "p05"]["age"] == 5
    assert {data["type"] for *_, data in found.edges(data=True)} == {"Knows"}
    assert ("Town", "rome") in graph.to_networkx()


def test_neighbourhoods_and_queries(both: tuple[omnigraph.Graph, Any]) -> None:
    graph, plain = both
    ego = networkx.ego_graph(plain, "p00", radius=2, undirected=True)
    near = graph.to_networkx(nodes={"Person": ["p00"]}, hops=2, edges=["Knows"])
    assert sorted(name for _, name in near) == sorted(ego)
    assert near.number_of_edges() == ego.number_of_edges()
    young = "query q($a: I32) { match { $p: Person $p.age < $a } return { $p.name, $p.age } }"
    found = graph.to_networkx(young, {"a": 10})
    names = {f"p{number:02d}" for number in range(10)} - {"p01"}
    assert {name for _, name in found} == names
    assert found.number_of_edges() == plain.subgraph(names).number_of_edges()
    for bad in (
        "query q() { match { $p: Person } return { count($p) as n } }",
        young.replace("$p.name, $p.age", "1 as x"),
    ):
        with pytest.raises(InputError):
            graph.to_networkx(bad, {"a": 1} if "$a" in bad else None)


def test_igraph_has_the_same_edges_and_properties(both: tuple[omnigraph.Graph, Any]) -> None:
    pytest.importorskip("igraph")
    graph, plain = both
    found = graph.to_igraph(edges=["Knows"])
    names = found.vs["id"]
    assert sorted((names[a], names[b]) for a, b in found.get_edgelist()) == sorted(plain.edges())
    assert found.vs.find(id="p07")["age"] == 7
    assert set(found.es["type"]) == {"Knows"}


def test_pyg_has_an_index_by_type(both: tuple[omnigraph.Graph, Any]) -> None:
    pytest.importorskip("torch_geometric")
    graph, plain = both
    found = graph.to_pyg()
    ids = found["Person"].node_id
    ends = found["Person", "Knows", "Person"].edge_index.tolist()
    assert sorted((ids[a], ids[b]) for a, b in zip(*ends, strict=True)) == sorted(plain.edges())
    assert found["Town"].num_nodes == 1
    assert found.validate()
    near = graph.to_pyg(nodes={"Person": ["p00"]}, hops=1)
    expected = {"p00", *plain.successors("p00"), *plain.predecessors("p00")}
    assert set(near["Person"].node_id) == expected
    assert near["Person", "Knows", "Person"].num_edges == plain.subgraph(expected).number_of_edges()
    asked = graph.to_pyg("query q($a: I32) { match { $p: Person $p.age < $a } return { $p.name } }", {"a": 10})
    assert set(asked["Person"].node_id) == {f"p{number:02d}" for number in range(10)} - {"p01"}
    assert dict(zip(asked["Person"].node_id, asked["Person"].age.tolist(), strict=True))["p07"] == 7


def test_pyg_has_numbers_and_vectors_as_tensors(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    schema = """
    node Paper {
        title: String @key  year: I32  words: U64  score: F32  part: U32?  meaning: Vector(2)
        num_nodes: I32  node_id: I64  node_id_: I64
    }
    node Venue { name: String @key  size: F64? }
    edge Cites: Paper -> Paper { weight: F64  edge_index: I32 }
    """
    papers = pa.table(
        {
            "title": ["a", "b"],
            "year": [1999, 2001],
            "words": pa.array([2**64 - 1, 0], pa.uint64()),
            "score": [0.5, 1.5],
            "part": pa.array([1, None], pa.uint32()),
            "meaning": [[0.0, 1.0], [2.0, 3.0]],
            "num_nodes": [7, 8],
            "node_id": [70, 80],
            "node_id_": [700, 800],
        }
    )
    with omnigraph.create(tmp_path / "g.omni", schema=schema) as graph:
        graph.load({"Paper": papers})
        graph.load({"Cites": pa.table({"from": ["b"], "to": ["a"], "weight": [0.25], "edge_index": [9]})})
        found = graph.to_pyg()
    assert found.validate()
    paper, cites = found["Paper"], found["Paper", "Cites", "Paper"]
    order = [paper.node_id.index(title) for title in ("a", "b")]
    assert paper.num_nodes == 2
    assert "part" not in paper  # it has a null
    assert paper.year[order].tolist() == [1999, 2001]
    assert paper.words.tolist()[order[0]] == 2**64 - 1
    assert paper.score[order].tolist() == [0.5, 1.5]
    assert paper.meaning[order].tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert [paper[name][order].tolist() for name in ("num_nodes_", "node_id_", "node_id__")] == [
        [7, 8],
        [700, 800],
        [70, 80],
    ]
    assert cites.edge_index.tolist() == [[order[1]], [order[0]]]
    assert (cites.weight.tolist(), cites["edge_index_"].tolist()) == ([0.25], [9])
    assert found["Venue"].num_nodes == 0


def test_pyg_feeds_a_network(both: tuple[omnigraph.Graph, Any]) -> None:
    pytest.importorskip("torch_geometric")
    import torch
    from torch_geometric.nn import SAGEConv

    graph, plain = both
    data = graph.to_pyg(edges=["Knows"])
    edges = data["Person", "Knows", "Person"].edge_index
    layer = SAGEConv(1, 1, aggr="sum", root_weight=False, bias=False)
    with torch.no_grad():
        layer.lin_l.weight.fill_(1.0)
        sums = layer(torch.ones(data["Person"].num_nodes, 1), edges).flatten().tolist()
    assert dict(zip(data["Person"].node_id, sums, strict=True)) == dict(plain.in_degree())


def test_algorithms_find_what_networkx_finds(both: tuple[omnigraph.Graph, Any]) -> None:
    graph, plain = both
    measures = graph.algorithms
    degrees = measures.degrees(["Knows"])
    assert by_id(degrees, "out_degree") == dict(plain.out_degree())
    assert by_id(degrees, "degree") == dict(plain.degree())
    ranks = by_id(measures.pagerank(["Knows"], rounds=200, tolerance=1e-12), "rank")
    expected = networkx.pagerank(networkx.DiGraph(_weighted(plain)), alpha=0.85, max_iter=500, tol=1e-12)
    assert ranks == pytest.approx(expected, abs=1e-9)
    assert sum(ranks.values()) == pytest.approx(1.0)
    components: dict[int, set[str]] = {}
    for name, number in by_id(measures.connected_components(["Knows"]), "component").items():
        components.setdefault(number, set()).add(name)
    assert sorted(map(sorted, components.values())) == sorted(map(sorted, networkx.weakly_connected_components(plain)))
    near = networkx.multi_source_dijkstra_path_length(plain, {"p00", "p02"}, weight=None)
    assert by_id(measures.shortest_paths(["p00", "p02"], "Person", ["Knows"]), "distance") == near
    either = networkx.single_source_shortest_path_length(plain.to_undirected(), "p00", cutoff=2)
    found = measures.shortest_paths(["p00"], "Person", ["Knows"], directed=False, hops_max=2)
    assert by_id(found, "distance") == dict(either)
    simple = networkx.Graph(plain.to_undirected())
    simple.remove_edges_from(list(networkx.selfloop_edges(simple)))
    assert by_id(measures.triangle_counts(["Knows"]), "triangles") == networkx.triangles(simple)


def test_degrees_are_counted_as_the_listed_edges_say_after_every_kind_of_change(
    both: tuple[omnigraph.Graph, Any],
) -> None:
    graph, _ = both
    for change in (
        None,
        'insert Person { name: "new" } insert Knows { from: "new", to: "p00" } insert Knows { from: "new", to: "p00" }',
        'insert Knows { from: "p05", to: "new" } insert LivesIn { from: "new", to: "rome" }',
        'delete Knows where from = "p00"',
        'delete Person where name = "p03"',
        'insert Town { name: "bonn" } insert LivesIn { from: "p05", to: "bonn" }',
    ):
        if change is not None:
            graph.mutate(f"query q() {{ {change} }}")
        for opened in (graph, omnigraph.connect(graph.uri)):
            for edges in (["Knows"], ["LivesIn"], ()):
                numbered = opened.numbered(edges)
                counted = numbered.degrees()
                assert counted.out.tolist() == np.bincount(numbered.sources, minlength=numbered.node_count).tolist()
                assert counted.into.tolist() == np.bincount(numbered.targets, minlength=numbered.node_count).tolist()
                chosen = np.arange(numbered.node_count) % 3 > 0
                part = numbered.part(chosen)
                assert part.degrees().out.tolist() == np.bincount(part.sources, minlength=part.node_count).tolist()


def _weighted(plain: Any) -> Any:
    """Parallel edges as one with their number as weight."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(plain)
    for source, target in plain.edges():
        before = graph.get_edge_data(source, target, {"weight": 0})["weight"]
        graph.add_edge(source, target, weight=before + 1)
    return graph


def test_algorithms_of_nothing(tmp_path: Path) -> None:
    with omnigraph.create(tmp_path / "g.omni", schema=SCHEMA) as graph:
        for table in (
            graph.algorithms.degrees(),
            graph.algorithms.pagerank(),
            graph.algorithms.connected_components(),
            graph.algorithms.triangle_counts(),
            graph.algorithms.shortest_paths(["x"], "Person"),
        ):
            assert table.num_rows == 0
        assert graph.to_networkx().number_of_nodes() == 0


def test_a_result_is_written_back_as_one_commit(both: tuple[omnigraph.Graph, Any]) -> None:
    graph, _ = both
    ranks = graph.algorithms.pagerank()
    before = len(graph.history.list())
    result = graph.algorithms.write_back(ranks, "rank", "Person", "rank", actor="ana", message="ranks")
    assert len(graph.history.list()) == before + 1
    assert graph.history.list(limit=1)[0].message == "ranks"
    rows = graph.query("query q() { match { $p: Person } return { $p.name as n, $p.rank as r, $p.age as a } }")
    stored = by_id(ranks.filter(pa.compute.equal(ranks["type"], "Person")), "rank")
    assert {row["n"]: row["r"] for row in rows} == pytest.approx(stored)
    assert {row["n"]: row["a"] for row in rows}["p05"] == 5
    assert result.rows == {"node:Person": len(stored)}
    with pytest.raises(InputError, match="no property"):
        graph.algorithms.write_back(ranks, "rank", "Person", "name")
    with pytest.raises(InputError, match="no column"):
        graph.algorithms.write_back(ranks, "score", "Person", "rank")


def test_a_write_in_between_is_never_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph import algorithms

    graph, _ = filled(tmp_path / "g.omni", 4)
    ranks = graph.algorithms.pagerank()
    plain = algorithms.read_rows

    def slowly(*args: Any) -> Any:
        rows = plain(*args)
        graph.mutate('query q() { update Person set { age: 99 } where name = "p05" }')
        return rows

    monkeypatch.setattr(algorithms, "read_rows", slowly)
    with pytest.raises(PreconditionFailedError):
        graph.algorithms.write_back(ranks, "rank", "Person", "rank")
    found = graph.query('query q() { match { $p: Person { name: "p05" } } return { $p.age as a, $p.rank as r } }')
    assert found.to_pylist() == [{"a": 99, "r": None}]


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_local_algorithms_equal_those_of_spark(tmp_path: Path) -> None:
    graph, _ = filled(tmp_path / "g.omni", 7)
    there, here = graph.spark().analytics("Knows"), graph.algorithms

    def rows(frame: Any, column: str) -> dict[str, Any]:
        return {row["id"]: row[column] for row in frame.collect()}

    for column in ("out_degree", "in_degree", "degree"):
        assert by_id(here.degrees(["Knows"]), column) == rows(there.degrees(), column)
    assert by_id(here.pagerank(["Knows"]), "rank") == pytest.approx(rows(there.pagerank(), "rank"))
    assert by_id(here.triangle_counts(["Knows"]), "triangles") == rows(there.triangle_counts(), "triangles")
    assert by_id(here.shortest_paths(["p00"], edges=["Knows"]), "distance") == rows(
        there.shortest_paths(["p00"]), "distance"
    )
    ours, theirs = (
        by_id(here.connected_components(["Knows"]), "component"),
        rows(there.connected_components(), "component"),
    )
    assert ours.keys() == theirs.keys()
    assert len({(ours[name], theirs[name]) for name in ours}) == len(set(ours.values())) == len(set(theirs.values()))


def test_integer_keys_name_the_nodes_to_begin_with(tmp_path: Path) -> None:
    with omnigraph.create(tmp_path / "g.omni", "node Item { number: I64 @key }\nedge Next: Item -> Item") as graph:
        graph.load({"Item": [{"number": 1}, {"number": 2}, {"number": 3}], "Next": [{"from": 1, "to": 2}]})
        assert sorted(graph.to_networkx(nodes={"Item": [1]}, hops=1).nodes) == [("Item", "1"), ("Item", "2")]
        assert "2 nodes, 1 arrow" in repr(graph.draw({"Item": [1]}))
        assert graph.algorithms.shortest_paths([1])["distance"].to_pylist() == [0, 1]
        with pytest.raises(InputError, match=r"a query, the path of one, or ids by type"):
            graph.draw(["1"])  # type: ignore[arg-type]
