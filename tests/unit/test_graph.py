"""The public face of a graph, verb by verb."""

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.testing.faults import RecordingStore

SCHEMA = "node Person { name: String @key  age: I32?  born: Date? }\nedge Knows: Person -> Person\n"
ADULTS = "query adults($age: I32) { match { $p: Person $p.age >= $age } return { $p.name as name } order { $p.name } }"
ADD = "query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }"


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    return omnigraph.create(tmp_path / "g.omni", schema=SCHEMA)


def names(graph: omnigraph.Graph, at: str | None = None) -> list[str]:
    return [row["name"] for row in graph.query(ADULTS, {"age": 0}, at=at)]


def test_a_schema_may_be_a_text_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "people.pg").write_text(SCHEMA)
    for number, schema in enumerate([SCHEMA, tmp_path / "people.pg", str(tmp_path / "people.pg")]):
        with omnigraph.create(tmp_path / f"{number}.omni", schema=schema) as graph:
            assert graph.schema.source == SCHEMA


def test_a_root_may_be_a_path_or_a_uri(graph: omnigraph.Graph, tmp_path: Path) -> None:
    for uri in (tmp_path / "g.omni", str(tmp_path / "g.omni"), f"file://{tmp_path / 'g.omni'}"):
        assert omnigraph.connect(uri).uri == graph.uri


def test_a_used_root_is_refused(graph: omnigraph.Graph) -> None:
    with pytest.raises(omnigraph.AlreadyExistsError) as caught:
        omnigraph.create(graph.uri, schema=SCHEMA)
    assert caught.value.code == "already_exists"


def test_connecting_to_nothing_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(omnigraph.GraphNotFoundError):
        omnigraph.connect(tmp_path / "nothing.omni")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["file", "file/below", "x" * 3_000])
