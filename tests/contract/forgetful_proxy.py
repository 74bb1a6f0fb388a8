"""A proxy that passes a request on and then loses the answer, as networks do, or its conditions, as some stores do.

It can also be a store that does not copy, and knows what went through it."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlparse


class Forgetful(ThreadingHTTPServer):
    """Loses the answers to the next `losses` PUTs whose path contains `marker`, after they took effect."""

    daemon_threads = True

    def __init__(self, upstream: str, marker: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlparse(upstream).netloc
        self.marker = marker
        self.losses = 0
        self.conditions = "kept"
        """What becomes of `If-None-Match` and `If-Match`: `kept`, `ignored` as by a store that does not know them, or
        `refused` as by one that says so."""
        self.breaks_off = False
        """Whether answers to GETs of paths with `marker` end in the middle, as when a connection breaks."""
        self.copies = True
        """Whether the store copies an object by itself when it is asked to."""
        self.written: list[str] = []
        self.copied: list[str] = []
        self.bytes_passed: dict[str, int] = {}
        """How much went through, either way, by the path of the object."""
        self.lost: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Forgetful

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = dict(self.headers.items())
        conditional = [name for name in headers if name.lower() in ("if-none-match", "if-match")]
        copies = "x-amz-copy-source" in {name.lower() for name in headers}
        if self.command == "PUT":
            (self.server.copied if copies else self.server.written).append(self.path)
        if copies and not self.server.copies:
            self._refuse(400, b"InvalidRequest")
            return
        if self.command == "PUT" and conditional and self.server.conditions == "refused":
            self._refuse()
            return
        if self.command == "PUT" and self.server.conditions == "ignored":
            headers = {name: value for name, value in headers.items() if name not in conditional}
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=30)
        upstream.request(self.command, self.path, body=body, headers=headers)
        answer = upstream.getresponse()
        content = answer.read()
        path = urlparse(self.path).path
        self.server.bytes_passed[path] = self.server.bytes_passed.get(path, 0) + len(body) + len(content)
        if self.command == "PUT" and self.server.marker in self.path and self.server.losses and answer.status == 200:
            self.server.losses -= 1
            self.server.lost.append(self.path)
            self.close_connection = True
            self.connection.close()
            return
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = answer.getheader("content-length") if self.command == "HEAD" else str(len(content))
        self.send_header("content-length", length or "0")
        self.end_headers()
        if self.command == "GET" and self.server.breaks_off and self.server.marker in self.path:
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
        elif self.command != "HEAD":
            self.wfile.write(content)

    def _refuse(self, status: int = 501, code: bytes = b"NotImplemented") -> None:
        content = b"<Error><Code>" + code + b"</Code><Message>not implemented</Message></Error>"
        self.send_response_only(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def forgetful_proxy(upstream: str, marker: str) -> Iterator[Forgetful]:
    """Run a proxy in front of a server."""
    proxy = Forgetful(upstream, marker)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join(10)
