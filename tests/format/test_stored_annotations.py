"""A schema that an earlier release accepted stays readable, whatever is refused in a new one today."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph
from omnigraph.catalog.identity import ir_json, schema_ir, schema_state
from omnigraph.catalog.resolve import compile_schema
from omnigraph.errors import SchemaError

STORED = "node Person @shiny { name: String @kye  age: I32? }"
MENDED = "node Person { name: String  age: I32? }"


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A graph whose schema files are those an earlier release wrote, which kept annotations it did not know."""
    graph = omnigraph.create(tmp_path / "graph", MENDED)
    graph.close()
    catalog = compile_schema(STORED, stored=True)
    folder = tmp_path / "graph"
    (folder / "_schema.pg").write_text(STORED)
    (folder / "_schema.ir.json").write_text(ir_json(schema_ir(catalog)))
    (folder / "__schema_state.json").write_text(json.dumps(schema_state(catalog)))
    return str(folder)


def test_a_stored_schema_with_an_unknown_annotation_opens_loads_and_is_read(root: str) -> None:
    with omnigraph.connect(root) as graph:
        graph.load([{"type": "Person", "data": {"name": "Ada", "age": 36}}], mode="append")
        rows = graph.query("query t() { match { $p: Person } return { $p.name, $p.age } }").to_pylist()
    assert rows == [{"p.name": "Ada", "p.age": 36}]


def test_the_next_schema_leaves_it_out_and_the_past_is_read_with_it(root: str) -> None:
    with omnigraph.connect(root) as graph:
        commit = graph.load([{"type": "Person", "data": {"name": "Ada"}}], mode="append").commit_id
        with pytest.raises(SchemaError, match=r"'@shiny'.*'@x_'"):
            graph.schema.apply(STORED.replace("@kye", ""))
        with pytest.raises(SchemaError, match="did you mean '@key'"):
            graph.schema.plan(STORED.replace("@shiny", ""))
        assert graph.schema.apply(MENDED).applied
        now = graph.query("query t() { match { $p: Person } return { $p.name } }")
        then = graph.query("query t() { match { $p: Person } return { $p.name } }", at=commit)
        assert now.to_pylist() == then.to_pylist() == [{"p.name": "Ada"}]


def test_a_new_graph_refuses_a_misspelt_annotation_and_keeps_those_of_users(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"Person\.name has the unknown annotation '@kye'; did you mean '@key'\?"):
        omnigraph.create(tmp_path / "graph", "node Person { name: String @kye }")
    graph = omnigraph.create(tmp_path / "graph", "node Person { name: String @key @x_kye(7) }")
    note = graph.context.catalog.nodes["Person"].properties["name"].annotations[0]
    assert (note.name, note.value) == ("x_kye", "7")
