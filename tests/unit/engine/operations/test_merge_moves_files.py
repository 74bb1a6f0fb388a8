"""A merge takes files over: what is read and written for it, and that every way of writing gives the same graph."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from omnigraph.engine.changes import rows as changed_rows
from omnigraph.engine.operations.merge import look, plan, stage
from omnigraph.engine.storage import adopting, layout
from omnigraph.engine.storage.adopting import Adopted
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import MergeConflictError, StorageError
from omnigraph.graph import Graph, create
from omnigraph.ids import TableKey
from omnigraph.testing.faults import RecordingStore

SCHEMA = """
node Doc { k: String @key  n: I32?  t: String?  v: Vector(3)?  b: Blob? }
edge Cites: Doc -> Doc { w: F64? }
"""
DOC, CITES = TableKey("node:Doc"), TableKey("edge:Cites")


def doc(key: str, n: int, **more: Any) -> dict[str, Any]:
    return {"type": "Doc", "data": {"k": key, "n": n, "v": [n, 0.5, -n], **more}}


def cites(name: str, source: str, target: str) -> dict[str, Any]:
    return {"edge": "Cites", "from": source, "to": target, "data": {"id": name, "w": 0.5}}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return made(tmp_path / "graph")


def made(root: Path) -> Graph:
    """A branch with whole new files, changed and deleted rows, blobs, and rows that were deleted again."""
    graph = create(root, SCHEMA)
    graph.load([doc(f"d{n}", n, b="base64:AAEC") for n in range(8)] + [cites("c1", "d1", "d2")], "append")
    graph.branches.create("review")
    graph.load([doc(f"r{n}", n, b="base64:AwQ=") for n in range(6)], "append", branch="review")
    graph.load([doc("d3", 33), doc("d4", 44, b="base64:")], "merge", branch="review")
    graph.mutate('query q() { delete Doc where k = "r2" }', branch="review")
    graph.mutate('query q() { delete Doc where k = "d1" }', branch="review")
    graph.load([cites("c2", "r1", "d3")], "append", branch="review")
    return graph


def content(graph: Graph, branch: str = "main") -> list[str]:
    return sorted(graph.export(branch=branch))


def go_on(graph: Graph) -> None:
    """Let main have work of its own, in rows that the branch has left alone."""
    graph.load([doc("d5", 55), doc("m1", 1)], "merge")


class Reading:
    """Counts what is read and written at the boundary to storage."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.rows: list[str] = []
        self.written = 0
        self.copied: list[str] = []
        for name in ("take_addresses", "scan", "scan_batches", "read_fragment_columns"):
            self._count(patch, name)
        write, copy = adopting._write, ObjectStore.copy

        def writing(*args: Any, **named: Any) -> Any:
            self.written += 1
            return write(*args, **named)

        def copying(store: ObjectStore, source: str, target: str) -> None:
            self.copied.append(target)
            copy(store, source, target)

        patch.setattr(adopting, "_write", writing)
        patch.setattr(ObjectStore, "copy", copying)

    def _count(self, patch: pytest.MonkeyPatch, name: str) -> None:
        original = getattr(TableHandle, name)

        def counted(handle: TableHandle, *args: Any, **named: Any) -> Any:
            if handle.path.startswith(("nodes/", "edges/")):
                self.rows.append(name)
            return original(handle, *args, **named)

        patch.setattr(TableHandle, name, counted)


def test_going_forward_reads_no_row_and_writes_no_data_file(graph: Graph) -> None:
    expected = content(graph, "review")
    with pytest.MonkeyPatch.context() as patch:
        reading = Reading(patch)
        result = graph.branches.merge("review", delete_branch=True)
        assert (reading.rows, reading.written) == ([], 0)
    assert [str(found.how) for found in result.plan.types] == ["mirrored", "mirrored"]
    assert len(reading.copied) == len(set(reading.copied)), "one copy for each file"
    assert result.branch_deleted
    assert content(graph) == expected
    assert graph.maintenance.verify().clean
    graph.maintenance.optimize()
    assert content(graph) == expected


