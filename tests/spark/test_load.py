"""Loads through Spark: what arrives, in which commit, and what is refused."""

from __future__ import annotations

import gzip
import json
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from tests.spark.conftest import SCHEMA
from tests.spark.records import city, knows, lives_in, person, rows, write_lines

from omnigraph import connect, create
from omnigraph.engine.ingest.progress import Progress
from omnigraph.errors import ConstraintError, InputError, KeyConflictError, NotFoundError
from omnigraph.graph import Graph
from omnigraph.pipeline import run_job

pytestmark = pytest.mark.spark


def load(graph: Graph, source: Any, mode: str = "append", **options: Any) -> Any:
    return run_job(graph.context, source, mode=mode, **options)


def versions(graph: Graph) -> dict[str, int]:
    return {key: entry.version for key, entry in graph.snapshot().entries.items()}


def data_files(graph: Graph) -> set[str]:
    return {str(path) for path in Path(graph.uri).glob("*/*/data/*")}


def test_one_load_of_many_types_is_one_commit(graph: Graph, tmp_path: Path, spark: Any) -> None:
    everything = person(
        "ada", age=36, email="a@x", mood="calm", born="1815-12-10", seen="2020-01-02T03:04:05.678Z", score=1.5,
        tags=["x", "y"], vec=[1, 2],
    )  # fmt: skip
    path = write_lines(
        tmp_path / "a.jsonl", knows("ada", "bob", since="2020-01-01"), everything, person("bob"),
        city(1, size=2**64 - 1), lives_in("ada", 1), {"type": "Note", "data": {"text": "hi"}}, "",
    )  # fmt: skip
    heard: list[Progress] = []
    result = load(graph, path, actor="tester", progress=heard.append)
    assert result.rows == {"edge:Knows": 1, "edge:LivesIn": 1, "node:City": 1, "node:Note": 1, "node:Person": 2}
    assert (result.engine, result.bytes_written > 0) == ("spark", True)
    assert {"stage", "check", "commit"} <= set(result.phases)
    assert {"stage", "check"} <= {each.phase for each in heard}
    [newest, genesis] = graph.history.list()
    assert (newest.graph_commit_id, newest.actor_id) == (result.commit_id, "tester")
    assert newest.parent_commit_id == genesis.graph_commit_id
    ada = rows(graph, "node:Person")[0]
    assert (ada["id"], ada["age"], ada["born"], ada["tags"], ada["vec"]) == (
        "ada", 36, date(1815, 12, 10), ["x", "y"], [1.0, 2.0],
    )  # fmt: skip
    assert rows(graph, "node:City") == [{"id": "1", "code": 1, "size": 2**64 - 1}]
    assert {row["src"]: row["dst"] for row in rows(graph, "edge:Knows")} == {"ada": "bob"}


def test_folders_globs_and_compressed_files_load_alike(graph: Graph, tmp_path: Path, spark: Any) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write_lines(folder / "a.jsonl", person("a"), knows("a", "b"))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(json.dumps(person("b")).encode()))
    assert load(graph, folder).rows == {"edge:Knows": 1, "node:Person": 2}
    assert load(graph, str(folder / "*.gz"), "merge").rows == {"node:Person": 1}


def test_an_empty_input_changes_nothing(graph: Graph, tmp_path: Path, spark: Any) -> None:
    before = versions(graph)
    assert load(graph, write_lines(tmp_path / "e.jsonl", "", " ")).commit_id is None
    assert versions(graph) == before
    with pytest.raises(NotFoundError):
        load(graph, tmp_path / "missing.jsonl")


def test_parquet_csv_arrow_and_frames_load_per_type_with_a_mapping(graph: Graph, tmp_path: Path, spark: Any) -> None:
    pq.write_table(pa.table({"full": ["a", "b"], "years": [1, None], "noise": [0, 0]}), tmp_path / "p.parquet")
    (tmp_path / "c.csv").write_text("code,size\n7,70\n8,\n")
    table = pa.table({"from": ["a"], "to": ["b"], "since": pa.array([date(2020, 1, 1)])})
    frame = spark.createDataFrame([("a", 7)], "src string, dst long")
    result = load(
        graph,
        {"Person": tmp_path / "p.parquet", "City": str(tmp_path / "c.csv"), "knows": table, "edge:LivesIn": frame},
        columns={"Person": {"name": "full", "age": "years"}},
    )
    assert result.rows == {"edge:Knows": 1, "edge:LivesIn": 1, "node:City": 2, "node:Person": 2}
    assert [(row["id"], row["age"]) for row in rows(graph, "node:Person")] == [("a", 1), ("b", None)]
    assert [(row["code"], row["size"]) for row in rows(graph, "node:City")] == [(7, 70), (8, None)]
    assert rows(graph, "edge:LivesIn")[0]["dst"] == "7"
    lines = spark.createDataFrame([(json.dumps(person("line")),)], "value string")
    assert load(graph, lines).rows == {"node:Person": 1}


