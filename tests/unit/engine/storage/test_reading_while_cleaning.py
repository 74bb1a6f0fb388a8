"""A read of a version that is being removed is told so, at whichever moment it meets the removal."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph
from omnigraph import Graph, StorageError, VersionReclaimedError

QUESTION = "query q() { match { $a: A } return { $a.n as n } }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.create(tmp_path / "graph", "node A { k: String @key  n: I64 }") as graph:
        graph.load([{"type": "A", "data": {"k": "a", "n": 1}}])
        yield graph


def files(root: Path, folder: str) -> set[Path]:
    (table,) = (root / "graph" / "nodes").iterdir()
    return {path for path in (table / folder).iterdir() if path.is_file()}


def outdated(root: Path, graph: Graph) -> tuple[str, set[Path], set[Path]]:
    """A commit, the data files that only it needs, and the files that are its version and those before."""
    commit = graph.snapshot().head
    data, versions = files(root, "data"), files(root, "_versions")
    graph.load([{"type": "A", "data": {"k": "b", "n": 2}}], mode="overwrite")
    assert commit is not None
    return commit, data, versions


def test_files_that_go_before_their_version_are_reclaimed_and_not_lost(tmp_path: Path, graph: Graph) -> None:
    commit, data, versions = outdated(tmp_path, graph)
    with omnigraph.connect(tmp_path / "graph", read_only=True) as reader:
        assert reader.snapshot(at=commit).open("node:A").version
        for path in data:
            path.unlink()

        def go_on() -> None:
            time.sleep(0.1)
            for path in versions:
                path.unlink()

        cleaning = threading.Thread(target=go_on)
        cleaning.start()
        with pytest.raises(VersionReclaimedError):
            reader.query(QUESTION, at=commit).to_pylist()
        cleaning.join()
        assert reader.query(QUESTION).to_pylist() == [{"n": 2}]


def test_files_whose_version_stays_are_lost(tmp_path: Path, graph: Graph) -> None:
    commit, data, _ = outdated(tmp_path, graph)
    for path in data:
        path.unlink()
    with omnigraph.connect(tmp_path / "graph", read_only=True) as reader, pytest.raises(StorageError) as lost:
        reader.query(QUESTION, at=commit).to_pylist()
    assert lost.value.kind == "not_found"


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_files_of_a_state_that_cleanup_has_removed_are_refused_by_name(
    graph: Graph, tmp_path: Path, format: str
) -> None:
    commit = graph.snapshot().head
    for n in (2, 3):
        graph.load([{"type": "A", "data": {"k": "b", "n": n}}], mode="overwrite")
    assert not graph.maintenance.cleanup(keep=1).failed
    with omnigraph.connect(tmp_path / "graph", read_only=True) as reader:
        reader.refresh()
        with pytest.raises(VersionReclaimedError, match="'node:A' has been removed") as refused:
            reader.export(f"{tmp_path}/files/", at=commit, format=format)
        assert refused.value.table_key == "node:A"
    assert not list((tmp_path / "files").iterdir())
