"""Graphs of earlier formats open today: read without a trace, or brought to today's format step by step."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import lance
import pytest
from tests.amounts import always_first
from tests.crash.everywhere import Record, crash_everywhere, faults_and_death
from tests.crash.writes import Mutation, Open
from tests.format.old_graphs import KEY, STAMP, OldGraph, old_graph

import omnigraph
from omnigraph.engine.manifest import migrations
from omnigraph.engine.manifest.publish import COMMIT_WINDOW, Manifest
from omnigraph.engine.manifest.records import INTERNAL_SCHEMA_VERSION
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import FormatError
from omnigraph.testing.faults import Fault

STAMPS = (1, 2, 3)
NAMES = "query names() { match { $p: Person } return { $p.name } order { $p.name asc } }"
SPAWN = multiprocessing.get_context("spawn")


def manifest_of(root: Path, branch: str | None = None) -> Any:
    dataset = lance.dataset(str(root / "__manifest"))
    return dataset if branch is None else dataset.checkout_version((branch, None))


def stamp_of(root: Path, branch: str | None = None) -> str | None:
    found = (manifest_of(root, branch).schema.metadata or {}).get(STAMP.encode())
    return None if found is None else found.decode()


def names(graph: omnigraph.Graph, **place: Any) -> list[str]:
    return [row["p.name"] for row in graph.query(NAMES, **place)]


def digest(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def check_history(graph: omnigraph.Graph, old: OldGraph, *, branch: str, new: int = 0) -> None:
    """The commits of a branch are those that led to its old head, with their actors, below some new ones."""
    found = graph.history.list(branch)[new:]
    here = [number for number, _ in enumerate(old.commits) if branch != "main" or number < len(old.commits) - 1]
    assert [commit.graph_commit_id for commit in found] == [old.commits[number] for number in reversed(here)]
    for child, parent in pairwise(found):
        assert child.parent_commit_id == parent.graph_commit_id
    assert {commit.actor_id for commit in found[:-1]} == {"act-old"}
    assert found[-1].actor_id is None


@pytest.mark.parametrize("stamp", STAMPS)
def test_a_read_only_open_reads_an_old_graph_and_leaves_no_trace(tmp_path: Path, stamp: int) -> None:
    old = old_graph(tmp_path / "g", stamp)
    before = digest(old.root)
    graph = omnigraph.connect(old.root, read_only=True)
    assert names(graph) == ["p0", "p1", "p2"]
    assert names(graph, branch="review") == ["p0", "p1", "p2", "reviewed"]
    assert names(graph, at=old.commits[2]) == ["p0", "p1"]
    check_history(graph, old, branch="main")
    check_history(graph, old, branch="review")
    assert graph.history.show(old.commits[-1]).manifest_branch == "review"
    assert digest(old.root) == before


@pytest.mark.parametrize("stamp", STAMPS)
def test_a_read_write_open_brings_main_to_todays_format(tmp_path: Path, stamp: int) -> None:
    old = old_graph(tmp_path / "g", stamp)
    graph = omnigraph.connect(old.root)
    assert stamp_of(old.root) == str(INTERNAL_SCHEMA_VERSION)
    assert manifest_of(old.root).schema.field("object_id").metadata == {k.encode(): v.encode() for k, v in KEY.items()}
    assert graph.branches.list() == ["main", "review"]
    assert names(graph) == ["p0", "p1", "p2"]
    check_history(graph, old, branch="main")
    for number in range(1, 4):
        assert len(names(graph, at=old.commits[number])) == number
    graph.mutate('query m() { insert Person { name: "new" } insert Knows { from: "new", to: "p0" } }')
    assert names(graph) == ["new", "p0", "p1", "p2"]
    check_history(graph, old, branch="main", new=1)
    assert graph.maintenance.verify().clean


@pytest.mark.parametrize("stamp", STAMPS)
def test_a_branch_is_migrated_by_the_first_publish_on_it(tmp_path: Path, stamp: int) -> None:
    old = old_graph(tmp_path / "g", stamp)
    graph = omnigraph.connect(old.root)
    assert stamp_of(old.root, "review") == (None if stamp == 1 else str(stamp))
    assert names(graph, branch="review") == ["p0", "p1", "p2", "reviewed"]
    check_history(graph, old, branch="review")
    graph.mutate('query m() { insert Person { name: "new" } }', branch="review")
    assert stamp_of(old.root, "review") == str(INTERNAL_SCHEMA_VERSION)
    assert names(graph, branch="review") == ["new", "p0", "p1", "p2", "reviewed"]
    assert names(graph) == ["p0", "p1", "p2"]
    check_history(graph, old, branch="review", new=1)
    assert names(graph, at=old.commits[-1]) == ["p0", "p1", "p2", "reviewed"]
    assert graph.maintenance.verify().clean


@pytest.mark.long
def test_a_long_old_history_stays_whole_and_out_of_the_manifest(tmp_path: Path) -> None:
    old = old_graph(tmp_path / "g", 3, people=COMMIT_WINDOW + 10)
    graph = omnigraph.connect(old.root)
    graph.mutate('query m() { insert Person { name: "new" } }', branch="review")
    for branch, new in (("main", 0), ("review", 1)):
        assert len(graph.snapshot(branch).state.commits) <= COMMIT_WINDOW
        check_history(graph, old, branch=branch, new=new)
    assert len(graph.history.list(limit=50)) == 50
    for _ in range(COMMIT_WINDOW):
        graph.mutate('query m() { insert Person { name: "again" } }')
    check_history(graph, old, branch="main", new=COMMIT_WINDOW)


def test_opening_a_migrated_graph_again_writes_nothing(tmp_path: Path) -> None:
    old = old_graph(tmp_path / "g", 1)
    omnigraph.connect(old.root).close()
    before = digest(old.root)
    omnigraph.connect(old.root).close()
    assert digest(old.root) == before


def test_names_of_runs_are_ordinary_from_format_3_on(tmp_path: Path) -> None:
    old = old_graph(tmp_path / "g", 3)
    old.run_branch("__run__mine")
    graph = omnigraph.connect(old.root)
    assert graph.branches.list() == ["main", "__run__mine", "review"]


def test_a_step_that_was_cut_short_before_its_number_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = old_graph(tmp_path / "g", 3)
    manifest = Manifest(TableStore(str(old.root)))

    def die(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(manifest.store, "annotate", die)
    with pytest.raises(KeyboardInterrupt):
        migrations.migrate(manifest)
    assert stamp_of(old.root) == "3"
    assert {row["object_type"] for row in manifest_of(old.root).to_table().to_pylist()} >= {
        "graph_commit",
        "graph_head",
    }
    check_history(omnigraph.connect(old.root, read_only=True), old, branch="main")
    graph = omnigraph.connect(old.root)
    assert stamp_of(old.root) == "4"
    check_history(graph, old, branch="main")


def _open(root: str) -> list[str]:
    return names(omnigraph.connect(root))


@pytest.mark.long
@pytest.mark.parametrize("stamp", always_first(1, STAMPS))
def test_processes_that_open_an_old_graph_at_once_all_succeed(tmp_path: Path, stamp: int) -> None:
    old = old_graph(tmp_path / "g", stamp)
    with ProcessPoolExecutor(3, mp_context=SPAWN) as pool:
        assert list(pool.map(_open, [str(old.root)] * 3)) == [["p0", "p1", "p2"]] * 3
    check_history(omnigraph.connect(old.root), old, branch="main")


def _another_key(old: OldGraph) -> None:
    manifest_of(old.root).update_field_metadata({"object_type": KEY})


def _stamped(text: str) -> Callable[[OldGraph], None]:
    return lambda old: manifest_of(old.root).update_schema_metadata({STAMP: text})


@pytest.mark.parametrize(
    ("spoil", "complaint", "reads"),
    [
        (_another_key, r"has the key \['object_type'\]", True),
        (_stamped("x"), "unreadable", False),
        (_stamped("5"), "newer than", False),
    ],
)
def test_a_manifest_that_contradicts_its_format_is_refused_and_left_alone(
    tmp_path: Path, spoil: Callable[[OldGraph], None], complaint: str, reads: bool
) -> None:
    old = old_graph(tmp_path / "g", 1)
    spoil(old)
    before = digest(old.root)
    with pytest.raises(FormatError, match=complaint):
        omnigraph.connect(old.root)
    if reads:
        assert names(omnigraph.connect(old.root, read_only=True)) == ["p0", "p1", "p2"]
    else:
        with pytest.raises(FormatError, match=complaint):
            omnigraph.connect(old.root, read_only=True)
    assert digest(old.root) == before


FAULTS = faults_and_death(Fault.RAISE_AFTER, always=[Fault.RAISE_BEFORE])
ON_A_BRANCH = faults_and_death(Fault.RAISE_AFTER, always=[])


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_migration_survives_a_crash_at_every_step(
    tmp_path: Path, fault: Fault | None, record_property: Record
) -> None:
    old = old_graph(tmp_path / "g", 1)
    os.makedirs(tmp_path / "scratch")
    crash_everywhere(Open(), old.root, tmp_path / "scratch", fault, record_property, opening=True)


@pytest.mark.long
@pytest.mark.parametrize("fault", ON_A_BRANCH)
def test_a_write_that_migrates_its_branch_survives_a_crash_at_every_step(
    tmp_path: Path, fault: Fault | None, record_property: Record
) -> None:
    old = old_graph(tmp_path / "g", 1)
    omnigraph.connect(old.root).close()
    assert stamp_of(old.root, "review") is None
    os.makedirs(tmp_path / "scratch")
    write = Mutation('insert Person { name: "new" }', branch="review")
    crash_everywhere(write, old.root, tmp_path / "scratch", fault, record_property)
