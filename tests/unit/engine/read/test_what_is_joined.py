"""What derived state is kept under names what it was derived from: two contents never share a name."""

from __future__ import annotations

import gc
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.read.cache import persist
from omnigraph.engine.read.columns import nodes
from omnigraph.engine.read.columns.dictionary import IdDictionary
from omnigraph.engine.read.columns.edges import EdgeView
from omnigraph.engine.read.columns.nodes import NodeView
from omnigraph.engine.read.graph import assembly, segments
from omnigraph.engine.read.graph import intersect as closing
from omnigraph.engine.read.graph.adjacency import Adjacency, Part
from omnigraph.engine.read.graph.assembly import adjacency
from omnigraph.engine.read.graph.intersect import common_neighbours
from omnigraph.engine.read.graph.segments import Direction
from omnigraph.engine.read.kernels import build_csr
from omnigraph.engine.storage.cache import SHARED, ByteCache
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import InternalError

NONE = np.zeros(1, dtype=np.int64)


def pairs_of(edges: EdgeView, sources: NodeView, targets: NodeView) -> list[tuple[str, str]]:
    """The edges of a version by the ids of their ends, as adjacency gives them."""
    starts = np.arange(sources.code_bound)
    starts = starts[sources.present(starts)]
    met, owner, _ = adjacency(edges, sources, targets, Direction.OUT).edges(starts)
    froms = sources.dictionary.ids_of(starts[owner]).to_pylist()
    return sorted(zip(froms, targets.dictionary.ids_of(met).to_pylist(), strict=True))


def nodes_table(ids: list[str]) -> pa.Table:
    return pa.table({"id": ids})


def edges_table(pairs: list[tuple[str, str]], first: int = 0) -> pa.Table:
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    return pa.table({"id": [f"e{first + n}" for n in range(len(pairs))], "src": sources, "dst": targets})


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    """Two node tables, and edges between them."""
    SHARED.clear()
    made = TableStore(str(tmp_path))
    for path, table in (
        ("nodes/A", nodes_table(["a0", "a1"])),
        ("nodes/B", nodes_table(["b0", "b1", "b2"])),
        ("edges/E", edges_table([("a0", "b0"), ("a1", "b1"), ("a0", "b2")])),
    ):
        made.create(path, table.schema, table)
    return made


def views(store: TableStore, cache: ByteCache = SHARED) -> tuple[EdgeView, NodeView, NodeView]:
    return (
        EdgeView(store.open("edges/E"), cache),
        NodeView(store.open("nodes/A"), cache),
        NodeView(store.open("nodes/B"), cache),
    )


def forget_dictionaries() -> None:
    """What happens when no view of a table is left: its dictionary goes, the cache of the process stays."""
    gc.collect()
    nodes._DICTIONARIES.clear()


