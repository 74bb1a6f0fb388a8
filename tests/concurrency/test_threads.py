"""Writers in one process."""

from __future__ import annotations

import threading

from omnigraph.errors import ConflictError, ExpectedVersionMismatchError


def together(count, work):
    barrier = threading.Barrier(count)
    results: list[object] = [None] * count

    def run(number):
        barrier.wait()
        try:
            results[number] = work(number)
        except ConflictError as conflict:
            results[number] = conflict

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_of_many_updates_of_one_row_decided_on_one_state_exactly_one_succeeds(people):
    base = people.snapshot()
    results = together(8, lambda n: people.mutate(f'update P set {{ n: {n} }} where k = "a"', base=base))
    winners = [n for n, result in enumerate(results) if not isinstance(result, Exception)]
    assert len(winners) == 1
    assert all(isinstance(r, ExpectedVersionMismatchError) for n, r in enumerate(results) if n != winners[0])
    assert people.rows("node:P")["a"]["n"] == winners[0]
    people.check_settled()


def test_concurrent_inserts_lose_nothing(people):
    def work(number):
        for step in range(6):
            key = f"t{number}-{step}"
            people.mutate(f'insert P {{ k: "{key}" }} insert E {{ from: "{key}", to: "a" }}')

    results = together(8, work)
    assert results == [None] * 8
    assert len([key for key in people.rows("node:P") if key.startswith("t")]) == 48
    assert len(people.rows("edge:E")) == 49
    people.check_settled()


def test_concurrent_upserts_of_one_new_key_leave_one_row(people):
    results = together(8, lambda n: people.mutate(f'insert P {{ k: "hot", n: {n} }}'))
    assert not [result for result in results if isinstance(result, Exception)]
    assert people.rows("node:P")["hot"]["n"] in range(8)
    people.check_settled()


def test_concurrent_writers_of_one_unique_value_leave_one_holder(people):
    from omnigraph.errors import ConstraintError

    def work(number):
        try:
            return people.mutate(f'insert P {{ k: "u{number}", u: "mail" }}')
        except ConstraintError as refused:
            return refused

    results = together(6, work)
    assert len([result for result in results if not isinstance(result, Exception)]) == 1
    holders = [row for row in people.rows("node:P").values() if row["u"] == "mail"]
    assert len(holders) == 1


def test_two_handles_of_one_root_share_gates_and_history(people):
    from omnigraph.graph import connect

    others = [type(people)(connect(people.context.root).context) for _ in range(2)]

    def work(number):
        for step in range(5):
            others[number].mutate(f'insert P {{ k: "h{number}-{step}" }}')

    assert together(2, work) == [None, None]
    people.check_settled()
    assert len([key for key in people.rows("node:P") if key.startswith("h")]) == 10
