"""What the client repeats, what it waits for, and what it never sends twice, against a server of scripted answers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from omnigraph.client.graph import connect_remote
from omnigraph.client.transport import Call, Transport
from omnigraph.errors import (
    ExpectedVersionMismatchError,
    GraphError,
    InputError,
    OutcomeUnknownError,
    PolicyError,
    StorageError,
    UnavailableError,
)

CUT = object()
"""Closes the connection instead of answering."""
CONFLICT = {
    "error": "stale",
    "code": "conflict",
    "manifest_conflict": {"table_key": "node:P", "expected": 1, "actual": 2},
}


class Script:
    """A server that gives its answers in order, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                script.answer(self)

            do_POST = do_DELETE = do_GET

            def log_message(self, *words: Any) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        body = b""
        if headers.get("transfer-encoding") == "chunked":
            while size := int(handler.rfile.readline(), 16):
                body += handler.rfile.read(size)
                handler.rfile.readline()
            handler.rfile.readline()
        else:
            body = handler.rfile.read(int(headers.get("content-length", 0)))
        self.asked.append((handler.command, handler.path, headers, body))
        answer = self.answers.pop(0)
        if answer is CUT:
            handler.close_connection = True
            return
        status, told, *more = answer
        text = told if isinstance(told, bytes) else json.dumps(told).encode()
        handler.send_response(status)
        for name, value in {"Content-Type": "application/json", **(more[0] if more else {})}.items():
            handler.send_header(name, value)
        if not more or "Content-Length" not in more[0]:
            handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)
        if more and "Content-Length" in more[0]:
            handler.close_connection = True  # Less was sent than announced.


@pytest.fixture
def script() -> Iterator[Script]:
    server = Script()
    yield server
    server.server.shutdown()
    server.server.server_close()


@pytest.fixture
def transport(script: Script) -> Iterator[Transport]:
    made = Transport(script.url, token="secret", retry_seconds=1.5)
    yield made
    made.close()


def write(transport: Transport) -> Any:
    return transport.post("/mutate", {"query": "q"}, writes=True)


def test_a_read_whose_answer_is_lost_is_asked_again(script: Script, transport: Transport) -> None:
    script.answers = [CUT, CUT, (200, {"ok": 1})]
    assert transport.get("/snapshot") == {"ok": 1}
    assert len(script.asked) == 3
    assert script.asked[0][2]["authorization"] == "Bearer secret"
    assert "idempotency-key" not in script.asked[0][2]


def test_a_write_whose_answer_is_lost_is_sent_again_under_one_key(script: Script, transport: Transport) -> None:
    running = (409, {"error": "being worked on", "code": "conflict"}, {"Retry-After": "0"})
    script.answers = [CUT, running, (200, {"done": True})]
    assert write(transport) == {"done": True}
    keys = {asked[2]["idempotency-key"] for asked in script.asked}
    assert len(keys) == 1
    assert len({asked[3] for asked in script.asked}) == 1
    script.answers = [(200, {})]
    write(transport)
    assert script.asked[-1][2]["idempotency-key"] not in keys


@pytest.mark.long
def test_a_write_that_is_still_worked_on_is_looked_at_until_the_patience_ends(
    script: Script, transport: Transport
) -> None:
    running = (409, {"error": "being worked on", "code": "conflict"}, {"Retry-After": "0"})
    script.answers = [CUT, *[running] * 6, (200, {"done": True})]
    patient = Transport(script.url, retry_seconds=20)
    assert write(patient) == {"done": True}, "looking again is not an attempt"
    patient.close()
    script.answers = [CUT, *[running] * 30]
    with pytest.raises(OutcomeUnknownError, match="may have happened or not") as caught:
        write(transport)
    assert caught.value.key == script.asked[-1][2]["idempotency-key"]


