"""Loads that update: what is there gets what is given and keeps the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.together import Ask, written_together

from omnigraph import Graph, create
from omnigraph.engine.operations.load import load
from omnigraph.engine.write.writer import Written
from omnigraph.errors import ConstraintError, ExpectedVersionMismatchError, InputError

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    email: String? @unique
    level: I32 @default(3)
    mood: enum(calm, glad)?
    code: String?
    tags: [String]?
    photo: Blob?
    vec: Vector(2)? @embed(code, model="m")
    @range(level, 0..10)
    @check(code, "^[a-z]+$")
}
node Place { a: String  b: I32  note: String?  @key(a, b) }
node Note { text: String  seen: DateTime? @default(now()) }
edge Knows: Person -> Person { kind: String  since: I32?  @key(src, dst, kind) }
edge Likes: Person -> Person @card(0..1) { weight: F64?  why: String? }
"""
PEOPLE: list[dict[str, Any]] = [
    {
        "name": name,
        "age": number,
        "email": f"{name}@x",
        "level": 5,
        "tags": [name],
        "photo": "base64:aGk=",
        "vec": [1, 2],
    }
    for number, name in enumerate("abc")
]


def person(**data: Any) -> dict[str, Any]:
    return {"type": "Person", "data": data}


def likes(**data: Any) -> dict[str, Any]:
    return {"edge": "Likes", "data": data}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = create(tmp_path / "graph", SCHEMA)
    graph.load(
        [
            *(person(**data) for data in PEOPLE),
            {"type": "Place", "data": {"a": "x", "b": 1, "note": "old"}},
            {"type": "Note", "data": {"id": "n", "text": "hello", "seen": None}},
            {"edge": "Knows", "from": "a", "to": "b", "data": {"kind": "old", "since": 1}},
            {"edge": "Likes", "from": "a", "to": "b", "data": {"id": "l", "weight": 1.0, "why": "so"}},
        ]
    )
    return graph


def entities(graph: Graph, *types: str) -> dict[str, dict[str, Any]]:
    found = [json.loads(line) for line in graph.export(types=list(types))]
    return {each["data"]["id"]: {**each["data"], **{k: each[k] for k in ("from", "to") if k in each}} for each in found}


def refused(graph: Graph, *records: dict[str, Any]) -> str:
    head = graph.snapshot().head
    with pytest.raises(ConstraintError) as caught:
        graph.load(list(records), mode="update")
    assert graph.snapshot().head == head
    return str(caught.value)


def test_given_columns_change_and_others_stay_row_by_row(graph: Graph) -> None:
    before = entities(graph, "Person")
    result = graph.load(
        [person(name="a", age=40), person(id="b", email=None, mood="glad"), person(id="c")], mode="update"
    )
    assert (result.mode, result.nodes) == ("update", {"Person": 3})
    after = entities(graph, "Person")
    assert after["a"] == {**before["a"], "age": 40}
    assert after["b"] == {**before["b"], "email": None, "mood": "glad"}
    assert after["c"] == before["c"]
    assert len(graph.history.list()) == 3


def test_a_null_that_is_written_is_a_value_and_a_default_is_for_what_is_new(graph: Graph) -> None:
    graph.load([{"type": "Note", "data": {"id": "n", "text": "bye"}}], mode="update")
    assert entities(graph, "Note")["n"] == {"id": "n", "text": "bye", "seen": None}
    graph.load([person(name="a", tags=None, photo=None, vec=None, age=None)], mode="update")
    changed = entities(graph, "Person")["a"]
    assert [changed[name] for name in ("tags", "photo", "vec", "age", "level")] == [None, None, None, None, 5]
    assert "Person.level is required" in refused(graph, person(name="a", level=None))


def test_a_name_in_escapes_is_given_as_well(graph: Graph) -> None:
    graph.load(b'{"type":"Person","data":{"name":"a","\\u0061ge":null}}\n', mode="update")
    assert entities(graph, "Person")["a"]["age"] is None


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (person(name="zed", age=1), "Person 'zed' does not exist"),
        (person(age=1), r"by its id or its key (name), and this record has none"),
        (person(id="", age=1), "must not be empty"),
        (person(id="a", name="b"), "id 'a' of Person is not 'b'"),
        (person(id="a", name=None), "Person.name is required"),
        (person(name="a", level=11), "@range violation"),
        (person(name="a", code="7"), "@check"),
        (person(name="a", mood="sad"), "enum violation"),
        (person(name="a", email="c@x"), "@unique violation"),
        (person(name="a", vec=[1]), "Person.vec"),
        (person(name="a", wrong=1), "unknown field 'wrong'"),
        ({"type": "Place", "data": {"id": '["x","1"]', "b": 2}}, "another key"),
        ({"type": "Place", "data": {"a": "x", "note": "new"}}, "by its id or its key (a, b)"),
        ({"type": "Note", "data": {"text": "x"}}, "by its id, and this record has none"),
        ({"edge": "Knows", "from": "a", "to": "c", "data": {"kind": "old"}}, "does not exist"),
        ({"edge": "Knows", "data": {"id": '["a","b","old"]', "kind": "new"}}, "other ends or another key"),
        ({"edge": "Likes", "from": "b", "to": "b", "data": {"id": "l"}}, "other ends"),
        ({"edge": "Likes", "from": "a", "to": "b", "data": {"why": "x"}}, "by its id, and this record has none"),
    ],
)
def test_what_cannot_be_updated_is_refused_with_its_record(graph: Graph, record: dict[str, Any], says: str) -> None:
    text = refused(graph, person(name="c", age=9), record)
    assert text.startswith("record 2 (line 2): ")
    assert says in text


