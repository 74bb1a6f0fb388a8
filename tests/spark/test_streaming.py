"""Streams arrive exactly once, one commit per micro-batch, whatever happens between batches."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.spark.records import person, rows

from omnigraph import connect, failpoints
from omnigraph.errors import InputError, RecoveryRequiredError, StorageError
from omnigraph.graph import Graph
from omnigraph.pipeline.streaming import BATCH, STREAM, BatchSink, last_batch, write_stream

pytestmark = pytest.mark.spark


def drop(folder: Path, name: str, *records: Any) -> None:
    """Put a file into a watched folder in one move, as sources expect."""
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{name}"
    hidden.write_text("".join(json.dumps(record) + "\n" for record in records))
    hidden.rename(folder / name)


def run(graph: Graph, spark: Any, folder: Path, checkpoint: Path, **options: Any) -> None:
    stream = spark.readStream.option("maxFilesPerTrigger", "1").text(str(folder))
    query = write_stream(
        graph.context, stream, name="inbox", checkpoint=str(checkpoint), trigger={"availableNow": True}, **options
    )
    query.awaitTermination(120)


def batches(graph: Graph) -> list[tuple[str, str]]:
    return [
        (commit.properties[STREAM], commit.properties[BATCH])
        for commit in reversed(graph.history.list())
        if STREAM in commit.properties
    ]


def test_each_micro_batch_is_one_commit_and_a_restart_goes_on(graph: Graph, spark: Any, tmp_path: Path) -> None:
    inbox, checkpoint = tmp_path / "inbox", tmp_path / "checkpoint"
    drop(inbox, "1.jsonl", person("a"), {"type": "Note", "data": {"text": "one"}})
    drop(inbox, "2.jsonl", person("b"))
    run(graph, spark, inbox, checkpoint, actor="stream")
    assert batches(graph) == [("inbox", "0"), ("inbox", "1")]
    drop(inbox, "3.jsonl", person("c"))
    run(graph, spark, inbox, checkpoint)
    assert [row["id"] for row in rows(graph, "node:Person")] == ["a", "b", "c"]
    assert len(rows(graph, "node:Note")) == 1

    # Spark lost its note that batch 2 ended, as when it is killed right after our commit: the batch comes again.
    for number in ("2",):
        (checkpoint / "commits" / number).unlink()
        (checkpoint / "commits" / f".{number}.crc").unlink(missing_ok=True)
    run(graph, spark, inbox, checkpoint)
    assert batches(graph) == [("inbox", "0"), ("inbox", "1"), ("inbox", "2")]
    assert len(rows(graph, "node:Person")) == 3


def test_a_batch_cut_short_before_its_publish_is_not_doubled(graph: Graph, spark: Any, tmp_path: Path) -> None:
    lines = spark.createDataFrame([(json.dumps({"type": "Note", "data": {"text": "once"}}),)], "value string")
    sink = BatchSink(graph.context, "inbox", None, "append", "main", None, {})

    def crash(name: str) -> None:
        if name == failpoints.MUTATION_POST_FINALIZE:
            raise StorageError("the power went")

    before = failpoints.install(crash)
    try:
        with pytest.raises(RecoveryRequiredError, match="the power went"):
            sink.load(lines, 7)
    finally:
        failpoints.install(before)
    again = BatchSink(connect(graph.uri).context, "inbox", None, "append", "main", None, {})
    again.load(lines, 7)
    assert len(rows(graph, "node:Note")) == 1
    assert last_batch(graph.context, "main", "inbox") == 7


def test_a_stream_of_one_type_and_a_wrong_mode(graph: Graph, spark: Any, tmp_path: Path) -> None:
    source = tmp_path / "people"
    drop(source, "1.json", {"name": "x", "age": 3})
    stream = spark.readStream.schema("name string, age int").json(str(source))
    options = {"name": "people", "checkpoint": str(tmp_path / "c"), "trigger": {"availableNow": True}}
    write_stream(graph.context, stream, type_name="Person", mode="merge", **options).awaitTermination(120)
    assert [(row["id"], row["age"]) for row in rows(graph, "node:Person")] == [("x", 3)]
    with pytest.raises(InputError, match="append, merge or update"):
        write_stream(graph.context, stream, type_name="Person", mode="overwrite", **options)
    shutil.rmtree(tmp_path / "c")
