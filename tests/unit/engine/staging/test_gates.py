from __future__ import annotations

import threading

import pytest

from omnigraph.engine.staging.gates import Gates
from omnigraph.errors import ConflictError, InternalError


def test_all_handles_of_a_root_share_their_gates():
    assert Gates.at("/somewhere") is Gates.at("/somewhere")
    assert Gates.at("/somewhere") is not Gates.at("/elsewhere")


def test_a_gate_admits_one_writer_and_gives_up_after_its_deadline():
    gates = Gates()
    with gates.acquire([("node:A", None)]):
        failures = []

        def other():
            try:
                gates.acquire([("edge:B", None), ("node:A", None)], timeout_seconds=0.05)
            except ConflictError as refusal:
                failures.append(refusal)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert len(failures) == 1
        # What it held of the others is free again.
        assert not gates.busy([("edge:B", None)])
    assert not gates.busy([("node:A", None)])


def test_taking_a_gate_twice_is_a_bug_and_not_a_deadlock():
    gates = Gates()
    with gates.acquire([("node:A", None)]), pytest.raises(InternalError):
        gates.acquire([("node:A", None)])


def test_branches_and_tables_do_not_share_gates():
    gates = Gates()
    with gates.acquire([("node:A", None)]) as held, gates.acquire([("node:A", "work"), ("node:B", None)]):
        assert held.covers([("node:A", None)])
        assert not held.covers([("node:A", "work")])


def test_writers_that_name_their_tables_in_different_orders_never_wait_for_each_other():
    gates = Gates()
    keys = [("node:A", None), ("node:B", None), ("edge:C", None)]
    done = []

    def work(order):
        for _ in range(200):
            with gates.acquire(order, timeout_seconds=20):
                pass
        done.append(True)

    threads = [threading.Thread(target=work, args=(order,)) for order in (keys, keys[::-1], keys[1:] + keys[:1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 3
    assert not gates._gates, "gates nobody uses are forgotten"
