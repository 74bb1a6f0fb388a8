"""Many clients of two servers of one graph, one of which is killed and started again while they go on.

Every write carries a key and is repeated, at the other server, until it is acknowledged; so what is acknowledged can be
compared with what is there. Each load adds an edge that nothing makes unique: one that is carried out twice is counted.
"""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from tests.server.serving import ADD, Process

ROOM = {"OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": "64", "OMNIGRAPH_WRITE_QUEUE_DEADLINE_MS": "120000"}
ONE = "query one($name: String) { match { $p: Person { name: $name } } return { $p.name, $p.age } }"
WARM = 0.3
"""The share of the time after which a server's memory is first looked at."""


@dataclass
class Told:
    """What the clients were told."""

    statuses: Counter[int] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)
    edges: int = 0
    replayed: int = 0
    refused: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    """How much the server that stays has, in bytes, once a second when it is warm."""
    seconds: float = 0.0


class Mixing:
    """The servers, and the clients that speak to them."""

    def __init__(self, root: Path, logs: Path, *, durability: str = "fast") -> None:
        self._words = ("--store", root, "--unauthenticated", "--durability", durability, "--log-level", "warning")
        self._logs = logs
        self.servers = [self._start(number) for number in range(2)]
        self.told, self._lock = Told(), threading.Lock()

    def _start(self, number: int) -> Process:
        return Process(*self._words, env=ROOM, log=self._logs / f"server-{number}.log")

    def run(self, seconds: float, clients: int) -> Told:
        """Let them go on for so long; the first server is killed in the middle."""
        began = time.monotonic()
        until = began + seconds
        try:
            # One pool of connections: a client of its own for each thread would read the certificates 64 times.
            limits = httpx.Limits(max_connections=None)
            with httpx.Client(timeout=120, limits=limits) as http, ThreadPoolExecutor(clients) as pool:
                running = [pool.submit(self._client, http, number, until) for number in range(clients)]
                self._watch(began + seconds * WARM, began + seconds / 2)
                self.servers[0].stop(signal.SIGKILL)
                self.servers[0] = self._start(0)
                self._watch(time.monotonic(), until)
                for each in running:
                    each.result()
            self.told.seconds = time.monotonic() - began
            assert [server.stop() for server in self.servers] == [0, 0]
        finally:
            for server in self.servers:
                server.stop(signal.SIGKILL)
        return self.told

    def _watch(self, since: float, until: float) -> None:
        time.sleep(max(0.0, since - time.monotonic()))
        while time.monotonic() < until:
            self.told.memory.append(psutil.Process(self.servers[1].process.pid).memory_info().rss)
            time.sleep(min(1.0, max(0.0, until - time.monotonic())))

    def _client(self, http: httpx.Client, number: int, until: float) -> None:
        chance, at = random.Random(number), number % 2
        step = 0
        while time.monotonic() < until:
            step += 1
            name, roll = f"m{number}-{step}", chance.random()
            if roll < 0.7:
                self._ask(lambda: self._read(http, at), at)
                continue
            path, body = ("mutate", {"query": ADD, "params": {"name": name}}) if roll < 0.9 else ("load", load(name))
            first = self._write(http, at, path, body, name)
            twice = chance.random() < 0.2
            if twice:
                again = self._write(http, 1 - at, path, body, name)
                assert again.headers["idempotency-replayed"] == "true", again.text
                assert again.json() == first.json()
            with self._lock:
                self.told.names.append(name)
                self.told.edges += path == "load"
                self.told.replayed += twice

    def _read(self, http: httpx.Client, at: int) -> httpx.Response:
        body = {"query": ONE, "params": {"name": "ada"}}
        return http.post(f"{self.servers[at].graph_url}/query", json=body)

    def _write(self, http: httpx.Client, at: int, path: str, body: Mapping[str, Any], key: str) -> httpx.Response:
        """Repeat a write until it is acknowledged, here and there."""
        for attempt in range(10_000):
            place = (at + attempt) % 2
            answer = self._ask(
                lambda place=place: http.post(
                    f"{self.servers[place].graph_url}/{path}", json=body, headers={"Idempotency-Key": key}
                ),
                place,
            )
            if answer is not None and answer.status_code == 200:
                return answer
            time.sleep(0.05)
        raise AssertionError(f"{key} was never acknowledged")

    def _ask(self, send: Callable[[], httpx.Response], at: int) -> httpx.Response | None:
        """One request; None when its server is gone."""
        try:
            answer = send()
        except httpx.HTTPError:
            if at != 0:
                raise
            time.sleep(0.05)
            return None
        with self._lock:
            self.told.statuses[answer.status_code] += 1
            if answer.status_code != 200:
                self.told.refused.append(answer.text[:300])
        return answer


def load(name: str) -> dict[str, str]:
    """A load of one person and of an edge that nothing makes unique."""
    records = ({"type": "Person", "data": {"name": name}}, {"edge": "Knows", "from": "ada", "to": "bob"})
    return {"data": "\n".join(map(json.dumps, records)), "mode": "append"}
