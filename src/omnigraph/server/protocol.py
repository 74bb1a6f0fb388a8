"""HTTP as it is spoken on a connection: refusals of what is no HTTP, and connections that can be cut.

What cannot be read as a request never reaches the application, so the web server answers it; here it does so in our
shape.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from omnigraph.server.errors import Answer

UNREADABLE = Answer(400, {"error": "the request is not HTTP that can be read", "code": "bad_request"})


class Protocol(HttpToolsProtocol):
    """One connection."""

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, and close."""
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(UNREADABLE.content)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + UNREADABLE.content)
        self.transport.close()

    def cut(self) -> None:
        """Give up on a client that neither reads its answer nor sends its body to the end, unless a write goes on."""
        facts: Any = None if self.cycle is None else self.cycle.scope.get("omnigraph")
        if facts is None or not facts["writing"]:
            # Closing would wait for the client to take what was sent so far.
            self.transport.abort()
