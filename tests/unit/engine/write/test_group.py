"""Writes of several threads that meet are published together, and each hears what is its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from omnigraph.engine.write import group
from omnigraph.engine.write import queue as queue_module
from omnigraph.engine.write.attached import waiting_until
from omnigraph.engine.write.queue import Place, WriteQueue
from omnigraph.errors import ConstraintError, ExpectedVersionMismatchError, UnavailableError
from omnigraph.graph import Graph, connect, create

SCHEMA = """
node Person { name: String @key
              badge: I32? @unique }
edge Knows: Person -> Person
"""
ADD = "query add($name: String, $badge: I32?) { insert Person { name: $name, badge: $badge } }"
BADGES = "query all() { match { $p: Person } return { $p.name, $p.badge } order { $p.name } }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    create(tmp_path / "graph", SCHEMA).close()
    with connect(tmp_path / "graph", group_writes=True) as opened:
        yield opened


def queue_of(graph: Graph) -> WriteQueue[Any]:
    queues = graph.context.queues
    assert queues is not None
    return queues.of("main", full=False)


def at_once(graph: Graph, calls: list[Callable[[], Any]]) -> list[Future[Any]]:
    """Let the calls wait for each other, in this order, and then go."""
    queue = queue_of(graph)
    running: list[Future[Any]] = []
    with ThreadPoolExecutor(len(calls)) as pool, queue.held():
        for call in calls:
            running.append(pool.submit(call))
            until = time.monotonic() + 10
            while queue.length < len(running):
                assert time.monotonic() < until
                time.sleep(0.001)
    return running


def adding(graph: Graph, name: str, badge: int | None = None, **named: Any) -> Callable[[], Any]:
    return lambda: graph.mutate(ADD, {"name": name, "badge": badge}, **named)


def test_writes_that_wait_together_are_one_commit_that_lists_them(graph: Graph) -> None:
    calls = [adding(graph, f"p{n}", actor=f"act-{n % 2}", message=f"the {n}th") for n in range(4)]
    receipts = [each.result() for each in at_once(graph, calls)]
    (commit,) = {each.commit_id for each in receipts}
    found = graph.history.show(commit)
    assert found.actor_id is None
    assert found.message is None
    assert [(each.actor_id, each.name, each.message, each.nodes) for each in found.writes] == [
        (f"act-{n % 2}", "add", f"the {n}th", 1) for n in range(4)
    ]
    assert [each.actor_id for each in receipts] == [f"act-{n % 2}" for n in range(4)]
    assert [each.graph_commit_id for each in graph.history.list(actor="act-1")] == [commit]
    (block,) = graph.changes.poll(start=f"after:{found.parent_commit_id}").blocks
    assert [each["actor_id"] for each in block.to_json()["cause"]["writes"]] == ["act-0", "act-1", "act-0", "act-1"]


def test_who_comes_while_the_others_are_prepared_goes_along(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, queue = group.Member.run, queue_of(graph)
    come, late = iter((adding(graph, "bob"), adding(graph, "cid"))), []

    def run(self: group.Member[Any], *given: Any) -> None:
        plain(self, *given)
        for call in come:
            late.append(pool.submit(call))
            while queue.length < len(late):
                time.sleep(0.001)

    monkeypatch.setattr(group.Member, "run", run)
    with ThreadPoolExecutor(2) as pool:
        first = at_once(graph, [adding(graph, "ann"), adding(graph, "amy")])
        (commit,) = {each.result().commit_id for each in (*first, *late)}
    assert [each.nodes for each in graph.history.show(commit).writes] == [1, 1, 1, 1]


def test_a_write_that_is_alone_is_not_a_group(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group.Group, "_write_all", pytest.fail)
    adding(graph, "ann")()


def test_a_refused_write_leaves_no_trace_and_the_next_sees_the_state_without_it(graph: Graph) -> None:
    calls = [adding(graph, "ann", 1, actor="a"), adding(graph, "bob", 1, actor="b"), adding(graph, "cid", 2, actor="c")]
    calls.append(lambda: graph.mutate('query q() { update Person set { badge: 1 } where name = "cid" }', actor="d"))
    calls.append(lambda: graph.mutate('query q() { delete Person where name = "ann" }', actor="e"))
    calls.append(adding(graph, "dan", 1, actor="f"))
    done = at_once(graph, calls)
    assert [type(each.exception()) for each in done] == [
        type(None),
        ConstraintError,
        type(None),
        ConstraintError,
        type(None),
        type(None),
    ]
    assert graph.query(BADGES).to_pylist() == [{"p.name": "cid", "p.badge": 2}, {"p.name": "dan", "p.badge": 1}]
    head = graph.history.list(limit=1)[0]
    assert [each.actor_id for each in head.writes] == ["a", "c", "e", "f"]


def test_a_write_that_is_alone_is_a_commit_like_any_other(graph: Graph) -> None:
    before = graph.snapshot().version
    graph.mutate(ADD, {"name": "ann"}, actor="a", message="hello")
    head = graph.history.list(limit=1)[0]
    assert (head.actor_id, head.message, head.writes, graph.snapshot().version) == ("a", "hello", (), before + 1)
    only = [adding(graph, "bob", 5, actor="b", message="mine"), adding(graph, "cid", 5, actor="c")]
    at_once(graph, only)
    head = graph.history.list(limit=1)[0]
    assert (head.actor_id, head.message, head.writes, head.facts) == ("b", "mine", (), {})


def test_writes_that_come_to_nothing_have_a_commit_each(graph: Graph) -> None:
    calls = [adding(graph, "ann"), lambda: graph.mutate('query q() { delete Person where name = "ann" }')]
    receipts = [each.result() for each in at_once(graph, calls)]
    assert len({each.commit_id for each in receipts}) == 2
    assert graph.query(BADGES).to_pylist() == []


def test_small_loads_join_and_conditional_writes_do_not(graph: Graph) -> None:
    line = b'{"type": "Person", "data": {"name": "ann"}}\n'
    calls = [
        lambda: graph.load(line, mode="append", durability="fast", actor="a"),
        lambda: graph.load(line, mode="append", durability="fast", actor="b"),
        adding(graph, "bob"),
    ]
    first, second, third = at_once(graph, calls)
    assert first.result().commit_id == third.result().commit_id
    assert "ann" in str(second.exception())
    writes = graph.history.show(first.result().commit_id).writes
    assert [(each.name, dict(each.tables)) for each in writes] == [("load", {"node:Person": 1}), ("add", {})]
    with queue_of(graph).held():
        head = graph.snapshot().head
        assert graph.mutate(ADD, {"name": "eve"}, if_commit=head).commit_id is not None


def test_a_write_that_may_not_wait_any_longer_never_begins(graph: Graph) -> None:
    with queue_of(graph).held(), waiting_until(time.monotonic() + 0.05), pytest.raises(UnavailableError):
        graph.mutate(ADD, {"name": "late"})
    graph.mutate(ADD, {"name": "ann"})
    assert [row["p.name"] for row in graph.query(BADGES)] == ["ann"]


def test_a_strict_write_is_refused_by_itself_when_another_process_came_first(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.mutate(ADD, {"name": "ann"})
    plain, other = group.Group._prepare, connect(graph.uri)
    cut = threading.Event()

    def prepare(self: group.Group, transaction: Any) -> None:
        plain(self, transaction)
        if not cut.is_set():
            cut.set()
            other.mutate(ADD, {"name": "elsewhere"})

    monkeypatch.setattr(group.Group, "_prepare", prepare)
    update = 'query q() { update Person set { badge: 3 } where name = "ann" }'
    strict, lenient = at_once(graph, [lambda: graph.mutate(update), adding(graph, "bob")])
    assert isinstance(strict.exception(), ExpectedVersionMismatchError)
    assert lenient.result().commit_id is not None
    assert [row["p.name"] for row in graph.query(BADGES)] == ["ann", "bob", "elsewhere"]


@pytest.mark.parametrize("after", [False, True])
def test_who_follows_an_interrupted_leader_is_written_once(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    plain = group.Group._write_all

    def interrupted(self: group.Group) -> None:
        if after:
            plain(self)
            for member in self.members:
                member.done = False
        raise KeyboardInterrupt

    monkeypatch.setattr(group.Group, "_write_all", interrupted)
    first, second = at_once(graph, [adding(graph, "ann"), adding(graph, "bob")])
    ended = [each.exception() for each in (first, second)]
    assert [isinstance(each, KeyboardInterrupt) for each in ended].count(True) == 1
    (told,) = [each.result() for each in (first, second) if each.exception() is None]
    names = [row["p.name"] for row in graph.query(BADGES)]
    assert len(names) == len(set(names)) == (2 if after else 1)
    assert graph.history.show(told.commit_id)


def test_who_was_left_by_a_second_attempt_is_not_taken_for_written_by_it(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt had room for all, the second for one, and its leader is interrupted once it is published."""
    plain, attempts = group.Group._prepare, []

    def prepare(self: group.Group, transaction: Any) -> None:
        attempts.append(len(self.members))
        if len(attempts) == 2:
            monkeypatch.setattr(group, "LAYER_ROWS_MAX", 0)
        plain(self, transaction)
        if len(attempts) == 1:
            with connect(graph.uri) as other:
                other.mutate(ADD, {"name": "other", "badge": None})

    def interrupted(self: group.Member[Any], committed: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(group.Group, "_prepare", prepare)
    monkeypatch.setattr(group.Member, "settle", interrupted)
    running = at_once(graph, [adding(graph, "ann"), adding(graph, "bob")])
    assert attempts == [2, 2]
    graph.refresh()
    names = [row["p.name"] for row in graph.query(BADGES)]
    told = [name for name, each in zip(("ann", "bob"), running, strict=True) if each.exception() is None]
    assert names == sorted({"ann", "other", *told})


@pytest.mark.parametrize("after", [True, False], ids=["after it was published", "before"])
def test_who_was_written_alone_by_an_interrupted_leader_is_written_once(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    graph.mutate(ADD, {"name": "ann", "badge": 1})
    plain, queue = group.Member.write_alone, queue_of(graph)

    def interrupted(self: group.Member[Any]) -> None:
        if after:
            plain(self)
            self.done = False
        raise KeyboardInterrupt

    monkeypatch.setattr(group.Member, "write_alone", interrupted)
    count = 'query count() { update Person set { badge: badge + 1 } where name = "ann" }'
    with ThreadPoolExecutor(1) as pool:
        with queue.held():
            counting = pool.submit(graph.mutate, count)
            while not queue.length:
                time.sleep(0.001)
            with pytest.raises(KeyboardInterrupt):
                queue._lead(lambda members, more: group.Group(members, more).carry_out())
        told = counting.result()
    assert [row["p.badge"] for row in graph.query(BADGES)] == [2]
    assert (told.affected_nodes, graph.history.list(limit=1)[0].graph_commit_id) == (1, told.commit_id)


def test_who_was_left_before_anybody_began_waits_for_no_other_write(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be unfinished of it, and what others have unfinished is not its business."""
    asked: list[object] = []
    monkeypatch.setattr(group, "settle", lambda *_: asked.append(1))

    def interrupted(members: Any, more: Any) -> Any:
        raise KeyboardInterrupt

    queue = queue_of(graph)
    with ThreadPoolExecutor(1) as pool:
        with queue.held():
            running = pool.submit(adding(graph, "ann"))
            while not queue.length:
                time.sleep(0.001)
            with pytest.raises(KeyboardInterrupt):
                queue._lead(interrupted)
        assert running.result().affected_nodes == 1
    assert asked == []


def test_those_of_another_kind_go_with_the_next_leader() -> None:
    queue: WriteQueue[Place] = WriteQueue()
    kinds, groups = [object(), object()], []

    def lead(places: Any, more: Any) -> tuple[()]:
        groups.append([kinds.index(place.kind) for place in places])
        for place in places:
            place.finish()
        return ()

    with ThreadPoolExecutor(3) as pool, queue.held():
        for number, kind in enumerate((0, 0, 1)):
            pool.submit(queue.carry_out, Place(kinds[kind], None), lead)
            while queue.length <= number:
                time.sleep(0.001)
    assert groups == [[0, 0], [1]]


def test_a_write_that_an_interrupted_leader_lost_sight_of_is_given_back_to_its_writer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Losing(Place):
        def claim(self, who: str) -> bool:
            if who == "led":
                raise KeyboardInterrupt
            return super().claim(who)

    def lead(places: Any, more: Any) -> tuple[()]:
        for place in places:
            place.finish()
        return ()

    monkeypatch.setattr(queue_module, "_LOOK_SECONDS", 0.3)
    queue: WriteQueue[Place] = WriteQueue()
    lost, leader = Losing(None, None), Place(None, None)
    with ThreadPoolExecutor(1) as pool:
        with queue.held():
            waiting = pool.submit(queue.carry_out, lost, lead)
            while not queue.length:
                time.sleep(0.001)
        with pytest.raises(KeyboardInterrupt):
            queue.carry_out(leader, lead)
        waiting.result(timeout=10)
    assert lost.abandoned
    queue.carry_out(Place(None, None), lead)
