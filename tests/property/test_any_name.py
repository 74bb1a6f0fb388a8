"""A property may have any name that is not reserved, whatever our own tables and jobs call their columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.amounts import EXHAUSTIVE
from tests.exported_files import exported_files
from tests.property import names

from omnigraph.catalog.resolve import RESERVED, compile_schema
from omnigraph.errors import ConstraintError, ParseError
from omnigraph.graph import Graph, create

ROWS = 6
CHUNK = 60
NODE_NAMES, EDGE_NAMES = names.free_names("node"), names.free_names("edge")
FIRST = [name for name in NODE_NAMES if name in {*names.CASES, *names.WORDS} or name.startswith("_")]
SHUFFLED = [*FIRST, *(name for name in NODE_NAMES if name not in FIRST)]
"""Those most likely to collide come first."""
CHUNKS = [
    0,
    *(pytest.param(number, marks=EXHAUSTIVE) for number in range(1, -(-len(NODE_NAMES) // CHUNK))),
]


def chosen(number: int) -> tuple[list[str], list[str]]:
    """Some names for a node type and for an edge type; the spellings of one word are always together."""
    both = chunk(number)
    if number:
        both = list(dict.fromkeys([*both, *names.CASES, "src", "dst"]))
    return [n for n in both if n in NODE_NAMES], [n for n in both if n in EDGE_NAMES]


def chunk(number: int) -> list[str]:
    """The names that come with a number, each with one number only."""
    return SHUFFLED[number * CHUNK : (number + 1) * CHUNK]


def kind_of(name: str) -> str:
    """Names take turns at the types, so that a text and a number are both mistaken for a column of ours."""
    return ["I64", "String", "F64"][sum(name.encode()) % 3]


def value_of(name: str, number: int) -> Any:
    return {"I64": number, "String": f"t{number}", "F64": number + 0.5}[kind_of(name)]


def schema_of(nodes: list[str], edges: list[str], unique: Sequence[str] | None = None) -> str:
    """Both types with these properties; every third is unique unless they are named, another third is indexed."""

    def written(properties: list[str]) -> str:
        chosen = properties[1::3] if unique is None else unique
        rules = [
            " @unique" if each in chosen else " @index" if at % 3 == 2 else "" for at, each in enumerate(properties)
        ]
        return "\n".join(f"  {each}: {kind_of(each)}?{rule}" for each, rule in zip(properties, rules, strict=True))

    node, edge = written(nodes), written(edges)
    return (
        f"node Thing {{\n  thing_key: String @key\n{node}\n}}\nedge Links: Thing -> Thing @card(0..3) {{\n{edge}\n}}\n"
    )


def node_rows(nodes: list[str]) -> list[dict[str, Any]]:
    return [{"thing_key": f"k{n}", **{name: value_of(name, n) for name in nodes}} for n in range(ROWS)]


def edge_rows(edges: list[str]) -> list[dict[str, Any]]:
    return [{"id": f"e{n}", **{name: value_of(name, n) for name in edges}} for n in range(ROWS)]


def lines_of(nodes: list[str], edges: list[str]) -> bytes:
    lines = [{"type": "Thing", "data": row} for row in node_rows(nodes)]
    ends = [(f"k{n}", f"k{(n + 1) % ROWS}") for n in range(ROWS)]
    lines += [  # type: ignore[misc]
        {"edge": "Links", "from": a, "to": b, "data": row} for (a, b), row in zip(ends, edge_rows(edges), strict=True)
    ]
    return "\n".join(json.dumps(line) for line in lines).encode()


def exported(graph: Graph) -> list[dict[str, Any]]:
    return [json.loads(line) for line in graph.export()]


def tables_of(nodes: list[str], edges: list[str]) -> dict[str, pa.Table]:
    links = pa.Table.from_pylist(edge_rows(edges))
    for word, shift in (("to", 1), ("from", 0)):
        links = links.add_column(0, word, pa.array([f"k{(n + shift) % ROWS}" for n in range(ROWS)]))
    return {"Thing": pa.Table.from_pylist(node_rows(nodes)), "Links": links}


def files_of(tables: dict[str, pa.Table], folder: Path) -> dict[str, dict[str, str]]:
    import pyarrow.csv as pacsv

    found: dict[str, dict[str, str]] = {"parquet": {}, "csv": {}}
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
        pacsv.write_csv(table, folder / f"{name}.csv")
        for suffix, paths in found.items():
            paths[name] = str(folder / f"{name}.{suffix}")
    return found


@pytest.mark.long
@pytest.mark.parametrize("number", CHUNKS)
def test_every_load_takes_the_names_and_every_export_gives_them(tmp_path: Path, number: int) -> None:
    nodes, edges = chosen(number)
    schema = schema_of(nodes, edges)
    graph = create(tmp_path / "graph", schema)
    graph.load(lines_of(nodes, edges), mode="append")
    wanted = exported(graph)
    assert len(wanted) == 2 * ROWS
    assert [line["data"]["thing_key"] for line in wanted if "type" in line] == [f"k{n}" for n in range(ROWS)]
    for line, row in zip([line for line in wanted if "type" in line], node_rows(nodes), strict=True):
        assert {name: line["data"][name] for name in nodes} == {name: row[name] for name in nodes}
    tables = tables_of(nodes, edges)
    files = files_of(tables, tmp_path)
    result = exported_files(graph, tmp_path / "out", format="parquet")
    out = {"Thing": [f for f in result.files if "node" in f], "Links": [f for f in result.files if "edge" in f]}
    for at, source in enumerate([tables, files["parquet"], files["csv"], out]):
        other = create(tmp_path / f"other{at}", schema)
        for mode in ("append", "merge", "overwrite"):
            other.load(source, mode=mode, engine="local")
            assert exported(other) == wanted, (at, mode)
    for name in ("thing_key", *nodes[1::3][:3]):  # every third property is unique
        twice = [*node_rows(nodes), {**node_rows(nodes)[0], "thing_key": "new", name: node_rows(nodes)[1][name]}]
        with pytest.raises(ConstraintError, match="@unique"):
            graph.load([{"type": "Thing", "data": row} for row in twice], mode="merge")
    report = graph.maintenance.verify()
    assert report.clean, report


@pytest.mark.long
@pytest.mark.parametrize("number", CHUNKS)
def test_every_statement_and_query_takes_the_names(tmp_path: Path, number: int) -> None:
    nodes, edges = chosen(number)
    graph = create(tmp_path / "graph", schema_of(nodes, edges))
    graph.load(lines_of(nodes, edges), mode="append")
    # Names that every schema has are in statements of the number they come with.
    own = {*chunk(number)}
    for name in (name for name in nodes if name in own):
        kind = kind_of(name)
        found = f"$t.{name} as found"
        read = f"query r($x: {kind}) {{ match {{ $t: Thing {{ {name}: $x }} }} return {{ {found}, $t as id }} }}"
        assert graph.query(read, params={"x": value_of(name, 2)}).to_pylist() == [
            {"found": value_of(name, 2), "id": "k2"}
        ]
        ordered = f"query r() {{ match {{ $t: Thing }} return {{ {found} }} order {{ $t.{name} desc }} limit 1 }}"
        assert graph.query(ordered).to_pylist() == [{"found": value_of(name, ROWS - 1)}]
        change = f"query c($x: {kind}, $y: {kind}) {{ update Thing set {{ {name}: $y }} where {name} = $x }}"
        assert graph.mutate(change, params={"x": value_of(name, 2), "y": value_of(name, 99)}).affected_nodes == 1
        assert graph.mutate(change, params={"x": value_of(name, 99), "y": value_of(name, 2)}).affected_nodes == 1
        fails = graph.mutate(change, params={"x": value_of(name, 77), "y": value_of(name, 2)})
        assert fails.affected_nodes == 0
        assigned = f'query i($x: {kind}) {{ insert Thing {{ thing_key: "new", {name}: $x }} }}'
        graph.mutate(assigned, params={"x": value_of(name, 50)})
        drop = f"query d($x: {kind}) {{ delete Thing where {name} = $x }}"
        assert graph.mutate(drop, params={"x": value_of(name, 50)}).affected_nodes == 1
    for name in (name for name in edges if name in own):
        kind = kind_of(name)
        drop = f"query d($x: {kind}) {{ delete Links where {name} = $x }}"
        assert graph.mutate(drop, params={"x": value_of(name, 50)}).affected_edges == 0
        add = f'query i($x: {kind}) {{ insert Links {{ from: "k1", to: "k2", {name}: $x }} }}'
        graph.mutate(add, params={"x": value_of(name, 50)})
        assert graph.mutate(drop, params={"x": value_of(name, 50)}).affected_edges == 1
    assert graph.maintenance.verify().clean


@pytest.mark.parametrize("number", CHUNKS)
def test_schema_changes_and_maintenance_take_the_names(tmp_path: Path, number: int) -> None:
    nodes, _ = chosen(number)
    bare = "node Thing {\n  thing_key: String @key\n" + "\n".join(f"  {n}: {kind_of(n)}?" for n in nodes) + "\n}\n"
    graph = create(tmp_path / "graph", "node Thing {\n  thing_key: String @key\n}\n")
    assert graph.schema.apply(bare, confirm_drops=True).applied
    graph.load([{"type": "Thing", "data": row} for row in node_rows(nodes)], mode="append")
    graph.branches.create("side")
    graph.branches.delete("side")
    before = exported(graph)
    moved = bare
    for name in nodes:
        moved = moved.replace(
            f"  {name}: {kind_of(name)}?\n", f'  {name}_moved: {kind_of(name)}? @rename_from("{name}")\n'
        )
    assert graph.schema.apply(moved, confirm_drops=True).applied
    graph.maintenance.optimize()
    after = exported(graph)
    renamed = [{key: line["data"].get(f"{key}_moved", line["data"].get(key)) for key in nodes} for line in after]
    assert renamed == [{key: line["data"][key] for key in nodes} for line in before]
    assert graph.schema.apply("node Thing {\n  thing_key: String @key\n}\n", confirm_drops=True).applied
    assert [line["data"] for line in exported(graph)] == [{"id": f"k{n}", "thing_key": f"k{n}"} for n in range(ROWS)]


@pytest.mark.parametrize("kind", ["node", "edge", "interface"])
def test_a_reserved_name_is_refused_when_the_schema_is_read(kind: str) -> None:
    for name in sorted(RESERVED[kind]):
        text = {
            "node": f"node A {{ {name}: I64 }}",
            "edge": f"node A {{ }} edge E: A -> A {{ {name}: I64 }}",
            "interface": f"interface I {{ {name}: I64 }}",
        }[kind]
        with pytest.raises(ParseError, match=f"'{name}' is reserved"):
            compile_schema(text)
