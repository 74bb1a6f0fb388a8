"""Automatic removal of versions, set by another program, is taken off before it can remove anything."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest
from tests.format.old_graphs import OldGraph

import omnigraph
from omnigraph.engine.operations.mutate import mutate
from omnigraph.engine.write.settings import strip_main
from omnigraph.errors import ExpectedVersionMismatchError
from omnigraph.plan import compile_query

ADD = "query add($name: String) { insert Person { name: $name } }"
AGE = 'query age() { update Person set { age: 9 } where name = "p0" }'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    old = OldGraph(tmp_path / "g", 3, removal=True)
    for name in ("p0", "p1"):
        old.add(name)
    return old.root


def tables(root: Path) -> list[lance.LanceDataset]:
    return [lance.dataset(str(path.parent)) for path in sorted(root.rglob("_versions"))]


def versions(root: Path, key: str = "nodes/40d76f1f51639ec0") -> list[int]:
    return [int(ref["version"]) for ref in lance.dataset(str(root / key)).version_refs()]


def test_the_settings_remove_versions_while_nobody_takes_them_off(root: Path) -> None:
    assert all(dataset.config().get("lance.auto_cleanup.interval") == "1" for dataset in tables(root))
    assert 1 not in versions(root)


@pytest.mark.parametrize("write", ["insert", "update", "delete", "load"])
def test_the_first_write_takes_them_off_and_loses_no_version(root: Path, write: str) -> None:
    graph = omnigraph.connect(root)
    before = versions(root)
    if write == "load":
        graph.load(b'{"type":"Person","data":{"name":"p2"}}', mode="append")
    elif write == "insert":
        graph.mutate(ADD, {"name": "p2"}, actor="act-ann")
    else:
        graph.mutate(AGE if write == "update" else 'query d() { delete Person where name = "p0" }')
    assert set(versions(root)) == {*before, before[-1] + 1, before[-1] + 2}
    written = graph.snapshot().entry("node:Person")
    assert lance.dataset(str(root / written.path)).config() == {}
    assert graph.maintenance.verify().clean
    heads = [commit.graph_commit_id for commit in graph.history.list(limit=2)]
    for head in heads:
        assert graph.snapshot(at=head).open("node:Person").count_rows()


def test_manifest_and_commit_tables_lose_them_too(root: Path) -> None:
    graph = omnigraph.connect(root)
    kept = versions(root, "__manifest")
    commits = [graph.mutate(ADD, {"name": f"q{number}"}).commit_id for number in range(70)]
    assert set(kept) < set(versions(root, "__manifest"))
    assert len(versions(root, "__manifest")) > 70
    assert lance.dataset(str(root / "__manifest")).config() == {"table_version_management": "true"}
    assert lance.dataset(str(root / "_graph_commits.lance")).config() == {}
    for number, commit_id in enumerate(commits):
        assert graph.snapshot(at=commit_id).entry("node:Person").row_count == 3 + number


def test_maintenance_takes_them_off_every_table_first(root: Path) -> None:
    graph = omnigraph.connect(root)
    before = {path: versions(root, path) for path in ("nodes/40d76f1f51639ec0", "nodes/5a8cd3fb3a295b65")}
    graph.maintenance.optimize(actor="act-ann")
    for path, kept in before.items():
        assert lance.dataset(str(root / path)).config() == {}
        assert set(kept) <= set(versions(root, path))
    assert not strip_main(graph.context)
    assert graph.maintenance.verify().clean


def test_a_graph_without_them_is_left_alone(tmp_path: Path) -> None:
    graph = omnigraph.create(tmp_path / "h", "node P { k: String @key }")
    version = graph.snapshot().version
    assert not strip_main(graph.context)
    assert graph.snapshot().version == version


def test_a_strict_write_stays_bound_to_what_its_caller_read(root: Path) -> None:
    graph = omnigraph.connect(root)
    context = graph.context
    plan = compile_query(context.catalog, AGE, None)
    base = graph.snapshot()
    with pytest.raises(ExpectedVersionMismatchError):
        mutate(context, plan, {}, base=base)
    assert mutate(context, plan, {}, base=graph.snapshot()).affected_nodes == 1
