"""Columns larger than a plain array holds: whatever reads, joins or writes one does what it does with small ones.

The bound is lowered so that a few rows are too many, and with it the batches that Lance gives.
"""

import json

import pyarrow as pa
import pytest

from omnigraph import create
from omnigraph.catalog import wide
from omnigraph.engine.read.text import analysis as text
from omnigraph.engine.storage import batches, handle
from omnigraph.engine.storage.cache import SHARED

SCHEMA = """
node Doc { name: String @key  title: String  body: String?  tags: [String]?  marks: [I32]?  size: I32 @index }
node Reader { name: String @key  wants: String? }
edge Read: Reader -> Doc { note: String? }
"""
WORDS = ["harbour", "storm", "sailing", "Königin", "crab", "lantern", "tide"]
ROWS = 60


def docs(count: int = ROWS) -> pa.Table:
    rows = range(count)
    return pa.table(
        {
            "name": [f"d{row:03}" for row in rows],
            "title": [WORDS[row % 7] * (1 + row % 3) for row in rows],
            "body": [None if row % 11 == 0 else " ".join(WORDS[(row + n) % 7] for n in range(row % 9)) for row in rows],
            "tags": [None if row % 5 == 0 else [WORDS[(row * n) % 7] for n in range(row % 4)] for row in rows],
            "marks": pa.array([None if row % 6 == 0 else list(range(row % 5)) for row in rows], pa.list_(pa.int32())),
            "size": pa.array([row % 10 for row in rows], pa.int32()),
        }
    )


READERS = pa.table({"name": ["r1", "r2", "r3"], "wants": ["harbour", "tide", None]})
READ = pa.table(
    {"from": ["r1", "r1", "r2"], "to": ["d001", "d002", "d001"], "note": ["long " * 9, None, "harbour lantern"]}
)
QUESTIONS = {
    "equal": 'query q() { match { $d: Doc { title: "storm" } } return { $d.name, $d.body } }',
    "contains": 'query q() { match { $d: Doc  $d.body contains "crab" } return { $d.name } }',
    "starts": 'query q() { match { $d: Doc  $d.title starts_with "tide" } return { $d.name, $d.tags } }',
    "above": 'query q() { match { $d: Doc  $d.body >= "harbour" } return { $d.name, $d.body } order { $d.body desc } }',
    "columns": "query q() { match { $d: Doc  $d.body > $d.title } return { $d.name } }",
    "tagged": 'query q() { match { $d: Doc  $d.tags contains "crab" } return { $d.name, $d.tags, $d.marks } }',
    "tag": "query q() { match { $d: Doc  $d.tags contains $d.title } return { $d.name } }",
    "order": "query q() { match { $d: Doc } return { $d.body, $d.name } order { $d.body, $d.name desc } limit 20 }",
    "group": "query q() { match { $d: Doc } return { $d.title, count($d) as n, max($d.body) as b, min($d.body) as a }}",
    "search": 'query q() { match { $d: Doc  search($d.body, "harbour storm") } return { $d.name } }',
    "fuzzy": 'query q() { match { $d: Doc  fuzzy($d.body, "harbor", 1) } return { $d.name } }',
    "bm25": 'query q() { match { $d: Doc } return { $d.name } order { bm25($d.body, "storm Königin") } limit 9 }',
    "join": "query q() { match { $r: Reader  $d: Doc  $r.wants = $d.title } return { $r.name, $d.name, $d.body } }",
    "edges": "query q() { match { $r read $d } return { $r.name, $d.body } }",
    "by name": 'query q() { match { $d: Doc { name: "d017" } } return { $d.body, $d.tags } }',
    "constant": 'query q() { match { $d: Doc } return { $d.name, "a rather long constant text" as c } }',
}


@pytest.fixture(params=["as it is", "lowered"])
def bound(request, monkeypatch):
    """Run a test with the real bound, and with one so low that most columns are beyond it."""
    SHARED.clear()
    if request.param == "lowered":
        monkeypatch.setattr(wide, "PLAIN_MAX", 24)
        monkeypatch.setattr(batches, "DEFAULT_ROWS", 7)
        monkeypatch.setattr(handle, "FRAGMENT_BATCH_ROWS", 5)
        monkeypatch.setattr(text, "SLICE_BYTES", 40)
    yield request.param
    SHARED.clear()


