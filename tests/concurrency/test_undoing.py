"""A write that others get in the way of after its first effect takes its effects back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from omnigraph import failpoints
from omnigraph.engine.manifest.delta import Lineage, UpdateTable
from omnigraph.engine.storage.staged import stage_changes
from omnigraph.engine.write.committed import SnapshotView
from omnigraph.errors import ConstraintError, DriftError
from omnigraph.ids import RECOVERY_ACTOR, CommitId, TableKey, new_ulid, now_micros


@contextmanager
def once_at(name: str, action: Callable[[], object]) -> Iterator[None]:
    """Run an action the first time a write passes a failpoint."""
    waiting = [action]

    def plan(reached: str) -> None:
        if reached == name and waiting:
            waiting.pop()()

    previous = failpoints.install(plan)
    try:
        yield
    finally:
        failpoints.install(previous)
    assert not waiting, f"{name} was not reached"


def recoveries(people) -> int:
    return sum(commit.actor_id == RECOVERY_ACTOR for commit in people.context.manifest.history.list("main"))


def test_a_lenient_write_whose_publish_is_refused_undoes_itself_and_starts_again(people):
    with once_at(failpoints.MUTATION_POST_FINALIZE, lambda: people.mutate('insert P { k: "meanwhile" }')):
        result = people.mutate('insert E { from: "a", to: "c" }')
    assert result.affected_edges == 1
    assert len(people.rows("edge:E")) == 2
    assert "meanwhile" in people.rows("node:P")
    assert recoveries(people) == 1
    people.check_settled()


def test_an_edge_whose_end_is_deleted_after_its_effect_never_becomes_visible(people):
    """Deleting a node looks at the edge table too, but finds nothing there to delete, so only its own table moves."""
    store = people.context.store

    def delete_the_end() -> None:
        # What another process does that has not seen the new edge, because it is not published.
        base = people.snapshot()
        entry = base.entry("node:P")
        handle = base.open("node:P")
        address = SnapshotView(base).locate("node:P", pa.array(["c"]))[0]
        staged = stage_changes(handle, deleted_addresses=address)
        assert staged is not None
        committed = store.commit(handle, staged, {"omnigraph.operation_id": "other", "omnigraph.step": "1"})
        people.context.manifest.publish(
            "main",
            [UpdateTable(TableKey("node:P"), committed.version, None, entry.row_count - 1)],
            lineage=Lineage(CommitId(new_ulid()), "act-other", now_micros()),
            expected={TableKey("node:P"): entry.version},
        )

    with (
        once_at(failpoints.MUTATION_POST_FINALIZE, delete_the_end),
        pytest.raises(ConstraintError, match="'c' not found"),
    ):
        people.mutate('insert E { from: "a", to: "c" }')
    assert [row["dst"] for row in people.rows("edge:E").values()] == ["b"]
    assert recoveries(people) == 1
    people.check_settled()


def test_writers_of_other_tables_that_publish_in_between_change_nothing(people):
    with once_at(failpoints.MUTATION_POST_FINALIZE, lambda: people.mutate('insert L { text: "x" }')):
        people.mutate('update P set { n: 7 } where k = "a"')
    assert people.rows("node:P")["a"]["n"] == 7
    assert recoveries(people) == 0
    people.check_settled()


def test_a_foreign_commit_between_two_effects_takes_the_first_back_and_is_left_alone(people):
    """The other program does not know our protocol; its commit is not ours to undo, nor to publish."""
    store = people.context.store
    entry = people.snapshot().entry("node:P")
    foreign = pa.table({"id": ["f"], "k": ["f"], "n": [None], "u": [None]}, schema=store.open(entry.path).schema)

    def intrude() -> None:
        base = store.open(entry.path)
        staged = stage_changes(base, new_rows=foreign)
        assert staged is not None
        store.commit(base, staged, {})

    edges = people.rows("edge:E")
    with once_at(failpoints.MUTATION_POST_TABLE_COMMIT, intrude), pytest.raises(DriftError, match="repair"):
        people.mutate('insert P { k: "n" } insert E { from: "n", to: "a" }')
    assert people.rows("edge:E") == edges
    assert set(people.rows("node:P")) == {"a", "b", "c"}
    assert not store.objects.list_dir("__recovery")
    people.mutate('insert L { text: "other tables work on" }')
    with pytest.raises(DriftError, match="repair"):
        people.mutate('insert P { k: "n" }')
