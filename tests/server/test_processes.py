"""The real program: stopped in the middle of a write, killed and started again, and two of them on one graph."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from tests.server.mixing import Mixing
from tests.server.serving import PEOPLE, Process

import omnigraph

OPEN = ("--unauthenticated", "--durability", "fast")


@pytest.fixture
def root(seed: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "graph"
    shutil.copytree(seed, copy)
    return copy


@pytest.mark.parametrize(("variable", "resource"), [("ROWS", "rows of node:City"), ("BYTES", "bytes of node:City")])
def test_what_one_request_puts_into_one_table_can_be_bounded(root: Path, variable: str, resource: str) -> None:
    lines = "".join(json.dumps({"type": "City", "data": {"name": f"city-{at}"}}) + "\n" for at in range(40))
    with Process("--store", root, *OPEN, env={f"OMNIGRAPH_TABLE_{variable}_MAX": "39"}) as server:

        def load(mode: str) -> httpx.Response:
            return httpx.post(f"{server.graph_url}/load", json={"data": lines, "mode": mode})

        for mode in ("append", "merge"):
            refused = load(mode)
            assert refused.status_code == 413
            limit = refused.json()["resource_limit"]
            assert limit == {"resource": resource, "limit": 39, "actual": limit["actual"]}
            assert limit["actual"] >= 40
        lines += json.dumps({"type": "City", "data": {"name": "Paris"}})  # where somebody lives
        assert load("overwrite").status_code == 200


@pytest.mark.long
def test_a_write_that_has_begun_is_answered_before_the_server_stops(root: Path, tmp_path: Path) -> None:
    data = "".join(json.dumps({"type": "City", "data": {"name": f"city-{at}"}}) + "\n" for at in range(60_000))
    # No grace at all: what is not a write is cut at once.
    hurried = {"OMNIGRAPH_SHUTDOWN_GRACE_S": "0"}
    with Process("--store", root, *OPEN, env=hurried, log=tmp_path / "log") as server:
        answers: list[httpx.Response] = []

        def load() -> None:
            answers.append(
                httpx.post(
                    f"{server.graph_url}/load/ndjson",
                    content=data,
                    headers={"Content-Type": "application/x-ndjson", "Idempotency-Key": "k"},
                    timeout=60,
                )
            )

        running = threading.Thread(target=load)
        running.start()
        deadline = time.monotonic() + 20
        while not list((root / "__requests").glob("*")):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        code = server.stop(signal.SIGTERM)
        running.join()
    assert code == 0
    assert answers[0].status_code == 200
    assert answers[0].json()["total_entities"] == 60_000
    with omnigraph.connect(root) as graph:
        assert graph.history.list()[0].graph_commit_id == answers[0].json()["commit"]


def ask_slowly(server: Process, head: str, body: str) -> socket.socket:
    """A connection that has sent something and reads no more than a bit of the answer, if there is one."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.settimeout(20)
    client.connect((host, int(port)))
    kind = "Content-Type: application/json"
    client.sendall(f"POST /graphs/default/{head} HTTP/1.1\r\nHost: x\r\n{kind}\r\n{body}".encode())
    return client


@pytest.mark.long
def test_clients_that_read_or_send_too_slowly_do_not_keep_a_server_from_stopping(root: Path, tmp_path: Path) -> None:
    rows = [{"type": "City", "data": {"name": f"{at}{'x' * 2_000}"}} for at in range(4_000)]
    with omnigraph.connect(root) as graph:
        graph.load(rows, mode="append", durability="fast")
    grace = {"OMNIGRAPH_SHUTDOWN_GRACE_S": "0.5"}
    with Process("--store", root, *OPEN, env=grace, log=tmp_path / "log") as server:
        reading = ask_slowly(server, "export", "Content-Length: 2\r\n\r\n{}")
        sending = ask_slowly(server, "query", "Content-Length: 100\r\n\r\n{")
        odd = ask_slowly(server, "query", "Content-Length: nonsense\r\n\r\n")
        assert reading.recv(100).startswith(b"HTTP/1.1 200")
        refused = odd.recv(4_096)
        assert refused.startswith(b"HTTP/1.1 400"), "what is no HTTP is refused in our shape as well"
        assert json.loads(refused.partition(b"\r\n\r\n")[2])["code"] == "bad_request"
        assert server.stop(timeout=30) == 0
        for client in (reading, sending, odd):
            client.close()


@pytest.mark.long
def test_many_clients_of_two_servers_lose_nothing_when_one_is_killed(root: Path, tmp_path: Path) -> None:
    """`OMNIGRAPH_LOAD_SECONDS=60` is how long it takes to see whether memory stays where it is."""
    seconds = float(os.environ.get("OMNIGRAPH_LOAD_SECONDS", "10"))
    told = Mixing(root, tmp_path).run(seconds, 64)
    sys.stdout.write(
        f"{told.seconds:.0f} s: {dict(told.statuses)}, {len(told.names)} writes, {told.edges} of them loads,"
        f" {told.replayed} asked twice, memory {[size >> 20 for size in told.memory]} MB\n"
    )
    assert set(told.statuses) <= {200, 409}, told.refused[:3]
    assert all("is being worked on" in text for text in told.refused), told.refused[:3]
    assert min(len(told.names), told.edges, told.replayed) > 3
    with omnigraph.connect(root) as graph:
        people = [row["p.name"] for row in graph.query(PEOPLE)]
        edges = graph.snapshot().entries["edge:Knows"].row_count
        made = graph.history.list()
        facts = [each.properties for commit in made for each in (commit, *commit.writes)]
    assert len(people) == len(set(people))
    assert set(told.names) <= set(people)
    assert edges == told.edges + 1, "each load is carried out once"
    keys = [each["request"] for each in facts if "request" in each]
    assert len(keys) == len(set(keys)) == len(told.names), "each key is one write of one commit"
    assert "Traceback" not in "".join(log.read_text() for log in tmp_path.glob("server-*.log"))
    assert told.memory[-1] - told.memory[0] < 200 << 20, [size >> 20 for size in told.memory]


@pytest.mark.long
def test_what_is_logged_holds_no_token_and_no_parameter(root: Path, tmp_path: Path) -> None:
    env = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"act-ana": "s3cret-token"}'}
    with Process("--store", root, env=env, log=tmp_path / "log") as server:
        headers = {"Authorization": "Bearer s3cret-token"}
        body = {"query": "query q($n: String) { match { $p: Person { name: $n } } return { $p.name } }"}
        answer = httpx.post(
            f"{server.graph_url}/query", json={**body, "params": {"n": "s3cret-value"}}, headers=headers
        )
        assert answer.status_code == 200
        assert server.stop() == 0
    log = (tmp_path / "log").read_text()
    assert "POST /graphs/{graph_id}/query 200" in log
    assert "actor=act-ana" in log
    assert "default_deny" in log or "no policy" in log
    assert "s3cret" not in log
