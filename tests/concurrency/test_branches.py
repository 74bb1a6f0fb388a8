"""Writes on a branch give it its own line of each table they touch, and change nothing anywhere else."""

from __future__ import annotations

import threading

import pytest

from omnigraph.engine.storage import layout
from omnigraph.errors import BranchNotFoundError


@pytest.fixture
def work(people):
    version = people.snapshot().version
    people.context.store.residual.create_branch(layout.MANIFEST, "work", source=None, version=version)
    return people


def rows(people, branch, key="node:P"):
    found = people.context.manifest.snapshot(branch).open(key).scan().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row for row in found}


def test_a_first_write_forks_only_the_tables_it_touches(work):
    before = work.snapshot()
    work.mutate('insert P { k: "x" } insert E { from: "x", to: "a" }', branch="work")
    entries = work.context.manifest.snapshot("work").entries
    assert {key for key, entry in entries.items() if entry.branch == "work"} == {"node:P", "edge:E"}
    assert work.context.store.table_branches(entries["node:L"].path) == []
    assert set(rows(work, "work")) == {"a", "b", "c", "x"}
    assert set(rows(work, "main")) == {"a", "b", "c"}
    assert work.snapshot().version == before.version
    assert not work.context.store.objects.list_dir("__recovery")


def test_later_writes_update_and_delete_inherited_rows_on_the_branch_alone(work):
    work.mutate('update P set { n: 7 } where k = "a"', branch="work")
    work.mutate('delete P where k = "b"', branch="work")
    assert rows(work, "work")["a"]["n"] == 7
    assert set(rows(work, "work")) == {"a", "c"}
    assert rows(work, "work", "edge:E") == {}
    work.mutate('update P set { n: 9 } where k = "a"')
    assert rows(work, "main")["a"]["n"] == 9
    assert rows(work, "work")["a"]["n"] == 7
    assert set(rows(work, "main")) == {"a", "b", "c"}
    assert len(rows(work, "main", "edge:E")) == 1


def test_a_ref_that_a_crash_left_is_replaced_by_the_first_write(work):
    entry = work.snapshot().entry("node:P")
    store = work.context.store
    store.residual.create_branch(entry.path, "work", source=None, version=entry.version)
    work.mutate('insert P { k: "x" }', branch="work")
    assert set(rows(work, "work")) == {"a", "b", "c", "x"}


def test_two_first_writes_of_one_branch_both_arrive(work):
    failures = []

    def write(key):
        try:
            work.mutate(f'insert P {{ k: "{key}" }}', branch="work")
        except Exception as failure:  # noqa: BLE001
            failures.append(failure)

    threads = [threading.Thread(target=write, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert set(rows(work, "work")) == {"a", "b", "c", "t0", "t1", "t2", "t3"}


def test_a_load_into_a_branch_may_overwrite_there(work):
    work.load('{"edge":"E","from":"c","to":"c"}', mode="overwrite", branch="work")
    assert [row["src"] for row in rows(work, "work", "edge:E").values()] == ["c"]
    assert [row["src"] for row in rows(work, "main", "edge:E").values()] == ["a"]


def test_a_branch_that_does_not_exist_is_not_created(people):
    with pytest.raises(BranchNotFoundError):
        people.mutate('insert P { k: "x" }', branch="nowhere")
    with pytest.raises(BranchNotFoundError):
        people.load('{"type":"P","data":{"k":"x"}}', mode="append", branch="nowhere")