@pytest.mark.parametrize(
    "first",
    [CUT, (504, b"<html>"), (503, {"error": "unfinished", "recovery_required": {"operation_id": "x"}})],
    ids=["lost", "gateway", "unfinished"],
)
def test_no_room_for_a_repetition_says_nothing_about_the_write_that_may_have_begun(
    script: Script, transport: Transport, first: Any
) -> None:
    script.answers = [first, (429, {"error": "too many"}, {"Retry-After": "60"})]
    with pytest.raises(OutcomeUnknownError):
        write(transport)
    script.answers = [(503, {"error": "full"}, {"Retry-After": "0"}), (429, {"error": "you"}, {"Retry-After": "60"})]
    with pytest.raises(UnavailableError):
        write(transport)


@pytest.mark.long
def test_no_room_is_waited_for_as_long_as_the_server_says(script: Script, transport: Transport) -> None:
    script.answers = [(503, {"error": "full"}, {"Retry-After": "1"}), (429, {"error": "you"}, {"Retry-After": "0"})]
    script.answers.append((200, {"ok": 1}))
    began = time.monotonic()
    assert write(transport) == {"ok": 1}
    assert 1 <= time.monotonic() - began < 3


def test_a_wait_beyond_the_patience_is_an_error_at_once(script: Script, transport: Transport) -> None:
    script.answers = [(429, {"error": "too many writes in flight", "code": "too_many_requests"}, {"Retry-After": "60"})]
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="too many writes"):
        write(transport)
    assert time.monotonic() - began < 1


def test_a_lost_race_is_raised_and_never_repeated(script: Script, transport: Transport) -> None:
    script.answers = [(409, CONFLICT)]
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        write(transport)
    assert (caught.value.table_key, caught.value.expected, caught.value.actual) == ("node:P", 1, 2)
    assert len(script.asked) == 1


@pytest.mark.parametrize(("status", "kind"), [(400, InputError), (401, PolicyError), (403, PolicyError)])
def test_refusals_are_not_repeated(script: Script, transport: Transport, status: int, kind: type[GraphError]) -> None:
    script.answers = [(status, {"error": "no"})]
    with pytest.raises(kind, match="no"):
        transport.get("/x")
    assert len(script.asked) == 1


def test_a_body_that_can_be_read_once_is_sent_once(script: Script, transport: Transport) -> None:
    pieces = iter([b"one\n", b"two\n"])
    script.answers = [CUT]
    call = Call("POST", "/load/ndjson", content=lambda: pieces, writes=True, once=True)
    with pytest.raises(OutcomeUnknownError, match="may have happened or not") as caught:
        transport.send(call)
    assert len(script.asked) == 1
    assert script.asked[0][3] == b"one\ntwo\n"
    assert caught.value.key == script.asked[0][2]["idempotency-key"]
    assert caught.value.facts()["command_outcome"]["state"] == "unknown"


def test_a_body_that_can_be_made_anew_is_sent_again_whole(script: Script, transport: Transport) -> None:
    script.answers = [CUT, (200, {})]
    transport.send(Call("POST", "/load/ndjson", content=lambda: iter([b"one\n", b"two\n"]), writes=True))
    assert [asked[3] for asked in script.asked] == [b"one\ntwo\n"] * 2


@pytest.mark.long
def test_a_gateway_that_gives_up_on_a_write_leaves_the_outcome_unknown(script: Script, transport: Transport) -> None:
    script.answers = [(504, b"<html>gateway</html>")] * 6
    with pytest.raises(OutcomeUnknownError):
        write(transport)
    script.answers = [(504, b"<html>")] * 6
    with pytest.raises(UnavailableError, match="status 504"):
        transport.get("/x")


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b'{"error": null}', b'{"error_type": "SystemExit"}'])
def test_an_odd_answer_is_an_error_of_ours(script: Script, transport: Transport, body: bytes) -> None:
    script.answers = [(500, body)]
    with pytest.raises(GraphError, match="500"):
        transport.get("/x")