@pytest.mark.parametrize("appended", [0, 100_000], ids=["two commits", "one commit"])
@pytest.mark.parametrize("forward", [True, False], ids=["forward", "merged"])
def test_a_merge_publishes_once_and_commits_to_a_table_twice_at_most(
    graph: Graph, forward: bool, appended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopting, "APPENDED_ROWS_MIN", appended)
    if not forward:
        go_on(graph)
    with RecordingStore(lambda step: step.name in ("commit", "copy")) as store:
        graph.branches.merge("review")
    commits = Counter(step.target for step in store.seen if step.name == "commit")
    copies = [step.target for step in store.seen if step.name == "copy"]
    assert commits.pop(layout.MANIFEST) == 1
    assert set(commits) == {graph.snapshot().entry(key).path for key in (DOC, CITES)}
    assert max(commits.values()) == (1 if appended else 2)
    assert len(copies) == len(set(copies)) > 0


def test_a_dry_run_stages_nothing(graph: Graph) -> None:
    go_on(graph)
    before = files(graph)
    with pytest.MonkeyPatch.context() as patch:
        reading = Reading(patch)
        plan = graph.branches.plan_merge("review")
        assert (reading.written, reading.copied) == (0, [])
    assert files(graph) == before
    assert [(t.name, t.inserted, t.updated, t.deleted, t.counts_exact) for t in plan.types] == [
        ("Doc", 5, 2, 1, True),
        ("Cites", 1, 0, 1, True),
    ]


def files(graph: Graph) -> list[str]:
    return sorted(os.path.join(place, name) for place, _, names in os.walk(graph.uri) for name in names)


def test_ids_touched_on_one_side_are_decided_without_their_values(graph: Graph) -> None:
    go_on(graph)
    compared: list[int] = []
    original = changed_rows.same_rows

    def counted(one: Any, other: Any, before: Any, after: Any) -> Any:
        compared.append(len(before))
        return original(one, other, before, after)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changed_rows, "same_rows", counted)
        result = graph.branches.merge("review")
    assert sum(compared) == 0
    assert [t.counts_exact for t in result.plan.types] == [False, True]