def test_an_entity_is_named_once(graph: Graph) -> None:
    assert "the input has Person 'a' twice" in refused(graph, person(name="a", age=1), person(id="a", level=1))
    assert "the id 'l' of Likes twice" in refused(graph, likes(id="l", why="x"), likes(id="l", why="x"))


def test_unique_values_may_be_exchanged(graph: Graph) -> None:
    graph.load([person(name="a", email="b@x"), person(name="b", email="a@x")], mode="update")
    assert [each["email"] for each in entities(graph, "Person").values()] == ["b@x", "a@x", "c@x"]


def test_edges_are_named_by_their_key_or_their_id_and_stay_where_they_are(graph: Graph) -> None:
    graph.load(
        [
            {"edge": "knows", "from": "a", "to": "b", "data": {"kind": "old", "since": 2}},
            likes(id="l", weight=2.0),
        ],
        mode="update",
    )
    found = entities(graph, "Knows", "Likes")
    assert found['["a","b","old"]']["since"] == 2
    assert found["l"] == {"id": "l", "weight": 2.0, "why": "so", "from": "a", "to": "b"}


def test_columns_of_tables_that_are_left_out_stay(graph: Graph) -> None:
    before = entities(graph, "Person", "Likes")
    vectors = pa.array([[9.0, 9.0], None], pa.list_(pa.float32(), 2))
    graph.load({"Person": pa.table({"name": ["a", "c"], "vec": vectors})}, mode="update")
    graph.load({"Likes": pa.table({"id": ["l"], "why": ["thus"]})}, mode="update")
    after = entities(graph, "Person", "Likes")
    assert after["a"] == {**before["a"], "vec": [9.0, 9.0]}
    assert after["c"] == {**before["c"], "vec": None}
    assert after["l"] == {**before["l"], "why": "thus"}
    with pytest.raises(ConstraintError, match="Person 'zed' does not exist"):
        graph.load({"Person": pa.table({"name": ["zed"], "age": [1]})}, mode="update")


def test_csv_and_streams_update_too(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("name,age\na,70\nb,\n")
    graph.load({"Person": str(tmp_path / "p.csv")}, mode="update")
    stream = pa.table({"id": ["c"], "level": [9]}).to_reader()
    graph.load({"Person": stream}, mode="update")
    assert [(each["age"], each["level"]) for each in entities(graph, "Person").values()] == [(70, 5), (None, 5), (2, 9)]


def test_an_update_on_a_branch_leaves_main_alone(graph: Graph) -> None:
    graph.branches.create("review")
    graph.load([person(name="a", age=90)], mode="update", branch="review")
    assert entities(graph, "Person")["a"]["age"] == 0
    assert [row["p.age"] for row in graph.query(AGES, branch="review")] == [90, 1, 2]


AGES = "query q() { match { $p: Person } return { $p.age } order { $p.name } }"


def test_an_update_sees_the_writes_it_is_published_with(graph: Graph) -> None:
    def asking(mode: str, *records: dict[str, Any]) -> Ask:
        return lambda context: load(context, list(records), mode=mode)

    outcomes = written_together(
        graph.context,
        [
            asking("append", person(name="dan", age=1)),
            asking("update", person(name="dan", level=1), person(name="a", age=8)),
            asking("update", person(name="dan", mood="glad"), person(name="a", level=8)),
            asking("update", person(name="zed", level=1)),
        ],
    )
    assert [isinstance(outcome, tuple) and isinstance(outcome[1], Written) for outcome in outcomes] == [True] * 3 + [
        False
    ]
    found = entities(graph, "Person")
    assert [found["dan"][name] for name in ("age", "level", "mood")] == [1, 1, "glad"]
    assert [found["a"][name] for name in ("age", "level", "email")] == [8, 8, "a@x"]
    assert len(graph.history.list()) == 3


def test_an_update_decided_on_an_older_state_is_a_conflict(graph: Graph) -> None:
    base = graph.snapshot()
    graph.load([person(name="a", age=50)], mode="update")
    line = json.dumps(person(name="a", level=1)).encode()
    with pytest.raises(ExpectedVersionMismatchError):
        load(graph.context, line, mode="update", base=base)
    load(graph.context, line, mode="update")
    assert (entities(graph, "Person")["a"]["age"], entities(graph, "Person")["a"]["level"]) == (50, 1)


def test_a_null_behind_a_carriage_return_is_given(graph: Graph) -> None:
    graph.load(b'{"type":"Person","data":{"name":"a","age":\rnull}}\n', mode="update")
    graph.load(b'{"type":"Note","data":{"text":"x","seen":\rnull}}\n')
    rows = [json.loads(line)["data"] for line in graph.export()]
    assert [row["age"] for row in rows if row.get("name") == "a"] == [None]
    assert [row["seen"] for row in rows if row.get("text") == "x"] == [None]


def test_one_end_of_an_edge_is_not_passed_over_where_columns_are_mapped(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "likes.csv").write_text("id,to,reason\nl,c,because\n")
    with pytest.raises(InputError, match="needs a column 'from'"):
        graph.load({"Likes": tmp_path / "likes.csv"}, mode="update", columns={"Likes": {"why": "reason"}})
