"""Loads on branches give what the engine in this process gives, also the first one, which forks the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import SCHEMA
from tests.spark.records import city, knows, person, write_lines

from omnigraph import create, failpoints
from omnigraph.engine.operations.export import export_lines
from omnigraph.graph import Graph
from omnigraph.pipeline import merge, run_job

pytestmark = pytest.mark.spark


def content(graph: Graph, branch: str = "main") -> list[str]:
    return list(export_lines(graph.context.catalog, graph.snapshot(branch)))


def data_files(graph: Graph) -> list[Path]:
    return list((Path(graph.uri) / "nodes").rglob("data/*.lance"))


@pytest.mark.parametrize(
    ("mode", "joins"), [("append", False), ("merge", False), ("merge", True), ("overwrite", False)]
)
def test_a_branch_gets_the_same_rows_from_both_engines(
    mode: str, joins: bool, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if joins:
        monkeypatch.setattr(merge, "PAIRS_MAX", -1)
    base = [person("a", age=1), person("b", age=2), person("c"), city(1), knows("a", "b", id="k1")]
    changed = [person("b", age=9, tags=["x"]), person("c", age=3), person("d")]
    first = [person("e", age=5), person("f")] if mode == "append" else [*changed, person("a", score=0.5)]
    second = [person("g")] if mode == "append" else [person("a", age=7), person("b"), person("h")]
    graphs = {engine: create(tmp_path / engine, SCHEMA) for engine in ("local", "spark")}
    for engine, graph in graphs.items():
        graph.load(write_lines(tmp_path / "base.jsonl", *base), engine="local")
        before = content(graph)
        graph.branches.create("review")
        for number, records in enumerate((first, second)):
            path = write_lines(tmp_path / f"{number}.jsonl", *records)
            graph.load(path, mode=mode, branch="review", engine=engine, spark=spark)
        assert content(graph) == before
        assert not graph.maintenance.verify().problems
    assert content(graphs["spark"], "review") == content(graphs["local"], "review")


def test_the_first_merge_on_a_branch_keeps_row_ids_and_leaves_no_second_copy(graph: Graph, tmp_path: Path) -> None:
    graph.load(write_lines(tmp_path / "base.jsonl", *[person(name) for name in "abc"]), engine="local")
    graph.branches.create("review")
    columns = ["id", "age"]
    before = graph.snapshot("review").open("node:Person").scan(columns, with_row_id=True).to_pylist()
    files = len(data_files(graph))
    source = write_lines(tmp_path / "in.jsonl", person("a", age=1), person("z"), person("c", age=3))
    run_job(graph.context, source, mode="merge", branch="review")
    after = graph.snapshot("review").open("node:Person").scan(columns, with_row_id=True).to_pylist()
    kept = {row["id"]: row["_rowid"] for row in after}
    assert {row["id"]: row["_rowid"] for row in before}.items() <= kept.items()
    assert {row["id"]: row["age"] for row in after} == {"a": 1, "b": None, "c": 3, "z": None}
    # The changed rows and the new one, each once, all of them below the branch.
    assert len(data_files(graph)) == files + 2
    assert graph.snapshot("main").open("node:Person").count_rows() == 3


def test_blobs_reach_a_branch_that_forks(tmp_path: Path, spark: Any) -> None:
    graph = create(tmp_path / "graph", "node Photo { name: String @key  data: Blob? }")

    def photo(name: str, text: str) -> dict[str, Any]:
        return {"type": "Photo", "data": {"name": name, "data": f"base64:{text}"}}

    graph.load([photo("a", "AQID"), photo("b", "AQID")], engine="local")
    graph.branches.create("review")
    run_job(
        graph.context,
        write_lines(tmp_path / "in.jsonl", photo("b", "BAUG"), photo("c", "BwgJ")),
        mode="merge",
        branch="review",
        spark=spark,
    )
    found = {name: graph.read_blob("Photo", name, "data", "review") for name in "abc"}
    assert found == {"a": b"\1\2\3", "b": b"\4\5\6", "c": b"\7\10\11"}
    assert graph.read_blob("Photo", "b", "data") == b"\1\2\3"


def test_a_repeated_attempt_keeps_the_files_it_needs(graph: Graph, tmp_path: Path, spark: Any) -> None:
    """The first attempt splits its file because 'a' exists; the second one, without 'a', takes it as it is."""
    graph.load([person("a", age=1), person("other")], engine="local")
    source = write_lines(tmp_path / "in.jsonl", person("a", age=2), person("b", age=3))
    deletions = [True]

    def interfere(name: str) -> None:
        if name == failpoints.MUTATION_POST_STAGE and deletions:
            deletions.pop()
            graph.mutate('query gone() { delete Person where name = "a" }')

    previous = failpoints.install(interfere)
    try:
        run_job(graph.context, source, mode="merge", spark=spark)
    finally:
        failpoints.install(previous)
    found = graph.snapshot().open("node:Person").scan(["id", "age"]).to_pylist()
    assert {row["id"]: row["age"] for row in found} == {"a": 2, "b": 3, "other": None}
    assert not deletions