@pytest.mark.parametrize("busy", ["main", "review"])
def test_the_many_ids_of_a_busy_side_are_looked_up_among_the_few_of_the_other(
    graph: Graph, busy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.branches.merge("review")
    graph.load([doc("d3", 1), doc("new", 1)], "merge", branch="main" if busy == "review" else "review")
    graph.load([doc(f"d{n}", 1) for n in range(20)], "merge", branch=busy)
    hashed: list[int] = []
    original = plan.pc.index_in

    def index_in(values: Any, *, value_set: Any) -> Any:
        hashed.append(len(value_set))
        return original(values, value_set=value_set)

    monkeypatch.setattr(plan, "pc", SimpleNamespace(index_in=index_in))
    assert graph.branches.plan_merge("review").conflicts_total == 0
    assert hashed == [2]


@pytest.fixture(params=["mirrored", "adopted", "rewritten"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way of writing, forced."""
    chosen = str(request.param)
    if chosen != "mirrored":
        monkeypatch.setattr(look, "_loses_indexes", lambda *_: True)
    if chosen == "rewritten":

        def nothing(store: Any, source: Any, fragments: Any, target: Any) -> Adopted:
            return Adopted(left=list(fragments))

        monkeypatch.setattr(stage, "adopt", nothing)
    return chosen


@pytest.mark.parametrize("forward", [True, False], ids=["forward", "merged"])
@pytest.mark.parametrize("appended", [0, 100_000], ids=["two commits", "one commit"])
def test_every_way_gives_the_same_graph(
    way: str, forward: bool, appended: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopting, "APPENDED_ROWS_MIN", appended)
    graph = made(tmp_path / "graph")
    expected = {json.loads(line)["data"]["id"]: line for line in content(graph, "review")}
    if not forward:
        go_on(graph)
        mine = {json.loads(line)["data"]["id"]: line for line in content(graph)}
        expected |= {name: mine[name] for name in ("d5", "m1")}
    versions = {key: graph.snapshot().entry(key).version for key in (DOC, CITES)}
    result = graph.branches.merge("review")
    hows = {found.name: str(found.how) for found in result.plan.types}
    assert hows["Doc"] == way if forward or way == "rewritten" else "adopted"
    assert content(graph) == sorted(expected.values())
    assert all(graph.snapshot().entry(key).version <= versions[key] + 2 for key in versions), "two commits at most"
    graph.branches.delete("review")
    graph.load([doc("d5", 5), doc("late", 1)], "merge")
    graph.maintenance.optimize()
    graph.maintenance.cleanup(keep=1)
    assert graph.maintenance.verify().clean
    late = {name: line for name, line in expected.items() if name != "d5"}
    found = {json.loads(line)["data"]["id"]: line for line in content(graph)}
    assert {name: line for name, line in found.items() if name not in ("d5", "late")} == late


def test_a_store_that_does_not_copy_gets_rows_and_the_result_says_so(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(store: ObjectStore, source: str, target: str) -> None:
        raise StorageError(f"copying {source}: not implemented", kind="permanent")

    expected = content(graph, "review")
    monkeypatch.setattr(ObjectStore, "copy", refused)
    result = graph.branches.merge("review")
    assert [str(found.how) for found in result.plan.types] == ["rewritten", "rewritten"]
    assert all("could not copy" in str(found.reason) for found in result.plan.types)
    assert content(graph) == expected


def test_a_branch_that_inherits_a_table_is_pointed_to_the_newer_version(graph: Graph) -> None:
    graph.branches.create("fresh")
    go_on(graph)
    with pytest.MonkeyPatch.context() as patch:
        reading = Reading(patch)
        result = graph.branches.merge("main", "fresh")
        assert (reading.rows, reading.written, reading.copied) == ([], 0, [])
    assert [str(found.how) for found in result.plan.types] == ["pointer"]
    entry = graph.snapshot("fresh").entry(DOC)
    assert (entry.branch, entry.version) == (None, graph.snapshot().entry(DOC).version)
    assert content(graph, "fresh") == content(graph)
    graph.load([doc("own", 1)], "merge", branch="fresh")
    graph.maintenance.cleanup(keep=1)
    assert len(content(graph, "fresh")) == len(content(graph)) + 1
    assert graph.maintenance.verify().clean


def test_main_reaches_a_branch_of_its_own_lines_by_reference(graph: Graph) -> None:
    go_on(graph)
    result = graph.branches.merge("main", "review")
    assert [str(found.how) for found in result.plan.types] == ["adopted"]
    copied = set(os.listdir(Path(graph.uri) / graph.snapshot().entry(DOC).path / "data"))
    own = Path(graph.uri) / graph.snapshot().entry(DOC).path / "tree" / "review" / "data"
    assert not copied & set(os.listdir(own))
    graph.maintenance.cleanup(keep=1)
    assert {"d5", "m1"} <= {json.loads(line)["data"]["id"] for line in content(graph, "review")}
    assert graph.maintenance.verify().clean


def test_going_forward_is_planned_again_when_the_target_moves(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge that nothing has checked must not land on a target with work of its own."""
    original = stage.Move.stage
    moved: list[bool] = []

    def late(self: stage.Move, *args: Any) -> Any:
        if not moved:
            moved.append(True)
            graph.load([cites("late", "d1", "d1")], "append")
        return original(self, *args)

    monkeypatch.setattr(stage.Move, "stage", late)
    with pytest.raises(MergeConflictError, match="orphan_edge"):
        graph.branches.merge("review")


def test_conflicts_are_listed_from_any_place_in_the_same_order(graph: Graph) -> None:
    graph.load([doc(f"d{n}", 90 + n) for n in (3, 4)] + [doc(f"r{n}", 90 + n) for n in (0, 1)], "merge")
    listed = list(graph.branches.conflicts("review"))
    assert [(c.row_id, str(c.kind)) for c in listed] == [
        ("d3", "divergent_update"),
        ("d4", "divergent_update"),
        ("r0", "divergent_insert"),
        ("r1", "divergent_insert"),
    ]
    for number, conflict in enumerate(listed):
        assert list(graph.branches.conflicts("review", after=conflict.token)) == listed[number + 1 :]
    images = [conflict.theirs.properties["v"] for conflict in listed if conflict.theirs is not None]
    assert all(image["dimension"] == 3 and len(image["digest"]) == 32 for image in images)
    assert len({conflict.fingerprint for conflict in listed}) == 4
    assert np.all([conflict.to_json()["token"] == conflict.token for conflict in listed])
