"""Writes that can be repeated safely: keys, admission, the queue, and clients that leave."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.server.serving import ADD, PEOPLE, InProcess, lose_the_answers, wait_for

import omnigraph
from omnigraph.engine.manifest.history import History
from omnigraph.errors import (
    AlreadyExistsError,
    ConflictError,
    ConstraintError,
    ExternalBlobError,
    GraphError,
    StorageError,
)
from omnigraph.graph import Graph
from omnigraph.server import requests_seen
from omnigraph.server.call import _is_final
from omnigraph.server.errors import Answer, HttpRefusal, answer_of
from omnigraph.server.receipts import commit_of
from omnigraph.server.requests_seen import Note, RequestsSeen
from omnigraph.server.settings import Settings


def keyed(server: InProcess, key: str, name: str, **named: Any) -> Any:
    body = {"query": ADD, "params": {"name": name}}
    return server.post("mutate", body, headers={"Idempotency-Key": key}, **named)


def people(server: InProcess) -> list[str]:
    return [row["p.name"] for row in server.post("query", {"query": PEOPLE}).json()["rows"]]


class Held:
    """Stops writes of a graph until it is told to let them go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started, self.go = threading.Semaphore(0), threading.Event()
        plain = Graph.mutate

        def mutate(graph: Graph, *given: Any, **named: Any) -> Any:
            self.started.release()
            assert self.go.wait(30)
            return plain(graph, *given, **named)

        monkeypatch.setattr(Graph, "mutate", mutate)


def test_a_repeated_key_answers_the_same_and_writes_once(open_server: InProcess) -> None:
    first = keyed(open_server, "k", "dan")
    again = keyed(open_server, "k", "dan")
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json() == first.json()
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    other = keyed(open_server, "k", "eve")
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    assert "eve" not in people(open_server)
    refused = [keyed(open_server, "bad", "\x00" * 3), keyed(open_server, "bad", "\x00" * 3)]
    assert refused[0].json() == refused[1].json()
    for key in ("", "x" * 129):
        assert keyed(open_server, key, "fay").status_code == 400


def test_every_mutating_route_takes_a_key(open_server: InProcess) -> None:
    line = json.dumps({"type": "City", "data": {"name": "Rome"}})
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "load", {"json": {"data": line, "mode": "append"}}),
        ("POST", "branches", {"json": {"name": "b"}}),
        ("POST", "branches/merge", {"json": {"source": "b"}}),
        ("DELETE", "branches/b", {}),
        ("POST", "queries/add", {"json": {"params": {"name": "z"}}}),
        ("POST", "schema/apply", {"json": {"schema_source": open_server.get("schema").json()["schema_source"]}}),
    ]
    for number, (method, path, named) in enumerate(calls):
        headers = {"Idempotency-Key": f"key-{number}"}
        first = open_server.ask(method, path, headers=headers, **named)
        again = open_server.ask(method, path, headers=headers, **named)
        assert (first.status_code, again.status_code) == (200, 200), (path, first.text, again.text)
        assert again.json() == first.json()
        assert again.headers["idempotency-replayed"] == "true"
    raw = {"Content-Type": "application/x-ndjson", "Idempotency-Key": "raw"}
    body = line.replace("Rome", "Oslo")
    loads = [open_server.ask("POST", "load/ndjson?mode=append", content=body, headers=raw) for _ in range(2)]
    assert loads[0].json() == loads[1].json()


def test_notes_survive_a_restart_and_are_seen_by_another_server(
    serve: Callable[..., InProcess], tmp_path: Path
) -> None:
    one = serve()
    first = keyed(one, "k", "dan").json()
    two = InProcess(one.root, access=None, settings=None, queries=None)
    try:
        again = keyed(two, "k", "dan")
        assert again.headers["idempotency-replayed"] == "true"
        assert again.json() == first
    finally:
        two.close()


