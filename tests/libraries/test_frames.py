"""Frames of other libraries go into a load and come out of a query."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph.errors import ConstraintError, InputError, SchemaError, TypeCheckError

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    tall: F64?
}
node Item { number: I64 @key  label: String? }
edge Knows: Person -> Person
edge Follows: Item -> Item
"""
PEOPLE: dict[str, list[Any]] = {"name": ["ann", "bob", "cyd"], "age": [31, None, 40], "tall": [1.6, 1.8, None]}
ALL = "query q() { match { $p: Person } return { $p.name as name, $p.age as age, $p.tall as tall } order { $p.name } }"
ENDS = "query q() { match { $a follows $b } return { $a.number as a, $b.number as b } order { $a.number } }"


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    return omnigraph.create(tmp_path / "g.omni", schema=SCHEMA)


class Capsule:
    """Something that offers nothing but an Arrow stream."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class Interchanged:
    """Something that offers nothing but the interchange protocol."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> object:
        return self._table.__dataframe__(nan_as_null, allow_copy)


def pandas_frame() -> Any:
    pandas = pytest.importorskip("pandas")
    # The ages become floats here, because pandas has no other way to miss one.
    return pandas.DataFrame(PEOPLE)


def polars_frame() -> Any:
    return pytest.importorskip("polars").DataFrame(PEOPLE)


def lazy_frame() -> Any:
    return pytest.importorskip("polars").LazyFrame(PEOPLE)


def narwhals_frame() -> Any:
    return pytest.importorskip("narwhals").from_native(polars_frame())


def duckdb_relation() -> Any:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("people", pa.table(PEOPLE))
    return connection.sql("select * from people")


FRAMES = {
    "capsule": lambda: Capsule(pa.table(PEOPLE)),
    "interchange": lambda: Interchanged(pa.table(PEOPLE)),
    "batch": lambda: pa.RecordBatch.from_pydict(PEOPLE),
    "table": lambda: pa.table(PEOPLE),
    "reader": lambda: pa.table(PEOPLE).to_reader(),
    "dataset": lambda: pds.dataset(pa.table(PEOPLE)),
    "pandas": pandas_frame,
    "polars": polars_frame,
    "lazy": lazy_frame,
    "narwhals": narwhals_frame,
    "duckdb": duckdb_relation,
}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("way", ["type", "mapping", "columns"])
def test_a_frame_of_any_library_is_loaded(graph: omnigraph.Graph, kind: str, way: str) -> None:
    frame = FRAMES[kind]()
    if way == "mapping":
        graph.load({"Person": frame})
    else:
        graph.load(frame, type="Person", columns={"Person": {"name": "name"}} if way == "columns" else None)
    rows = graph.query(ALL).to_pylist()
    assert [(row["name"], row["age"], row["tall"]) for row in rows] == [
        ("ann", 31, 1.6),
        ("bob", None, 1.8),
        ("cyd", 40, None),
    ]


def test_a_frame_without_its_type_is_refused(graph: omnigraph.Graph) -> None:
    for frame in (pa.table(PEOPLE), Capsule(pa.table(PEOPLE))):
        with pytest.raises(InputError, match="which type"):
            graph.load(frame)
    with pytest.raises(InputError, match="leave one of them out"):
        graph.load({"Person": pa.table(PEOPLE)}, type="Person")


def test_fractions_are_no_integers(graph: omnigraph.Graph) -> None:
    for age, says in ((31.5, "31.5 is not an integer"), (math.nan, "nan is not an integer"), (1e12, "exceeds")):
        with pytest.raises(ConstraintError, match=says):
            graph.load({"Person": pa.table({"name": ["ann"], "age": [age]})})


@pytest.mark.parametrize("as_kind", [pa.int32(), pa.int64(), pa.uint16(), pa.float64(), pa.string()])
def test_integer_ids_of_ends_follow_the_key(graph: omnigraph.Graph, as_kind: pa.DataType) -> None:
    graph.load({"Item": pa.table({"number": [1, 2, 3]})})
    ends = pa.table(
        {"from": pa.array([1, 2], pa.int64()).cast(as_kind), "to": pa.array([2, 3], pa.int64()).cast(as_kind)}
    )
    graph.load({"Follows": ends})
    graph.load({"Follows": ends}, columns={"Follows": {"from": "from", "to": "to"}})
    graph.load([{"edge": "Follows", "from": 3, "to": 1}])
    assert len(graph.query("query q() { match { $a $e:follows $b } return { $e.id as e } }")) == 5
    assert graph.query(ENDS).to_pylist() == [{"a": 1, "b": 2}, {"a": 2, "b": 3}, {"a": 3, "b": 1}]


