"""A read that has captured a branch never shows rows of another branch that was given its name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from omnigraph import failpoints
from omnigraph.errors import ChangeFeedGapError, GraphError, VersionReclaimedError
from omnigraph.graph import Graph, connect, create
from omnigraph.ids import TableKey
from omnigraph.testing.children import run_child
from omnigraph.testing.failpoints import CRASH_EXIT_CODE, InjectedFailure, configured

SCHEMA = """
node File { name: String @key
            body: Blob? }
"""
KEY = TableKey("node:File")


def put(graph: Graph, name: str, body: str, branch: str) -> None:
    record = {"type": "File", "data": {"name": name, "body": body}}
    graph.load(json.dumps(record).encode(), mode="merge", branch=branch)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = create(tmp_path / "graph", SCHEMA)
    put(graph, "a", "base64:bWFpbg==", "main")
    graph.branches.create("review")
    put(graph, "b", "base64:b2xk", "review")
    return graph


def make_anew(graph: Graph) -> None:
    """The same branch again, with another content under the same numbers."""
    before = graph.snapshot("review").entry(KEY)
    graph.branches.delete("review")
    graph.branches.create("review")
    put(graph, "b", "base64:bmV3", "review")
    after = graph.snapshot("review").entry(KEY)
    assert (after.branch, after.version) == (before.branch, before.version)
    assert after.e_tag != before.e_tag


def test_a_snapshot_refuses_versions_that_only_have_its_numbers(graph: Graph) -> None:
    captured = connect(graph.uri, read_only=True).snapshot("review")
    make_anew(graph)
    with pytest.raises(VersionReclaimedError, match="has been deleted"):
        captured.open(KEY)
    assert connect(graph.uri, read_only=True).read_blob("File", "b", "body", branch="review") == b"new"


def test_a_blob_of_a_branch_made_anew_is_not_taken_for_the_old_one(graph: Graph) -> None:
    reader = connect(graph.uri, read_only=True)
    with configured(f"{failpoints.BLOB_READ_POST_CAPTURE}=1*return"), pytest.raises(InjectedFailure):
        reader.read_blob("File", "b", "body", branch="review")

    def meanwhile(name: str) -> None:
        if name == failpoints.BLOB_READ_POST_CAPTURE:
            failpoints.install(None)
            make_anew(graph)

    failpoints.install(meanwhile)
    try:
        with pytest.raises(GraphError):
            reader.read_blob("File", "b", "body", branch="review")
    finally:
        failpoints.install(None)
    assert reader.read_blob("File", "b", "body", branch="review") == b"new"


@pytest.mark.parametrize("window", [failpoints.FEED_POST_CAPTURE, failpoints.FEED_PRE_TABLE_OPEN])
def test_a_feed_of_a_branch_made_anew_tells_nothing_of_the_new_one(window: str, graph: Graph) -> None:
    start = f"after:{graph.snapshot().head}"
    told = graph.changes.poll(start=start, branch="review")
    assert [change.id for block in told.blocks for change in block.changes] == ["b"]

    def meanwhile(name: str) -> None:
        if name == window:
            failpoints.install(None)
            make_anew(graph)

    late = connect(graph.uri, read_only=True)  # a store of its own, which has opened no table yet
    failpoints.install(meanwhile)
    try:
        with pytest.raises(ChangeFeedGapError):
            late.changes.poll(start=start, branch="review")
    finally:
        failpoints.install(None)


def read_and_die(root: str) -> None:
    failpoints.install(lambda _: os._exit(CRASH_EXIT_CODE))
    connect(root, read_only=True).read_blob("File", "b", "body", branch="review")


def test_a_reader_that_dies_leaves_nothing(graph: Graph) -> None:
    root = Path(graph.uri)
    before = sorted(path for path in root.rglob("*") if path.is_file())
    assert run_child(read_and_die, graph.uri) == CRASH_EXIT_CODE
    assert sorted(path for path in root.rglob("*") if path.is_file()) == before
