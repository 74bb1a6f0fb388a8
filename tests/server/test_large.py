"""What is large is read and written beside the event loop, and in steps, so that others are answered meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.serving import ADD, PEOPLE, InProcess

from omnigraph.server import errors, large


class Stopped:
    """Stops a function until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, where: str, name: str) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        module = __import__(where, fromlist=[name])
        plain = getattr(module, name)

        def stopped(*given: Any, **named: Any) -> Any:
            self.reached.set()
            assert self.go.wait(30)
            return plain(*given, **named)

        monkeypatch.setattr(module, name, stopped)


def answered_meanwhile(server: InProcess, stopped: Stopped, ask: Callable[[], Any]) -> Any:
    """The answer to a request during which the server has answered others."""
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(ask()))
    asking.start()
    try:
        assert stopped.reached.wait(20)
        assert server.run(server.client.get("/healthz"), timeout=5).status_code == 200
        assert server.run(server.client.get("/graphs/default/schema"), timeout=5).status_code == 200
    finally:
        stopped.go.set()
        asking.join(30)
    return answers[0]


def body_of(size: int) -> dict[str, str]:
    lines = [json.dumps({"type": "City", "data": {"name": f"city {n:07}"}}) for n in range(size // 50 + 1)]
    return {"data": "\n".join(lines)}


def test_the_server_answers_while_a_large_body_is_read(open_server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = Stopped(monkeypatch, "omnigraph.server.bodies", "loads")
    body = {**body_of(large.LARGE_BYTES), "mode": "merge"}
    answer = answered_meanwhile(open_server, stopped, lambda: open_server.post("load", body))
    assert answer.status_code == 200
    query = {"query": PEOPLE + " " * large.LARGE_BYTES}
    stopped.go.clear()
    stopped.reached.clear()
    assert answered_meanwhile(open_server, stopped, lambda: open_server.post("query", query)).status_code == 200


def test_the_server_answers_while_a_long_list_is_made(open_server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = Stopped(monkeypatch, "omnigraph.server.routes.commits", "served_commit")
    answer = answered_meanwhile(open_server, stopped, lambda: open_server.get("commits"))
    assert len(answer.json()["commits"]) == 2


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "branches", None),
        ("GET", "branches/side", None),
        ("GET", "branches/diff?source=side", None),
        ("GET", "commits", None),
        ("GET", "changes?start=beginning", None),
        ("GET", "diff?from=main&to=side", None),
        ("GET", "tags", None),
        ("GET", "queries", None),
        ("GET", "schema", None),
        ("GET", "snapshot", None),
        ("POST", "branches/conflicts", {"source": "side"}),
        ("POST", "branches/merge", {"source": "side", "dry_run": True}),
        ("POST", "branches/merge", {"source": "side"}),
        ("POST", "explain", {"query": PEOPLE}),
        ("POST", "mutate", {"query": ADD, "params": {"name": "dan"}}),
    ],
)
def test_no_answer_about_a_graph_is_written_by_the_event_loop(
    open_server: InProcess, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: Any
) -> None:
    open_server.graph.branches.create("side")
    open_server.graph.mutate(ADD, {"name": "of-side"}, branch="side")
    open_server.graph.tags.create("one")
    threads: list[str] = []
    plain = errors.to_json

    def to_json(body: Any) -> bytes:
        threads.append(threading.current_thread().name.partition("_")[0])
        return plain(body)

    monkeypatch.setattr(errors, "to_json", to_json)
    headers = {"Idempotency-Key": "k"}
    for _ in range(2):
        answer = open_server.ask(method, path, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
    assert len(threads) == 2, "each answer is written once"
    assert {*threads} <= {"read", "write", "together", "note"}


@pytest.mark.long
def test_other_threads_go_on_while_a_large_body_is_read() -> None:
    raw = json.dumps(body_of(24 << 20)).encode()
    turns = {"count": 0, "over": False}

    def count() -> None:
        while not turns["over"]:
            turns["count"] += 1
            threading.Event().wait(0.001)

    def turns_during(read: Callable[[], Any]) -> tuple[Any, int]:
        before = turns["count"]
        return read(), turns["count"] - before

    counted = []
    other = threading.Thread(target=count)
    other.start()
    try:
        # A busy machine gives a thread its turn when it can, so there are several tries.
        for _ in range(20):
            plain, at_once = turns_during(lambda: json.loads(raw))
            found, in_steps = turns_during(lambda: large.loads(raw, _refused))
            assert found == plain
            counted.append((at_once, in_steps))
            if in_steps >= max(5, 2 * at_once):
                break
    finally:
        turns["over"] = True
        other.join()
    at_once, in_steps = counted[-1]
    assert in_steps >= max(5, 2 * at_once), counted


def _refused(name: str) -> Any:
    raise ValueError(name)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "AT_ONCE_BYTES", 0)
    monkeypatch.setattr(large, "ITEMS", 2)


TEXTS = st.text(st.sampled_from('ab\\"u/\n\té😀\ud83d\ude00{}[]:,d8 '), max_size=40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.usefixtures("small_steps")
@given(value=VALUES, piece=st.integers(1, 14), ascii_only=st.booleans(), data=st.data())
def test_reading_in_steps_gives_what_reading_at_once_gives(
    value: Any, piece: int, ascii_only: bool, data: st.DataObject
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=data.draw(st.sampled_from([None, 1])))
    raw = text.encode("utf-8", "surrogatepass" if ascii_only else "replace")
    if data.draw(st.booleans()) and raw:
        at = data.draw(st.integers(0, len(raw) - 1))
        raw = raw[:at] + data.draw(st.sampled_from([b"", b'"', b"\\", b"}", b",", b"\xff", b"\x01"])) + raw[at + 1 :]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(large, "PIECE", piece)
        assert _outcome(lambda: large.loads(raw, _refused)) == _outcome(
            lambda: json.loads(raw.decode("utf-8"), parse_constant=_refused)
        )


def _outcome(read: Callable[[], Any]) -> Any:
    try:
        return repr(read())
    except UnicodeDecodeError as exc:
        return exc.start
    except json.JSONDecodeError as exc:
        return exc.msg.partition(" ")[0] if "trailing" not in exc.msg else "Expecting"


@pytest.mark.usefixtures("small_steps")
@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_writing_in_steps_gives_what_writing_at_once_gives(body: dict[str, Any]) -> None:
    plain = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    assert large.to_json(body) == plain


def test_a_text_of_backslashes_and_of_halves_of_characters_is_read_whole() -> None:
    for text in ("\\" * (1 << 20), "😀" * (1 << 18), "\\😀" * (1 << 18)):
        raw = json.dumps({"data": text}).encode()
        assert large.loads(raw, _refused) == {"data": text}


def test_a_large_body_that_is_wrong_is_refused_as_a_small_one_is(open_server: InProcess) -> None:
    data = body_of(large.AT_ONCE_BYTES)["data"]
    for broken, said in (
        (json.dumps({"data": data})[:-1], "not JSON"),
        (json.dumps({"data": data})[:-2], "Unterminated string starting at: line 1 column 10"),
        (json.dumps([data]), "must be a JSON object"),
        (json.dumps({"data": data, "mode": 1}), "'mode'"),
        ('{"data": NaN, "more": ' + json.dumps(data) + "}", "NaN"),
        ("[" * (2 << 20), "nested too deeply"),
    ):
        headers = {"Content-Type": "application/json"}
        answer = open_server.ask("POST", "load", content=broken, headers=headers)
        assert answer.status_code == 400
        assert said in answer.json()["error"], (said, answer.json())
