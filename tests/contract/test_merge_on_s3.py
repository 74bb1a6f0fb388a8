"""A merge on an object store: the store copies files by itself, and where it does not, rows are written instead."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from tests.contract.forgetful_proxy import Forgetful, forgetful_proxy
from tests.contract.s3_server import BUCKET, storage_options

from omnigraph.graph import Graph, create
from omnigraph.ids import new_ulid

SCHEMA = "node Doc { k: String @key  n: I32?  v: Vector(256)?  b: Blob? }"
ROWS = 500
BLOB = bytes(range(256)) * 400


@pytest.fixture
def proxy(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forgetful]:
    """The way to the store, which knows what went through."""
    with forgetful_proxy(s3_endpoint, "nothing is lost") as found:
        for name, value in storage_options(found.endpoint).items():
            monkeypatch.setenv(name.upper() if name.startswith("aws_") else f"AWS_{name.upper()}", value)
        yield found


def docs(start: int, count: int, n: int = 0) -> pa.Table:
    vectors = np.random.default_rng(start).random(count * 256, dtype=np.float32)
    return pa.table(
        {
            "k": [f"d{start + number:06d}" for number in range(count)],
            "n": pa.array([n] * count, pa.int32()),
            "v": pa.FixedSizeListArray.from_arrays(vectors, 256),
            "b": pa.array([BLOB if number == 0 else None for number in range(count)], pa.large_binary()),
        }
    )


@pytest.fixture
def graph(proxy: Forgetful) -> Graph:
    """A branch with files of its own, a changed row and a deleted one; main has gone on."""
    graph = create(f"s3://{BUCKET}/{new_ulid()}", SCHEMA)
    graph.load({"Doc": docs(0, 20)}, "append")
    graph.branches.create("review")
    for start in (1_000, 2_000):
        graph.load({"Doc": docs(start, ROWS)}, "append", branch="review")
    graph.mutate('query q() { update Doc set { n: 7 } where k = "d000003" }', branch="review")
    graph.mutate('query q() { delete Doc where k = "d001005" }', branch="review")
    graph.load({"Doc": docs(5, 1, n=9)}, "merge")
    return graph


def content(graph: Graph) -> dict[str, int]:
    query = "query q() { match { $d: Doc } return { $d.k as k, $d.n as n } }"
    return {row["k"]: row["n"] for row in graph.query(query)}


EXPECTED = {
    **{f"d{number:06d}": {3: 7, 5: 9}.get(number, 0) for number in range(20)},
    **{f"d{start + number:06d}": 0 for start in (1_000, 2_000) for number in range(ROWS) if start + number != 1_005},
}


def passed(proxy: Forgetful) -> int:
    """Bytes of data files and blobs that went through."""
    return sum(size for path, size in proxy.bytes_passed.items() if "/data/" in path)


@pytest.mark.long
def test_the_store_copies_what_a_merge_takes_over(graph: Graph, proxy: Forgetful) -> None:
    proxy.copied.clear()
    proxy.bytes_passed.clear()
    result = graph.branches.merge("review", delete_branch=True)
    through = passed(proxy)
    [found] = result.plan.types
    assert (found.inserted, found.updated, found.deleted) == (2 * ROWS - 1, 1, 0)
    copied = [path for path in proxy.copied if path.endswith(".lance")]
    assert len(copied) == len(set(copied)) >= 2, "one copy for each file"
    assert any(path.endswith(".blob") for path in proxy.copied), "with a file go its blobs"
    # A row of vectors and a footer here and there, and not the megabyte and more that the files hold.
    assert through < ROWS * 256 * 4
    assert result.branch_deleted
    assert content(graph) == EXPECTED
    assert graph.read_blob("Doc", "d002000", "b") == BLOB
    assert graph.maintenance.verify().clean


@pytest.mark.long
def test_rows_are_written_where_the_store_does_not_copy_and_the_result_says_so(graph: Graph, proxy: Forgetful) -> None:
    proxy.copies = False
    result = graph.branches.merge("review", delete_branch=True)
    [found] = result.plan.types
    assert (str(found.how), found.rows_written) == ("rewritten", 2 * ROWS)
    assert "could not copy" in str(found.reason)
    assert content(graph) == EXPECTED
    assert graph.read_blob("Doc", "d002000", "b") == BLOB
    assert graph.maintenance.verify().clean
