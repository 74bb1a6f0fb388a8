"""What the engine in this process loads with the help of the pipeline's reader, and what it tells meanwhile."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.records import city, knows, person, rows, write_lines

from omnigraph.engine.ingest import files
from omnigraph.engine.ingest.progress import Progress
from omnigraph.errors import ConstraintError
from omnigraph.graph import Graph


def test_globs_and_uris_load_without_spark(graph: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write_lines(folder / "1.jsonl", person("a"))
    (folder / "2.jsonl.gz").write_bytes(gzip.compress(json.dumps(person("b")).encode()))
    write_lines(folder / "3.jsonl", person("c"))
    result = graph.load(str(folder / "[12].jsonl*"))
    assert (result.engine, result.rows) == ("local", {"node:Person": 2})
    graph.load((folder / "3.jsonl").as_uri(), engine="local")
    assert [row["id"] for row in rows(graph, "node:Person")] == ["a", "b", "c"]


def test_rules_across_rows_name_the_file_and_line_of_inputs_per_type(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PIECE_BYTES", 16)
    (tmp_path / "one.csv").write_text('name,email\n"a",\nb,"x\ny"\n')
    (tmp_path / "two.csv").write_text('name,email\nc,"two\nlines"\nd,\na,e\n')
    with pytest.raises(ConstraintError, match=r"two\.csv: record 3 \(line 5\): @unique violation.*'a' twice"):
        graph.load({"Person": [tmp_path / "one.csv", tmp_path / "two.csv"]}, engine="local")
    pq.write_table(pa.table({"name": ["a", "b"]}), tmp_path / "p.parquet")
    pq.write_table(pa.table({"from": ["a", "a"], "to": ["b", "zoe"]}), tmp_path / "k.parquet")
    with pytest.raises(ConstraintError, match=r"k\.parquet: record 2.*dst 'zoe' not found"):
        graph.load({"Person": tmp_path / "p.parquet", "Knows": tmp_path / "k.parquet"}, engine="local")
    assert rows(graph, "node:Person") == []


@pytest.mark.parametrize("per_type", [False, True], ids=["lines", "files per type"])
def test_a_local_load_tells_phases_and_rows(per_type: bool, graph: Graph, tmp_path: Path) -> None:
    source: Any = write_lines(tmp_path / "in.jsonl", person("a"), person("b"), city(1), knows("a", "b"))
    if per_type:
        pq.write_table(pa.table({"name": ["a", "b", "c", "d"]}), tmp_path / "p.parquet")
        source = {"Person": tmp_path / "p.parquet"}
    heard: list[Progress] = []
    graph.load(source, engine="local", progress=heard.append)
    assert [heard[0].phase, heard[-1].phase] == ["read", "write"]
    assert max(each.rows for each in heard if each.phase == "read") == 4
    assert (heard[-1].rows, heard[-1].rows_per_second > 0) == (4, True)