def test_a_frame_without_rows_has_columns_to_check_and_a_type_to_empty(graph: Graph, spark: Any) -> None:
    graph.load([person("a")], engine="local")
    wrong, right = (spark.createDataFrame([], f"{column} string") for column in ("nome", "name"))
    with pytest.raises(InputError, match="unknown column 'nome' of Person"):
        load(graph, {"Person": wrong}, mode="overwrite")
    with pytest.raises(InputError, match="unknown column 'nome' of Person"):
        load(graph, {"Person": pa.table({"nome": pa.array([], pa.string())})}, mode="overwrite")
    assert len(rows(graph, "node:Person")) == 1
    load(graph, {"Person": right}, mode="overwrite")
    assert rows(graph, "node:Person") == []


def test_locations_only_spark_can_read_are_left_to_it(graph: Graph, tmp_path: Path, spark: Any) -> None:
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.viewfs.mounttable.default.link./in", f"file://{tmp_path}/in")
    folder = tmp_path / "in"
    folder.mkdir()
    write_lines(folder / "a.jsonl", person("a"), city(1))
    (folder / "p.csv").write_text('name,age,tags\n"b",7,"[""x"",""y""]"\n"c\nd",,\n')
    pq.write_table(pa.table({"from": ["a"], "to": ["b"]}), folder / "k.parquet")
    result = graph.load("viewfs:///in/*.jsonl")
    assert (result.engine, result.rows) == ("spark", {"node:City": 1, "node:Person": 1})
    graph.load({"Person": "viewfs:///in/p.csv", "Knows": ["viewfs:///in/k.parquet"]})
    found = [(row["id"], row["age"], row["tags"]) for row in rows(graph, "node:Person")]
    assert found == [("a", None, None), ("b", 7, ["x", "y"]), ("c\nd", None, None)]
    assert len(rows(graph, "edge:Knows")) == 1
    (folder / "bad.jsonl").write_text("{")
    with pytest.raises(ConstraintError, match=r"bad\.jsonl: row 1: not JSON"):
        graph.load("viewfs:///in/bad.jsonl")
    with pytest.raises(InputError, match=r"only Spark may know how to read viewfs:///in/a\.jsonl"):
        graph.load("viewfs:///in/a.jsonl", engine="local")


def test_overwrite_replaces_the_tables_it_names_and_no_others(graph: Graph, tmp_path: Path, spark: Any) -> None:
    load(
        graph,
        write_lines(tmp_path / "a.jsonl", person("a"), person("b"), city(1), {"type": "Note", "data": {"text": "n"}}),
    )
    load(graph, write_lines(tmp_path / "b.jsonl", person("c")), "overwrite")
    assert [row["id"] for row in rows(graph, "node:Person")] == ["c"]
    assert len(rows(graph, "node:City")) == 1
    load(graph, {"Person": pa.table({"name": pa.array([], pa.string())})}, "overwrite")
    assert rows(graph, "node:Person") == []


def test_merge_replaces_whole_entities_and_keeps_their_row_ids(graph: Graph, tmp_path: Path, spark: Any) -> None:
    load(graph, write_lines(tmp_path / "a.jsonl", person("a", age=1), person("b", age=2), person("c", age=3)))
    handle = graph.snapshot().open("node:Person")
    before = {row["id"]: row["_rowid"] for row in handle.scan(["id"], with_row_id=True).to_pylist()}
    changed = write_lines(tmp_path / "b.jsonl", person("d", age=4), person("b", email="b@x"), person("a", age=9))
    assert load(graph, changed, "merge").rows == {"node:Person": 3}
    found = graph.snapshot().open("node:Person").scan(["id", "age", "email"], with_row_id=True).to_pylist()
    assert {row["id"]: (row["age"], row["email"]) for row in found} == {
        "a": (9, None), "b": (None, "b@x"), "c": (3, None), "d": (4, None),
    }  # fmt: skip
    after = {row["id"]: row["_rowid"] for row in found}
    assert {name: after[name] for name in before} == before
    assert len(set(after.values())) == 4
    load(graph, write_lines(tmp_path / "c.jsonl", *[person(name, age=5) for name in "abcd"]), "merge")
    assert [row["age"] for row in rows(graph, "node:Person")] == [5, 5, 5, 5]
    assert graph.snapshot().entries["node:Person"].row_count == 4


