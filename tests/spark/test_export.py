"""Exports written by executors load back unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.cli.program import call
from tests.exported_files import exported_files
from tests.spark.records import city, knows, person, write_lines

from omnigraph import Graph, create
from omnigraph.engine.ingest.progress import Progress
from omnigraph.engine.operations.export import export_lines
from omnigraph.errors import AlreadyExistsError, InputError

pytestmark = pytest.mark.spark

SCHEMA = """
node Person { name: String @key  age: I32?  tags: [String]?  vec: Vector(2)?  seen: DateTime?  photo: Blob? }
node City { code: I64 @key  size: U64? }
edge Knows: Person -> Person { since: Date? }
"""


@pytest.mark.parametrize("engine", ["spark", "local"])
def test_both_formats_round_trip_through_load(engine: str, tmp_path: Path, spark: Any) -> None:
    graph = create(tmp_path / "graph", SCHEMA)
    quoted = person('b "quoted"\n', photo="base64:AQID", tags=["x", "y"])
    records = [
        person("a", age=1, vec=[1, 2], seen="2020-01-02T03:04:05Z"),
        quoted,
        city(1, size=2**64 - 1),
        knows("a", 'b "quoted"\n', since="2020-01-01"),
    ]
    graph.load(write_lines(tmp_path / "in.jsonl", *records), engine="local")
    expected = list(export_lines(graph.context.catalog, graph.snapshot()))

    heard: list[Progress] = []
    options = {"progress": heard.append, "spark": spark if engine == "spark" else None}
    result = exported_files(graph, tmp_path / "out", **options)
    assert (result.engine, heard[-1].phase, heard[-1].rows) == (engine, "export node:Person", 2)
    assert result.rows == {"edge:Knows": 1, "node:City": 1, "node:Person": 2}
    assert [line for name in result.files for line in Path(name).read_text().splitlines()] == expected
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [Path(name).name for name in result.files]
    again = create(tmp_path / "again", SCHEMA)
    again.load(tmp_path / "out", mode="overwrite", engine=engine)
    assert list(export_lines(again.context.catalog, again.snapshot())) == expected

    parquet = exported_files(graph, tmp_path / "parquet", format="parquet", **options)
    third = create(tmp_path / "third", SCHEMA)
    folders = {key: str(Path(name).parent) for key, name in zip(parquet.rows, parquet.files, strict=True)}
    third.load(folders, engine=engine)
    assert list(export_lines(third.context.catalog, third.snapshot())) == expected


def test_a_graph_exports_to_a_file_a_folder_or_through_spark(tmp_path: Path, spark: Any) -> None:
    graph = create(tmp_path / "graph", SCHEMA)
    graph.load([person("a"), person("b"), knows("a", "b")], engine="local")
    assert graph.export(tmp_path / "one.jsonl") == 3
    assert len((tmp_path / "one.jsonl").read_text().splitlines()) == 3
    assert graph.export(f"{tmp_path}/folder/") == 3
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == [
        "000-edge-Knows-00000.jsonl", "002-node-Person-00000.jsonl",
    ]  # fmt: skip
    assert graph.export(tmp_path / "spark", engine="spark", spark=spark, types=["Person"]) == 2
    assert graph.export(tmp_path / "parquet", format="parquet", tables=["node:Person"]) == 2
    assert pq.read_table(tmp_path / "parquet" / "000-node-Person").column("id").to_pylist() == ["a", "b"]
    with pytest.raises(InputError, match="needs a folder"):
        graph.export(None, format="parquet")  # type: ignore[call-overload]


def test_the_command_line_exports_and_loads_through_spark(tmp_path: Path, spark: Any) -> None:
    graph = create(tmp_path / "graph", SCHEMA)
    graph.load([person("a"), person("b"), knows("a", "b")], engine="local")
    exported = call("export", "--to", tmp_path / "out", "--format", "parquet", "--engine", "spark", graph.uri)
    assert (exported.code, exported.err) == (0, "")
    again = create(tmp_path / "again", SCHEMA)
    files = [f"Person={tmp_path}/out/002-node-Person", f"Knows={tmp_path}/out/000-edge-Knows"]
    words = ["load", "--mode", "append", "--nodes", files[0], "--edges", files[1], "--engine", "spark", again.uri]
    loaded = call(*words)
    assert (loaded.code, "through spark" in loaded.out, "MB written" in loaded.out) == (0, True, True)
    assert "node:Person  2" in loaded.out
    contents = [list(export_lines(each.context.catalog, each.snapshot())) for each in (graph, again)]
    assert contents[0] == contents[1]


def test_an_export_never_writes_into_a_used_folder(tmp_path: Path, spark: Any) -> None:
    graph = create(tmp_path / "graph", SCHEMA)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("mine")
    with pytest.raises(AlreadyExistsError, match="holds files already"):
        exported_files(graph, tmp_path / "used", spark=spark)
    with pytest.raises(InputError, match="jsonl or parquet"):
        exported_files(graph, tmp_path / "new", format="xml", spark=spark)
    with pytest.raises(InputError, match="no type 'Nope'"):
        exported_files(graph, tmp_path / "new", types=["Nope"], spark=spark)


def test_relative_paths_count_from_the_folder_of_the_caller(
    graph: Graph, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of Spark stay in the folder where they have started, also when this process goes elsewhere."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("people.jsonl").write_text('{"type": "Person", "data": {"name": "ann"}}\n', encoding="utf-8")
    assert graph.load("people.jsonl", engine="spark", spark=spark).engine == "spark"
    assert graph.export("tables", format="parquet", engine="spark", spark=spark) == 1
    assert [file.suffix for file in (folder / "tables").rglob("*.*")] == [".parquet"]
