"""The three schema files must agree, whoever changed one of them; what follows from the text can be made anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.errors import ConflictError, GraphError
from omnigraph.graph import Graph, connect, create

SCHEMA = "node Person { name: String @key  age: I32? }\n"
NAMES = "query names() { match { $p: Person } return { $p.name as name } }"
DERIVED = ("_schema.ir.json", "__schema_state.json")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    graph = create(tmp_path / "graph", SCHEMA)
    graph.mutate('query add() { insert Person { name: "Ada" } }')
    graph.close()
    return tmp_path / "graph"


def _edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(root: Path) -> None:
        text = (root / name).read_text()
        assert old in text
        (root / name).write_text(text.replace(old, new))

    return edit


def _remove(*names: str) -> Callable[[Path], None]:
    return lambda root: [(root / name).unlink() for name in names] and None


DAMAGES = {
    "the text says something else": _edit("_schema.pg", "age", "years"),
    "the text does not compile": _edit("_schema.pg", "node", "nod"),
    "the IR says something else": _edit("_schema.ir.json", "age", "years"),
    "the IR is no JSON": _edit("_schema.ir.json", "{", ""),
    "the state names another hash": _edit("__schema_state.json", "sha256:", "sha256:0"),
    "the text is missing": _remove("_schema.pg"),
    "the IR is missing": _remove("_schema.ir.json"),
    "the state is missing": _remove("__schema_state.json"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("read_only", [False, True])
def test_files_that_disagree_stop_an_open(root: Path, damage: Callable[[Path], None], read_only: bool) -> None:
    damage(root)
    with pytest.raises(ConflictError):
        connect(root, read_only=read_only)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_files_that_disagree_stop_a_handle_that_is_open(root: Path, damage: Callable[[Path], None]) -> None:
    graph = connect(root)
    damage(root)
    with pytest.raises(ConflictError):
        graph.query(NAMES)
    with pytest.raises(GraphError):
        graph.mutate('query add() { insert Person { name: "Bob" } }')


def test_a_comment_changes_nothing(root: Path) -> None:
    (root / "_schema.pg").write_text("// people\n" + SCHEMA)
    assert _names(connect(root)) == ["Ada"]


def test_what_follows_from_the_text_is_made_anew_by_a_writer_only(root: Path) -> None:
    before = [(root / name).read_text() for name in DERIVED]
    for name in DERIVED:
        (root / name).unlink()
    assert _names(connect(root, read_only=True)) == ["Ada"]
    assert not any((root / name).exists() for name in DERIVED)
    assert _names(connect(root)) == ["Ada"]
    assert [(root / name).read_text() for name in DERIVED] == before


def test_nothing_is_made_anew_beside_a_branch(root: Path) -> None:
    connect(root).branches.create("review")
    for name in DERIVED:
        (root / name).unlink()
    with pytest.raises(ConflictError, match=r"lacks _schema\.ir\.json and __schema_state\.json"):
        connect(root)


def test_a_text_that_is_not_the_published_schema_makes_nothing_anew(root: Path) -> None:
    graph = connect(root)
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  city: String?"))
    graph.close()
    for name in DERIVED:
        (root / name).unlink()
    (root / "_schema.pg").write_text(SCHEMA)
    with pytest.raises(ConflictError, match="not the schema that is published"):
        connect(root)
    assert not any((root / name).exists() for name in DERIVED)


def _names(graph: Graph) -> list[str]:
    return [row["name"] for row in graph.query(NAMES).to_pylist()]