def answers(graph) -> dict[str, list[str]]:
    """Every question twice, because the second time others are asked, as lines in one order."""
    found = {}
    for name, source in QUESTIONS.items():
        rows = [json.dumps(row) for row in graph.query(source)]
        result = graph.query(source)
        again = [json.dumps(row) for row in result.to_pylist()]
        table = result.to_arrow()
        assert table.schema == result.schema, name
        table.validate(full=True)
        assert sorted(map(json.dumps, table.to_pylist())) == sorted(again) == sorted(rows), name
        found[name] = rows if "order" in source else sorted(rows)
    return found


def of_plain_types(graph) -> bool:
    """No result has a type that only large ones need."""
    return not any("large" in str(graph.query(source).schema) for source in QUESTIONS.values())


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What a graph answers that is loaded from records, with the bounds there are."""
    graph = create(tmp_path_factory.mktemp("expected") / "graph", SCHEMA)
    graph.load({"Doc": docs(), "Reader": READERS, "Read": READ}, mode="append", engine="local")
    return answers(graph)


def wide_columns(table: pa.Table) -> pa.Table:
    return table.cast(pa.schema([field.with_type(wide.wide_type(field.type)) for field in table.schema]))


@pytest.mark.parametrize("form", ["plain", "wide", "chunked", "stream"])
def test_every_question_has_one_answer_whichever_way_columns_are_read(tmp_path, bound, expected, form):
    graph = create(tmp_path / "graph", SCHEMA)
    given = docs()
    if form == "wide":
        given = wide_columns(given)
    elif form != "plain":
        given = pa.concat_tables([given.slice(0, 1), given.slice(1, 30), given.slice(31)])
    source = given.to_reader() if form == "stream" else given
    graph.load({"Doc": source, "Reader": READERS, "Read": READ}, mode="append", engine="local")
    assert answers(graph) == expected
    graph.maintenance.optimize()
    assert answers(graph) == expected
    assert of_plain_types(graph)
    SHARED.clear()
    assert answers(graph) == expected


def test_rows_are_exported_changed_and_loaded_again(tmp_path, bound, expected):
    graph = create(tmp_path / "graph", SCHEMA)
    graph.load({"Doc": docs(), "Reader": READERS, "Read": READ}, mode="append", engine="local")
    graph.export(tmp_path / "out.jsonl")
    copy = create(tmp_path / "copy", SCHEMA)
    copy.load(tmp_path / "out.jsonl", mode="append", engine="local")
    copy.load({"Doc": docs().slice(0, 40)}, mode="merge", engine="local")
    assert answers(copy) == expected
    copy.load({"Doc": docs(), "Reader": READERS, "Read": READ}, mode="overwrite", engine="local")
    assert answers(copy) == expected
    copy.mutate('query q() { update Doc set { title: "a new and rather long title" } where size = 3 }')
    copy.mutate('query q() { delete Doc where title = "tide" }')
    copy.mutate(
        'query q($b: String?) { update Doc set { body: $b } where title = "a new and rather long title" }', {"b": None}
    )
    rows = copy.query("query q() { match { $d: Doc } return { $d.name, $d.title, $d.body } order { $d.name } }")
    kept = []
    for row in docs().to_pylist():
        if row["size"] == 3:
            row.update(title="a new and rather long title", body=None)
        if row["title"] != "tide":
            kept.append({f"d.{name}": row[name] for name in ("name", "title", "body")})
    assert [{name.removeprefix("$"): value for name, value in row.items()} for row in rows] == kept
    assert not copy.maintenance.verify().problems


@pytest.mark.parametrize("rows", [None, 3])
def test_a_stream_of_rows_is_planned_once_and_has_the_columns_of_the_scan(tmp_path, bound, rows):
    graph = create(tmp_path / "graph", SCHEMA)
    graph.load({"Doc": docs()}, mode="append", engine="local")
    table = graph.snapshot().open("node:Doc")
    planned = []

    def scan(batch):
        planned.append(batch)
        return table.scanner(["name", "tags"], batch_size=batch)

    stream = batches.read_stream(scan, rows)
    assert stream.schema == table.scanner(["name", "tags"]).projected_schema
    assert stream.read_all() == table.scan(["name", "tags"])
    assert planned == [rows or batches.DEFAULT_ROWS]
