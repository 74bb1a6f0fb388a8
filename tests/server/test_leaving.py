"""Clients that leave: what they had taken is given back, whenever it was that they left."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.server.serving import InProcess, wait_for

from omnigraph.server.routes import export
from omnigraph.server.settings import Settings


def visit(server: InProcess, method: str, path: str, body: bytes, *, leaves: Callable[[], bool]) -> list[Any]:
    """One request of a client that is gone as soon as `leaves` says so; returns what was sent to it."""
    sent: list[Any] = []
    given = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if given:
            return given.pop()
        while not leaves():
            await asyncio.sleep(0.005)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        await asyncio.sleep(0)  # As it is where the client does not take what it was sent before.

    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": f"/graphs/default/{path}",
        "raw_path": f"/graphs/default/{path}".encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("testserver", 80),
    }
    server.run(server.server.asgi(scope, receive, send))
    return sent


def test_a_stream_whose_client_left_before_its_first_event_gives_its_place_back(
    serve: Callable[..., InProcess],
) -> None:
    server = serve(settings=Settings(streams_max=1))
    for _ in range(3):
        [start, *_] = visit(server, "GET", "changes/stream", b"", leaves=lambda: True)
        assert start["status"] == 200


def test_an_export_whose_client_leaves_while_a_piece_is_made_is_closed_when_the_piece_is_done(
    serve: Callable[..., InProcess], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made, go, closed = threading.Event(), threading.Event(), threading.Event()

    def slow(_: object) -> Iterator[bytes]:
        try:
            yield b"first"
            made.set()
            assert go.wait(20)
            yield b"second"
        finally:
            closed.set()

    monkeypatch.setattr(export, "pieces", slow)
    server = serve(settings=Settings(exports_max=1))
    errors: list[Any] = []
    server.loop.set_exception_handler(lambda _, context: errors.append(context))
    with caplog.at_level(logging.WARNING):
        sent = visit(server, "POST", "export", b"{}", leaves=made.is_set)
    assert [message.get("body") for message in sent[1:]] == [b"first"]
    assert not closed.is_set(), "the thread that makes the piece is at it"
    go.set()
    wait_for(closed.is_set)
    monkeypatch.undo()
    assert server.post("export", {}).status_code == 200, "its place is free"
    assert (errors, caplog.records) == ([], [])
