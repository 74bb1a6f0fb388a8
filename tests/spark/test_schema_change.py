"""Executors follow the schema as the graph has it, also what its text alone does not tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.spark.records import write_lines

from omnigraph import create
from omnigraph.graph import Graph

pytestmark = pytest.mark.spark

OLDER = "node Place { a: String  b: String  size: I32?  @key(a, b) }"
NEWER = 'node Place { z: String @rename_from("a")  b: String  size: I32?  height: I32?  @key(z, b) }'


def place(**data: Any) -> dict[str, Any]:
    return {"type": "Place", "data": data}


@pytest.fixture
def changed(tmp_path: Path) -> Graph:
    """A graph whose key kept its order although the names in it would be sorted differently now."""
    graph = create(tmp_path / "graph", OLDER)
    graph.load([place(a="x", b="y", size=1)], engine="local")
    graph.schema.apply(NEWER, confirm_drops=True)
    return graph


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_merge_finds_its_entity_after_a_key_was_renamed(
    engine: str, changed: Graph, tmp_path: Path, spark: Any
) -> None:
    changed.load(write_lines(tmp_path / "in.jsonl", place(z="x", b="y", size=2)), mode="merge", engine=engine)
    [row] = changed.snapshot().open("node:Place").scan(["z", "b", "size"]).to_pylist()
    assert row == {"z": "x", "b": "y", "size": 2}


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_the_past_is_exported_with_the_schema_of_then(engine: str, changed: Graph, tmp_path: Path, spark: Any) -> None:
    past = changed.history.list()[1].graph_commit_id
    assert changed.export(f"{tmp_path}/out/", at=past, engine=engine) == 1
    [line] = [json.loads(text) for path in (tmp_path / "out").iterdir() for text in path.read_text().splitlines()]
    assert {name: line["data"].get(name) for name in ("a", "b", "size")} == {"a": "x", "b": "y", "size": 1}
