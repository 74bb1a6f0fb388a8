"""Answers that are made while they are sent: pulled piece by piece, so that memory does not grow with them.

A piece is made on a thread for reads when the one before it is on its way, so a slow client holds neither a thread nor
more than one piece.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from omnigraph.server.call import Call
from omnigraph.server.errors import HttpRefusal

PIECE_BYTES = 64 << 10
SLOT_WAIT_SECONDS = 0.25


def pieces(lines: Iterable[str]) -> Iterator[bytes]:
    """Lines as pieces of about `PIECE_BYTES`, each line with its end."""
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line) + 1
        if size >= PIECE_BYTES:
            yield ("\n".join(held) + "\n").encode()
            held, size = [], 0
    if held:
        yield ("\n".join(held) + "\n").encode()


class _Made:
    """Pieces that one thread makes at a time: who is done with them waits for the one that is being made."""

    def __init__(self, source: Iterator[bytes]) -> None:
        self._source, self._lock = source, threading.Lock()

    def next(self) -> bytes | None:
        """The next piece, None at the end."""
        with self._lock:
            return next(self._source, None)

    def close(self) -> None:
        """Give back what the pieces are made from."""
        close = getattr(self._source, "close", None)
        if close is not None:
            with self._lock:
                close()


async def pulled(call: Call, source: Iterator[bytes], first: bytes | None = None) -> AsyncGenerator[bytes, None]:
    """The pieces of an iterator, each made on a thread when it is wanted."""
    made = _Made(source)
    try:
        if first is not None:
            yield first
        while (piece := await call.read(made.next)) is not None:
            yield piece
    finally:
        # The client may have left while a piece was being made, and that thread goes on to its end.
        await asyncio.shield(call.read(made.close))


async def slotted(call: Call, make: Callable[[], Iterator[bytes]], media_type: str) -> StreamingResponse:
    """A streamed answer that takes one of the few places for large ones until it is sent.

    Raises:
        HttpRefusal: 503, all places are taken.
    """
    slots = call.state.work.export_slots
    try:
        await asyncio.wait_for(slots.acquire(), SLOT_WAIT_SECONDS)
    except TimeoutError:
        raise HttpRefusal(
            503, "as many exports as this server allows are running: try again later", headers={"Retry-After": "5"}
        ) from None
    try:
        made = await call.read(make)
        first = await call.read(next, made, None)
    except BaseException:
        slots.release()
        raise
    return HeldStream(pulled(call, made, first), slots.release, media_type)


class HeldStream(StreamingResponse):
    """A stream that holds a place until its last byte is sent or its client has left, be it before the first one."""

    def __init__(
        self,
        body: AsyncGenerator[bytes, None],
        release: Callable[[], None],
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(body, media_type=media_type, headers=dict(headers or {}))
        self._body, self._release = body, release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._release()
            await self._body.aclose()