def test_a_server_that_is_not_there_is_told_as_such() -> None:
    made = Transport("http://127.0.0.1:9", retry_seconds=0.5)
    for attempt in (lambda: made.get("/x"), lambda: write(made)):
        with pytest.raises(UnavailableError, match="cannot be reached"):
            attempt()
    made.close()


def test_the_graph_is_asked_for_when_it_is_not_named(script: Script) -> None:
    one = {"graphs": [{"graph_id": "only", "uri": "x"}]}
    several = {"graphs": [{"graph_id": name, "uri": "x"} for name in ("a", "b")]}
    found: list[tuple[Any, Callable[[], Any]]] = [
        ((200, one), lambda: connect_remote(script.url).uri),
        ((403, {"error": "denied"}), lambda: connect_remote(script.url).uri),
    ]
    uris = []
    for answer, attempt in found:
        script.answers = [answer]
        uris.append(attempt().removeprefix(script.url))
    assert uris == ["/graphs/only", "/graphs/default"]
    script.answers = [(200, several)]
    with pytest.raises(InputError, match="name one with graph= or --graph: a, b"):
        connect_remote(script.url)
    asked = len(script.asked)
    assert connect_remote(script.url, graph="a/b").uri.endswith("/graphs/a%2Fb")
    assert connect_remote(f"{script.url}/graphs/x/").uri == f"{script.url}/graphs/x"
    assert len(script.asked) == asked


def test_tokens_that_no_header_can_carry_are_refused() -> None:
    for token in ("", " ", "a\nb", "ü"):
        with pytest.raises(InputError, match="token"):
            Transport("http://h", token=token)


def test_a_range_that_a_proxy_leaves_out_is_cut_from_the_whole(script: Script) -> None:
    with connect_remote(script.url, graph="g") as graph:
        script.answers = [(200, b"hello world")] * 3
        asked = [{"offset": 6}, {"length": 5}, {"offset": 3, "length": 2}]
        found = [graph.read_blob("P", "x", "photo", entity="node", **named) for named in asked]
    assert found == [b"world", b"hello", b"lo"]


PAGE = (200, b"<html>Sign in</html>", {"Content-Type": "text/html"})
MOVED = (301, b"", {"Location": "https://elsewhere"})


@pytest.mark.parametrize(
    ("answer", "read", "written"),
    [(PAGE, UnavailableError, OutcomeUnknownError), (MOVED, InputError, InputError)],
    ids=["page", "moved"],
)
def test_what_no_server_of_graphs_answers_is_no_success(
    script: Script, answer: Any, read: type[GraphError], written: type[GraphError]
) -> None:
    """A branch that a proxy was asked to delete is not deleted, and its page is no export."""
    with connect_remote(script.url, graph="g") as graph:
        for verb in (graph.branches.list, graph.export, lambda: graph.query("query q() {}")):
            script.answers = [answer]
            with pytest.raises(read):
                verb()
        for verb in (lambda: graph.branches.delete("x"), lambda: graph.tags.delete("x"), lambda: graph.load(b"{}")):
            script.answers = [answer]
            with pytest.raises(written):
                verb()


@pytest.mark.parametrize("answer", [b"<html>", b"{}", b"[]", b"null", b"\xff", b'{"graphs": [1]}'])
def test_a_server_that_lists_no_graphs_is_told_as_such(script: Script, answer: bytes) -> None:
    script.answers = [(200, answer)]
    with pytest.raises(UnavailableError, match="does not answer as a server"):
        connect_remote(script.url)


def test_a_baseline_that_breaks_off_is_not_written(script: Script, tmp_path: Path) -> None:
    lines = {"Content-Type": "application/x-ndjson"}
    with connect_remote(script.url, graph="g") as graph:
        for cut in ("100", None):
            script.answers = [(200, b'{"type":"P","data":{}}\n', {**lines, **({"Content-Length": cut} if cut else {})})]
            with pytest.raises(StorageError, match="take it again"):
                graph.changes.baseline(tmp_path / "base.jsonl")
    assert not list(tmp_path.iterdir())