def test_a_dictionary_restored_twice_grows_apart_under_two_names(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes go on from one file, and give the next code to two ids."""
    monkeypatch.setattr(persist, "EDGES_MIN", 1)
    assert len(pairs_of(*views(store))) == 3
    forget_dictionaries()
    one = views(store, ByteCache())
    one[2].dictionary.encode(pa.array(["learnt by the first alone"]))
    lance.write_dataset(nodes_table(["b3", "b4"]), store.location("nodes/B"), mode="append")
    lance.write_dataset(edges_table([("a1", "b4"), ("a1", "b3")], 3), store.location("edges/E"), mode="append")
    monkeypatch.setattr(segments, "OVERLAY_MIN", 0)
    monkeypatch.setattr(segments, "OVERLAY_SHARE", 0.0)
    forget_dictionaries()
    theirs = views(store, ByteCache())
    assert len(pairs_of(*theirs)) == 5
    mine = EdgeView(store.open("edges/E"), one[0].cache), one[1], NodeView(store.open("nodes/B"), one[0].cache)
    mine[2].__dict__["dictionary"] = one[2].dictionary
    assert mine[2].dictionary.lineage != theirs[2].dictionary.lineage
    assert pairs_of(*mine) == pairs_of(*theirs)


def test_codes_in_memory_do_not_outlive_the_dictionary_that_gave_them(
    store: TableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persist, "EDGES_MIN", 1)
    assert len(pairs_of(*views(store))) == 3
    lance.write_dataset(nodes_table(["b3", "b4"]), store.location("nodes/B"), mode="append")
    lance.write_dataset(edges_table([("a1", "b4")], 3), store.location("edges/E"), mode="append")
    expected = pairs_of(*views(store))
    forget_dictionaries()
    again = views(store)
    again[2].dictionary.encode(pa.array(["something else"]))
    assert pairs_of(*again) == expected


def test_adjacency_is_not_taken_over_when_only_the_dictionary_of_the_targets_is_another(store: TableStore) -> None:
    edges, sources, targets = views(store)
    expected = pairs_of(edges, sources, targets)
    other = NodeView(store.open("nodes/B"))
    other.__dict__["dictionary"] = IdDictionary(pa.array(["zz", "b2", "b1", "b0"]))
    assert pairs_of(edges, sources, other) == expected


def test_a_kept_segment_that_another_process_removes_is_made_anew(
    store: TableStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persist, "EDGES_MIN", 1)
    pairs_of(*views(store))
    forget_dictionaries()
    edges, sources, targets = views(store, ByteCache())
    assert len(pairs_of(edges, sources, targets)) == 3
    monkeypatch.setattr(assembly, "NEWLY_DEAD_SHARE", 1)
    for bundle in tmp_path.rglob("segment-*/*.npy"):
        bundle.unlink()
    lance.dataset(store.location("edges/E")).delete("id = 'e1'")
    later = EdgeView(store.open("edges/E"), edges.cache)
    assert pairs_of(later, sources, targets) == [("a0", "b0"), ("a0", "b2")]


def test_deletions_of_an_earlier_version_are_not_read_from_a_later_one(store: TableStore) -> None:
    cache = ByteCache()
    lance.dataset(store.location("nodes/B")).delete("id = 'b0'")
    earlier = NodeView(store.open("nodes/B"), cache)
    assert earlier.positions.tolist() == [-1, 1, 2]
    lance.dataset(store.location("nodes/B")).delete("id = 'b2'")
    for key in [key for key in cache._entries if key[0] == "deleted"]:
        cache._drop(key)
    later = NodeView(store.open("nodes/B"), cache)
    assert later.positions.tolist() == [-1, 1, -1]
    assert later.live.tolist() == [False, True, False]
    assert NodeView(earlier.handle, cache).live.tolist() == [False, True, True]
    with pytest.raises(InternalError, match="another version"):
        later.handle.deleted_offsets(earlier.fragments[0])


def test_marks_of_edges_go_on_from_a_version_whose_deletions_nobody_remembers(store: TableStore) -> None:
    cache = ByteCache()
    lance.dataset(store.location("edges/E")).delete("id = 'e0'")
    edges, sources, targets = views(store, cache)
    assert pairs_of(edges, sources, targets) == [("a0", "b2"), ("a1", "b1")]
    lance.dataset(store.location("edges/E")).delete("id = 'e2'")
    for key in [key for key in cache._entries if key[0] == "deleted"]:
        cache._drop(key)
    later = EdgeView(store.open("edges/E"), cache)
    assert pairs_of(later, sources, targets) == [("a1", "b1")]
    again = EdgeView(edges.handle, cache)
    assert pairs_of(again, sources, targets) == [("a0", "b2"), ("a1", "b1")]


@pytest.mark.parametrize("degree", [3, 70_000])
def test_a_node_with_more_neighbours_than_a_block_closes_all_its_patterns(
    degree: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if degree < closing.BLOCK:
        monkeypatch.setattr(closing, "BLOCK", 2)
        monkeypatch.setattr(closing, "FEW_ROWS", 0)
    hubs = np.repeat(np.array([0, 1]), degree)
    csr = build_csr(hubs, np.tile(np.arange(degree), 2), np.arange(2 * degree), 10**6)
    whole = Adjacency((Part(csr, None, None, NONE, NONE),))
    rows = np.full(600, 1)
    rows[0] = 0
    nodes, others = rows, np.where(np.arange(600) == 0, 1, 2)
    met, owner, _ = common_neighbours(whole, nodes, whole, others, lambda ways: None)
    assert len(met) == degree
    assert set(owner.tolist()) == {0}
