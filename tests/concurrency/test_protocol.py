"""What one write does to storage, in which order, and what it never does."""

from __future__ import annotations

import threading

import pytest

from omnigraph.engine.commit.cancellation import Cancellation
from omnigraph.engine.storage import steps
from omnigraph.errors import CancelledWriteError, ConstraintError, ExpectedVersionMismatchError

WRITES = ("commit", "restore", "create", "configure", "write_text", "put", "delete")


class Recorder:
    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []

    def before(self, name: str, target: str) -> None:
        self.steps.append((name, target))

    def after(self, name: str, target: str) -> None:
        pass

    def __enter__(self):
        self._previous = steps.observe(self)
        return self

    def __exit__(self, *_):
        steps.observe(self._previous)

    def targets(self, name: str) -> list[str]:
        return [target for step, target in self.steps if step == name]


BOTH = 'insert P { k: "n", n: 1 } insert E { from: "n", to: "a" }'


def test_a_write_arms_then_commits_each_table_once_in_key_order_then_publishes_then_disarms(people):
    with Recorder() as seen:
        people.mutate(BOTH)
    names = [name for name, target in seen.steps if name == "commit" or "__recovery" in target]
    commits = seen.targets("commit")
    entries = people.snapshot().entries
    assert commits == [entries["edge:E"].path, entries["node:P"].path, "__manifest"]
    intents = [index for index, (_, target) in enumerate(seen.steps) if "__recovery/" in target]
    first_commit = next(index for index, (name, _) in enumerate(seen.steps) if name == "commit")
    last_commit = max(index for index, (name, _) in enumerate(seen.steps) if name == "commit")
    assert min(intents) < first_commit, names
    assert max(intents) > last_commit, names
    assert len(seen.targets("write_fragments")) == 3


def test_an_upsert_an_update_and_a_cascade_each_commit_every_table_once(people):
    for body in (
        'insert P { k: "a", n: 9 }',
        "update P set { n: 4 } where n >= 0",
        'delete P where k = "a"',
    ):
        with Recorder() as seen:
            people.mutate(body)
        commits = seen.targets("commit")
        assert len(commits) == len(set(commits)), body
        assert commits[-1] == "__manifest"
        assert commits[:-1] == sorted(commits[:-1])


def test_a_refused_write_moves_no_head_and_leaves_no_intent(people):
    with Recorder() as seen, pytest.raises(ConstraintError):
        people.mutate('insert P { k: "n" } insert E { from: "n", to: "nobody" }')
    assert seen.targets("commit") == []
    assert not [target for _, target in seen.steps if "__recovery/" in target]


def test_a_stale_strict_write_is_refused_before_its_intent(people):
    base = people.snapshot()
    people.mutate('insert P { k: "n" }')
    with Recorder() as seen, pytest.raises(ExpectedVersionMismatchError):
        people.mutate('update P set { n: 2 } where k = "a"', base=base)
    assert seen.targets("commit") == []


def test_a_warm_write_opens_and_lists_nothing_it_already_knows(people):
    people.mutate('insert P { k: "w0" }')
    with Recorder() as seen:
        people.mutate('insert P { k: "w1" }')
    assert seen.targets("open") == []
    assert len(seen.targets("commit")) == 2
    lists = [target for name, target in seen.steps if name.startswith("list")]
    assert len(lists) <= 1, "only the intents are listed"


def test_a_cancelled_write_leaves_nothing_and_the_next_one_works(people):
    before = people.snapshot().version
    token = Cancellation()
    token.cancel()
    with pytest.raises(CancelledWriteError):
        people.mutate('insert P { k: "n" }', cancellation=token)
    with pytest.raises(CancelledWriteError):
        people.load('{"type":"P","data":{"k":"n"}}', mode="append", cancellation=token)
    assert people.snapshot().version == before
    people.mutate('insert P { k: "n" }')


def test_cancelling_after_the_intent_is_armed_no_longer_stops_the_write(people):
    token = Cancellation()

    class CancelAtCommit(Recorder):
        def before(self, name: str, target: str) -> None:
            super().before(name, target)
            if name == "commit":
                token.cancel()

    with CancelAtCommit():
        people.mutate('insert P { k: "n" }', cancellation=token)
    assert "n" in people.rows("node:P")


def test_readers_during_writes_see_only_whole_commits(people):
    """Every commit adds one node and one edge to it, so any snapshot holds as many of one as of the other."""
    stop, seen = threading.Event(), set()

    def read():
        while not stop.is_set():
            snapshot = people.snapshot()
            nodes = snapshot.open("node:P").scan(["id"], "id LIKE 'r%'").num_rows
            edges = snapshot.open("edge:E").scan(["src"], "src LIKE 'r%'").num_rows
            assert nodes == edges
            seen.add(nodes)

    failures = []

    def guarded():
        try:
            read()
        except Exception as failure:  # noqa: BLE001
            failures.append(failure)

    readers = [threading.Thread(target=guarded) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(25):
        people.mutate(f'insert P {{ k: "r{number}" }} insert E {{ from: "r{number}", to: "a" }}')
    stop.set()
    for reader in readers:
        reader.join()
    assert not failures
    assert len(seen) > 1


def test_rows_that_are_only_inserted_are_not_written_again_by_a_second_attempt(people):
    base = people.snapshot()
    people.mutate('insert P { k: "first" }')
    lines = [f'{{"type":"P","data":{{"k":"bulk-{n}"}}}}' for n in range(5_000)]
    with Recorder() as seen:
        people.load(*lines, mode="append", base=base)
    tables = [target for target in seen.targets("write_fragments") if "__manifest" not in target]
    assert len(tables) == 1
    assert len(people.rows("node:P")) == 5_004
    people.check_settled()