def test_a_key_in_use_is_told_to_come_back(open_server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    running = threading.Thread(target=keyed, args=(open_server, "k", "dan"))
    running.start()
    assert held.started.acquire(timeout=20)
    busy = keyed(open_server, "k", "dan")
    assert (busy.status_code, busy.headers["retry-after"]) == (409, "1")
    assert open_server.post("query", {"query": PEOPLE}).status_code == 200, "reads do not wait for writes"
    held.go.set()
    running.join()
    assert keyed(open_server, "k", "dan").headers["idempotency-replayed"] == "true"


LINE = json.dumps({"type": "City", "data": {"name": "Rome"}})
TOLD = "query q() { match { $p: Person } update $p set { age: coalesce(age, 0) + 1 } return { $p.name, $p.age } }"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "mutate", {"query": ADD, "params": {"name": "dan"}, "message": "said"}),
        ("POST", "mutate", {"query": TOLD}),
        ("POST", "mutate", {"query": ADD, "params": {"name": "long" * 500}}),
        ("POST", "queries/add", {"params": {"name": "dan"}, "branch": "side"}),
        ("POST", "load", {"data": LINE, "branch": "new", "from": "main"}),
        ("POST", "load/ndjson?mode=merge", LINE.replace("Rome", "Paris")),
        ("POST", "branches", {"name": "b"}),
        ("POST", "branches/merge", {"source": "side"}),
        ("POST", "branches/merge", {"source": "ahead", "delete_branch": True, "message": "said"}),
        ("DELETE", "branches/side", None),
        ("POST", "tags", {"name": "t", "message": "said"}),
        ("DELETE", "tags/old", None),
        ("POST", "revert", {"commit": "old", "branch": "ahead"}),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else "",
)
def test_a_key_whose_server_died_gets_the_answer_that_was_lost(
    open_server: InProcess, method: str, path: str, body: Any
) -> None:
    graph = open_server.graph
    for name in ("side", "ahead"):
        graph.branches.create(name)
        graph.mutate(ADD, {"name": f"of-{name}"}, branch=name)
    if method == "DELETE" or path == "revert":
        graph.tags.create("old", branch="ahead")
    if body == {"source": "side"}:
        graph.mutate(ADD, {"name": "of-main"})
    headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    content = None if body is None else json.dumps(body)
    if isinstance(body, str):
        headers["Content-Type"], content = "application/x-ndjson", body

    def ask() -> Any:
        return open_server.ask(method, path, content=content, headers=headers)

    first = ask()
    assert first.status_code == 200, first.text
    branches = {name: graph.history.list(name) for name in graph.branches.list()}
    lose_the_answers(open_server)
    again = ask()
    assert again.headers["idempotency-replayed"] == "true"
    measured = dict.fromkeys(("seconds", "phases", "bytes_written") if path == "load" else ())
    assert {**again.json(), **measured} == {**first.json(), **measured}
    assert {name: graph.history.list(name) for name in graph.branches.list()} == branches
    lose_the_answers(open_server)
    assert ask().json() == again.json()


def test_a_schema_whose_server_died_gets_the_answer_that_was_lost(open_server: InProcess) -> None:
    schema = open_server.get("schema").json()["schema_source"].replace("age: I32?", "age: I32?\n    shoe: I32?")

    def ask() -> Any:
        return open_server.post("schema/apply", {"schema_source": schema}, headers={"Idempotency-Key": "k"})

    first = ask()
    assert (first.status_code, first.json()["applied"]) == (200, True)
    lose_the_answers(open_server)
    assert ask().json() == first.json()


def test_a_merge_that_died_before_it_deleted_its_branch_deletes_it_when_repeated(
    open_server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any, **__: Any) -> None:
        raise omnigraph.ConflictError("not now")

    def ask() -> Any:
        body = {"source": "side", "delete_branch": True}
        return open_server.post("branches/merge", body, headers={"Idempotency-Key": "k"}).json()

    graph = open_server.graph
    graph.branches.create("side")
    graph.mutate(ADD, {"name": "x"}, branch="side")
    with monkeypatch.context() as patched:
        patched.setattr("omnigraph.verbs.delete_branch", die)
        first = ask()
    lose_the_answers(open_server)
    assert ask() == {**first, "branch_deleted": True, "branch_delete_error": None}
    assert graph.branches.list() == ["main"]
    lose_the_answers(open_server)
    graph.branches.create("side")
    graph.mutate(ADD, {"name": "y"}, branch="side")
    assert ask()["branch_deleted"], "the one that was merged is gone"
    assert "side" in graph.branches.list(), "this is another one's"


def test_receipts_are_kept_short_and_are_not_told_with_the_commit(open_server: InProcess) -> None:
    commit = keyed(open_server, "k", "dan").json()["commit"]
    record = open_server.graph.history.show(commit)
    assert json.loads(record.properties["omnigraph.receipt"]) == {
        "query_name": "add",
        "affected_nodes": 1,
        "ids": [{"ids": ["dan"], "more": False}],
    }
    assert "receipt" not in open_server.get(f"commits/{commit}").text


