"""Refs are what Lance says they are, and looking at one branch does not read the others."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.storage import layout
from omnigraph.engine.storage.lance_internals import files
from omnigraph.engine.storage.steps import observe
from omnigraph.errors import ConflictError, FormatError

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"
INSERT = 'query q() { insert Person { name: "y" } insert Knows { from: "y", to: "y" } }'
NAMES = ["plain", "agents/ann", "agents/bob/deep", "x.y-z_1", "UPPER", "9"]


class Counted:
    """Counts storage operations by their names."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}

    def before(self, name: str, target: str) -> None:
        self.steps[name] = self.steps.get(name, 0) + 1

    def after(self, name: str, target: str) -> None:
        """Only beginnings are counted."""


def _as_lance_lists(graph: omnigraph.Graph) -> dict[str, tuple[str | None, int]]:
    found = graph.context.store.open(layout.MANIFEST).dataset.branches.list()
    return {name: (ref["parent_branch"], ref["parent_version"]) for name, ref in found.items()}


def _as_we_list(graph: omnigraph.Graph) -> dict[str, tuple[str | None, int]]:
    return {name: (ref.parent, ref.version) for name, ref in graph.context.store._refs.of(layout.MANIFEST).items()}


def test_refs_are_those_that_lance_lists(tmp_path: Path) -> None:
    graph = omnigraph.create(str(tmp_path / "g"), SCHEMA)
    other = omnigraph.connect(str(tmp_path / "g"), read_only=True)
    assert _as_we_list(graph) == {}
    for number, name in enumerate(NAMES):
        graph.branches.create(name, "main" if number < 4 else NAMES[number - 1])
        graph.mutate(INSERT, branch=name)
        assert _as_we_list(graph) == _as_we_list(other) == _as_lance_lists(graph)
    with pytest.raises(ConflictError, match="was created from it"):
        graph.branches.delete("UPPER")
    # The same name, created elsewhere: what was read before is not believed.
    graph.branches.delete("9")
    graph.branches.create("9", "plain")
    assert _as_we_list(graph) == _as_we_list(other) == _as_lance_lists(graph)
    assert _as_we_list(graph)["9"][0] == "plain"
    graph.context.store._refs._known.clear()
    assert _as_we_list(graph) == _as_lance_lists(graph)


def test_a_damaged_ref_is_named(tmp_path: Path) -> None:
    graph = omnigraph.create(str(tmp_path / "g"), SCHEMA)
    graph.branches.create("b")
    ref = tmp_path / "g" / files.branch_ref(layout.MANIFEST, "b")
    for damage in ("", "[]", '{"parentBranch": null}', "{"):
        ref.write_text(damage)
        with pytest.raises(FormatError, match=r"b\.json is damaged"):
            graph.branches.list()


def test_deleting_a_branch_reads_no_more_with_many_others(tmp_path: Path) -> None:
    graph = omnigraph.create(str(tmp_path / "g"), SCHEMA)
    graph.mutate(INSERT)

    def deleted(name: str) -> dict[str, int]:
        graph.branches.create(name)
        graph.mutate('query q() { insert Person { name: "z" } }', branch=name)
        counted = Counted()
        observe(counted)
        try:
            graph.branches.delete(name)
        finally:
            observe(None)
        return counted.steps

    deleted("warm")
    few = deleted("few")
    for number in range(60):
        graph.branches.create(f"b{number}")
    graph.branches.list()
    many = deleted("many")
    # One look per other branch: a commit of the branch may be what two of them would be compared with.
    assert many.pop("probe_head") - few.pop("probe_head") == 60
    assert many == few
    assert graph.branches.list() == ["main", *sorted(f"b{number}" for number in range(60))]
