"""Keys and what has a name of its own: a repeated request knows its branch or tag from another one of that name.

And what becomes of the notes of keys when the store does not take them, or a request is not admitted.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.server.serving import ADD, PEOPLE, InProcess, lose_the_answers, wait_for
from tests.server.test_repeating import Held, keyed, people
from tests.server.test_statuses import policed

from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import StorageError
from omnigraph.server import app, requests_seen
from omnigraph.server.errors import Answer
from omnigraph.server.requests_seen import Note, RequestsSeen
from omnigraph.server.settings import Settings

KEY = {"Idempotency-Key": "k"}


def names(server: InProcess) -> dict[str, list[str]]:
    """Branches and tags as they are, whatever a handle remembers."""
    server.graph.refresh()
    return {"branches": server.graph.branches.list(), "tags": [tag.name for tag in server.graph.tags.list()]}


def make(server: InProcess, kind: str) -> None:
    verbs = server.graph.branches if kind == "branches" else server.graph.tags
    verbs.create("it")


def remove(server: InProcess, kind: str) -> None:
    verbs = server.graph.branches if kind == "branches" else server.graph.tags
    verbs.delete("it")


def notes(server: InProcess) -> list[dict[str, Any]]:
    folder = server.root / "__requests"
    files = sorted(folder.iterdir()) if folder.exists() else []
    return [json.loads(path.read_text()) for path in files if not path.name.startswith("branch-")]


KINDS = pytest.mark.parametrize("kind", ["branches", "tags"])


@KINDS
def test_a_repeated_deletion_leaves_what_was_made_anew_under_the_name(open_server: InProcess, kind: str) -> None:
    make(open_server, kind)
    first = open_server.ask("DELETE", f"{kind}/it", headers=KEY)
    assert first.status_code == 200
    lose_the_answers(open_server)
    make(open_server, kind)
    again = open_server.ask("DELETE", f"{kind}/it", headers=KEY)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert again.json() == first.json()
    assert "it" in names(open_server)[kind]


@pytest.mark.parametrize("lost", [False, True])
def test_a_repeated_deletion_is_answered_to_whoever_was_allowed_to_make_it(
    serve: Callable[..., InProcess], lost: bool
) -> None:
    """Also where the tag, which would tell whose it was, is gone by then."""
    server = serve(access=policed())
    server.graph.branches.create("draft")
    server.graph.tags.create("it", branch="draft")
    made = {"token": "token-bo", "headers": KEY}
    first = server.ask("DELETE", "tags/it", **made)
    assert first.status_code == 403, "at the commit of main"
    server.graph.tags.delete("it")
    server.graph.mutate(ADD, {"name": "dan"}, branch="draft")
    server.graph.tags.create("it", branch="draft")
    first = server.ask("DELETE", "tags/it", **made)
    assert first.status_code == 200
    if lost:
        lose_the_answers(server)
    again = server.ask("DELETE", "tags/it", **made)
    assert (again.status_code, again.json()) == (200, first.json())
    other = server.ask("DELETE", "tags/it", token="token-bo", headers={"Idempotency-Key": "other"})
    assert other.status_code == 403


@KINDS
def test_a_repeated_deletion_that_had_not_happened_happens(open_server: InProcess, kind: str) -> None:
    make(open_server, kind)
    at = "omnigraph.server.routes." + ("branches.remove_branch" if kind == "branches" else "tags.remove_tag")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(at, lambda *_, **__: None)
        assert open_server.ask("DELETE", f"{kind}/it", headers=KEY).status_code == 200
    lose_the_answers(open_server)
    assert open_server.ask("DELETE", f"{kind}/it", headers=KEY).status_code == 200
    assert "it" not in names(open_server)[kind]


@KINDS
def test_a_repeated_deletion_of_what_was_not_there_stays_one(open_server: InProcess, kind: str) -> None:
    first = open_server.ask("DELETE", f"{kind}/it", headers=KEY)
    assert first.status_code == 404
    lose_the_answers(open_server)
    make(open_server, kind)
    assert open_server.ask("DELETE", f"{kind}/it", headers=KEY).status_code == 404
    assert "it" in names(open_server)[kind]


@KINDS
def test_a_repeated_creation_does_not_claim_what_somebody_else_made(open_server: InProcess, kind: str) -> None:
    first = open_server.post(kind, {"name": "it"}, headers=KEY)
    assert first.status_code == 200
    lose_the_answers(open_server)
    again = open_server.post(kind, {"name": "it"}, headers=KEY)
    assert (again.status_code, again.json()) == (200, first.json()), "its own it knows"
    lose_the_answers(open_server)
    remove(open_server, kind)
    make(open_server, kind)
    other = open_server.post(kind, {"name": "it"}, headers=KEY)
    assert (other.status_code, other.json()["error_type"]) == (409, "AlreadyExistsError")


@KINDS
def test_a_repeated_creation_does_not_make_again_what_others_deleted(open_server: InProcess, kind: str) -> None:
    first = open_server.post(kind, {"name": "it"}, headers=KEY)
    lose_the_answers(open_server)
    remove(open_server, kind)
    again = open_server.post(kind, {"name": "it"}, headers=KEY)
    assert (again.status_code, again.headers["idempotency-replayed"], again.json()) == (200, "true", first.json())
    assert "it" not in names(open_server)[kind]
    make(open_server, kind)
    remove(open_server, kind)
    lose_the_answers(open_server)
    assert open_server.post(kind, {"name": "it"}, headers=KEY).json() == first.json(), "nor after others had one"
    assert "it" not in names(open_server)[kind]
    assert open_server.post(kind, {"name": "it"}, headers={"Idempotency-Key": "other"}).status_code == 200


@pytest.mark.parametrize("lost", [False, True])
def test_a_repeated_creation_is_answered_alike_after_the_moment_it_began_at_is_gone(
    open_server: InProcess, lost: bool
) -> None:
    body = {"name": "it", "at": "v1"}
    open_server.graph.tags.create("v1")
    first = open_server.post("branches", body, headers=KEY)
    assert first.status_code == 200
    open_server.graph.tags.delete("v1")
    if lost:
        lose_the_answers(open_server)
    again = open_server.post("branches", body, headers=KEY)
    assert (again.status_code, again.json()) == (200, first.json())
    other = open_server.post("branches", {"name": "other", "at": "v1"}, headers={"Idempotency-Key": "other"})
    assert (other.status_code, other.json()["error_type"]) == (404, "CommitNotFoundError")


@KINDS
def test_a_creation_that_died_before_it_began_does_not_claim_what_somebody_else_made(
    open_server: InProcess, kind: str
) -> None:
    make(open_server, kind)
    assert open_server.post(kind, {"name": "it"}, headers=KEY).status_code == 409
    lose_the_answers(open_server)
    assert open_server.post(kind, {"name": "it"}, headers=KEY).status_code == 409
    assert open_server.post(kind, {"name": "it"}, headers={"Idempotency-Key": "other"}).status_code == 409


def test_a_branch_that_died_half_made_is_nobody_elses_success(
    open_server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its maker is recorded before the branch is there; who makes it then is recorded instead."""

    def die(*_: Any, **__: Any) -> None:
        raise StorageError("killed")

    with monkeypatch.context() as patched:
        patched.setattr("omnigraph.engine.operations.branch._create", die)
        assert open_server.post("branches", {"name": "it"}, headers=KEY).status_code == 500
    open_server.graph.branches.create("it")
    assert open_server.post("branches", {"name": "it"}, headers=KEY).status_code == 409