def test_a_repeated_key_waits_for_whoever_finishes_the_first_attempt(
    open_server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery by somebody else may publish the first attempt a moment after it was looked for."""
    intents = open_server.graph.context.recovery.intents

    def fail(*_: Any, **__: Any) -> Any:
        raise omnigraph.StorageError("the store is gone")

    with monkeypatch.context() as patched:
        patched.setattr(type(open_server.graph.context.manifest), "publish", fail)
        unfinished = keyed(open_server, "k", "dan")
    assert (unfinished.status_code, "recovery_required" in unfinished.json()) == (503, True)
    [operation] = intents.list()
    claimed, go = threading.Event(), threading.Event()

    def resolving(_: object) -> None:
        claimed.set()
        assert go.wait(20)

    other = threading.Thread(target=intents.claimed, args=(operation, resolving))
    other.start()
    assert claimed.wait(20)
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(keyed(open_server, "k", "dan")))
    asking.start()
    asking.join(0.3)
    assert asking.is_alive(), "nobody knows yet whether the first attempt was made"
    go.set()
    other.join()
    asking.join()
    assert answers[0].headers["idempotency-replayed"] == "true"
    assert answers[0].json()["ids"] == [{"ids": ["dan"], "more": False}]
    assert len([commit for commit in open_server.graph.history.list() if "request" in commit.properties]) == 1


def test_an_abandoned_request_without_a_commit_is_carried_out(open_server: InProcess) -> None:
    objects = open_server.graph.context.store.objects
    seen = RequestsSeen(objects)
    note = seen.begin(actor=None, key="k", digest="d")
    assert isinstance(note, Note)
    with pytest.raises(HttpRefusal) as busy:
        seen.begin(actor=None, key="k", digest="d")
    assert busy.value.status == 409
    requests_seen._active.clear()
    taken = seen.begin(actor=None, key="k", digest="d")
    assert isinstance(taken, Note)
    assert (taken.attempt, taken.taken_over) == (1, True)
    assert commit_of(open_server.graph, "main", taken) is None
    seen.complete(taken, Answer(200, {"done": 1}))
    replay = seen.begin(actor=None, key="k", digest="d")
    assert isinstance(replay, Answer)
    assert replay.body == {"done": 1}
    assert isinstance(seen.begin(actor="somebody", key="k", digest="other"), Note), "a key is its actor's"
    assert seen.sweep() == 0


def test_what_is_kept_for_keys_has_a_bound_and_an_end(
    serve: Callable[..., InProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(settings=Settings(keys_max=2))
    first = [keyed(server, f"k{n}", f"p{n}") for n in range(2)]
    full = keyed(server, "k2", "p2")
    assert (full.status_code, full.headers["retry-after"]) == (503, "60")
    assert "p2" not in people(server)
    assert keyed(server, "k1", "p1").json() == first[1].json(), "what is kept is answered"
    assert server.post("mutate", {"query": ADD, "params": {"name": "p3"}}).status_code == 200
    seen = server.server.state.requests["default"]
    assert (seen.sweep(), keyed(server, "k2", "p2").status_code) == (0, 503)
    monkeypatch.setattr(requests_seen, "KEPT", timedelta(seconds=-1))
    assert seen.sweep() == 2
    monkeypatch.undo()
    assert not list((server.root / "__requests").iterdir())
    assert keyed(server, "k2", "p2").status_code == 200
    small = serve(settings=Settings(keys_bytes_max=10))
    assert [keyed(small, f"k{n}", f"p{n}").status_code for n in range(2)] == [200, 503]


def test_too_many_writes_of_one_actor_are_429_and_change_nothing(
    serve: Callable[..., InProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(settings=Settings(actor_writes_max=1))
    held = Held(monkeypatch)
    running = threading.Thread(target=keyed, args=(server, "a", "dan"))
    running.start()
    assert held.started.acquire(timeout=20)
    refused = keyed(server, "b", "eve")
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
    assert refused.headers["retry-after"] == "60"
    held.go.set()
    running.join()
    assert keyed(server, "b", "eve").status_code == 200, "a refusal does not use the key up"
    small = serve(settings=Settings(actor_bytes_max=10, metrics=True))
    assert keyed(small, "c", "fay").status_code == 429
    assert 'omnigraph_writes_refused_total{reason="actor"} 1.0' in small.get("/metrics").text


def test_a_write_that_does_not_start_in_time_is_503_and_changes_nothing(
    serve: Callable[..., InProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(settings=Settings(write_queue_seconds=0.2, metrics=True))
    held = Held(monkeypatch)
    running = threading.Thread(target=keyed, args=(server, "a", "dan"))
    running.start()
    assert held.started.acquire(timeout=20)
    before = sorted((server.root / "__requests").iterdir())
    late = keyed(server, "b", "eve")
    assert (late.status_code, late.headers["retry-after"]) == (503, "2")
    assert 'omnigraph_writes_refused_total{reason="waited"} 1.0' in server.get("/metrics").text
    assert "eve" not in people(server)
    assert sorted((server.root / "__requests").iterdir()) == before, "a refusal leaves nothing behind"
    held.go.set()
    running.join()
    assert sorted({*people(server)} & {"dan", "eve"}) == ["dan"]
    assert keyed(server, "b", "eve").status_code == 200, "and does not use the key up"


def test_a_client_that_leaves_does_not_cancel_its_write(
    open_server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)

    async def leave() -> None:
        body = {"query": ADD, "params": {"name": "dan"}}
        task = asyncio.ensure_future(
            open_server.client.post("/graphs/default/mutate", json=body, headers={"Idempotency-Key": "k"})
        )
        while not held.started.acquire(blocking=False):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    open_server.run(leave())
    held.go.set()
    wait_for(lambda: "dan" in people(open_server))
    wait_for(lambda: keyed(open_server, "k", "dan").headers.get("idempotency-replayed") == "true")
    assert people(open_server).count("dan") == 1


def test_the_lost_race_of_the_seeds_is_a_409_with_both_names(
    open_server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: Any, **__: Any) -> Any:
        raise omnigraph.ExpectedVersionMismatchError(table_key="node:Person", expected=9, actual=11)

    monkeypatch.setattr(Graph, "mutate", lose)
    answer = open_server.post("mutate", {"query": ADD, "params": {"name": "x"}})
    assert answer.status_code == 409
    body = answer.json()
    assert (body.pop("error_type"), body.pop("error_code")) == ("ExpectedVersionMismatchError", "conflict")
    assert body == {
        "error": "stale view of 'node:Person': expected manifest table version 9 but current is 11 — refresh and retry",
        "code": "conflict",
        "manifest_conflict": {"table_key": "node:Person", "expected": 9, "actual": 11},
        "published_dataset_version_conflict": {
            "entity_kind": "node",
            "type_name": "Person",
            "expected_published_dataset_version": 9,
            "actual_published_dataset_version": 11,
        },
    }


def test_what_fails_inside_is_told_to_the_log_and_not_to_the_caller(
    open_server: InProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise omnigraph.StorageError(f"cannot write {open_server.root}/x with secret-key")

    monkeypatch.setattr(Graph, "mutate", fail)
    answer = open_server.post("mutate", {"query": ADD, "params": {"name": "x"}}, headers={"X-Request-Id": "r-1"})
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "secret" not in answer.text
    assert str(open_server.root) not in answer.text
    assert "r-1" in answer.json()["error"]
    assert "secret-key" in caplog.text


def test_a_history_that_cannot_be_read_is_not_taken_for_one_without_the_write(
    serve: Callable[..., InProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    body, key = {"query": ADD, "params": {"name": "once"}}, {"Idempotency-Key": "unreadable"}
    first = server.post("mutate", body, headers=key)
    lose_the_answers(server)
    listed = History.list

    def broken(self: History, *arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(History, "list", listed)
        raise StorageError("the disk is away")

    monkeypatch.setattr(History, "list", broken)
    assert server.post("mutate", body, headers=key).status_code == 500
    assert server.post("mutate", body, headers=key).json()["commit"] == first.json()["commit"]


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (ConflictError("the schema is being changed — retry"), False),
        (ExternalBlobError("away", uri="s3://a/b", reason="away"), False),
        (AlreadyExistsError("taken"), True),
    ],
)
def test_only_conflicts_with_what_is_there_are_kept_as_answers(error: GraphError, final: bool) -> None:
    assert _is_final(answer_of(error, request_id="r")) is final


def test_a_load_that_fails_leaves_its_branch_where_others_have_written(serve: Callable[..., InProcess]) -> None:
    server = serve()
    load, calls = server.graph.load, []

    def loading(*arguments: Any, **named: Any) -> Any:
        if not calls:
            calls.append(1)
            server.graph.mutate(ADD, {"name": "theirs"}, branch="fresh")
            raise ConstraintError("refused")
        return load(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(server.graph), "load", lambda self, *a, **n: loading(*a, **n))
        line = json.dumps({"type": "Person", "data": {"name": "mine"}})
        answer = server.post("load", {"data": line, "mode": "append", "branch": "fresh", "from": "main"})
    assert answer.status_code == 400
    assert "fresh" in server.graph.branches.list()
