"""Faults come where they are wanted, and graphs that share files with a template are its copies all the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omnigraph.engine.storage import steps
from omnigraph.graph import connect, create
from omnigraph.testing.crash import content_of, link_graph
from omnigraph.testing.failpoints import InjectedFailure
from omnigraph.testing.faults import ChangesAndNext, Fault, FaultyStore, Step

SCHEMA = "node Person { name: String @key }"
INSERT = 'query q() { insert Person { name: "ann" } }'


def test_what_changes_something_counts_and_what_comes_next() -> None:
    names = ["open", "list_dir", "commit", "open", "open", "delete", "write_text", "read_text", "open"]
    counts = ChangesAndNext()
    counted = [number for number, name in enumerate(names) if counts(Step(name, "x"))]
    assert counted == [0, 2, 3, 5, 6, 7]


@pytest.mark.parametrize("only", [None, ChangesAndNext()])
def test_nothing_works_any_more_once_an_outage_has_begun(only: ChangesAndNext | None) -> None:
    with FaultyStore(Fault.OUTAGE, 2, only=only):
        with steps.step("open", "x"):
            pass
        for name in ("commit", "open", "open", "delete"):
            with pytest.raises(InjectedFailure), steps.step(name, "x"):
                pass


def test_a_linked_graph_is_a_copy_to_whoever_writes(tmp_path: Path) -> None:
    template, target = tmp_path / "template", tmp_path / "target"
    with create(template, SCHEMA) as graph:
        graph.mutate(INSERT)
        before = content_of(graph)
    files = {path: path.read_bytes() for path in template.rglob("*") if path.is_file()}
    link_graph(template, target)
    assert any(os.path.samefile(path, target / path.relative_to(template)) for path in files)
    with connect(target) as graph:
        assert content_of(graph) == before
        graph.mutate('query q() { delete Person where name = "ann" }')
        graph.maintenance.optimize()
        graph.maintenance.cleanup(keep=1)
        assert content_of(graph) != before
    assert {path: path.read_bytes() for path in template.rglob("*") if path.is_file()} == files
