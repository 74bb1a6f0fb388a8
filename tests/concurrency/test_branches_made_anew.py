"""A branch that is deleted and created anew while a writer of another machine stands still stays what it is."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.concurrency.elsewhere import settle_elsewhere, stopped_writer

from omnigraph import failpoints
from omnigraph.engine.operations.verify import verify
from omnigraph.engine.recovery import audit
from omnigraph.engine.recovery.decide import RecoveryKind
from omnigraph.errors import ConflictError
from omnigraph.graph import Graph, connect, create
from omnigraph.testing.children import run_child
from omnigraph.testing.crash import check_recovered, content_of
from omnigraph.testing.failpoints import configured

SCHEMA = """
node Person { name: String @key
              age: I32? }
node City { name: String @key }
"""
LATE = 'query q() { insert Person { name: "late" } insert City { name: "late" } }'
EVERYWHERE = [
    failpoints.MUTATION_POST_STAGE,
    failpoints.MUTATION_PRE_ARM,
    failpoints.MUTATION_POST_TABLE_COMMIT,
    failpoints.MUTATION_POST_FINALIZE,
    failpoints.PUBLISH_AFTER_PRECHECK,
]


def add(graph: Graph, name: str, branch: str = "main") -> None:
    graph.mutate(f'query q() {{ insert Person {{ name: "{name}" }} }}', branch=branch)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """A graph with a branch that is ahead of main, so that a new one of its name has lower numbers."""
    graph = create(tmp_path / "graph", SCHEMA)
    add(graph, "ann")
    graph.branches.create("review")
    for name in ("bob", "cid", "dan"):
        add(graph, name, "review")
    return graph


def make_anew(graph: Graph) -> None:
    graph.branches.delete("review")
    graph.branches.create("review")
    add(graph, "new", "review")


@pytest.mark.long
@pytest.mark.parametrize("stop_at", EVERYWHERE)
def test_a_write_prepared_on_the_old_branch_never_lands_on_the_new_one(
    stop_at: str, graph: Graph, tmp_path: Path
) -> None:
    with stopped_writer(graph.uri, LATE, stop_at, tmp_path, branch="review") as writer:
        time.sleep(1.1)
        make_anew(graph)
        expected = content_of(graph)
        answer = writer.go_on()
    after = content_of(connect(graph.uri, read_only=True))
    finished = {row.commit_id for row in audit.rows(graph.context.store) if row.kind is RecoveryKind.ROLLED_FORWARD}
    if answer["commit"] is None or answer["commit"] in finished:
        # Refused; or finished on the old branch by whoever took it over, before that branch was deleted.
        assert after == expected
    else:
        # It began again on the branch that has the name now, which is what its caller asked for.
        assert sum("late" in row for rows in after.values() for row in rows) == 2
        without = {key: tuple(row for row in rows if "late" not in row) for key, rows in after.items()}
        assert without == expected
    assert not any("bob" in row for row in after["review/node:Person"]), "the old branch's rows came back"
    check_recovered(graph.uri, (after,))


@pytest.mark.parametrize("stop_at", [failpoints.MUTATION_POST_TABLE_COMMIT, failpoints.MUTATION_POST_FINALIZE])
def test_a_branch_is_not_deleted_under_a_living_writer_of_another_machine(
    stop_at: str, graph: Graph, tmp_path: Path
) -> None:
    with stopped_writer(graph.uri, LATE, stop_at, tmp_path, branch="review", lease_seconds=60) as writer:
        with pytest.raises(ConflictError, match="in flight"):
            graph.branches.delete("review")
        assert writer.go_on()["error"] is None
    assert any("late" in row for row in content_of(graph)["review/node:Person"])
    graph.branches.delete("review")
    assert verify(graph.context).clean


def test_a_deletion_and_a_write_that_begin_at_once_see_each_other(graph: Graph, tmp_path: Path) -> None:
    before = content_of(graph)
    with stopped_writer(graph.uri, LATE, failpoints.MUTATION_PRE_ARM, tmp_path, branch="review", lease_seconds=60) as w:
        # The writer has looked and found no deletion, the deletion looks and finds no writer.
        answers = []

        def meet(name: str) -> None:
            if name == failpoints.BRANCH_DELETE_PRE_NATIVE:
                failpoints.install(None)
                answers.append(w.go_on())

        previous = failpoints.install(meet)
        try:
            graph.branches.delete("review")
        finally:
            failpoints.install(previous)
    assert answers[0]["error"] == "ConflictError"
    assert content_of(graph) == {key: rows for key, rows in before.items() if key.startswith("main/")}
    check_recovered(graph.uri, (content_of(graph),))


def make_anew_elsewhere(root: str) -> None:
    settle_elsewhere("far")
    make_anew(connect(root))


def test_a_deletion_that_lost_its_lock_deletes_nothing(graph: Graph) -> None:
    lock = "__recovery/branch-review.lock"

    def meanwhile(name: str) -> None:
        if name == failpoints.BRANCH_DELETE_PRE_NATIVE:
            failpoints.install(None)
            graph.context.store.objects.delete(lock)
            assert run_child(make_anew_elsewhere, graph.uri) == 0

    previous = failpoints.install(meanwhile)
    try:
        with pytest.raises(ConflictError, match="lost its lock"):
            graph.branches.delete("review")
    finally:
        failpoints.install(previous)
    assert any("new" in row for row in content_of(graph)["review/node:Person"])
    check_recovered(graph.uri, (content_of(graph),))


@pytest.mark.parametrize("who", ["create", "delete"])
def test_a_lock_that_cannot_be_removed_is_taken_away_by_the_next_one(who: str, graph: Graph) -> None:
    name = "topic" if who == "create" else "review"
    objects = graph.context.store.objects
    original = objects.delete_if_same
    objects.delete_if_same = lambda path, mark: True  # type: ignore[method-assign]
    try:
        getattr(graph.branches, who)(name)
    finally:
        objects.delete_if_same = original  # type: ignore[method-assign]
    assert [entry for entry in objects.list_dir("__recovery") if entry.endswith(".lock")]
    if who == "delete":
        graph.branches.create(name)
    add(graph, "next", name)
    check_recovered(graph.uri, (content_of(graph),))


def test_two_machines_do_not_create_one_branch_at_once(graph: Graph) -> None:
    other = connect(graph.uri)
    with configured(f"{failpoints.BRANCH_CREATE_POST_NATIVE}=1*off"):
        path = "__recovery/branch-topic.lock"
        graph.context.store.objects.write_text(path, _lock_of_a_living_stranger())
        with pytest.raises(ConflictError, match="being created or deleted"):
            other.branches.create("topic")
    graph.context.store.objects.delete(path)
    other.branches.create("topic")


def _lock_of_a_living_stranger() -> str:
    from omnigraph.engine.coordination.lock import LockRecord
    from omnigraph.engine.coordination.owner import replace, this_process
    from omnigraph.ids import OperationId, new_ulid, now_micros

    stranger = replace(this_process(), host="far", lease_until=now_micros() + 60_000_000)
    return LockRecord(OperationId(new_ulid()), stranger, now_micros()).render()


def test_branches_can_be_listed_while_they_come_and_go(graph: Graph) -> None:
    other = connect(graph.uri)
    ended = threading.Event()

    def come_and_go() -> None:
        for number in range(60):
            other.branches.create(f"short-{number % 3}")
            other.branches.delete(f"short-{number % 3}")
        ended.set()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    listings = 0
    while not ended.is_set():
        assert {"main", "review"} <= set(graph.branches.list())
        listings += 1
    thread.join()
    assert listings > 60