def test_integer_ids_of_ends_follow_the_key_in_mutations(graph: omnigraph.Graph) -> None:
    graph.load([{"number": number} for number in (-1, 1, 2, 3)], type="Item")
    graph.mutate("query m() { insert Follows { from: 1, to: -1 } }")
    graph.mutate("query m($a: I64, $b: I32) { insert Follows { from: $a, to: $b + 1 } }", {"a": 2, "b": 2})
    graph.mutate("query m() { match { $a: Item { number: 3 } } insert Follows { from: $a.number, to: 2 } }")
    assert graph.query(ENDS).to_pylist() == [{"a": 1, "b": -1}, {"a": 2, "b": 3}, {"a": 3, "b": 2}]
    delete = "query m($a: I64) { delete Follows where from = $a and (to = -1 or to != 3) }"
    assert [graph.mutate(delete, {"a": number}).affected_edges for number in (1, 2, 3)] == [1, 0, 1]
    graph.load(pa.table(PEOPLE), type="Person")
    for wrong in ("insert Knows { from: 1, to: 2 }", "delete Knows where from = 1", "delete Follows where from < 2"):
        with pytest.raises(TypeCheckError, match="String"):
            graph.mutate(f"query m() {{ {wrong} }}")


def test_categories_of_polars_are_texts(graph: omnigraph.Graph) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"number": [1, 2, 3], "label": ["b", None, "a"]})
    for number, kind in enumerate((polars.Categorical, polars.Enum(["a", "b"]))):
        graph.load(
            frame.with_columns(polars.col("label").cast(kind), number=polars.col("number") + 10 * number), type="Item"
        )
    rows = graph.query("query q() { match { $i: Item } return { $i.label as label } order { $i.number } }")
    assert [row["label"] for row in rows] == ["b", None, "a"] * 2


def test_a_name_of_nodes_and_of_edges_is_refused_for_tables_as_for_files(tmp_path: Path) -> None:
    schema = "node Visit { name: String @key }\nedge Visit: Visit -> Visit"
    with omnigraph.create(tmp_path / "g", schema) as graph:
        rows = pa.table({"name": ["a"]})
        for load in (lambda: graph.load({"Visit": rows}), lambda: graph.load(rows, type="Visit")):
            with pytest.raises(InputError, match="'Visit' is a node type and an edge type: write 'node:Visit' or"):
                load()
        assert graph.load({"node:Visit": rows}).nodes == {"Visit": 1}
        assert graph.load({"edge:VISIT": pa.table({"from": ["a"], "to": ["a"]})}).edges == {"Visit": 1}


def test_the_named_index_of_a_pandas_frame_is_a_column(graph: omnigraph.Graph) -> None:
    pandas = pytest.importorskip("pandas")
    people = pandas.DataFrame({"name": ["ann", "bob", "bob"], "age": [31, 20, 30]})
    graph.load(people.groupby("name").max(), type="Person")
    assert [(row["name"], row["age"]) for row in graph.query(ALL)] == [("ann", 31), ("bob", 30)]
    graph.load(people[people.name == "ann"].set_index("name", drop=False), type="Person", mode="merge")
    assert len(graph.query(ALL)) == 2


def test_decimals_of_sql_are_numbers(graph: omnigraph.Graph) -> None:
    duckdb = pytest.importorskip("duckdb")
    graph.load(duckdb.sql("select 'p' || i as name, i * 2.0 as age, i * 0.5 as tall from range(3) t(i)"), type="Person")
    assert [(row["age"], row["tall"]) for row in graph.query(ALL)] == [(0, 0.0), (2, 0.5), (4, 1.0)]
    for sql, says in (("1.5", "1.5 is not an integer"), ("3000000000.0", "3000000000 exceeds")):
        with pytest.raises(ConstraintError, match=says):
            graph.load(duckdb.sql(f"select 'x' as name, {sql} as age"), type="Person")


def test_several_batches_and_frames_are_rows_of_one_type(graph: omnigraph.Graph) -> None:
    batches = pa.table(PEOPLE).to_batches(max_chunksize=1)
    graph.load(iter(batches), type="Person")
    assert len(graph.query(ALL)) == 3
    graph.load(graph.query(ALL).to_batches(2), type="Person", mode="merge")
    frames = [pa.table({"name": ["dan"], "age": [None]}), pa.table({"name": ["eve"], "age": [22], "tall": [1.7]})]
    graph.load(frames, type="Person")
    assert [row["age"] for row in graph.query(ALL)] == [31, None, 40, None, 22]
    with pytest.raises(InputError, match="columns of the first"):
        graph.load([batches[0], pa.record_batch({"name": ["fay"]})], type="Person")
    with pytest.raises(InputError, match="do not fit together"):
        graph.load([pa.table({"name": ["gil"]}), pa.table({"name": [1]})], type="Person")


def test_an_empty_frame_is_loaded_whatever_the_types_of_its_columns(graph: omnigraph.Graph, tmp_path: Path) -> None:
    for kind in (pa.null(), pa.float64(), pa.string()):
        people = pa.table({"id": pa.nulls(1, kind), "name": ["ann"]})
        empty = pa.table({"from": pa.nulls(0, kind), "to": pa.nulls(0, kind)})
        graph.load({"Person": people, "Knows": empty}, mode="overwrite")
        pq.write_table(empty, tmp_path / "empty.parquet")
        graph.load(tmp_path / "empty.parquet", type="Knows")
        with pytest.raises(ConstraintError, match="record 1: Knows: the column 'from' must not hold nulls"):
            graph.load(pa.table({"from": pa.nulls(1, kind), "to": ["ann"]}), type="Knows")


