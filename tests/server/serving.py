"""Servers as tests reach them: an application in this process, or the real program as a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import httpx

import omnigraph
from omnigraph.engine.coordination.owner import this_process
from omnigraph.server.access import Access
from omnigraph.server.app import Server, create_app
from omnigraph.server.served import Served
from omnigraph.server.settings import Settings
from omnigraph.server.stored import StoredQueries, read_queries

T = TypeVar("T")
PROGRAM = Path(sys.executable).parent / "omnigraph-server"
SCHEMA = """
node Person {
    name: String @key
    age: I32?
    height: F64?
    born: Date?
    seen: DateTime?
    tags: [String]?
    photo: Blob?
}
node City { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge LivesIn: Person -> City
"""
LINES = [
    {"type": "Person", "data": {"name": "ada", "age": 36, "height": 1.7, "born": "1815-12-10", "tags": ["a", "b"]}},
    {"type": "Person", "data": {"name": "bob", "age": 20, "photo": "base64:aGVsbG8gd29ybGQ="}},
    {"type": "Person", "data": {"name": 'cy, "x"', "age": None}},
    {"type": "City", "data": {"name": "Paris"}},
    {"edge": "Knows", "from": "ada", "to": "bob", "data": {"since": "2024-01-01"}},
    {"edge": "LivesIn", "from": "ada", "to": "Paris"},
]
QUERIES = """
query people() @description("Everybody") @instruction("Ask often") {
    match { $p: Person } return { $p.name, $p.age } order { $p.name asc }
}
query person($name: String, $limit_age: I64?) { match { $p: Person { name: $name } } return { $p.name, $p.age } }
query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }
"""
PEOPLE = "query people() { match { $p: Person } return { $p.name, $p.age } order { $p.name asc } }"
ADD = "query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }"
SET_AGE = "query age($name: String, $age: I32) { update Person set { age: $age } where name = $name }"
ACTORS = {"act-ana": "token-ana", "act-bo": "token-bo"}


def lines(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def make_graph(root: Path) -> None:
    with omnigraph.create(root, SCHEMA) as graph:
        graph.load(lines(LINES).encode(), durability="fast")


class InProcess:
    """An application with its event loop in a thread; calls are plain and synchronous."""

    def __init__(
        self,
        root: Path,
        *,
        access: Access | None,
        settings: Settings | None,
        queries: str | None,
        group_writes: bool = False,
        external_blobs: tuple[str, ...] = (),
    ) -> None:
        self.root = root
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.graph = omnigraph.connect(root, group_writes=group_writes, external_blobs=external_blobs)
        stored = StoredQueries()
        if queries is not None:
            folder = root.parent / f"{root.name}-queries"
            folder.mkdir()
            (folder / "all.gq").write_text(queries)
            stored = read_queries(folder, self.graph.context.catalog)
        self.server: Server = self.run(self._start(access, settings, stored))
        transport = httpx.ASGITransport(self.server.asgi, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://testserver")

    async def _start(self, access: Access | None, settings: Settings | None, stored: StoredQueries) -> Server:
        server = create_app({"default": Served("default", self.graph, stored)}, access, settings)
        self._lifespan = server.framework.router.lifespan_context(server.framework)
        await self._lifespan.__aenter__()
        return server

    def run(self, work: Coroutine[Any, Any, T], timeout: float = 60) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    def ask(self, method: str, path: str, *, token: str | None = None, **named: Any) -> httpx.Response:
        """One request; a path that does not start with `/` is one of the graph."""
        url = path if path.startswith("/") else f"/graphs/default/{path}"
        headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **named.pop("headers", {})}
        return self.run(self.client.request(method, url, headers=headers, **named))

    def get(self, path: str, **named: Any) -> httpx.Response:
        return self.ask("GET", path, **named)

    def post(self, path: str, body: Any = None, **named: Any) -> httpx.Response:
        return self.ask("POST", path, json=body, **named)

    def close(self) -> None:
        self.run(self.client.aclose())
        self.run(self._lifespan.__aexit__(None, None, None))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


def in_process(
    seed: Path,
    root: Path,
    *,
    access: Access | None = None,
    settings: Settings | None = None,
    queries: str | None = QUERIES,
    **further: Any,
) -> InProcess:
    shutil.copytree(seed, root)
    return InProcess(root, access=access, settings=settings, queries=queries, **further)


class Process:
    """The real program."""

    def __init__(self, *words: str | Path, env: Mapping[str, str] | None = None, log: Path | None = None) -> None:
        self._log = open(log, "ab") if log is not None else subprocess.DEVNULL  # noqa: SIM115
        self.process = subprocess.Popen(
            [str(PROGRAM), *(str(word) for word in words), "--bind", "127.0.0.1:0"],
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=self._log,
            encoding="utf-8",
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.match(r"OMNIGRAPH_LISTEN_ADDR=(\S+)$", line.strip())
        assert found is not None, f"the server did not start: {line!r}"
        self.url = f"http://{found[1]}"

    @property
    def graph_url(self) -> str:
        return f"{self.url}/graphs/default"

    def stop(self, sig: int = signal.SIGTERM, timeout: float = 60) -> int:
        if self.process.poll() is None:
            self.process.send_signal(sig)
        code = self.process.wait(timeout)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGKILL)


def wait_for(condition: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def lose_the_answers(server: InProcess) -> None:
    """Leave every note as a server leaves it that is killed between the commit and the answer."""
    gone = {**this_process().to_json(), "pid": 2**22 + 1, "lease_until": 0}
    for path in (server.root / "__requests").iterdir():
        note = json.loads(path.read_text())
        if note.get("state") == "done":
            kept = {name: note[name] for name in ("digest", "began", "about", "mark") if name in note}
            lost = {"state": "running", "owner": gone, **kept}
            path.write_text(json.dumps(lost))
