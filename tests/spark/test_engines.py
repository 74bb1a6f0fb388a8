"""Both engines give the same graph, and `auto` says which it takes and why."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.conftest import SCHEMA
from tests.spark.records import city, knows, lives_in, person, write_lines

from omnigraph import create
from omnigraph.engine.ingest import choice, quick
from omnigraph.engine.ingest.choice import choose_by_size, choose_engine
from omnigraph.engine.operations.export import export_lines
from omnigraph.errors import ExecutionError, GraphError
from omnigraph.graph import Graph
from omnigraph.pipeline import merge
from omnigraph.pipeline.job import spark_errors

pytestmark = pytest.mark.spark


def test_tests_that_share_a_session_run_in_one_process(request: pytest.FixtureRequest, spark: Any) -> None:
    """Otherwise each test process would start a virtual machine of its own, and nobody would be told."""
    assert "PYTEST_XDIST_WORKER" not in os.environ or request.node.nodeid.endswith("@spark")


def records(chosen: random.Random) -> list[dict[str, Any]]:
    """A small load with explicit edge ids, mostly valid, now and then with something wrong."""
    names, codes = [f"n{n}" for n in range(8)], range(4)
    found: list[dict[str, Any]] = []
    for name in chosen.sample(names, chosen.randint(1, 6)):
        data: dict[str, Any] = {"age": chosen.choice([1, None, 151 if chosen.random() < 0.1 else 2])}
        if chosen.random() < 0.3:
            data["email"] = chosen.choice(["x@x", "y@x", f"{name}@x"])
        found.append(person(name, **data))
    found += [city(code, size=chosen.randint(0, 9)) for code in chosen.sample(codes, 2)]
    for _ in range(chosen.randint(0, 5)):
        found.append(knows(chosen.choice(names), chosen.choice(names), id=f"k{chosen.randint(0, 5)}"))
    if chosen.random() < 0.5:
        found.append(lives_in(chosen.choice(names), chosen.choice(codes), id=f"l{chosen.randint(0, 3)}"))
    chosen.shuffle(found)
    return found


def attempt(graph: Graph, path: Path, mode: str, engine: str, spark: Any) -> str:
    try:
        options = {"spark": spark} if engine == "spark" else {}
        graph.load(path, mode=mode, engine=engine, **options)
    except GraphError as error:
        return type(error).__name__
    return "loaded"


def content(graph: Graph) -> list[str]:
    return list(export_lines(graph.context.catalog, graph.snapshot()))


@pytest.mark.parametrize(("seed", "joins"), [(1, False), (3, True)])
def test_random_loads_end_alike_on_both_engines(
    seed: int, joins: bool, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if joins:
        monkeypatch.setattr(quick, "IDS_MAX", -1)
        monkeypatch.setattr(merge, "PAIRS_MAX", -1)
    chosen = random.Random(seed)
    graphs = {engine: create(tmp_path / engine, SCHEMA) for engine in ("local", "spark")}
    outcomes = set()
    everybody = [*(person(f"n{n}") for n in range(8)), *(city(code) for code in range(4))]
    for number in range(6):
        mode = chosen.choice(["append", "merge", "merge", "update", "overwrite"])
        path = write_lines(tmp_path / f"{number}.jsonl", *(records(chosen) if number else everybody))
        found = {engine: attempt(graph, path, mode, engine, spark) for engine, graph in graphs.items()}
        assert found["local"] == found["spark"], (number, mode)
        assert content(graphs["local"]) == content(graphs["spark"]), (number, mode)
        outcomes.add(found["local"])
    assert {"loaded"} < outcomes


def test_inputs_per_type_read_alike_on_both_engines(tmp_path: Path, spark: Any) -> None:
    pq.write_table(pa.table({"full": ["a", "b"], "age": [1, 2]}), tmp_path / "p.parquet")
    (tmp_path / "c.csv").write_text("code,size\n1,5\n")
    source = {"Person": str(tmp_path / "p.parquet"), "City": str(tmp_path / "c.csv")}
    graphs = {engine: create(tmp_path / engine, SCHEMA) for engine in ("local", "spark")}
    for engine, graph in graphs.items():
        result = graph.load(source, engine=engine, columns={"Person": {"name": "full"}})
        assert (result.engine, result.rows) == (engine, {"node:City": 1, "node:Person": 2})
    assert content(graphs["local"]) == content(graphs["spark"])


@pytest.mark.parametrize(
    ("size_mb", "cores", "memory_mb", "running", "engine"),
    [
        (1, 64, 64_000, True, "local"),  # starting tasks costs more than all of it
        (400, 2, 24_000, False, "local"),
        (400, 8, 64_000, True, "spark"),
        (400, 8, 64_000, False, "local"),  # a session takes longer to start than the load takes
        (2_000, 8, 64_000, False, "spark"),
        (600, 2, 64_000, False, "local"),  # two cores do not make up for the start yet
        (2_000, 2, 8_000, False, "spark"),  # it would not fit
    ],
)
def test_auto_weighs_size_cores_memory_and_the_start(
    size_mb: float, cores: int, memory_mb: int, running: bool, engine: str
) -> None:
    chosen = choose_by_size(size_mb, cores=cores, memory_mb=memory_mb, spark_running=running)
    assert chosen.engine == engine
    assert f"about {size_mb:,} MB of input" in chosen.reason


def test_auto_chooses_by_source_and_size(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lines(tmp_path / "a.jsonl", person("a"))
    small = choose_engine(path, spark_running=True)
    assert small.engine == "local"
    assert small.reason == "about 0 MB of input: a moment in this process, a moment on Spark by estimate"
    assert choose_engine({"Person": spark.range(1)}).engine == "spark"
    monkeypatch.setattr(choice, "MEMORY_SHARE", 0.0)
    assert choose_engine(str(path)).engine == "spark"
    graph = create(tmp_path / "graph", SCHEMA)
    result = graph.load(path)
    assert (result.engine, "more than this process should hold" in result.reason) == ("spark", True)
    assert json.loads(content(graph)[0])["data"]["id"] == "a"


def test_a_worker_of_another_python_is_told_of(spark: Any) -> None:
    def alone(batches: Any) -> Any:
        import a_package_that_only_the_driver_has  # noqa: F401  # type: ignore[import-not-found]

        yield from batches

    with pytest.raises(ExecutionError, match=r"No module named .* in a worker: set PYSPARK_PYTHON"), spark_errors():
        spark.range(1).mapInArrow(alone, "id long").collect()
