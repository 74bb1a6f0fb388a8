"""What goes in through any door comes out of every other, of every type, at the ends of every range."""

from __future__ import annotations

import datetime as dt
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

from omnigraph.catalog.resolve import compile_schema
from omnigraph.catalog.types import Scalar
from omnigraph.engine.operations.export import json_lines
from omnigraph.errors import ConstraintError, GraphError
from omnigraph.graph import Graph, create

ROWS = 250
SEEDS = range(2)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return create(tmp_path / "graph", doors.SCHEMA)


def _same_everywhere(graph: Graph, rows: list[doors.Row], folder: Path) -> None:
    """The rows, at every door out of a graph and once more behind it."""
    result = graph.query(doors.READ)
    doors.check_same(doors.result_rows(graph), rows)
    table = result.to_arrow()
    assert table.schema == doors.arrow_table(rows).schema
    doors.check_same(table.to_pylist(), rows)
    assert pa.Table.from_batches(result.to_batches(17)).schema == table.schema
    _same_in_pandas(graph, rows)
    _same_as_whole_types(graph, rows, table.schema)
    lines = folder / "out.jsonl"
    graph.export(lines)
    doors.check_same(doors.exported_rows(lines.read_text(encoding="utf-8")), rows)
    exported = exported_files(graph, folder / "parquet", format="parquet")
    files = [pq.read_table(file) for file in exported.files]
    stored = pa.concat_tables(files).select(list(doors.COLUMNS))
    assert stored.schema.remove_metadata() == _not_null(table.schema)
    doors.check_same(stored.to_pylist(), rows)
    for number, source in enumerate([lines, {"Thing": list(exported.files)}, {"Thing": table}]):
        other = create(folder / f"again-{number}", doors.SCHEMA)
        other.load(source, mode="append", engine="local")
        doors.check_same(other.query(doors.READ).to_arrow().to_pylist(), rows)


