"""Every row of the language's conformance tables, executed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.conformance.harbour import HERE, SCHEMA, Harbour, OpenGraph, Wanted
from tests.conformance.rows import Row, read_rows

import omnigraph

TABLES = ("schema", "evolution", "reads", "search", "mutations", "load", "decisions", "additions")
ROWS = [row for table in TABLES for row in read_rows(HERE / f"language_{table}.txt")]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The harbour graph with its data, from which rows take copies."""
    folder = tmp_path_factory.mktemp("harbour") / "graph.omni"
    with omnigraph.create(folder, SCHEMA) as graph:
        graph.load(HERE / "harbour.jsonl", mode="overwrite")
    return folder


@pytest.fixture(scope="session")
def shared(prepared: Path) -> omnigraph.Graph:
    """The harbour graph for rows that change nothing."""
    return omnigraph.connect(prepared, read_only=True)


@pytest.fixture
def open_graph(tmp_path: Path, request: pytest.FixtureRequest) -> OpenGraph:
    """The graph of a row: empty, with another schema, shared, or a copy of the harbour."""

    def open_(wanted: Wanted) -> omnigraph.Graph:
        if wanted.schema is not None or wanted.is_empty:
            return omnigraph.create(tmp_path / "graph.omni", wanted.schema or SCHEMA)
        if wanted.is_read_only:
            graph: omnigraph.Graph = request.getfixturevalue("shared")
            return graph
        shutil.copytree(request.getfixturevalue("prepared"), tmp_path / "graph.omni")
        return omnigraph.connect(tmp_path / "graph.omni")

    return open_


def test_the_tables_hold_every_row_once() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))
    assert {row.number for row in ROWS} >= {str(number) for number in range(1, 181)}


@pytest.mark.parametrize("number", range(1, 34))
def test_every_addition_has_rows_that_use_it_and_rows_that_are_refused(number: int) -> None:
    rows = [row for row in ROWS if row.number == f"A{number}"]
    refused = [row for row in rows if any(step.verb in ("error", "refused", "broken") for step in row.steps)]
    assert len(rows) >= 3
    assert refused
    assert [row for row in rows if row not in refused]


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.name} {row.title}") for row in ROWS])
def test_row(row: Row, open_graph: OpenGraph, tmp_path: Path) -> None:
    Harbour(open_graph, tmp_path).run(row)
