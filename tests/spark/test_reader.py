"""A graph read from Spark, and DataFrames written into it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import SCHEMA
from tests.spark.records import city, knows, person, rows, write_lines

from omnigraph import create
from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.pipeline import GraphFrames, run_job

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Graph:
    folder = tmp_path_factory.mktemp("loaded")
    graph = create(folder / "graph", SCHEMA)
    ada = person("ada", age=36, born="1815-12-10", seen="2020-01-02T03:04:05.678Z", tags=["x"], vec=[1, 2], score=0.5)
    records = [ada, person("bob", age=7), person("eve"), city(1, size=2**64 - 1), knows("ada", "bob")]
    run_job(graph.context, write_lines(folder / "a.jsonl", *records), mode="append", spark=spark)
    return graph


def test_nodes_and_edges_are_frames_of_the_types_columns(loaded: Graph, spark: Any) -> None:
    frames = GraphFrames(loaded.context, spark)
    ada = frames.nodes("Person").where("id = 'ada'").collect()[0].asDict()
    assert ada["age"] == 36
    assert ada["born"] == date(1815, 12, 10)
    assert ada["seen"].astimezone(UTC) == datetime(2020, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    assert (ada["tags"], ada["vec"], ada["score"], ada["mood"]) == (["x"], [1.0, 2.0], 0.5, None)
    assert frames.nodes("City").collect()[0]["size"] == 2**64 - 1
    assert [(row["src"], row["dst"]) for row in frames.edges("knows").collect()] == [("ada", "bob")]
    assert frames.nodes("Note").count() == 0
    with pytest.raises(InputError, match="is not a type"):
        frames.nodes("Knows")


def test_conditions_reach_lance_and_columns_are_pruned(loaded: Graph, spark: Any) -> None:
    frame = GraphFrames(loaded.context, spark).nodes("Person", columns=["id", "age"])
    assert frame.columns == ["id", "age"]
    assert {row["id"] for row in frame.where("age > 5").collect()} == {"ada", "bob"}
    assert [row["id"] for row in frame.where("age is null").collect()] == ["eve"]
    assert [row["id"] for row in frame.where("id in ('bob', 'it''s') and not age = 8").collect()] == ["bob"]
    assert [row["id"] for row in frame.where("id like 'a%'").collect()] == ["ada"]


def test_a_frame_stays_at_its_commit(loaded: Graph, spark: Any, tmp_path: Path) -> None:
    before = loaded.snapshot().head
    frames = GraphFrames(loaded.context, spark)
    run_job(loaded.context, write_lines(tmp_path / "b.jsonl", person("new")), mode="append", spark=spark)
    assert frames.nodes("Person", columns=["id"]).count() == 3
    assert GraphFrames(loaded.context, spark, at=before).nodes("Person", columns=["id"]).count() == 3
    assert GraphFrames(loaded.context, spark).nodes("Person", columns=["id"]).count() == 4


def test_the_format_reads_and_writes_by_name(graph: Graph, spark: Any) -> None:
    GraphFrames(graph.context, spark)
    people = spark.createDataFrame([("a", 1), ("b", 2)], "name string, age int").repartition(2)
    people.write.format("omnigraph").mode("append").option("type", "Person").option("actor", "etl").save(graph.uri)
    assert graph.history.list(limit=1)[0].actor_id == "etl"
    edges = spark.createDataFrame([("a", "b")], "`from` string, `to` string")
    edges.write.format("omnigraph").mode("append").option("type", "Knows").save(graph.uri)
    merged = spark.createDataFrame([("b", 9), ("c", 3)], "name string, age int").coalesce(1)
    merged.write.format("omnigraph").mode("append").option("type", "Person").option("mode", "merge").save(graph.uri)
    assert [(row["id"], row["age"]) for row in rows(graph, "node:Person")] == [("a", 1), ("b", 9), ("c", 3)]
    reader = spark.read.format("omnigraph").option("type", "Person").option("columns", "name,age")
    assert {tuple(row) for row in reader.load(graph.uri).collect()} == {("a", 1), ("b", 9), ("c", 3)}


def test_a_schema_of_some_columns_reads_only_those(loaded: Graph, spark: Any) -> None:
    GraphFrames(loaded.context, spark)
    reader = spark.read.format("omnigraph").option("type", "Person")
    people = reader.schema("age int, id string").load(loaded.uri).where("age = 7")
    assert [row.asDict() for row in people.collect()] == [{"age": 7, "id": "bob"}]
    scan = people._jdf.queryExecution().executedPlan().collectLeaves().head()
    assert scan.metrics().get("numOutputRows").get().value() == 1, "rows were read that the condition excludes"
    with pytest.raises(Exception, match="'wat' is not a column of Person"):
        reader.schema("wat int").load(loaded.uri).collect()


def test_a_written_frame_meets_the_same_checks(graph: Graph, spark: Any) -> None:
    GraphFrames(graph.context, spark)
    dangling = spark.createDataFrame([("a", "b")], "`from` string, `to` string")
    before = graph.snapshot().version
    with pytest.raises(Exception, match="src 'a' not found in Person"):
        dangling.write.format("omnigraph").mode("append").option("type", "Knows").save(graph.uri)
    wrong = spark.createDataFrame([("a", 200)], "name string, age int")
    with pytest.raises(Exception, match="@range violation"):
        wrong.write.format("omnigraph").mode("append").option("type", "Person").save(graph.uri)
    assert graph.snapshot().version == before