def _same_as_whole_types(graph: Graph, rows: list[doors.Row], schema: pa.Schema) -> None:
    """A whole type at once: as a table, in DuckDB, and as the properties of numbered nodes."""
    wanted = [(name, schema.field(name).type) for name in doors.COLUMNS]
    numbered = graph.numbered()
    for whole in (graph.table("Thing"), numbered.node_properties(numbered.nodes[0])):
        chosen = whole.select(list(doors.COLUMNS))
        assert [(field.name, field.type) for field in chosen.schema] == wanted
        doors.check_same(chosen.to_pylist(), rows)
    moments = [name for name, kind in doors.COLUMNS.items() if kind.scalar is Scalar.DATETIME and not kind.is_list]
    told = ", ".join(f"epoch_ms({name}) as {name}" for name in moments)
    found = graph.to_duckdb().execute(f"select key, {told} from Thing").fetchall()
    millis = dt.timedelta(milliseconds=1)
    assert sorted(found) == sorted(
        (row["key"], *(None if row[name] is None else (row[name] - EPOCH) // millis for name in moments))
        for row in rows
    )


def _not_null(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(doors.COLUMNS[field.name].nullable) for field in schema])


def _same_in_pandas(graph: Graph, rows: list[doors.Row]) -> None:
    """As in Arrow, but for integers and booleans with nulls, which pandas makes floats and objects of."""
    found = {row["key"]: row for row in doors.pandas_rows(graph)}
    assert len(found) == len(rows)
    for row in rows:
        for name, kind in doors.COLUMNS.items():
            value, expected = found[row["key"]][name], row[name]
            if kind.nullable and isinstance(expected, int) and not isinstance(expected, bool):
                assert value == float(expected)
            else:
                assert doors.canonical(value) == doors.canonical(expected), name


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("door", doors.LOADS)
def test_what_is_loaded_comes_out_of_every_door(graph: Graph, tmp_path: Path, door: str, seed: int) -> None:
    rows = doors.random_rows(ROWS, seed=seed)
    doors.LOADS[door](graph, rows, tmp_path, random.Random(seed))
    _same_everywhere(graph, rows, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("door", doors.MUTATIONS)
def test_what_is_inserted_comes_out_of_every_door(graph: Graph, tmp_path: Path, door: str) -> None:
    rows = doors.random_rows(60, seed=7)
    doors.MUTATIONS[door](graph, rows, tmp_path, random.Random(7))
    _same_everywhere(graph, rows, tmp_path)


def test_updates_take_what_inserts_take(graph: Graph, tmp_path: Path) -> None:
    before, after = doors.random_rows(20, seed=1), doors.random_rows(20, seed=2)
    doors.LOADS["arrow"](graph, before, tmp_path, random.Random(1))
    names = [name for name in doors.COLUMNS if name != "key"]
    declared = ", ".join(f"${name}: {doors.COLUMNS[name]}" for name in names)
    text = f"query change($key: String, {declared}) {{ update Thing set {{ "
    text += ", ".join(f"{name}: ${name}" for name in names) + " } where key = $key }"
    for old, new in zip(before, after, strict=True):
        graph.mutate(text, params={**new, "key": old["key"]})
    wanted = [{**new, "key": old["key"]} for old, new in zip(before, after, strict=True)]
    _same_everywhere(graph, wanted, tmp_path)


def test_parameters_come_back_as_they_were_given(graph: Graph) -> None:
    graph.load([{"type": "Thing", "data": doors.random_rows(1, seed=0)[0]}])
    draw = random.Random(11)
    for name, kind in doors.COLUMNS.items():
        for rows_found in (1, 0):
            match = "$t: Thing" if rows_found else '$t: Thing { key: "nobody" }'
            text = f"query t($x: {kind}) {{ match {{ {match} }} return {{ $x as {name} }} }}"
            for _ in range(12):
                value = doors.random_value(kind, draw)
                result = graph.query(text, params={"x": value})
                assert len(result.to_pylist()) == rows_found
                found = graph.query(text, params={"x": value}).to_arrow()
                assert found.schema.field(0).type == doors.arrow_table([]).schema.field(name).type
                assert [doors.canonical(each) for each in found[name].to_pylist()] == [
                    doors.canonical(value)
                ] * rows_found


BAD = [math.nan, math.inf, -math.inf]
FLOATING = [
    name
    for name, kind in doors.COLUMNS.items()
    if kind.scalar in (Scalar.F32, Scalar.F64, Scalar.VECTOR)
]  # fmt: skip


@pytest.mark.parametrize("door", {**doors.LOADS, **doors.MUTATIONS})
def test_no_door_takes_a_number_that_is_not_finite(graph: Graph, tmp_path: Path, door: str) -> None:
    act = {**doors.LOADS, **doors.MUTATIONS}[door]
    good = doors.random_rows(3, seed=5)
    for name in FLOATING:
        for bad in BAD:
            if door == "pandas" and math.isnan(bad):
                continue  # To pandas that is null.
            value: Any = bad
            if doors.COLUMNS[name].is_list:
                value = [1.0, bad]
            elif doors.COLUMNS[name].scalar is Scalar.VECTOR:
                value = [1.0, bad, 2.0]
            with pytest.raises(GraphError, match=r"(?i)finite|nan|inf"):
                act(graph, [{**good[0], name: value}], tmp_path, random.Random(0))
            assert len(graph.query(doors.READ)) == 0


@pytest.mark.parametrize("text", ['"NaN"', '"Infinity"', '"-Infinity"', "NaN", "nan", "1e999"])
def test_the_texts_of_such_numbers_are_refused_with_a_sentence(graph: Graph, text: str) -> None:
    row = doors.json_value(doors.random_rows(1, seed=5)[0], random.Random(0))
    for name in ("maybe_f32", "maybe_f64"):
        data = {**{key: doors.json_value(value, random.Random(0)) for key, value in row.items()}, name: 0}
        line = json.dumps({"type": "Thing", "data": data}).replace(f'"{name}": 0', f'"{name}": {text}')
        with pytest.raises(GraphError, match="finite" if text.startswith('"') else "line 1"):
            graph.load(line.encode(), mode="append")


def test_an_export_of_what_an_earlier_release_stored_is_json() -> None:
    thing = compile_schema("node Thing { f: F64? g: [F32]? }").nodes["Thing"]
    floats = [math.nan, -math.nan, math.inf, -math.inf, -0.0, None]
    lists = pa.array([[each] for each in floats], pa.list_(pa.float32()))
    rows = pa.table({"id": [str(n) for n in range(6)], "f": pa.array(floats), "g": lists})
    found = [json.loads(line.as_py(), parse_constant=pytest.fail)["data"] for line in json_lines(thing, rows)]
    assert [row["f"] for row in found] == ["NaN", "NaN", "Infinity", "-Infinity", -0.0, None]
    assert [row["g"] for row in found] == [["NaN"], ["NaN"], ["Infinity"], ["-Infinity"], [-0.0], [None]]


@pytest.mark.parametrize("rows", [3, 5_000])
@pytest.mark.parametrize("kind", ["F32", "F64"])
def test_the_two_zeros_come_back_as_they_were_and_are_one_to_a_unique_property(
    tmp_path: Path, rows: int, kind: str
) -> None:
    graph = create(
        tmp_path / "graph", f"node Thing {{ key: String @key  f: {kind}? @unique  g: {kind}?  @unique(f, g) }}"
    )
    add = f"query add($k: String, $f: {kind}?) {{ insert Thing {{ key: $k, f: $f }} }}"
    table = pa.table({"key": [f"k{n}" for n in range(rows)], "f": [float(n) for n in range(rows)]})
    graph.load({"Thing": table})
    for attempt in range(3):  # The third search of a column goes by an index.
        with pytest.raises(ConstraintError, match="@unique"):
            graph.mutate(add, params={"k": f"new{attempt}", "f": -0.0})
        with pytest.raises(ConstraintError, match="@unique"):
            graph.load([{"type": "Thing", "data": {"key": f"new{attempt}", "f": -0.0}}], mode="merge")
    graph.mutate(add, params={"k": "k0", "f": -0.0})  # The same node may change its zero.
    found = graph.query('query t() { match { $t: Thing { key: "k0" } } return { $t.f as f } }').to_pylist()
    assert math.copysign(1, found[0]["f"]) == -1
    with pytest.raises(ConstraintError, match="@unique"):
        graph.mutate(add, params={"k": "other", "f": 0.0})
    with pytest.raises(ConstraintError, match="@unique"):
        graph.load({"Thing": pa.table({"key": ["a", "b"], "f": [0.0, -0.0]})}, mode="overwrite")
    assert graph.maintenance.verify().clean


def test_blobs_come_back_byte_for_byte(tmp_path: Path) -> None:
    draw = random.Random(1)
    values = [b"", b"\x00", bytes(range(256)), None, *(draw.randbytes(draw.randrange(5_000)) for _ in range(20))]
    rows = [{"key": f"k{n}", "maybe_blob": value} for n, value in enumerate(values)]
    table = pa.table({"key": [row["key"] for row in rows], "maybe_blob": pa.array(values, pa.binary())})
    lines = [{"type": "Thing", "data": row} for row in rows]
    for number, source in enumerate([{"Thing": table}, lines]):
        graph = create(tmp_path / str(number), doors.BLOBS)
        graph.load(source)
        parquet = exported_files(graph, tmp_path / f"{number}p", format="parquet")
        found = pa.concat_tables([pq.read_table(file) for file in parquet.files]).to_pylist()
        assert {row["key"]: row["maybe_blob"] for row in found} == dict(
            zip(table["key"].to_pylist(), values, strict=True)
        )
        again = create(tmp_path / f"{number}again", doors.BLOBS)
        again.load([json.loads(line) for line in graph.export()])
        assert list(again.export()) == list(graph.export())