def test_in_a_merge_the_last_record_of_an_explicit_id_counts(graph: Graph, tmp_path: Path, spark: Any) -> None:
    people = [person("a"), person("b"), person("c")]
    load(graph, write_lines(tmp_path / "a.jsonl", *people, knows("a", "b", id="k")))
    load(graph, write_lines(tmp_path / "b.jsonl", knows("a", "c", id="k"), knows("b", "c", id="k")), "merge")
    [edge] = rows(graph, "edge:Knows")
    assert (edge["src"], edge["dst"]) == ("b", "c")


REFUSED: list[tuple[str, list[Any], str]] = [
    ("broken JSON", [person("x"), '{"type": "Person", "data"'], r"in\.jsonl: record 2 \(line 3\): not JSON"),
    ("wrong type", [person("x", age="old")], r"record 1 \(line 2\): Person\.age: expected an integer"),
    ("unknown field", [person("x", colour="red")], r"unknown field 'colour'"),
    ("required", [{"type": "Note", "data": {}}], r"Note\.text is required"),
    ("range", [person("x", age=200)], r"@range violation"),
    ("enum", [person("x", mood="sad")], r"enum violation"),
    ("vector", [person("x", vec=[1])], r"expected 2 numbers"),
    ("duplicate key", [person("x"), person("y"), person("x")], r"record 3 \(line 4\): @unique violation.*'x' twice"),
    ("unique in input", [person("x", email="e"), person("y", email="e")], r"record 2 \(line 3\): @unique violation"),
    ("unique against committed", [person("x", email="taken")], r"record 1 \(line 2\): @unique violation"),
    ("dangling source", [knows("nobody", "ada")], r"record 1 \(line 2\): edge Knows: src 'nobody' not found in Person"),
    ("dangling target", [person("x"), knows("x", "no")], r"record 2 \(line 3\): edge Knows: dst 'no' not found"),
    ("cardinality", [lives_in("ada", 1)], r"record 1 \(line 2\): @card violation: Person 'ada' has 2 LivesIn edges"),
]


