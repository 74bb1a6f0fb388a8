"""What the troubleshooting page quotes is what a user reads."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest
from tests.docs.blocks import blocks, run

import omnigraph

PAGE = "docs/troubleshooting.md"
HEADINGS = re.findall(r"^### (.+)$", (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8"), re.MULTILINE)
QUOTED = [re.sub(r"`", "", text) for heading in HEADINGS for text in re.findall(r'"([^"]+)"', heading)]
SCHEMA = """
node Person { name: String @key  age: I32? }
node Pet { name: String @key  v: Vector(4)? }
edge Owns: Person -> Pet
"""
COUNT = "query q() { match { $p: Person } return { count($p) as n } }"
FAR = "query q($t: String) { match { $p: Pet } return { $p.name } order { nearest($p.v, $t) } limit 1 }"
MIXED = 'query q() { insert Person { name: "z" } delete Person where name = "a" }'


def _twice(graph: omnigraph.Graph) -> None:
    graph.load([{"name": "ann"}], type="Person")
    graph.load([{"name": "ann"}], type="Person")


def _required(graph: omnigraph.Graph) -> None:
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  mail: String"))


def _dropped(graph: omnigraph.Graph) -> None:
    graph.load([{"name": "ann", "age": 3}, {"name": "bob", "age": 4}], type="Person")
    graph.schema.apply(SCHEMA.replace("age: I32?", ""))


def _branch(graph: omnigraph.Graph, then: Callable[[], Any]) -> None:
    graph.branches.create("dev")
    then()


def _lines(graph: omnigraph.Graph) -> None:
    path = Path(graph.uri).parent / "people.csv"
    path.write_text("name,age\nann,3\n", encoding="utf-8")
    graph.load(path)


def _from(graph: omnigraph.Graph) -> None:
    graph.branches.create("dev")
    graph.branches.create("next", from_="dev")
    graph.branches.delete("dev")


PROVOKED: dict[str, Callable[[omnigraph.Graph], Any]] = {
    "there is no graph at '…'": lambda graph: omnigraph.connect(f"{graph.uri}-none"),
    "graph already initialized at '…'": lambda graph: omnigraph.create(graph.uri, SCHEMA),
    "holds other things (…), and a graph has a folder of its own": lambda graph: omnigraph.create(
        Path(graph.uri).parent, SCHEMA
    ),
    "this graph was opened read-only and cannot be written": lambda graph: omnigraph.connect(
        graph.uri, read_only=True
    ).mutate('query q() { insert Person { name: "z" } }'),
    "key conflict: node '…' already has id '…'": _twice,
    "edge …: src '…' not found in …": lambda graph: graph.load([{"from": "ann", "to": "rex"}], type="Owns"),
    "… has no property '…'": lambda graph: graph.load(pandas.DataFrame({"name": ["x"], "size": [3]}), type="Person"),
    "unknown field '…' of …": lambda graph: graph.load([{"name": "ann", "size": 3}], type="Person"),
    "say of which type the rows of a frame are": lambda graph: graph.load(pandas.DataFrame({"name": ["x"]})),
    "… holds rows of one type and does not say which": _lines,
    "expected 'query', found …": lambda graph: graph.query("select 1"),
    "there is no edge type '…'": lambda graph: graph.query(COUNT.replace("Person }", "Person  $p likes $q }")),
    "query '…' changes the graph: run it with mutate": lambda graph: graph.query(MIXED.partition("delete")[0] + "}"),
    "model '…' makes vectors of 256 numbers, and the property has …": lambda graph: graph.query(FAR, {"t": "cat"}),
    "D2: a query either inserts and updates or deletes, never both": lambda graph: graph.mutate(MIXED),
    "the schema cannot be changed while there are other branches": lambda graph: _branch(
        graph, lambda: graph.schema.apply(SCHEMA + " node Town { name: String @key }")
    ),
    "a required property cannot be added": _required,
    "dropping it takes the data of … rows": _dropped,
    "a branch '…' would lie within the files of '…'": lambda graph: _branch(
        graph, lambda: graph.branches.create("dev/x")
    ),
    "'…' cannot be deleted: '…' was created from it": _from,
    "the server '…' cannot be reached": lambda graph: _unreachable(),
}
ELSEWHERE = {
    "this needs …, which is not installed",
    "stale view of …",
    "changed while the write was prepared",
    "run omnigraph repair before writing",
    "no tokens are configured, so everybody who reaches this server could change the graph",
}
"""Messages that need another process or another environment to come about; they are looked for in the sources."""


def _unreachable() -> None:
    from omnigraph.client import connect_remote

    connect_remote("http://127.0.0.1:9", graph="default", retry_seconds=0.01).branches.list()


def test_every_quoted_message_is_one_of_those_tried_here() -> None:
    assert sorted(QUOTED) == sorted([*PROVOKED, *ELSEWHERE])


@pytest.mark.parametrize("quoted", PROVOKED)
def test_the_message_reads_as_quoted(quoted: str, tmp_path: Path) -> None:
    with omnigraph.create(tmp_path / "graph.omni", SCHEMA) as graph:
        with pytest.raises(omnigraph.GraphError) as caught:
            PROVOKED[quoted](graph)
        pattern = ".*".join(re.escape(part) for part in quoted.split("…"))
        assert re.search(pattern, str(caught.value)), str(caught.value)


@pytest.mark.parametrize("quoted", sorted(ELSEWHERE))
def test_the_message_is_in_the_sources(quoted: str) -> None:
    package = Path(omnigraph.__file__).parent
    source = " ".join(path.read_text(encoding="utf-8").replace("`", "") for path in package.rglob("*.py"))
    joined = re.sub(r'"\s+f?"', "", source)
    assert re.search(".{1,40}".join(re.escape(part) for part in quoted.rstrip("… ").split("…")), joined)


@pytest.mark.long
def test_the_loop_that_repeats_a_write_runs(tmp_path: Path) -> None:
    assert [run(block, tmp_path) for block in blocks(PAGE) if block.language == "python"] == [""]
