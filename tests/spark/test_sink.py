"""`df.write.format("omnigraph")`: the same rules as every write, checked in slices of bounded memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.conftest import SCHEMA
from tests.spark.records import city, knows, lives_in, person

from omnigraph import create
from omnigraph.engine.ingest import slices
from omnigraph.engine.operations.export import export_lines
from omnigraph.errors import GraphError
from omnigraph.graph import Graph
from omnigraph.pipeline.sink import GraphWriter, StagedPart

BASE = [
    *(person(name, age=1, email=f"{name}@x") for name in "abc"),
    *(city(code) for code in (1, 2)),
    knows("a", "b", id="k1"),
    lives_in("a", 1, id="l1"),
]

CASES: list[tuple[str, str, dict[str, list[Any]]]] = [
    ("append", "Person", {"name": ["d", "e"], "age": [3, None]}),
    ("append", "Person", {"name": ["d", "d"]}),
    ("append", "Person", {"name": ["d", "a"]}),
    ("append", "Person", {"name": ["d", "e"], "email": ["new@x", "new@x"]}),
    ("append", "Person", {"name": ["d"], "email": ["a@x"]}),
    ("append", "Person", {"name": ["d"], "age": [200]}),
    ("append", "Knows", {"from": ["a", "b"], "to": ["b", "c"]}),
    ("append", "Knows", {"from": ["a", "x"], "to": ["y", "b"]}),
    ("append", "Knows", {"id": ["k2", "k2"], "from": ["a", "b"], "to": ["b", "c"]}),
    ("append", "LivesIn", {"from": ["b", "c"], "to": ["1", "2"]}),
    ("append", "LivesIn", {"from": ["b", "b"], "to": ["1", "2"]}),
    ("append", "LivesIn", {"from": ["a"], "to": ["2"]}),
    ("merge", "Person", {"name": ["a", "d"], "age": [7, 8]}),
    ("merge", "Person", {"name": ["a", "b", "c"], "age": [7, 8, 9]}),
    ("merge", "Person", {"name": ["b"], "email": ["a@x"]}),
    ("merge", "Person", {"name": ["a", "b"], "email": ["b@x", "a@x"]}),
    ("merge", "Person", {"name": ["z", "z"]}),
    ("merge", "Knows", {"id": ["k1", "k2", "k1"], "from": ["a", "b", "c"], "to": ["c", "c", "a"]}),
    ("merge", "Knows", {"id": ["k1", "k1", "k1"], "from": ["a", "b", "c"], "to": ["c", "c", "a"]}),
    ("merge", "LivesIn", {"id": ["l1", "l2"], "from": ["b", "a"], "to": ["1", "2"]}),
    ("merge", "LivesIn", {"id": ["l2"], "from": ["a"], "to": ["2"]}),
    ("overwrite", "City", {"code": [2, 3]}),
    ("overwrite", "City", {"code": [1, 3]}),
    ("overwrite", "Knows", {"from": ["c"], "to": ["a"]}),
    ("overwrite", "Person", {"name": ["a"]}),
]


def commit(graph: Graph, mode: str, type_name: str, rows: pa.Table, branch: str = "main") -> None:
    """What Spark does with a writer, in this process: two tasks, then the commit."""
    options = {"path": graph.uri, "type": type_name, "branch": branch, "mode": mode}
    writer = GraphWriter(options, rows.column_names, mode == "overwrite")
    half = (rows.num_rows + 1) // 2
    parts = [rows.slice(0, half), rows.slice(half)]
    messages = []
    for task, part in enumerate(parts):
        [message] = [writer.write(iter(part.to_batches()))]
        assert isinstance(message, StagedPart)
        messages.append(StagedPart([{**report, "task": task} for report in message.reports]))
    writer.commit(messages)


def outcome(graph: Graph, act: Any) -> str:
    try:
        act()
    except GraphError as refused:
        return type(refused).__name__
    return "written"


def content(graph: Graph, branch: str = "main") -> list[str]:
    """Everything but the ids that were made up."""
    found = export_lines(graph.context.catalog, graph.snapshot(branch))
    return sorted(line for line in found if '"id":"01' not in line)


@pytest.mark.parametrize(("column", "ends"), [("nome", "InputError"), ("name", "written")])
def test_a_frame_without_rows_has_columns_to_check_and_a_type_to_empty(column: str, ends: str, tmp_path: Path) -> None:
    graph = create(tmp_path / "g", SCHEMA)
    graph.load({"Person": pa.table({"name": ["a"]})}, engine="local")
    empty = pa.table({column: pa.array([], pa.string())})
    assert outcome(graph, lambda: commit(graph, "overwrite", "Person", empty)) == ends
    assert graph.snapshot().entry("node:Person").row_count == (0 if ends == "written" else 1)


@pytest.fixture(params=[4_000_000, 2], ids=["one slice", "many slices"])
def sliced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(slices, "SLICE_ROWS", request.param)
    return None


@pytest.mark.long
@pytest.mark.parametrize(("mode", "type_name", "columns"), CASES, ids=lambda value: str(value)[:60])
def test_a_written_frame_ends_as_a_load_does(
    mode: str, type_name: str, columns: dict[str, list[Any]], sliced: None, tmp_path: Path
) -> None:
    rows = pa.table(columns)
    graphs = [create(tmp_path / name, SCHEMA) for name in ("written", "loaded")]
    for graph in graphs:
        graph.load(BASE, engine="local")
    key = f"{'edge' if 'from' in columns else 'node'}:{type_name}"
    found = [
        outcome(graphs[0], lambda: commit(graphs[0], mode, type_name, rows)),
        outcome(graphs[1], lambda: graphs[1].load({key: rows}, mode=mode, engine="local")),
    ]
    assert found[0] == found[1]
    assert content(graphs[0]) == content(graphs[1])
    assert not graphs[0].maintenance.verify().problems
    data = sum(len(fragment.files) for fragment in graphs[0].snapshot().open(key).fragments())
    if found[0] != "written":
        # What was refused left nothing behind.
        assert len(list(Path(graphs[0].uri, graphs[0].snapshot().entry(key).path).glob("data/*"))) == data


def test_a_merge_keeps_row_ids_and_reaches_a_branch(sliced: None, tmp_path: Path) -> None:
    graph = create(tmp_path / "graph", SCHEMA)
    graph.load(BASE, engine="local")
    graph.branches.create("review")
    before = {row["id"]: row["_rowid"] for row in scan(graph, "main")}
    commit(graph, "merge", "Person", pa.table({"name": ["b", "x", "a"], "age": [5, 6, 7]}), branch="review")
    after = scan(graph, "review")
    assert {row["id"]: row["age"] for row in after} == {"a": 7, "b": 5, "c": 1, "x": 6}
    assert before.items() <= {row["id"]: row["_rowid"] for row in after}.items()
    assert {row["id"]: row["age"] for row in scan(graph, "main")} == {"a": 1, "b": 1, "c": 1}


def scan(graph: Graph, branch: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        graph.snapshot(branch).open("node:Person").scan(["id", "age"], with_row_id=True).to_pylist()
    )
    return found


def test_many_rows_in_small_slices_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_ROWS", 37)
    monkeypatch.setattr(slices, "_SAMPLES_PER_SLICE", 4)
    graph = create(tmp_path / "graph", SCHEMA)
    names = [f"n{number:04}" for number in range(500)]
    graph.load([person(name, age=1) for name in names], engine="local")
    chosen = random.Random(1).sample([*names, *(f"x{number}" for number in range(200))], 300)
    commit(graph, "merge", "Person", pa.table({"name": chosen, "age": pa.array([2] * 300)}))
    found = {row["id"]: row["age"] for row in scan(graph, "main")}
    assert found == {**dict.fromkeys(names, 1), **dict.fromkeys(chosen, 2)}
