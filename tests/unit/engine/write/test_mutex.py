from __future__ import annotations

import threading

import pytest

from omnigraph.engine.coordination.mutex import Mutexes
from omnigraph.errors import ConflictError, InternalError

A, B, C = ("node:A", None), ("edge:B", None), ("edge:C", None)


def test_all_handles_of_a_root_share_their_mutexes():
    assert Mutexes.at("/somewhere") is Mutexes.at("/somewhere")
    assert Mutexes.at("/somewhere") is not Mutexes.at("/elsewhere")


def test_a_mutex_admits_one_writer_and_gives_up_after_its_deadline():
    mutexes = Mutexes()
    failures = []

    def other():
        try:
            mutexes.hold([B, A], lambda: None, timeout_seconds=0.05)
        except ConflictError as refusal:
            failures.append(refusal)

    def first():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert len(failures) == 1
        assert "node:A" in str(failures[0])
        # What it wanted besides is free.
        assert not mutexes.busy([B])

    mutexes.hold([A], first)
    assert not mutexes.busy([A])


def test_taking_a_mutex_twice_is_a_bug_and_not_a_deadlock():
    mutexes = Mutexes()
    with pytest.raises(InternalError):
        mutexes.hold([A], lambda: mutexes.hold([A], lambda: None))
    assert not mutexes.busy([A])


def test_branches_and_tables_do_not_share_mutexes():
    mutexes = Mutexes()
    held = mutexes.holder()
    held.take([A])
    mutexes.hold([("node:A", "work"), B], lambda: None)
    assert held.covers([A])
    assert not held.covers([("node:A", "work")])
    held.release()
    assert not held.covers([A])


def test_taking_other_mutexes_gives_back_those_that_were_held():
    mutexes = Mutexes()
    held = mutexes.holder()
    held.take([A])
    held.take([B])
    assert not mutexes.busy([A])
    assert mutexes.busy([B])
    held.release()
    held.release()
    assert not mutexes.busy([B])


def test_a_writer_that_is_gone_without_a_word_holds_nothing():
    mutexes = Mutexes()
    held = mutexes.holder()
    held.take([A])
    del held
    assert mutexes.hold([A], lambda: True, timeout_seconds=1)


def test_writers_are_admitted_in_the_order_they_came_and_never_two_at_once():
    mutexes = Mutexes()
    inside, most, admitted = [], [], []

    def work(number):
        def body():
            inside.append(number)
            most.append(len(inside))
            admitted.append(number)
            inside.remove(number)

        for _ in range(100):
            mutexes.hold([A], body, timeout_seconds=20)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(admitted) == 800


def test_writers_that_name_their_tables_in_different_orders_never_wait_for_each_other():
    mutexes = Mutexes()
    keys = [A, B, C]
    done = []

    def work(order):
        for _ in range(200):
            mutexes.hold(order, lambda: None, timeout_seconds=20)
        done.append(True)

    threads = [threading.Thread(target=work, args=(order,)) for order in (keys, keys[::-1], keys[1:] + keys[:1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 3
    assert not mutexes._line, "nobody is left in the line"
