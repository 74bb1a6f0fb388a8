"""Loads that update, on Spark: as on the engine in one process."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.property import doors
from tests.property.test_update_loads import changes, source_of
from tests.spark.records import city, knows, lives_in, person, rows, write_lines

from omnigraph import create
from omnigraph.errors import ConstraintError, ExpectedVersionMismatchError
from omnigraph.graph import Graph
from omnigraph.pipeline import job, run_job

pytestmark = pytest.mark.spark


@pytest.fixture
def people(graph: Graph, tmp_path: Path) -> Graph:
    everybody = [person(name, age=number, email=f"{name}@x", tags=[name]) for number, name in enumerate("abc")]
    edges = [knows("a", "b", id="k", since="2020-01-01"), lives_in("a", 1, id="l")]
    graph.load(write_lines(tmp_path / "all.jsonl", *everybody, city(1, size=1), *edges), engine="local")
    return graph


def test_given_columns_change_and_others_stay(people: Graph, tmp_path: Path, spark: Any) -> None:
    before = {row["id"]: row for row in rows(people, "node:Person")}
    path = write_lines(
        tmp_path / "u.jsonl", person("a", age=40), {"type": "Person", "data": {"id": "b", "email": None}},
        {"edge": "Knows", "data": {"id": "k", "since": None}}, city(1, size=9),
    )  # fmt: skip
    result = people.load(path, mode="update", engine="spark", spark=spark)
    assert (result.mode, result.rows) == ("update", {"edge:Knows": 1, "node:City": 1, "node:Person": 2})
    after = {row["id"]: row for row in rows(people, "node:Person")}
    assert after == {**before, "a": {**before["a"], "age": 40}, "b": {**before["b"], "email": None}}
    assert [(row["src"], row["since"]) for row in rows(people, "edge:Knows")] == [("a", None)]
    assert rows(people, "node:City") == [{"id": "1", "code": 1, "size": 9}]


def test_every_wrong_record_is_refused_in_the_words_of_the_other_engine(
    people: Graph, tmp_path: Path, spark: Any
) -> None:
    files = {str(path) for path in Path(people.uri).glob("*/*/data/*")}
    wrong = [
        person("zed", age=1), {"type": "Person", "data": {"age": 1}}, person("a", age=151), person("a", email="c@x"),
        {"type": "Person", "data": {"id": "a", "name": None}},
        {"edge": "Knows", "from": "b", "to": "a", "data": {"id": "k"}},
    ]  # fmt: skip
    for record in wrong:
        path = write_lines(tmp_path / "u.jsonl", person("b", age=9), record)
        said = []
        for options in ({"engine": "local"}, {"engine": "spark", "spark": spark}):
            with pytest.raises(ConstraintError) as caught:
                people.load(path, mode="update", **options)
            said.append(str(caught.value).removeprefix("u.jsonl: "))
        assert said[0] == said[1]
        assert said[0].startswith("record 2 (line 2): ")
    path = write_lines(tmp_path / "u.jsonl", person("b", age=9), person("b", age=8))
    with pytest.raises(ConstraintError, match="the input has Person 'b' twice"):
        people.load(path, mode="update", engine="spark", spark=spark)
    assert {str(path) for path in Path(people.uri).glob("*/*/data/*")} == files


def test_an_update_whose_rows_were_changed_meanwhile_is_a_conflict(
    people: Graph, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = job._stage

    def interrupted(*arguments: Any) -> None:
        stage(*arguments)
        people.load([person("a", age=77)], mode="update", engine="local")

    monkeypatch.setattr(job, "_stage", interrupted)
    with pytest.raises(ExpectedVersionMismatchError):
        run_job(people.context, write_lines(tmp_path / "u.jsonl", person("a", mood="glad")), mode="update", spark=spark)
    assert (rows(people, "node:Person")[0]["age"], rows(people, "node:Person")[0]["mood"]) == (77, None)


def test_blobs_frames_and_branches_update_too(tmp_path: Path, spark: Any) -> None:
    graph = create(tmp_path / "files", "node File { name: String @key  size: I32?  body: Blob? }")
    body = "base64:" + base64.b64encode(b"bytes").decode()
    graph.load([{"type": "File", "data": {"name": name, "body": body}} for name in "ab"])
    graph.branches.create("review")
    frame = spark.createDataFrame([("a", 7)], "name string, size int")
    graph.load({"File": frame}, mode="update", branch="review", spark=spark)
    lines = [json.loads(line)["data"] for line in graph.export(branch="review")]
    assert [(line["name"], line["size"], line["body"]) for line in lines] == [("a", 7, body), ("b", None, body)]
    assert [json.loads(line)["data"]["size"] for line in graph.export()] == [None, None]
    with pytest.raises(ConstraintError, match="File 'zed' does not exist"):
        graph.load({"File": pa.table({"name": ["zed"], "size": [1]})}, mode="update", engine="spark", spark=spark)


def test_every_type_is_updated_on_spark(tmp_path: Path, spark: Any) -> None:
    draw = random.Random(5)
    before, patches, after = changes(draw, by_row=True)
    graph = create(tmp_path / "graph", doors.SCHEMA)
    doors.LOADS["arrow"](graph, before, tmp_path, draw)
    source = source_of("json lines", patches, tmp_path, draw)
    graph.load(source, mode="update", engine="spark", spark=spark)
    doors.check_same(graph.query(doors.READ).to_arrow().to_pylist(), after)
