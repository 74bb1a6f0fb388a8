"""Every type through the doors that Spark has, at the ends of every range, and under any name."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.exported_files import exported_files
from tests.property import doors
from tests.property import test_any_name as naming

from omnigraph import create
from omnigraph.errors import ConstraintError
from omnigraph.graph import Graph
from omnigraph.pipeline import GraphFrames
from omnigraph.pipeline.datasource import register

pytestmark = pytest.mark.spark

ROWS = 400


def _rows_of(graph: Graph) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = graph.query(doors.READ).to_arrow().to_pylist()
    return found


def test_every_type_goes_through_every_door_of_spark(tmp_path: Path, spark: Any) -> None:
    rows = doors.random_rows(ROWS, seed=3)
    graph = create(tmp_path / "graph", doors.SCHEMA)
    doors.LOADS["arrow"](graph, rows, tmp_path, random.Random(3))
    frame = GraphFrames(graph.context, spark).nodes("Thing")
    doors.check_same([_from_spark(row) for row in frame.toArrow().to_pylist()], rows)
    lines = exported_files(graph, tmp_path / "lines", format="jsonl", spark=spark)
    texts = "".join(Path(file).read_text(encoding="utf-8") for file in lines.files)
    doors.check_same(doors.exported_rows(texts), rows)
    files = exported_files(graph, tmp_path / "parquet", format="parquet", spark=spark)
    stored = pa.concat_tables([pq.read_table(file) for file in files.files])
    assert stored.select(list(doors.COLUMNS)).schema.field("one_datetime").type == pa.timestamp("ms", tz="UTC")
    doors.check_same(stored.to_pylist(), rows)
    doors.write_csv(rows, tmp_path / "rows.csv", random.Random(4))
    sources = [frame, frame.drop("id"), str(tmp_path / "rows.csv"), list(files.files), doors.arrow_table(rows)]
    for number, source in enumerate([*({"Thing": each} for each in sources), list(lines.files)]):
        other = create(tmp_path / f"other{number}", doors.SCHEMA)
        other.load(source, mode="append", engine="spark", spark=spark)
        doors.check_same(_rows_of(other), rows)
    written = create(tmp_path / "written", doors.SCHEMA)
    frame.write.format("omnigraph").option("type", "Thing").mode("append").save(written.context.root)
    doors.check_same(_rows_of(written), rows)


def _from_spark(row: dict[str, Any]) -> dict[str, Any]:
    """Spark has no unsigned integers: those of 64 bits come as decimals without a fraction."""

    def plain(value: Any, whole: bool) -> Any:
        if isinstance(value, list):
            return [plain(item, whole) for item in value]
        return int(value) if whole and value is not None else value

    return {name: plain(row[name], kind.scalar == "U64") for name, kind in doors.COLUMNS.items()}


def test_spark_takes_no_number_that_is_not_finite(tmp_path: Path, spark: Any) -> None:
    graph = create(tmp_path / "graph", "node Thing { key: String @key  f: F64?  g: F32?  v: [F64]?  w: Vector(2)? }")
    for column, kind in (("f", "double"), ("g", "float"), ("v", "array<double>"), ("w", "array<float>")):
        for bad in (math.nan, math.inf, -math.inf):
            value = bad if column in "fg" else [1.0, bad]
            frame = spark.createDataFrame([("a", value)], f"key string, {column} {kind}")
            with pytest.raises(ConstraintError, match="finite"):
                graph.load({"Thing": frame}, mode="append", spark=spark)
    assert not list(graph.export())


def test_the_two_zeros_are_one_to_every_check_of_a_load(tmp_path: Path, spark: Any) -> None:
    register(spark)
    schema = "node Thing { key: String @key  f: F64? @unique  g: F32? @unique }"
    for column in ("f", "g"):
        graph = create(tmp_path / column, schema)
        frame = spark.createDataFrame([("a", 0.0), ("b", -0.0)], f"key string, {column} double")
        with pytest.raises(ConstraintError, match="@unique"):
            graph.load({"Thing": frame}, mode="append", spark=spark)
        graph.load({"Thing": frame.where("key = 'a'")}, mode="append", spark=spark)
        with pytest.raises(ConstraintError, match="@unique"):
            graph.load({"Thing": frame.where("key = 'b'")}, mode="append", spark=spark)
        writer = frame.where("key = 'b'").write.format("omnigraph").option("type", "Thing").mode("append")
        with pytest.raises(Exception, match="@unique"):
            writer.save(graph.context.root)
        found = GraphFrames(graph.context, spark).nodes("Thing").where(f"{column} = 0.0 and {column} >= -0.0")
        assert [row["id"] for row in found.collect()] == ["a"]
    zeros = create(tmp_path / "zeros", "node Thing { key: String @key  f: F64? }")
    zeros.load({"Thing": pa.table({"key": ["a", "b", "c"], "f": [0.0, -0.0, 1.0]})})
    things = GraphFrames(zeros.context, spark).nodes("Thing")
    for condition, count in (
        ("f = 0.0", 2),
        ("f >= 0.0", 3),
        ("not f = 0.0", 1),
        ("f in (0.0, 5.0)", 2),
        ("f < 0.0", 0),
    ):
        assert things.where(condition).count() == count, condition


UNIQUE = ["iD", "aB", "first", "times", "src", "value_0", "position"]


def test_loads_and_frames_take_any_name(tmp_path: Path, spark: Any) -> None:
    nodes, edges = naming.chosen(0)
    assert {*UNIQUE, *naming.names.CASES} <= {*nodes}
    schema = naming.schema_of(nodes, edges, UNIQUE)
    graph = create(tmp_path / "graph", schema)
    graph.load(naming.lines_of(nodes, edges), mode="append")
    wanted = naming.exported(graph)
    files = naming.files_of(naming.tables_of(nodes, edges), tmp_path)
    (tmp_path / "lines.jsonl").write_bytes(naming.lines_of(nodes, edges))
    for source, modes in ((str(tmp_path / "lines.jsonl"), ["append", "merge"]), (files["csv"], ["overwrite"])):
        other = create(tmp_path / modes[0], schema)
        for mode in modes:
            other.load(source, mode=mode, engine="spark", spark=spark)
        assert naming.exported(other) == wanted
    exported = exported_files(graph, tmp_path / "out", format="jsonl", spark=spark)
    texts = "".join(Path(file).read_text() for file in exported.files)
    assert sorted(texts.split()) == sorted(json.dumps(line, separators=(",", ":")) for line in wanted)
    second = naming.node_rows(nodes)[1]
    for name in UNIQUE[:3]:
        taken = pa.Table.from_pylist([{"thing_key": "new", name: second[name]}])
        with pytest.raises(ConstraintError, match=f"@unique.*{name}"):
            graph.load({"Thing": taken}, mode="append", engine="spark", spark=spark)
    frames = GraphFrames(graph.context, spark)
    for name in ("src", "_distance", "times"):
        value = naming.value_of(name, 2)
        frame = frames.nodes("Thing", columns=["id", name])
        assert [(row["id"], row[name]) for row in frame.where(f"`{name}` = {value!r}").collect()] == [("k2", value)]


def test_names_that_differ_in_case_alone_are_columns_of_a_frame(tmp_path: Path, spark: Any) -> None:
    schema = "node Thing { key: String @key  ab: I64?  aB: I64?  iD: I64? @unique }"
    graph = create(tmp_path / "graph", schema)
    graph.load([{"type": "Thing", "data": {"key": "x", "ab": 1, "aB": 2, "iD": 3}}])
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        row = GraphFrames(graph.context, spark).nodes("Thing").where("aB = 2").collect()[0]
        assert (row["ab"], row["aB"], row["iD"], row["id"]) == (1, 2, 3, "x")
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    only = GraphFrames(graph.context, spark).nodes("Thing", columns=["id", "aB"])
    assert [tuple(row) for row in only.collect()] == [("x", 2)]
