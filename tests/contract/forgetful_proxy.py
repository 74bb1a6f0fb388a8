"""A proxy that passes a request on and then loses the answer, as networks do."""

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
        self.lost: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Forgetful

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=30)
        upstream.request(self.command, self.path, body=body, headers=dict(self.headers.items()))
        answer = upstream.getresponse()
        content = answer.read()
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
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def forgetful_proxy(upstream: str, marker: str) -> Iterator[Forgetful]:
    """Run a proxy in front of a server."""
    proxy = Forgetful(upstream, marker)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join(10)
