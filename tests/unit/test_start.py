"""The first question of a process loads none of what is heavy and does not answer it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.graph import create

SCHEMA = """
node Person {
    name: String @key
    age: I32? @index
    city: String @index
    born: Date?
    seen: DateTime?
    size: F64?
    ok: Bool?
    tags: [String]?
}
node Post { slug: String @key  body: String @index  place: Vector(2) @index }
edge Knows: Person -> Person { weight: F64? }
edge Wrote: Person -> Post
"""
PEOPLE = ["ana", "bo", "cy", "di"]

QUESTIONS = {
    "nothing but opening": None,
    "a lookup": 'match { $a: Person { name: "bo" } } return { $a.age as age, $a.born as born, $a.seen as seen }',
    "hops": 'match { $a: Person { name: "ana" } $a knows $b $b knows $c } return { count($c) as n }',
    "a walk": 'match { $a: Person { name: "ana" } $a knows{1,3} $b } return { $b.name as name } order { name }',
    "edges": "match { $a: Person $a $e:knows $b $e.weight > 1.5 } return { $a.name as a, $e.weight as w } order { w }",
    "groups": "match { $a: Person $a.age > 1 } return { $a.city as city, count($a) as n, avg($a.size) as s, "
    "min($a.age) as low } order { n desc, city } limit 3",
    "order": "match { $a: Person } return { $a.name as name, $a.ok as ok, $a.tags as t }"
    " order { ok, name desc } limit 2",
    "negation": "match { $a: Person not { $a knows $b } } return { $a.name as name }",
    "dates": 'match { $a: Person $a.born < date("2001-06-01") } return { $a.born as born } order { born }',
    "texts": 'match { $a: Person $a.name starts_with "b" } return { $a.name as name, 5 as five, "x" as x }',
    "lists": 'match { $a: Person $a.tags contains "new" } return { count($a) as n }',
    "a join": "match { $a: Person $b: Person $a.age = $b.age } return { count($a) as n }",
    "vectors": "match { $p: Post } return { $p.slug as slug } order { nearest($p.place, [0.1, 0.9]) } limit 2",
    "a search": 'match { $p: Post search($p.body, "fox") } return { $p.slug as slug }',
    "ranks": 'match { $p: Post } return { $p.slug as slug } order { bm25($p.body, "dog") desc } limit 1',
}

SCRIPT = """
import json, sys
import omnigraph
root, text = sys.argv[1:]
graph = omnigraph.connect(root)
if text:
    rows = graph.query("query q() { " + text + " }").to_pylist()
    assert rows, text
print(json.dumps(sorted(sys.modules)))
"""

UNWANTED = ("pyspark", "py4j", "datafusion", "numba", "typer", "rich", "yaml", "wordllama", "httpx", "omnigraph.cli")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place: Path = tmp_path_factory.mktemp("first") / "graph"
    graph = create(place, SCHEMA)
    people = [
        {
            "type": "Person",
            "data": {
                "name": name,
                "age": None if number == 3 else number // 2 + 1,
                "city": "Fez" if number % 2 else "Oslo",
                "born": f"200{number}-01-02",
                "seen": "2024-05-06T07:08:09Z",
                "size": number / 3,
                "ok": None if number == 2 else bool(number),
                "tags": ["new"] if number else [],
            },
        }
        for number, name in enumerate(PEOPLE)
    ]
    posts = [
        {"type": "Post", "data": {"slug": str(number), "body": body, "place": [number, 1.0]}}
        for number, body in enumerate(["a red fox", "the dog sleeps"])
    ]
    knows = [
        {"edge": "Knows", "from": one, "to": other, "data": {"weight": weight}}
        for one, other, weight in (("ana", "bo", 1.0), ("bo", "cy", 2.0), ("cy", "ana", 3.0))
    ]
    graph.load([*people, *posts, *knows], engine="local")
    return place


@pytest.mark.long
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_first_question_loads_no_spark_no_terminal_and_no_model(question: str, root: Path) -> None:
    text = QUESTIONS[question] or ""
    command = [sys.executable, "-c", SCRIPT, str(root), text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert [name for name in json.loads(done.stdout) if name in UNWANTED] == []
