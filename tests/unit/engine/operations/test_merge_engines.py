"""Which engine a merge runs on, and that it says why."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.merge_workers import InProcess

from omnigraph.engine.ingest import choice
from omnigraph.engine.ingest.tables_at import TableAt
from omnigraph.engine.write import writer
from omnigraph.errors import ExecutionError, InputError
from omnigraph.graph import Graph, connect, create
from omnigraph.ids import node_key

SCHEMA = "node P { k: String @key  n: I32?  v: Vector(2)? }"


def people(*keys: str, n: int) -> list[dict[str, object]]:
    return [{"type": "P", "data": {"k": key, "n": n, "v": [0.5, float(n)]}} for key in keys]


@pytest.fixture
def parted(tmp_path: Path) -> Graph:
    """A branch and main have changed different people."""
    graph = create(tmp_path / "graph", SCHEMA)
    graph.load(people(*"abcdef", n=1))
    graph.branches.create("review")
    graph.load(people("a", "b", "x", n=2), "merge", branch="review")
    graph.load(people("e", "y", n=3), "merge")
    return graph


def numbers(graph: Graph) -> dict[str, int]:
    rows = graph.query("query q() { match { $p: P } return { $p.k as k, $p.n as n } }").to_pylist()
    return {row["k"]: row["n"] for row in rows}


def test_a_small_merge_stays_in_this_process_and_says_so(parted: Graph) -> None:
    plan = parted.branches.merge("review").plan
    assert plan.engine == "local"
    assert plan.engine_reason == "at most 5 rows of a type to compare, which this process can hold"
    assert plan.to_json()["engine_reason"] == plan.engine_reason


def test_a_merge_of_more_rows_than_fit_is_done_by_workers(parted: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "MERGED_ROWS_MAX", 4)
    workers = InProcess()
    said: list[str] = []
    graph = connect(parted.uri, bulk=workers)
    plan = graph.branches.merge("review", progress=lambda seen: said.append(seen.note)).plan
    assert plan.engine == "spark"
    assert plan.engine_reason == "at most 5 rows of a type to compare, more than this process should hold in memory"
    assert "workers are ready" in said
    assert workers.acts >= {"decide", "delete"}
    assert numbers(graph) == {"a": 2, "b": 2, "c": 1, "d": 1, "e": 3, "f": 1, "x": 2, "y": 3}


def test_without_a_bulk_engine_a_large_merge_is_done_here(parted: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "MERGED_ROWS_MAX", 4)
    plan = parted.branches.plan_merge("review")
    assert (plan.engine, plan.engine_reason) == (
        "local",
        "at most 5 rows of a type to compare, and Spark is not installed",
    )


def test_a_fast_forward_needs_no_engine(parted: Graph) -> None:
    workers = InProcess()
    graph = connect(parted.uri, bulk=workers)
    graph.branches.create("next", "review")
    graph.load(people("z", n=9), branch="next")
    plan = graph.branches.merge("next", "review", engine="spark").plan
    assert (plan.engine, workers.groups) == ("local", 0)
    assert plan.engine_reason == "a fast-forward takes files over and reads no row"


def test_an_engine_that_is_not_there_is_refused(parted: Graph) -> None:
    head = parted.snapshot().head
    with pytest.raises(InputError, match="an engine is"):
        parted.branches.merge("review", engine="gpu")  # type: ignore[arg-type]
    with pytest.raises(ExecutionError, match="opened without Spark"):
        parted.branches.merge("review", engine="spark")
    assert parted.snapshot().head == head


def test_workers_that_fail_leave_nothing(parted: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = InProcess()
    act = workers.by_group

    def fail(rows: object, do: object, schema: object) -> object:
        if getattr(do, "__name__", "") == "delete":
            raise ExecutionError("the Spark job failed: lost")
        return act(rows, do, schema)  # type: ignore[arg-type]

    monkeypatch.setattr(workers, "by_group", fail)
    graph = connect(parted.uri, bulk=workers)
    before = numbers(graph)
    with pytest.raises(ExecutionError, match="lost"):
        graph.branches.merge("review", engine="spark")
    assert numbers(graph) == before
    assert graph.maintenance.verify().clean
    assert graph.branches.merge("review", engine="local").outcome == "merged"


def test_a_merge_that_works_for_long_is_planned_again_when_others_write(
    parted: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "WRITE_SECONDS", 0.2)
    met: list[str] = []

    class Slow(InProcess):
        def by_group(self, rows: pa.Table, act: Any, schema: pa.Schema) -> pa.Table:
            if not met:
                met.append(getattr(act, "__name__", ""))
                time.sleep(0.3)
                parted.mutate('query q() { insert P { k: "meanwhile" } }')
            return super().by_group(rows, act, schema)

    merged = connect(parted.uri, bulk=Slow()).branches.merge("review", strategy="theirs", engine="spark")
    assert met
    assert merged.outcome == "merged"


def test_another_job_opens_its_tables_anew(parted: Graph) -> None:
    entry = parted.snapshot().entry(node_key("P"))
    one, other = TableAt.of(parted.uri, entry), TableAt.of(parted.uri, entry)
    assert one.open() is one.open()
    assert one.open() is not other.open()
