"""The change feed over HTTP: polled, followed, and begun with a baseline."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.serving import ADD, InProcess, Process


def add(server: InProcess, name: str) -> str:
    return str(server.post("mutate", {"query": ADD, "params": {"name": name}}).json()["commit"])


def ids(page: dict[str, Any]) -> list[str]:
    return [change["id"] for block in page["blocks"] for change in block["changes"]]


def test_a_poll_goes_on_where_the_last_one_ended(open_server: InProcess) -> None:
    start = open_server.get("changes").json()
    assert (start["blocks"], start["caught_up"]) == ([], True)
    commits = [add(open_server, name) for name in ("dan", "eve")]
    page = open_server.get("changes", params={"cursor": start["cursor"]}).json()
    assert ids(page) == ["dan", "eve"]
    assert [block["cause"]["graph_commit_id"] for block in page["blocks"]] == commits
    assert open_server.get("changes", params={"start": f"after:{commits[0]}"}).json()["blocks"] == page["blocks"][1:]
    assert ids(open_server.get("changes", params={"cursor": start["cursor"], "max_commits": "1"}).json()) == ["dan"]
    again = open_server.get("changes", params={"cursor": page["cursor"]}).json()
    assert (again["blocks"], again["caught_up"]) == ([], True)


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"cursor": "x"}, 400),
        ({"cursor": "x", "start": "now"}, 400),
        ({"start": "yesterday"}, 400),
        ({"page_token": "x" * 5_000}, 400),
        ({"unknown": "x"}, 400),
        ({"kind": "thing"}, 400),
        ({"limit": "9000"}, 413),
        ({"max_commits": "513"}, 413),
        ({"limit": "-1"}, 400),
        ({"branch": "gone"}, 404),
    ],
)
def test_what_a_poll_refuses(open_server: InProcess, params: dict[str, str], status: int) -> None:
    answer = open_server.get("changes", params=params)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]


def test_a_baseline_ends_with_the_cursor_to_go_on_with(open_server: InProcess) -> None:
    *lines, last = open_server.post("changes/baseline", {}).text.splitlines()
    assert lines == open_server.post("export", {}).text.splitlines()
    told = json.loads(last)["baseline"]
    assert told.keys() == {"snapshot_commit_id", "resume_cursor"}
    add(open_server, "dan")
    assert ids(open_server.get("changes", params={"cursor": told["resume_cursor"]}).json()) == ["dan"]


@pytest.mark.long
def test_a_stream_tells_what_happens_and_goes_on_after_the_last_event(seed: Path, tmp_path: Path) -> None:
    root = tmp_path / "graph"
    shutil.copytree(seed, root)

    def follow(url: str, last: str | None, count: int) -> list[tuple[str, dict[str, Any]]]:
        found: list[tuple[str, dict[str, Any]]] = []
        headers = {"Last-Event-ID": last} if last is not None else {}
        with httpx.stream("GET", f"{url}/changes/stream", headers=headers, timeout=30) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            ready.set()
            cursor = ""
            for line in answer.iter_lines():
                cursor = line.removeprefix("id: ") if line.startswith("id: ") else cursor
                if line.startswith("data: "):
                    found.append((cursor, json.loads(line.removeprefix("data: "))))
                if sum(len(page["blocks"]) for _, page in found) >= count:
                    return found
        return found

    with Process("--store", root, "--unauthenticated", log=tmp_path / "log") as server:
        url = server.graph_url
        ready, told = threading.Event(), []
        following = threading.Thread(target=lambda: told.extend(follow(url, None, 2)))
        following.start()
        assert ready.wait(30)
        for name in ("dan", "eve"):
            body = {"query": ADD, "params": {"name": name}}
            assert httpx.post(f"{url}/mutate", json=body, timeout=30).status_code == 200
        following.join(30)
        assert [name for _, page in told for name in ids(page)] == ["dan", "eve"]
        body = {"query": ADD, "params": {"name": "fay"}}
        assert httpx.post(f"{url}/mutate", json=body, timeout=30).status_code == 200
        assert [name for _, page in follow(url, told[-1][0], 1) for name in ids(page)] == ["fay"]
        refused = httpx.get(f"{url}/changes/stream", headers={"Last-Event-ID": "nonsense"})
        assert refused.status_code == 400
        ready.clear()
        idle = threading.Thread(target=follow, args=(url, None, 1))
        idle.start()
        assert ready.wait(30)
        assert server.stop() == 0, "a stream without end does not keep a server from stopping"
        idle.join(30)
