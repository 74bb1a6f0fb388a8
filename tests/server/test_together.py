"""Writes that wait for one branch of a served graph are published together, and each is answered by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tests.server.serving import ADD, PEOPLE, InProcess, lose_the_answers, wait_for

from omnigraph.engine.manifest import publish
from omnigraph.engine.write.queue import WriteQueue, WriteQueues
from omnigraph.server.receipts import commit_of
from omnigraph.server.requests_seen import Note
from omnigraph.server.settings import Settings
from omnigraph.server.turns import Turn

PEOPLE_AGES = 'query q() { match { $p: Person { name: "ada" } } return { $p.age as age } }'


def queue_of(server: InProcess) -> WriteQueue[Any]:
    queues = server.graph.context.queues
    assert queues is not None
    return queues.of("main", full=False)


def at_once(server: InProcess, calls: list[Callable[[], httpx.Response]]) -> list[httpx.Response]:
    queue = queue_of(server)
    with ThreadPoolExecutor(len(calls)) as pool:
        with queue.held():
            running = []
            for call in calls:
                running.append(pool.submit(call))
                wait_for(lambda: queue.length == len(running))
        return [each.result() for each in running]


def adding(server: InProcess, name: str, **headers: str) -> Callable[[], httpx.Response]:
    body = {"query": ADD, "params": {"name": name}, "message": f"add {name}"}
    return lambda: server.post("mutate", body, headers=headers)


def test_writes_of_several_clients_share_a_commit_that_names_them(serve: Callable[..., InProcess]) -> None:
    server = serve(group_writes=True)
    calls = [adding(server, f"p{n}", **{"Idempotency-Key": f"k{n}"}) for n in range(3)]
    calls.append(lambda: server.post("mutate", {"query": ADD, "params": {"name": "x", "age": "old"}}))
    answers = at_once(server, calls[:3])
    assert calls[3]().status_code == 400
    assert [each.status_code for each in answers] == [200] * 3
    (commit,) = {each.json()["commit"] for each in answers}
    told = server.get(f"commits/{commit}").json()
    listed = [(each["name"], each["message"], each["key"]) for each in told["writes"]]
    assert listed == [("add", f"add p{n}", f"k{n}") for n in range(3)]
    cause = server.get(f"commits/{commit}/changes").json()["cause"]
    assert [each["affected_nodes"] for each in cause["writes"]] == [1, 1, 1]
    for number, call in enumerate(calls[:3]):
        again = call()
        assert again.headers["idempotency-replayed"] == "true"
        assert again.json() == answers[number].json()
    lose_the_answers(server)
    assert [call().json() for call in calls[:3]] == [each.json() for each in answers]
    names = [row["p.name"] for row in server.post("query", {"query": PEOPLE}).json()["rows"]]
    assert {"p0", "p1", "p2"} <= set(names)


def test_an_abandoned_request_is_found_among_the_writes_of_a_commit(serve: Callable[..., InProcess]) -> None:
    server = serve(group_writes=True)
    answers = at_once(server, [adding(server, "p0", **{"Idempotency-Key": "k0"}), adding(server, "p1")])
    (commit,) = {each.json()["commit"] for each in answers}
    name, began = server.graph.history.show(commit).writes[0].properties["request"].split(".")
    found = commit_of(server.graph, "main", Note(name, 1, "d", True, int(began)))
    assert found is not None
    assert (found[0].graph_commit_id, found[1] and found[1].nodes) == (commit, 1)


def test_a_write_that_waits_too_long_inside_the_engine_is_503(serve: Callable[..., InProcess]) -> None:
    server = serve(group_writes=True, settings=Settings(write_queue_seconds=0.1, metrics=True))
    with queue_of(server).held():
        late = adding(server, "late")()
    assert (late.status_code, late.headers["retry-after"]) == (503, "1")
    assert 'omnigraph_writes_refused_total{reason="waited"} 1.0' in server.get("/metrics").text
    assert adding(server, "early")().status_code == 200
    names = [row["p.name"] for row in server.post("query", {"query": PEOPLE}).json()["rows"]]
    assert "late" not in names


def test_a_turn_is_shared_or_alone_and_first_come_first_served() -> None:
    async def story() -> list[str]:
        turn, told = Turn(), []

        async def take(name: str, shared: bool) -> None:
            await turn.take(shared=shared)
            told.append(name)

        await asyncio.gather(take("a", True), take("b", True))
        waiting = [
            asyncio.create_task(take(name, shared)) for name, shared in (("c", False), ("d", True), ("e", False))
        ]
        await asyncio.sleep(0)
        turn.give(shared=True)
        await asyncio.sleep(0)
        assert told == ["a", "b"]
        waiting[2].cancel()
        await asyncio.sleep(0)
        turn.give(shared=True)
        await asyncio.sleep(0.01)
        assert told == ["a", "b", "c"]
        turn.give(shared=False)
        await asyncio.sleep(0.01)
        turn.give(shared=True)
        assert turn.is_idle
        return told

    assert asyncio.run(story()) == ["a", "b", "c", "d"]


def test_mutations_with_a_match_take_turns_where_others_are_grouped(serve: Callable[..., InProcess]) -> None:
    server = serve(group_writes=True)
    text = 'query q() { match { $p: Person { name: "ada" } } update $p set { age: coalesce(age, 0) + 1 } }'
    before = server.graph.query(PEOPLE_AGES).to_pylist()[0]["age"] or 0
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: server.post("mutate", {"query": text}), range(18)))
    assert [each.status_code for each in answers] == [200] * 18
    assert server.graph.query(PEOPLE_AGES).to_pylist()[0]["age"] == before + 18


def test_a_turn_that_is_given_while_its_waiter_leaves_is_nobodys() -> None:
    async def leave() -> bool:
        turn = Turn()
        await turn.take(shared=False)
        waiting = asyncio.create_task(turn.take(shared=False))
        await asyncio.sleep(0)
        waiting.cancel()
        turn.give(shared=False)
        try:
            await waiting
        except asyncio.CancelledError:
            await asyncio.wait_for(turn.take(shared=False), 1)  # and nobody has it
            return True
        return False

    assert asyncio.run(leave())


def test_nothing_is_kept_for_branches_that_are_gone(serve: Callable[..., InProcess]) -> None:
    server = serve(group_writes=True)
    queues, work = server.graph.context.queues, server.server.state.work
    assert queues is not None
    for number in range(3):
        server.graph.branches.create(f"b{number}")
        body = {"query": ADD, "params": {"name": "x"}, "branch": f"b{number}"}
        assert server.post("mutate", body).status_code == 200
        assert server.ask("DELETE", f"branches/b{number}").status_code == 200
    assert (len(queues), len(work._turns)) == (0, 0)


def test_a_line_is_the_same_for_all_who_stand_in_it_and_gone_with_the_last() -> None:
    queues = WriteQueues()
    queue = queues.of("main", full=True)
    assert queues.of("main", full=True) is queue
    assert (queues.of("main", full=False) is queue, len(queues)) == (False, 1)
    del queue
    assert len(queues) == 0


def test_only_so_many_branches_are_kept_in_memory_and_all_can_be_read(
    serve: Callable[..., InProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "BRANCH_STATES", 3)
    graph = serve().graph
    for number in range(5):
        graph.branches.create(f"b{number}")
    heads = [graph.snapshot(name).head for name in graph.branches.list()]
    assert len(graph.context.manifest._cache) <= 3
    assert heads == [graph.snapshot("main").head] * 6
