"""A graph that was put in the place of another is read as what it is, by old handles and by new ones.

Versions have numbers, and the graph that is there now has the same numbers for other content.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from omnigraph import CommitNotFoundError, GraphError, connect, create
from omnigraph.engine.manifest import publish
from omnigraph.graph import Graph

SCHEMA = "node Person { key: String @key  n: I32 }\nedge Knows: Person -> Person"


def made(root: Path, name: str, size: int = 600, schema: str = SCHEMA) -> Graph:
    graph = create(root, schema)
    people = [{"type": "Person", "data": {"key": f"{name}{n}", "n": n}} for n in range(size)]
    graph.load([*people, {"edge": "Knows", "from": f"{name}1", "to": f"{name}2"}], engine="local", durability="fast")
    return graph


def holder(graph: Graph, key: str, branch: str = "main") -> list[int]:
    text = "query q($k: String) { match { $p: Person { key: $k } } return { $p.n as n } }"
    return [row["n"] for row in graph.query(text, {"k": key}, branch=branch).to_pylist()]


def friends(graph: Graph, key: str) -> list[str]:
    text = "query q($k: String) { match { $p: Person { key: $k } $p knows $q } return { $q.key as k } }"
    return [row["k"] for row in graph.query(text, {"k": key}).to_pylist()]


def warmed(root: Path) -> Graph:
    graph = made(root, "a")
    for _ in range(3):
        assert holder(graph, "a5") == [5]
        assert friends(graph, "a1") == ["a2"]
    return graph


def put_in_place(root: Path, other: Path) -> None:
    """As another process does that removes a graph and makes one there."""
    shutil.rmtree(root)
    os.rename(other, root)


def test_commits_of_a_graph_that_is_gone_are_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COMMITS_KEPT": 2, "COMMIT_WINDOW": 3, "ARCHIVE_EVERY": 1}.items():
        monkeypatch.setattr(publish, name, value)
    root, other = tmp_path / "graph", tmp_path / "other"
    graph = made(root, "a", size=3)
    early = graph.snapshot()
    for n in range(4):
        graph.mutate(f'query m() {{ insert Person {{ key: "n{n}", n: {n} }} }}')
    assert early.head not in graph.snapshot().state.commits
    assert graph.snapshot(at=early.head).version == early.version
    first = graph.context.manifest.history.genesis()
    made(other, "b", size=3).close()
    put_in_place(root, other)
    with pytest.raises(CommitNotFoundError, match="there is no commit"):
        graph.snapshot(at=early.head)
    assert holder(graph, "b1") == [1]
    assert graph.context.manifest.history.genesis() != first


def test_a_graph_made_by_others_in_the_same_place_is_seen_by_old_handles_and_new_ones(tmp_path: Path) -> None:
    root, other = tmp_path / "graph", tmp_path / "other"
    old = warmed(root)
    made(other, "b", size=700).close()
    put_in_place(root, other)
    for graph in (old, connect(root), connect(root, read_only=True)):
        assert (holder(graph, "a5"), holder(graph, "b5")) == ([], [5])
        assert (friends(graph, "a1"), friends(graph, "b1")) == ([], ["b2"])
    old.mutate('query m() { insert Person { key: "c", n: 7 } }')
    for graph in (old, connect(root)):
        assert (holder(graph, "c"), holder(graph, "b699")) == ([7], [699])


def test_a_graph_made_anew_here_with_another_schema_is_written_as_it_is(tmp_path: Path) -> None:
    root = tmp_path / "graph"
    old = warmed(root)
    shutil.rmtree(root)
    new = made(root, "b", schema=SCHEMA.replace("n: I32", "n: I32  more: String?"))
    for graph in (new, old):
        assert (holder(graph, "a5"), holder(graph, "b5")) == ([], [5])


def test_a_copy_that_was_put_back_is_read_as_what_it_is(tmp_path: Path) -> None:
    root, copy = tmp_path / "graph", tmp_path / "copy"
    graph = warmed(root)
    graph.branches.create("side")
    shutil.copytree(root, copy)
    for branch in ("main", "side"):
        graph.mutate('query m() { insert Person { key: "late", n: 1 } }', branch=branch)
        assert holder(graph, "late", branch) == [1]
    put_in_place(root, copy)
    assert (holder(graph, "late"), holder(graph, "late", "side")) == ([], [])
    graph.mutate('query m() { insert Person { key: "later", n: 2 } }')
    for reader in (graph, connect(root)):
        assert (holder(reader, "late"), holder(reader, "later"), holder(reader, "a7")) == ([], [2], [7])


def test_a_graph_that_was_removed_is_not_answered_from_memory(tmp_path: Path) -> None:
    root = tmp_path / "graph"
    graph = warmed(root)
    shutil.rmtree(root)
    with pytest.raises(GraphError):
        holder(graph, "a5")
    with pytest.raises(GraphError):
        connect(root)
