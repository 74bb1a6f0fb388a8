"""No member of an enum meets numpy, which looks for attributes on its class and drops whatever that look raises.

An interrupt that arrives in such a look, which is Python code, would be lost.
"""

from __future__ import annotations

import enum
from pathlib import Path

import numpy as np
import pytest

import omnigraph

SCHEMA = "node Person { name: String @key age: I32? @index }\nedge Knows: Person -> Person { since: I32? }\n"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is looked for on the classes of enums and is not there."""
    seen: list[str] = []

    def look(cls: type, name: str) -> object:
        seen.append(f"{cls.__name__}.{name}")
        raise AttributeError(name)

    monkeypatch.setattr(enum.EnumType, "__getattr__", look, raising=False)
    return seen


def test_numpy_looks_for_attributes_of_an_enum(looks: list[str]) -> None:
    class Colour(enum.IntEnum):
        RED = 1

    assert (np.array([1, 2]) == Colour.RED).tolist() == [True, False]
    assert "Colour.__array_ufunc__" in looks or "Colour.__array_interface__" in looks


def test_no_verb_gives_numpy_a_member_of_an_enum(tmp_path: Path, looks: list[str]) -> None:
    graph = omnigraph.create(tmp_path / "g", SCHEMA)
    lines = b"".join(b'{"type":"Person","data":{"name":"n%d","age":%d}}\n' % (n, n) for n in range(50))
    for mode in ("append", "merge", "overwrite"):
        graph.load(lines, mode=mode)
    graph.branches.create("side")
    for branch, age in (("side", 7), ("main", 8)):
        graph.mutate(
            "query q($n: String, $age: I32) { insert Person { name: $n } update Person set { age: $age } where age > 40"
            ' insert Knows { from: "n1", to: "n2", since: 1 } }',
            {"n": branch, "age": age},
            branch=branch,
        )
        graph.mutate(f'query q() {{ delete Person where name = "n{age}" }}', branch=branch)
    assert list(graph.branches.diff("side"))
    graph.branches.merge("side", strategy="theirs")
    graph.query("query q() { match { $p: Person $p knows $q } return { $q.age as age, count($p) as n } order { n } }")
    assert list(graph.history.changes(graph.history.list()[0].graph_commit_id))
    graph.maintenance.optimize()
    assert graph.maintenance.verify().clean
    assert [look for look in looks if "__array" in look] == []