@pytest.mark.parametrize(("records", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_bad_input_is_named_and_leaves_no_trace(
    tmp_path_factory: pytest.TempPathFactory, settled: Graph, tmp_path: Path, records: list[Any], message: str
) -> None:
    before, files = versions(settled), data_files(settled)
    with pytest.raises(ConstraintError, match=message):
        load(settled, write_lines(tmp_path / "in.jsonl", "", *records))
    assert versions(settled) == before
    assert not list(settled.context.store.objects.list_dir("__recovery"))
    assert data_files(settled) == files


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Graph:
    folder = tmp_path_factory.mktemp("settled")
    graph = create(folder / "graph", SCHEMA)
    load(graph, write_lines(folder / "a.jsonl", person("ada", email="taken"), city(1), lives_in("ada", 1)))
    return graph


def test_appending_an_id_that_exists_is_a_conflict_that_names_the_record(settled: Graph, tmp_path: Path) -> None:
    with pytest.raises(KeyConflictError, match=r"'ada' \(in\.jsonl: record 2 \(line 2\)\)"):
        load(settled, write_lines(tmp_path / "in.jsonl", person("new"), person("ada")))


def test_overwriting_nodes_that_kept_edges_need_is_refused(settled: Graph, tmp_path: Path) -> None:
    with pytest.raises(ConstraintError, match=r"orphan violation: edge LivesIn .* src 'ada'"):
        load(settled, write_lines(tmp_path / "in.jsonl", person("other")), "overwrite")


def test_a_duplicate_in_two_files_names_the_second_file(settled: Graph, tmp_path: Path) -> None:
    write_lines(tmp_path / "one.jsonl", person("p"), person("q"))
    write_lines(tmp_path / "two.jsonl", person("r"), person("q"))
    with pytest.raises(ConstraintError, match=r"two\.jsonl: record 2 \(line 2\): @unique violation"):
        load(settled, tmp_path / "*.jsonl")


def test_the_first_twenty_errors_are_shown_and_all_are_written_where_asked(settled: Graph, tmp_path: Path) -> None:
    records = [person(f"p{n}", age="x" if n % 2 else 1) for n in range(1000)]
    path = write_lines(tmp_path / "in.jsonl", *records)
    with pytest.raises(ConstraintError, match="and 499 more") as caught:
        load(settled, path, errors_to=str(tmp_path / "errors.jsonl"))
    assert len(caught.value.violations) == 20
    written = [json.loads(line) for line in (tmp_path / "errors.jsonl").read_text().splitlines()]
    assert [each["line"] for each in written] == list(range(2, 1001, 2))
    dangling = write_lines(tmp_path / "dangling.jsonl", *[knows("ada", f"no{n}") for n in range(30)])
    with pytest.raises(ConstraintError, match="and 29 more"):
        load(settled, dangling, errors_to=str(tmp_path / "errors.jsonl"))
    assert len((tmp_path / "errors.jsonl").read_text().splitlines()) == 30


def test_sources_that_do_not_fit_are_refused_in_one_sentence(settled: Graph, tmp_path: Path, spark: Any) -> None:
    pq.write_table(pa.table({"name": ["a"], "wat": [1]}), tmp_path / "p.parquet")
    with pytest.raises(InputError, match="unknown column 'wat' of Person"):
        load(settled, {"Person": tmp_path / "p.parquet"})
    with pytest.raises(InputError, match="does not say which"):
        load(settled, tmp_path / "p.parquet")
    with pytest.raises(InputError, match="'Nobody' is not a type"):
        load(settled, {"Nobody": tmp_path / "p.parquet"})
    with pytest.raises(InputError, match="needs a column 'to'"):
        load(settled, {"Knows": pa.table({"from": ["a"]})})
    with pytest.raises(InputError, match="a load mode is one of"):
        load(settled, tmp_path, "upsert")
    (tmp_path / "c.csv").write_text("code,size\n7,x\n")
    with pytest.raises(ConstraintError, match=r"c\.csv: record 1 \(line 2\): City\.size: 'x' is not U64"):
        load(settled, {"City": tmp_path / "c.csv"})


def test_bytes_outside_the_graph_come_from_named_places_and_are_copied(tmp_path: Path, spark: Any) -> None:
    depot = tmp_path / "depot"
    depot.mkdir()
    (depot / "a.bin").write_bytes(b"far")
    (tmp_path / "secret").write_bytes(b"not yours")
    schema = "node Photo { name: String @key  data: Blob? }"
    graph = create(tmp_path / "graph", schema, external_blobs=[depot.as_uri()])

    def photo(name: str, path: Path) -> dict[str, Any]:
        return {"type": "Photo", "data": {"name": name, "data": path.as_uri()}}

    allowed = write_lines(tmp_path / "in.jsonl", photo("a", depot / "a.bin"))
    run_job(graph.context, allowed, mode="append", spark=spark)
    assert graph.read_blob("Photo", "a", "data") == b"far"
    run_job(graph.context, allowed, mode="overwrite", spark=spark)
    assert graph.stat_blob("Photo", "a", "data").kind == "external"
    refused = write_lines(tmp_path / "bad.jsonl", photo("b", depot / "a.bin"), photo("c", tmp_path / "secret"))
    version = graph.snapshot().version
    with pytest.raises(ConstraintError, match=r"record 2.*none of the places"):
        run_job(graph.context, refused, mode="merge", spark=spark)
    (depot / "link").symlink_to(tmp_path / "secret")
    for tail in ("..%2fsecret", "%2e%2e/secret", "link"):
        escaping = write_lines(
            tmp_path / "escaping.jsonl",
            {"type": "Photo", "data": {"name": "d", "data": f"{depot.as_uri()}/{tail}"}},
        )
        with pytest.raises(ConstraintError, match=r"record 1.*none of the places"):
            run_job(graph.context, escaping, mode="merge", spark=spark)
    with pytest.raises(PySparkException, match="kept outside the graph"):
        graph.spark(spark).nodes("Photo").collect()
    with pytest.raises(ConstraintError, match="external_blobs"):
        run_job(connect(graph.uri).context, refused, mode="merge", spark=spark)
    assert graph.snapshot().version == version


def test_a_keyed_edge_that_is_merged_again_stays_one(tmp_path: Path, spark: Any) -> None:
    schema = "node P { k: String @key } edge Knows: P -> P { year: I32  note: String?  @key(src, dst, year) }"
    graph = create(tmp_path / "graph", schema)

    def edges(note: str, *years: int) -> list[dict[str, Any]]:
        return [{"edge": "Knows", "from": "a", "to": 'b"', "data": {"year": y, "note": note}} for y in years]

    nodes = [{"type": "P", "data": {"k": key}} for key in ("a", 'b"')]
    run_job(graph.context, write_lines(tmp_path / "1.jsonl", *nodes, *edges("x", 1, 2)), mode="merge", spark=spark)
    run_job(graph.context, write_lines(tmp_path / "2.jsonl", *edges("y", 2, 3)), mode="merge", spark=spark)
    graph.load(write_lines(tmp_path / "3.jsonl", *edges("z", 3)), mode="merge", engine="local")
    found = graph.query("query q() { match { $a $e:knows $b } return { $e.id, $e.note } }").to_pylist()
    assert {row["e.id"]: row["e.note"] for row in found} == {
        json.dumps(["a", 'b"', str(year)], separators=(",", ":")): note for year, note in ((1, "x"), (2, "y"), (3, "z"))
    }
    twice = write_lines(tmp_path / "4.jsonl", *edges("w", 4, 4))
    with pytest.raises(ConstraintError, match="twice"):
        run_job(graph.context, twice, mode="merge", spark=spark)
