"""Exports written by executors load back unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.spark.records import city, knows, person, write_lines

from omnigraph.engine.operations.export import export_lines
from omnigraph.errors import AlreadyExistsError, InputError
from omnigraph.graph import create
from omnigraph.pipeline import run_job
from omnigraph.pipeline.export import export_graph

pytestmark = pytest.mark.spark

SCHEMA = """
node Person { name: String @key  age: I32?  tags: [String]?  vec: Vector(2)?  seen: DateTime?  photo: Blob? }
node City { code: I64 @key  size: U64? }
edge Knows: Person -> Person { since: Date? }
"""


def test_both_formats_round_trip_through_load(tmp_path: Path, spark: Any) -> None:
    graph = create(tmp_path / "graph", SCHEMA)
    quoted = person('b "quoted"\n', photo="base64:AQID", tags=["x", "y"])
    records = [
        person("a", age=1, vec=[1, 2], seen="2020-01-02T03:04:05Z"),
        quoted,
        city(1, size=2**64 - 1),
        knows("a", 'b "quoted"\n', since="2020-01-01"),
    ]
    run_job(graph.context, write_lines(tmp_path / "in.jsonl", *records), mode="append", spark=spark)
    expected = list(export_lines(graph.context.catalog, graph.snapshot()))

    result = export_graph(graph.context, str(tmp_path / "out"), spark=spark)
    assert result.rows == {"edge:Knows": 1, "node:City": 1, "node:Person": 2}
    assert [line for name in result.files for line in Path(name).read_text().splitlines()] == expected
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [Path(name).name for name in result.files]
    again = create(tmp_path / "again", SCHEMA)
    run_job(again.context, tmp_path / "out", mode="overwrite", spark=spark)
    assert list(export_lines(again.context.catalog, again.snapshot())) == expected

    parquet = export_graph(graph.context, str(tmp_path / "parquet"), format="parquet", spark=spark)
    third = create(tmp_path / "third", SCHEMA)
    folders = {key: str(Path(name).parent) for key, name in zip(parquet.rows, parquet.files, strict=True)}
    run_job(third.context, folders, mode="append", spark=spark)
    assert list(export_lines(third.context.catalog, third.snapshot())) == expected


def test_an_export_never_writes_into_a_used_folder(tmp_path: Path, spark: Any) -> None:
    graph = create(tmp_path / "graph", SCHEMA)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("mine")
    with pytest.raises(AlreadyExistsError, match="holds files already"):
        export_graph(graph.context, str(tmp_path / "used"), spark=spark)
    with pytest.raises(InputError, match="jsonl or parquet"):
        export_graph(graph.context, str(tmp_path / "new"), format="xml", spark=spark)
    with pytest.raises(InputError, match="no type 'Nope'"):
        export_graph(graph.context, str(tmp_path / "new"), types=["Nope"], spark=spark)
