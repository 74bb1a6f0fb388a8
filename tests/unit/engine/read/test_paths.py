"""Paths where several clauses meet: conditions on them, blocks that bind them, names that are used again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph

SCHEMA = "node A { k: String @key  i: I64? } node B { k: String @key } edge E: A -> A edge F: A -> B"
EDGES = ["ab", "bc", "cd", "ca", "cc", "ad"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[omnigraph.Graph]:
    folder: Path = tmp_path_factory.mktemp("paths")
    lines = [f'{{"type": "A", "data": {{"k": "{k}", "i": {i}}}}}' for i, k in enumerate("abcde")]
    lines += ['{"type": "B", "data": {"k": "x"}}', '{"edge": "F", "from": "b", "to": "x", "data": {"id": "f"}}']
    lines += [f'{{"edge": "E", "from": "{e[0]}", "to": "{e[1]}", "data": {{"id": "{e}"}}}}' for e in EDGES]
    (folder / "in.jsonl").write_text("\n".join(lines))
    with omnigraph.create(folder / "graph.omni", SCHEMA) as made:
        made.load(folder / "in.jsonl", mode="overwrite")
        yield made


def rows(graph: omnigraph.Graph, match: str, returned: str) -> list[Any]:
    """The rows as texts and numbers, in order."""
    found = graph.query(f"query q() {{ match {{ {match} }} return {{ {returned} }} }}")
    return sorted("".join(map(str, row.values())) for row in found)


def test_a_path_is_filtered_by_its_length_and_by_what_it_leads_through(graph: omnigraph.Graph) -> None:
    between = "$a: A path $p = shortest $a e{1,4} $b"
    assert rows(graph, f"{between} length($p) > 1", "$a.k, $b.k") == ["ac", "ba", "bd", "cb"]
    assert rows(graph, f'{between} "c" in nodes($p) $b.k = "d"', "$a.k, $b.k") == ["bd", "cd"]
    assert rows(graph, f'{between} edges($p) contains "bc"', "$a.k, $b.k") == ["ac", "ba", "bc", "bd"]
    assert rows(graph, f"{between} length($p) = $b.i", "$a.k, $b.k") == ["ab", "ac"]


def test_a_path_is_asked_for_inside_other_blocks(graph: omnigraph.Graph) -> None:
    between = "$a: A path $p = shortest $a e{1,4} $b"
    assert rows(graph, f"{between} not {{ length($p) = 1 }}", "$a.k, $b.k") == ["ac", "ba", "bd", "cb"]
    assert rows(graph, "$a: A not { path $p = shortest $a e{1,4} $b length($p) = 2 }", "$a.k") == ["d", "e"]
    assert rows(graph, f'{between} either {{ length($p) = 2 }} or {{ $b.k = "d" }}', "$a.k, $b.k") == [
        "ac",
        "ad",
        "ba",
        "bd",
        "cb",
        "cd",
    ]


def test_a_path_that_every_arm_binds_is_seen_once_behind_them(graph: omnigraph.Graph) -> None:
    arms = "$a: A either { path $p = shortest $a e{1,2} $b } or { path $p = shortest $a e{1,1} $b }"
    assert rows(graph, f'{arms} $a.k = "a"', "$b.k, edges($p) as e") == ["b['ab']", "c['ab', 'bc']", "d['ad']"]
    assert rows(graph, f"{arms} length($p) = 2", "$a.k, $b.k") == ["ac", "ba", "bd", "cb"]


def test_paths_of_two_kinds_are_not_the_same_variable(graph: omnigraph.Graph) -> None:
    arms = "$a: A either { path $p = shortest $a e{1,2} $b } or { path $p = shortest $a <e>{1,2} $b }"
    with pytest.raises(omnigraph.TypeCheckError, match="not bound"):
        rows(graph, arms, "$p")


def test_a_name_that_another_block_keeps_to_itself_leaves_the_path_alone(graph: omnigraph.Graph) -> None:
    # The optional block is ready first: the arm needs $b, which nothing connects, and traces its paths later.
    match = (
        '$a: A { k: "a" } $b: A either { $b.i = 0 path $p = shortest $b e{1,4} $x $x f $y } or { $b.i = 1 } '
        "optional { path $p = shortest $a e{2,2} $c }"
    )
    assert rows(graph, match, "$b.k, $c.k, nodes($p) as n") == ["ac['a', 'b', 'c']", "bc['a', 'b', 'c']"]
