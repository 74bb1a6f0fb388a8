"""Whatever is sent, the answer is one of ours, and the next request works."""

from __future__ import annotations

import json
import random
from typing import Any

import httpx
import pytest
from tests.amounts import EXHAUSTIVE
from tests.server.serving import ADD, PEOPLE, InProcess

ROUTES = [
    *(("GET", path) for path in ("snapshot", "queries", "schema", "branches", "commits", "commits/x", "blob", "diff")),
    *(("GET", path) for path in ("branches/diff", "commits/x/changes", "/graphs", "/healthz", "/readyz", "/metrics")),
    *(("POST", path) for path in ("query", "read", "explain", "mutate", "change", "mutate/if-graph-commit", "load")),
    *(("POST", path) for path in ("ingest", "load/ndjson", "export", "queries/people", "queries/add", "schema/plan")),
    *(("POST", path) for path in ("branches", "branches/merge", "branches/conflicts", "queries/x/if-graph-commit")),
    *(("GET", path) for path in ("branches/main", "branches/x", "tags", "changes")),
    *(("POST", path) for path in ("tags", "revert", "changes/baseline")),
    *(("DELETE", path) for path in ("tags/x", "tags/", "tags/a%2F..%2Fb")),
    *(("DELETE", path) for path in ("branches/x", "branches/main", "branches/", "branches/a%2F..%2Fb")),
]
TEXTS = [
    *("", " ", "main", "x", "../..", "a/../b", "%2e%2e", "\0", "\ud800", "é" * 50, "x" * 5_000, "0", "-1", "9" * 40),
    *(PEOPLE, ADD, "query q() {", "node A {}", "01K3Z9", "manifest:main:v1", "null", "[" * 2_000, "{", "true", "NaN"),
    *('{"type":"Person","data":{"name":"z"}}', '{"type":"Nobody"}', '{"edge":"Knows","from":"ada"}', "\xff"),
]
FIELDS = (
    *("query", "query_source", "name", "query_name", "params", "branch", "snapshot", "data", "from", "mode", "source"),
    *("target", "schema_source", "allow_data_loss", "type_names", "table_keys", "expect_mutation", "resolve", "base"),
    *("commit", "at", "after", "into", "force", "expect_head", "cursor", "start", "message"),
    *("strategy", "strategies", "dry_run", "delete_branch", "kind", "type", "op", "id", "entity", "property", "limit"),
)
TYPES = ["application/json", "application/x-ndjson", "text/plain", "", "application/json; charset=latin-1", "é/é", ";"]
HEADERS = ["Idempotency-Key", "Omnigraph-If-Graph-Commit", "Accept", "Range", "If-Match", "If-Range", "X-Request-Id"]
ALLOWED = {200, 206, 304, 400, 403, 404, 405, 408, 409, 410, 412, 413, 415, 416, 429, 503}


def value(chance: random.Random, depth: int = 0) -> Any:
    roll = chance.random()
    if roll < 0.6:
        return chance.choice(TEXTS)
    if roll < 0.8 or depth > 2:
        return chance.choice([None, True, False, 0, -1, 1.5, 10**30, 1e308, []])
    if roll < 0.9:
        return [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {chance.choice(FIELDS): value(chance, depth + 1) for _ in range(chance.randrange(4))}


def body(chance: random.Random) -> bytes:
    roll = chance.random()
    if roll < 0.1:
        return chance.randbytes(chance.randrange(200))
    if roll < 0.2:
        return chance.choice(TEXTS).encode("utf-8", "surrogatepass")
    given = {chance.choice(FIELDS): value(chance) for _ in range(chance.randrange(6))}
    given.update({"query": chance.choice([PEOPLE, ADD, value(chance)])} if chance.random() < 0.5 else {})
    content = json.dumps(given).encode()
    if chance.random() < 0.1:
        at = chance.randrange(len(content))
        content = content[:at] + chance.randbytes(3) + content[at:]
    return content


def spoken(text: str) -> str:
    return "".join(letter for letter in text if 32 <= ord(letter) < 127)[:300]


def request(chance: random.Random) -> tuple[str, str, dict[str, Any]]:
    method, path = chance.choice(ROUTES)
    if chance.random() < 0.1:
        method = chance.choice(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "ODD"])
    if chance.random() < 0.1:
        path = f"/graphs/{spoken(chance.choice(TEXTS)).replace('?', '').replace('#', '')}/{path}"
    if chance.random() < 0.4:
        pairs = [(chance.choice(FIELDS), chance.choice(TEXTS)) for _ in range(chance.randrange(4))]
        legal = [(name, text.encode("utf-8", "replace").decode()[:1_000]) for name, text in pairs]
        path = str(httpx.URL(path, params=legal))
    headers = {"Content-Type": spoken(chance.choice(TYPES[:2] * 4 + TYPES))}
    for name in chance.sample(HEADERS, chance.randrange(3)):
        headers[name] = spoken(chance.choice(TEXTS))
    return method, path, {"content": body(chance), "headers": headers}


def fuzz(server: InProcess, count: int, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(count):
        method, path, named = request(chance)
        try:
            answer = server.ask(method, path, **named)
        except httpx.InvalidURL:
            continue
        told = f"{seed}/{number}: {method} {path[:200]!a} {named} answered {answer.status_code} {answer.text[:300]}"
        assert answer.status_code in ALLOWED, told
        assert answer.headers["x-request-id"], told
        if answer.status_code >= 400 and method != "HEAD":
            found = answer.json()
            assert isinstance(found.get("error"), str), told
            assert str(server.root) not in answer.text, told
        if number % 100 == 0:
            assert server.post("query", {"query": PEOPLE}).status_code == 200
    assert server.post("query", {"query": PEOPLE}).status_code == 200


@pytest.mark.long
def test_a_thousand_odd_requests_get_answers_of_ours(open_server: InProcess) -> None:
    fuzz(open_server, 1_000, 1)


@EXHAUSTIVE
def test_nine_thousand_more(open_server: InProcess) -> None:
    fuzz(open_server, 9_000, 2)