def test_what_can_be_no_folder_is_no_graph_and_lance_is_not_asked_to_try(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("x")
    with RecordingStore() as store, pytest.raises(omnigraph.GraphNotFoundError, match="there is no graph at"):
        omnigraph.connect(tmp_path / place)
    assert "open" not in store.names()


def test_a_query_may_be_a_text_or_a_file(graph: omnigraph.Graph, tmp_path: Path) -> None:
    (tmp_path / "people.gq").write_text(f"{ADULTS}\n{ADD}\n")
    done = graph.mutate(tmp_path / "people.gq", {"name": "Ada", "age": 36}, name="add", actor="ana")
    assert (done.affected_nodes, done.affected_edges, done.query_name) == (1, 0, "add")
    result = graph.query(str(tmp_path / "people.gq"), {"age": 1}, name="adults")
    assert result.to_pylist() == [{"name": "Ada"}]
    assert result.columns == ["name"]
    assert len(result) == 1
    assert result.to_arrow() == pa.table({"name": ["Ada"]})
    assert result.to_pandas()["name"].tolist() == ["Ada"]
    assert "Ada" in repr(result)
    assert "<table>" in result._repr_html_()


def test_reads_and_writes_have_their_own_door(graph: omnigraph.Graph) -> None:
    with pytest.raises(omnigraph.ExecutionError):
        graph.query(ADD, {"name": "x"})
    with pytest.raises(omnigraph.ExecutionError):
        graph.mutate(ADULTS, {"age": 1})


def test_the_past_can_be_read_by_commit(graph: omnigraph.Graph) -> None:
    first = graph.mutate(ADD, {"name": "Ada", "age": 1}, actor="ana").commit_id
    second = graph.mutate(ADD, {"name": "Bob", "age": 2}, actor="bob").commit_id
    assert names(graph) == ["Ada", "Bob"]
    assert names(graph, first) == ["Ada"]
    assert [commit.graph_commit_id for commit in graph.history.list(limit=2)] == [second, first]
    assert [commit.graph_commit_id for commit in graph.history.list(actor="ana")] == [first]
    assert second is not None
    assert graph.history.show(second).parent_commit_id == first
    assert graph.snapshot(at=first).entries["node:Person"].row_count == 1  # type: ignore[index]


def test_a_write_that_changes_nothing_makes_no_commit(graph: omnigraph.Graph) -> None:
    done = graph.mutate('query q() { delete Person where name = "nobody" }')
    assert done.commit_id is None
    assert len(graph.history.list()) == 1


def test_a_conditional_write_compares_the_head(graph: omnigraph.Graph) -> None:
    head = graph.snapshot().head
    graph.mutate(ADD, {"name": "Ada"}, if_commit=head)
    with pytest.raises(omnigraph.PreconditionFailedError):
        graph.mutate(ADD, {"name": "Bob"}, if_commit=head)


def test_a_read_only_graph_refuses_every_write(graph: omnigraph.Graph) -> None:
    reader = omnigraph.connect(graph.uri, read_only=True)
    assert reader.read_only
    for write in (
        lambda: reader.mutate(ADD, {"name": "x"}),
        lambda: reader.load([{"type": "Person", "data": {"name": "x"}}]),
        lambda: reader.maintenance.optimize(),
        lambda: reader.maintenance.cleanup(keep=1),
        lambda: reader.maintenance.repair(confirm=True),
    ):
        with pytest.raises(omnigraph.InputError, match="read-only"):
            write()
    assert len(graph.history.list()) == 1


def test_a_load_takes_records_arrow_tables_and_files(graph: omnigraph.Graph, tmp_path: Path) -> None:
    records = [{"type": "Person", "data": {"name": "Ada", "age": 36}}]
    by_records = graph.load(records, actor="ana")
    assert by_records.rows == {"node:Person": 1}
    assert (by_records.engine, by_records.mode) == ("local", "append")
    assert by_records.seconds > 0
    people = pa.table(
        {"name": ["Bob", "Cid"], "age": pa.array([1, None], pa.int32()), "born": [date(2000, 1, 2), None]}
    )
    by_arrow = graph.load({"Person": people, "Knows": pa.table({"from": ["Bob"], "to": ["Cid"]})})
    assert by_arrow.rows == {"edge:Knows": 1, "node:Person": 2}
    (tmp_path / "more.jsonl").write_text('{"type":"Person","data":{"name":"Dot"}}\n')
    assert graph.load(tmp_path / "more.jsonl", mode="merge").commit_id == graph.snapshot().head
    assert graph.snapshot().entries["node:Person"].row_count == 4  # type: ignore[index]


def test_a_load_says_why_it_chose_its_engine(graph: omnigraph.Graph, tmp_path: Path) -> None:
    (tmp_path / "few.jsonl").write_text('{"type":"Person","data":{"name":"Dot"}}\n')
    assert "MB" in graph.load(tmp_path / "few.jsonl").reason
    with pytest.raises(omnigraph.InputError, match="engine"):
        graph.load(tmp_path / "few.jsonl", engine="quantum")
    with pytest.raises(omnigraph.InputError, match="mode"):
        graph.load(tmp_path / "few.jsonl", mode="replace", engine="local")


def test_an_export_is_lines_or_a_file(graph: omnigraph.Graph, tmp_path: Path) -> None:
    graph.mutate(ADD, {"name": "Ada", "age": 36})
    lines = list(graph.export())
    assert lines == ['{"type":"Person","data":{"id":"Ada","age":36,"born":null,"name":"Ada"}}']
    assert graph.export(tmp_path / "out.jsonl") == 1
    assert (tmp_path / "out.jsonl").read_text().splitlines() == lines


def test_an_export_never_writes_among_the_files_of_its_graph(graph: omnigraph.Graph, tmp_path: Path) -> None:
    graph.mutate(ADD, {"name": "Ada", "age": 36})
    (tmp_path / "link").symlink_to(graph.uri)
    schema = next(Path(graph.uri).glob("*.pg"))
    before = schema.read_bytes()
    for place in (schema, Path(graph.uri, "copy.jsonl"), tmp_path / "link" / schema.name, f"file://{schema}"):
        with pytest.raises(omnigraph.InputError, match="outside"):
            graph.export(place)
    for place in (graph.uri, f"{graph.uri}/copy/"):
        with pytest.raises(omnigraph.InputError, match="outside"):
            graph.export(place, format="parquet")
    assert schema.read_bytes() == before
    assert graph.export(f"{graph.uri}-copy.jsonl") == 1


def test_two_handles_see_each_others_commits(graph: omnigraph.Graph) -> None:
    other = omnigraph.connect(graph.uri)
    graph.mutate(ADD, {"name": "Ada", "age": 1})
    assert names(other) == ["Ada"]
    other.mutate(ADD, {"name": "Bob", "age": 1})
    assert names(graph) == ["Ada", "Bob"]
    other.refresh()
    assert names(other) == ["Ada", "Bob"]


def test_a_schema_change_is_planned_and_not_made(graph: omnigraph.Graph) -> None:
    plan = graph.schema.plan(SCHEMA.replace("age: I32?", "age: I32?  mail: String?")).to_json()
    assert plan["supported"]
    assert [step["kind"] for step in plan["steps"]] == ["add_property"]
    assert graph.schema.source == SCHEMA


def test_a_sound_graph_verifies(graph: omnigraph.Graph) -> None:
    graph.mutate(ADD, {"name": "Ada", "age": 1})
    report = graph.maintenance.verify()
    assert report.clean
    assert report.rows == 1
    assert list(graph.maintenance.unfinished()) == []


def test_a_parameter_nobody_declared_is_refused_by_every_verb(graph: omnigraph.Graph) -> None:
    graph.explain(ADULTS)
    graph.explain(ADULTS, {"age": 3})
    for verb in (
        graph.query,
        graph.explain,
        lambda text, given: graph.explain(text, given, analyze=True),
        graph.to_networkx,
    ):
        with pytest.raises(omnigraph.InputError, match="agee"):
            verb(ADULTS, {"age": 3, "agee": 4})
    for verb in (graph.mutate, graph.explain):
        with pytest.raises(omnigraph.InputError, match="nmae"):
            verb(ADD, {"name": "Ada", "age": 3, "nmae": "Ada"})