def test_plain_rows_of_several_types(graph: omnigraph.Graph) -> None:
    graph.load(
        {"Person": [{"name": "ann", "age": 31}, {"name": "bob", "tall": 1.8}], "Knows": [{"from": "ann", "to": "bob"}]}
    )
    assert [(row["age"], row["tall"]) for row in graph.query(ALL)] == [(31, None), (None, 1.8)]
    assert graph.table("Knows").num_rows == 1
    with pytest.raises(InputError, match="or frames and files for all of them: Item is given as no list with rows"):
        graph.load({"Person": [{"name": "cyd"}], "Item": pa.table({"number": [1]})})


def test_plain_rows_and_files_of_one_type(graph: omnigraph.Graph, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("name,age\nann,31\nbob,\n")
    graph.load(tmp_path / "people.csv", type="Person")
    graph.load([{"name": "cyd", "age": 40}], type="Person")
    graph.load([{"from": "ann", "to": "cyd"}], type="knows")
    assert [row["age"] for row in graph.query(ALL)] == [31, None, 40]
    found = graph.query("query q() { match { $a knows $b } return { $a.name as a, $b.name as b } }")
    assert found.to_pylist() == [{"a": "ann", "b": "cyd"}]


def test_a_folder_that_an_export_wrote_loads_back_as_it_is(graph: omnigraph.Graph, tmp_path: Path) -> None:
    graph.load({"Person": pa.table(PEOPLE), "Item": pa.table({"number": [1, 2]})})
    graph.load([{"from": "ann", "to": "cyd"}], type="Knows")
    graph.export(tmp_path / "out", format="parquet")
    with omnigraph.create(tmp_path / "again.omni", schema=SCHEMA) as again:
        again.load(tmp_path / "out")
        assert list(again.export()) == list(graph.export())


def test_a_result_is_an_arrow_stream(graph: omnigraph.Graph) -> None:
    graph.load(pa.table(PEOPLE), type="Person")
    result = graph.query(ALL)
    table = pa.RecordBatchReader.from_stream(result).read_all()
    assert table.equals(result.to_arrow())
    assert pa.table(result).equals(table)
    with omnigraph.create(graph.uri + "-2", schema=SCHEMA) as other:
        other.load(result, type="Person")
        assert other.query(ALL).to_pylist() == result.to_pylist()


def test_results_become_frames(graph: omnigraph.Graph) -> None:
    polars, pandas = pytest.importorskip("polars"), pytest.importorskip("pandas")
    graph.load(pa.table(PEOPLE), type="Person")
    result = graph.query(ALL)
    assert isinstance(result.to_polars(), polars.DataFrame)
    assert result.to_polars().to_dicts() == result.to_pylist()
    assert isinstance(result.to_pandas(), pandas.DataFrame)
    assert list(result.to_pandas()["name"]) == ["ann", "bob", "cyd"]


def test_duckdb_asks_results_and_whole_types(graph: omnigraph.Graph) -> None:
    duckdb = pytest.importorskip("duckdb")
    graph.load(pa.table(PEOPLE), type="Person")
    graph.load([{"from": "ann", "to": "cyd"}], type="Knows")
    people = graph.query(ALL)
    assert duckdb.sql("select sum(age) from people").fetchall() == [(71,)]
    assert len(people) == 3
    with graph.to_duckdb() as database:
        assert database.sql('select count(*) from "Person" where age is not null').fetchall() == [(2,)]
        joined = 'select p.name from "Knows" k join "Person" p on p.id = k."to"'
        assert database.sql(joined).fetchall() == [("cyd",)]


def test_names_that_are_nearly_right_are_answered_with_the_right_ones(tmp_path: Path) -> None:
    schema = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
    with omnigraph.create(tmp_path / "g.omni", schema) as graph:
        for call, words in (
            (lambda: graph.load(pa.table({"nme": ["ann"]}), type="Person"), "no property 'nme'; did you mean 'name'?"),
            (lambda: graph.load({"name": ["ann"], "age": [3]}), "'name' is not a type of this schema, which has Kn"),
            (lambda: graph.load({"Persn": [{"name": "ann"}]}), "which has Knows, Person; did you mean 'Person'?"),
            (lambda: graph.table("Persons"), "no type 'Persons'; did you mean 'Person'?"),
            (lambda: graph.numbered(["Know"]), "no edge type 'Know'; did you mean 'Knows'?"),
            (lambda: graph.to_networkx(nodes={"Persn": ["ann"]}), "no node type 'Persn'; did you mean 'Person'?"),
        ):
            with pytest.raises(InputError) as caught:
                call()
            assert words in caught.value.message
        with pytest.raises(ConstraintError, match="record 2: age: a number is not finite"):
            graph.load([{"name": "ann", "age": 3}, {"name": "bob", "age": float("nan")}], type="Person")
    with pytest.raises(SchemaError, match=r"endpoint Persn, .*; did you mean 'Person'\?"):
        omnigraph.create(tmp_path / "h.omni", schema.replace("-> Person", "-> Persn"))