def test_a_repeated_merge_leaves_a_branch_that_was_made_anew_at_the_same_commit(open_server: InProcess) -> None:
    graph = open_server.graph
    graph.branches.create("side")

    def ask() -> Any:
        return open_server.post("branches/merge", {"source": "side", "delete_branch": True}, headers=KEY)

    first = ask().json()
    assert (first["outcome"], first["branch_deleted"]) == ("already_up_to_date", True)
    lose_the_answers(open_server)
    graph.branches.create("side")
    assert graph.snapshot("side").head == first["source_commit"]
    again = ask()
    assert (again.status_code, again.json()["error_type"]) == (404, "BranchNotFoundError")
    assert "side" in names(open_server)["branches"]


def test_a_note_that_could_not_be_completed_answers_and_is_completed_when_the_store_is_back(
    open_server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, away = ObjectStore.write_text, threading.Event()
    away.set()

    def write_text(self: ObjectStore, path: str, text: str) -> None:
        if "__requests" in path and away.is_set():
            raise StorageError("the store is away")
        plain(self, path, text)

    monkeypatch.setattr(ObjectStore, "write_text", write_text)
    monkeypatch.setattr(app, "PAY_SECONDS", 0.05)
    first = keyed(open_server, "k", "dan")
    assert first.status_code == 200
    assert [note["state"] for note in notes(open_server)] == ["running"]
    again = keyed(open_server, "k", "dan")
    assert (again.headers["idempotency-replayed"], again.json()) == ("true", first.json())
    assert len(notes(open_server)) == 1, "answered from memory, not by a further attempt"
    away.clear()
    # Another server of this machine sees a note of a living process, and has to be told what became of it.
    seen = open_server.server.state.requests["default"]
    assert seen.pay() == 1
    assert [(note["state"], note["body"]) for note in notes(open_server)] == [("done", first.json())]
    assert not seen.owes


def test_what_notes_owe_is_written_without_being_asked_for(
    seed: Path, serve: Callable[..., InProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "PAY_SECONDS", 0.05)
    server = serve()
    plain = ObjectStore.write_text

    def once(self: ObjectStore, path: str, text: str) -> None:
        if "__requests" in path:
            monkeypatch.setattr(ObjectStore, "write_text", plain)
            raise StorageError("the store was away for a moment")
        plain(self, path, text)

    monkeypatch.setattr(ObjectStore, "write_text", once)
    assert keyed(server, "k", "dan").status_code == 200
    wait_for(lambda: [note["state"] for note in notes(server)] == ["done"], 5)


def test_a_note_whose_making_failed_after_it_was_made_does_not_block_its_key(
    open_server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ObjectStore.write_text_if_absent

    def unheard(self: ObjectStore, path: str, text: str) -> bool:
        made = plain(self, path, text)
        if "__requests" in path:
            raise StorageError("the answer of the store was lost")
        return made

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "write_text_if_absent", unheard)
        assert keyed(open_server, "k", "dan").status_code == 500
    [left] = notes(open_server)
    assert left["state"] == "running"
    seen = open_server.server.state.requests["default"]
    assert seen.pay() == 1
    assert [note["state"] for note in notes(open_server)] == ["withdrawn"]
    assert keyed(open_server, "k", "dan").status_code == 200


def test_a_note_of_somebody_else_is_never_written_over(open_server: InProcess) -> None:
    objects = open_server.graph.context.store.objects
    mine, theirs = RequestsSeen(objects), RequestsSeen(objects)
    note = theirs.begin(actor=None, key="k", digest="d")
    assert isinstance(note, Note)
    mine._owe(Note(note.name, note.attempt, "d", False, note.began, "k", None, "another mark"), "lost")
    assert mine.pay() == 0
    theirs.complete(note, Answer(200, {"done": 1}))
    assert [found["state"] for found in notes(open_server)] == ["done"]


def test_a_note_that_is_taken_away_while_it_is_judged_leaves_no_gap(
    open_server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt takes its place; were it to stand behind a gap, a third request would be carried out as well."""
    objects = open_server.graph.context.store.objects
    mine, theirs = RequestsSeen(objects), RequestsSeen(objects)
    note = mine.begin(actor=None, key="k", digest="d")
    assert isinstance(note, Note)

    def judged(_: Any) -> bool:
        monkeypatch.undo()
        mine.withdraw(note, uncertain=False)
        return False

    monkeypatch.setattr(theirs, "_worked_on", judged)
    other = theirs.begin(actor=None, key="k", digest="d")
    assert isinstance(other, Note)
    assert (other.attempt, other.taken_over) == (0, False)


@pytest.mark.parametrize("why", ["its lease is nearly over", "its day is nearly over", "an object store"])
def test_a_note_that_others_may_take_over_is_not_taken_away(
    open_server: InProcess, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    seen = RequestsSeen(open_server.graph.context.store.objects)
    note = seen.begin(actor=None, key="k", digest="d")
    assert isinstance(note, Note)
    if why == "its lease is nearly over":
        monkeypatch.setattr(requests_seen, "LEASE_SECONDS", 0.0)
    elif why == "its day is nearly over":
        note = replace(note, began=note.began - 13 * 3_600 * 1_000_000)
    else:
        monkeypatch.setattr(requests_seen.layout, "is_local", lambda _: False)
    seen.withdraw(note, uncertain=False)
    assert [found["state"] for found in notes(open_server)] == ["withdrawn"]
    again = seen.begin(actor=None, key="k", digest="d")
    assert isinstance(again, Note)
    assert (again.attempt, again.taken_over) == (1, False)


def test_a_request_that_is_not_admitted_leaves_nothing_behind(
    serve: Callable[..., InProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(settings=Settings(actor_writes_max=1))
    assert keyed(server, "done", "ada2").status_code == 200
    held = Held(monkeypatch)
    running = threading.Thread(target=keyed, args=(server, "a", "dan"))
    running.start()
    assert held.started.acquire(timeout=20)
    before = sorted((server.root / "__requests").iterdir())
    assert [keyed(server, "b", "eve").status_code for _ in range(3)] == [429] * 3
    assert sorted((server.root / "__requests").iterdir()) == before
    assert keyed(server, "done", "ada2").headers["idempotency-replayed"] == "true", "an answer needs no room"
    assert keyed(server, "a", "dan").status_code == 409, "what runs is told to be running"
    held.go.set()
    running.join()
    assert keyed(server, "b", "eve").status_code == 200
    assert server.server.state.work.writes_in_flight == 0


def test_a_key_that_is_used_again_after_its_time_is_carried_out_once(open_server: InProcess) -> None:
    """The sweep takes no old attempt from under a newer one."""
    keyed(open_server, "k", "dan")
    [path] = (open_server.root / "__requests").iterdir()
    day = 25 * 3_600
    note = json.loads(path.read_text())
    path.write_text(json.dumps({**note, "began": note["began"] - day * 1_000_000}))
    os.utime(path, (time.time() - day, time.time() - day))
    again = keyed(open_server, "k", "dan")
    assert (again.status_code, "idempotency-replayed" in again.headers) == (200, False)
    assert open_server.server.state.requests["default"].sweep() == 0
    assert keyed(open_server, "k", "dan").headers["idempotency-replayed"] == "true"


def a_day_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of yesterday are free again, and what they have left is still there."""
    now = requests_seen.now_micros
    monkeypatch.setattr(requests_seen, "now_micros", lambda: now() + 25 * 3_600_000_000)


def dying(ask: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Let a request come to nothing, in a way that does not tell."""

    def die(*_: Any, **__: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(what, die)
        assert ask().status_code == 500


def test_a_key_that_is_used_again_after_its_time_does_not_find_what_it_did_before(
    open_server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = keyed(open_server, "k", "dan").json()["commit"]
    a_day_passes(monkeypatch)
    dying(lambda: keyed(open_server, "k", "eve"), monkeypatch, "omnigraph.graph.Graph.mutate")
    again = keyed(open_server, "k", "eve")
    assert (again.status_code, "idempotency-replayed" in again.headers) == (200, False)
    assert again.json()["commit"] != first
    assert "eve" in people(open_server)
    lose_the_answers(open_server)
    assert keyed(open_server, "k", "eve").json() == again.json(), "its own it does find"


@KINDS
def test_a_creation_under_a_key_of_another_day_is_carried_out(
    open_server: InProcess, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def ask() -> Any:
        return open_server.post(kind, {"name": "it"}, headers=KEY)

    assert ask().status_code == 200
    remove(open_server, kind)
    a_day_passes(monkeypatch)
    dying(ask, monkeypatch, f"omnigraph.verbs.create_{'branch' if kind == 'branches' else 'tag'}")
    assert ask().status_code == 200
    assert "it" in names(open_server)[kind]


def test_a_load_that_fails_leaves_the_branch_that_its_key_made_another_day(
    open_server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(data: dict[str, Any]) -> int:
        body = {"data": json.dumps({"type": "Person", "data": data}), "branch": "it", "from": "main", "mode": "append"}
        return open_server.post("load", body, headers=KEY).status_code

    assert ask({"name": "dan"}) == 200
    a_day_passes(monkeypatch)
    assert ask({"name": "eve", "age": "old"}) == 400
    assert "it" in names(open_server)["branches"]


def test_a_branch_that_moved_after_it_was_merged_is_not_deleted(
    open_server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    import omnigraph.verbs as verbs

    graph, plain = open_server.graph, verbs.merge_branch
    graph.branches.create("side")
    graph.mutate(ADD, {"name": "x"}, branch="side")

    def merge_and_write(*given: Any, **named: Any) -> Any:
        result = plain(*given, **named)
        graph.mutate(ADD, {"name": "late"}, branch="side")
        return result

    monkeypatch.setattr(verbs, "merge_branch", merge_and_write)
    answer = open_server.post("branches/merge", {"source": "side", "delete_branch": True}).json()
    assert (answer["branch_deleted"], "has moved" in answer["branch_delete_error"]) == (False, True)
    rows = open_server.post("query", {"query": PEOPLE, "branch": "side"}).json()["rows"]
    assert "late" in [row["p.name"] for row in rows]


def test_tags_tell_nobody_for_which_request_they_were_made(open_server: InProcess) -> None:
    made = open_server.post("tags", {"name": "it"}, headers=KEY).json()
    assert "request" not in made
    assert open_server.get("tags").json()["tags"] == [made]
    assert open_server.graph.tags.list()[0].request is not None
    open_server.graph.tags.create("plain")
    assert "request" not in (open_server.root / "__tags" / "plain.json").read_text()


PATHS = pytest.mark.parametrize("path", ["mutate", "load"])


def on_side(server: InProcess, path: str) -> Callable[[], Any]:
    """A write with a key to a branch that was just made."""
    server.graph.branches.create("side")
    line = json.dumps({"type": "Person", "data": {"name": "dan"}})
    body = {"query": ADD, "params": {"name": "dan"}} if path == "mutate" else {"data": line}
    return lambda: server.post(path, {**body, "branch": "side"}, headers=KEY)


@PATHS
def test_a_repeated_write_is_not_applied_to_a_branch_that_was_made_anew(open_server: InProcess, path: str) -> None:
    graph, before = open_server.graph, open_server.graph.snapshot().head
    ask = on_side(open_server, path)
    assert ask().status_code == 200
    lose_the_answers(open_server)
    graph.branches.delete("side")
    gone = ask()
    assert (gone.status_code, gone.json()["error_type"]) == (404, "BranchNotFoundError")
    assert gone.json()["error"] == "the branch this request was made for was deleted"
    lose_the_answers(open_server)
    graph.branches.create("side", at=before)
    assert "another has its name" in ask().json()["error"]
    assert graph.snapshot("side").head == before


@PATHS
def test_a_repeated_write_is_answered_after_its_branch_was_merged_and_deleted(
    open_server: InProcess, path: str
) -> None:
    graph, before = open_server.graph, open_server.graph.snapshot().head
    ask = on_side(open_server, path)
    first = ask().json()
    graph.branches.merge("side", delete_branch=True)
    lose_the_answers(open_server)
    again = ask()
    assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert again.json()["commit"] == first["commit"]
    lose_the_answers(open_server)
    graph.branches.create("side", at=before)
    assert ask().json()["commit"] == first["commit"]
    assert graph.snapshot("side").head == before, "it was merged with the branch it was made for"


def test_a_load_is_answered_again_after_its_branch_is_gone(open_server: InProcess) -> None:
    graph = open_server.graph
    graph.branches.create("side")
    body = {"data": json.dumps({"type": "Person", "data": {"name": "dan"}}), "branch": "side"}
    first = open_server.post("load", body, headers=KEY)
    graph.branches.merge("side", delete_branch=True)
    again = open_server.post("load", body, headers=KEY)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert again.json() == first.json()
    assert open_server.post("load", body, headers={"Idempotency-Key": "other"}).status_code == 404


@pytest.mark.parametrize("merged", [False, True])
def test_a_repeated_load_does_not_make_its_branch_again_after_others_deleted_it(
    open_server: InProcess, merged: bool
) -> None:
    body = {"data": json.dumps({"type": "Person", "data": {"name": "dan"}}), "branch": "new", "from": "main"}
    first = open_server.post("load", body, headers=KEY).json()
    lose_the_answers(open_server)
    if merged:
        open_server.graph.branches.merge("new")
    open_server.graph.branches.delete("new")
    again = open_server.post("load", body, headers=KEY)
    if merged:
        assert (again.status_code, again.json()["commit"]) == (200, first["commit"])
    else:
        assert (again.status_code, again.json()["error_type"]) == (404, "BranchNotFoundError")
    assert "new" not in names(open_server)["branches"]


def test_a_load_that_fails_and_undoes_its_branch_may_make_it_again(open_server: InProcess) -> None:
    good, bad = (json.dumps({"type": "Person", "data": data}) for data in ({"name": "dan"}, {"nobody": 1}))
    assert open_server.post("load", {"data": bad, "branch": "new", "from": "main"}, headers=KEY).status_code == 400
    assert "new" not in names(open_server)["branches"]
    assert not list((open_server.root / "__requests").glob("*.gone.json"))
    key = {"Idempotency-Key": "other"}
    assert open_server.post("load", {"data": good, "branch": "new", "from": "main"}, headers=key).status_code == 200


def test_a_load_that_died_after_it_made_its_branch_says_that_it_made_it(
    open_server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any, **__: Any) -> None:
        raise StorageError("killed")

    body = {"data": json.dumps({"type": "Person", "data": {"name": "dan"}}), "branch": "new", "from": "main"}
    with monkeypatch.context() as patched:
        patched.setattr(type(open_server.graph), "load", die)
        assert open_server.post("load", body, headers=KEY).status_code == 500
    assert "new" in names(open_server)["branches"]
    again = open_server.post("load", body, headers=KEY).json()
    assert (again["branch_created"], again["base_branch"]) == (True, "main")
