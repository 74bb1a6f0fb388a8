"""Route by route and status by status: what is refused, in which order, with which body."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.server.serving import ACTORS, ADD, PEOPLE, SET_AGE, InProcess

from omnigraph.policy import Policy
from omnigraph.server.access import Access
from omnigraph.server.app import CORS_ASKED
from omnigraph.server.settings import Settings
from omnigraph.server.tokens import Tokens

LINE = json.dumps({"type": "Person", "data": {"name": "new"}})
NDJSON = {"Content-Type": "application/x-ndjson"}
BLOB = "blob?entity=node&type=Person&id=bob&property=photo"

READS: list[tuple[str, str, Any]] = [
    ("GET", "snapshot", None),
    ("POST", "query", {"query": PEOPLE}),
    ("POST", "read", {"query_source": PEOPLE}),
    ("POST", "explain", {"query": PEOPLE}),
    ("GET", "queries", None),
    ("GET", "schema", None),
    ("POST", "schema/plan", {"schema_source": "node A { n: String @key }"}),
    ("GET", "branches", None),
    ("GET", "branches/main", None),
    ("GET", "branches/diff?source=main", None),
    ("GET", "tags", None),
    ("POST", "branches/conflicts", {"source": "main"}),
    ("GET", "commits", None),
    ("GET", "diff?from=main&to=main", None),
    ("GET", BLOB, None),
    ("HEAD", BLOB, None),
]
WRITES: list[tuple[str, str, Any]] = [
    ("POST", "mutate", {"query": ADD, "params": {"name": "x"}}),
    ("POST", "change", {"query_source": ADD, "params": {"name": "x"}}),
    ("POST", "load", {"data": LINE}),
    ("POST", "ingest", {"data": LINE}),
    ("POST", "export", {}),
    ("POST", "schema/apply", {"schema_source": "node A { n: String @key }", "confirm_drops": True}),
    ("POST", "branches", {"name": "b"}),
    ("POST", "branches/merge", {"source": "b"}),
    ("DELETE", "branches/b", None),
    ("POST", "tags", {"name": "t"}),
    ("DELETE", "tags/t", None),
    ("POST", "revert", {"commit": "01K3Z900000000000000000000"}),
]
WITH_BODY = [(path, body) for method, path, body in [*READS, *WRITES] if method == "POST"]
EXPECTED = {"branches/merge": 404, "branches/conflicts": 400, "revert": 404}
"""What a route answers where there is nothing to merge or undo, and main is not merged into itself."""
POLICY = """
version: 1
groups: {all: [act-ana, act-bo], admins: [act-ana]}
protected_branches: [main]
rules:
  - id: read-all
    allow: {actors: {group: all}, actions: [read]}
  - id: drafts
    allow: {actors: {group: all}, actions: [change], branch_scope: unprotected}
  - id: make
    allow: {actors: {group: all}, actions: [branch_create], target_branch_scope: unprotected}
  - id: one-query
    allow: {actors: {group: all}, actions: [invoke_query], queries: [people, add]}
  - id: admins-all
    allow: {actors: {group: admins}, actions: [change, export], branch_scope: any}
  - id: admins-branches
    allow: {actors: {group: admins}, actions: [branch_merge, branch_delete, schema_apply], target_branch_scope: any}
"""
SERVER_POLICY = """
version: 1
groups: {admins: [act-ana]}
rules: [{id: list, allow: {actors: {group: admins}, actions: [graph_list]}}]
"""


def policed() -> Access:
    return Access(Tokens.of(ACTORS), Policy.parse(POLICY), Policy.parse(SERVER_POLICY, kind="server"))


def ask(server: InProcess, method: str, path: str, body: Any, **named: Any) -> Any:
    return server.ask(method, path, **({"json": body} if body is not None else {}), **named)


def is_error(answer: Any, status: int, code: str | None) -> bool:
    body = answer.json()
    assert (answer.status_code, body.get("code")) == (status, code), answer.text
    assert isinstance(body["error"], str)
    assert body["error"]
    return True


def test_without_a_token_every_route_but_health_is_401(token_server: InProcess) -> None:
    for method, path, body in [*READS, *WRITES, ("GET", "/graphs", None), ("GET", "/nowhere", None)]:
        for headers in (
            {},
            {"Authorization": "Basic eA=="},
            {"Authorization": "Bearer wrong"},
            {"X-Actor-Id": "act-ana"},
        ):
            answer = ask(token_server, method, path, body, headers=headers)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"] == "Bearer"
            if method != "HEAD":
                said = "invalid bearer token" if "wrong" in str(headers) else "missing bearer token"
                assert answer.json() == {"error": said, "code": "unauthorized"}
    for path in ("/healthz", "/openapi.json", "/readyz"):
        assert token_server.get(path).status_code == 200
    assert token_server.get("schema", headers={"Authorization": "bEARER token-ana"}).status_code == 200


def test_authentication_comes_before_the_graph_and_the_graph_before_the_body(token_server: InProcess) -> None:
    assert token_server.post("/graphs/no_id/query", {}).status_code == 401
    assert is_error(token_server.post("/graphs/no_id/query", {}, token="token-ana"), 400, "bad_request")
    assert is_error(token_server.post("/graphs/healthz/query", {}, token="token-ana"), 400, "bad_request")
    assert is_error(token_server.post("/graphs/other/query", {}, token="token-ana"), 404, "not_found")
    assert is_error(token_server.post("/graphs/default%2Fquery/x", {}, token="token-ana"), 400, "bad_request")


def test_default_deny_reads_and_says_which_file_is_missing(token_server: InProcess) -> None:
    for method, path, body in READS:
        assert ask(token_server, method, path, body, token="token-ana").status_code == EXPECTED.get(path, 200), path
    for method, path, body in [*WRITES, ("GET", "/graphs", None)]:
        answer = ask(token_server, method, path, body, token="token-ana")
        assert is_error(answer, 403, "forbidden")
        assert "--policy" in answer.json()["error"]
    hidden = token_server.post("queries/people", token="token-ana")
    assert (hidden.status_code, hidden.json()) == (404, {"error": "stored query not found", "code": "not_found"})
    assert token_server.get("/healthz").json()["auth"] == "default_deny"


def test_open_servers_refuse_to_list_graphs(open_server: InProcess) -> None:
    assert is_error(open_server.get("/graphs"), 403, "forbidden")


def test_one_policy_file_may_do_for_a_graph_and_its_server(serve: Callable[..., InProcess]) -> None:
    both = f"{POLICY}  - {{id: list, allow: {{actors: {{group: admins}}, actions: [graph_list]}}}}\n"
    server = serve(access=Access(Tokens.of(ACTORS), Policy.parse(both, kind="graph")))
    assert [one["graph_id"] for one in server.get("/graphs", token="token-ana").json()["graphs"]] == ["default"]
    assert is_error(server.get("/graphs", token="token-bo"), 403, "forbidden")
    assert server.post("query", {"query": PEOPLE}, token="token-bo").status_code == 200


def test_a_policy_decides_each_request(serve: Callable[..., InProcess]) -> None:
    server = serve(access=policed())
    assert [one["graph_id"] for one in server.get("/graphs", token="token-ana").json()["graphs"]] == ["default"]
    assert is_error(server.get("/graphs", token="token-bo"), 403, "forbidden")
    denied = server.post("mutate", {"query": "nonsense"}, token="token-bo")
    assert is_error(denied, 403, "forbidden")
    assert denied.json()["error"] == "policy denied action 'change' on branch 'main' for actor 'act-bo'"
    made = server.post("load", {"data": LINE, "branch": "draft", "from": "main"}, token="token-bo")
    assert made.json()["actor_id"] == "act-bo"
    assert is_error(server.post("load", {"data": LINE, "branch": "lost"}, token="token-bo"), 404, "not_found")
    assert is_error(server.post("branches/merge", {"source": "draft"}, token="token-bo"), 403, "forbidden")
    foretold = server.post("branches/merge", {"source": "draft", "dry_run": True}, token="token-bo")
    assert foretold.json()["outcome"] == "fast_forward"
    merged = server.post("branches/merge", {"source": "draft", "delete_branch": True}, token="token-ana").json()
    assert (merged["outcome"], merged["actor_id"], merged["branch_deleted"]) == ("fast_forward", "act-ana", True)
    listed = [one["name"] for one in server.get("queries", token="token-bo").json()["queries"]]
    assert listed == ["add", "people"]
    assert server.post("queries/people", token="token-bo").status_code == 200
    assert is_error(server.post("queries/person", {"params": {"name": "ada"}}, token="token-bo"), 404, "not_found")
    assert is_error(server.post("queries/add", {"params": {"name": "z"}}, token="token-bo"), 403, "forbidden")
    assert is_error(server.post("tags", {"name": "t"}, token="token-bo"), 403, "forbidden")
    assert server.post("tags", {"name": "t"}, token="token-ana").json()["actor_id"] == "act-ana"
    for tag in ("t", "gone"):
        assert is_error(server.ask("DELETE", f"tags/{tag}", token="token-bo"), 403, "forbidden")
    assert is_error(server.post("revert", {"commit": "t"}, token="token-bo"), 403, "forbidden")
    assert server.ask("DELETE", "tags/t", token="token-ana").status_code == 200
    unknown = server.post("query", {"query": PEOPLE, "snapshot": "01K3Z900000000000000000000"}, token="token-bo")
    assert is_error(unknown, 404, "not_found")


@pytest.mark.parametrize("name", ["snapshot", "at"])
def test_an_earlier_state_is_read_by_either_name(open_server: InProcess, name: str) -> None:
    first = open_server.get("commits").json()["commits"][-1]["graph_commit_id"]
    now = open_server.post("query", {"query": PEOPLE}).json()
    then = open_server.post("query", {"query": PEOPLE, name: first}).json()
    assert then["row_count"] == 0 < now["row_count"]
    assert then["target"]["snapshot"] == first


def test_an_earlier_state_is_read_by_one_of_its_names(open_server: InProcess) -> None:
    first = open_server.get("commits").json()["commits"][-1]["graph_commit_id"]
    for names in ({"snapshot": None, "at": first}, {"snapshot": first, "at": None}):
        assert open_server.post("query", {"query": PEOPLE, **names}).json()["row_count"] == 0
    both = {"snapshot": first, "at": "elsewhere"}
    for path, body in (("query", {"query": PEOPLE}), ("read", {"query_source": PEOPLE}), ("export", {})):
        refused = open_server.post(path, {**body, **both})
        assert is_error(refused, 400, "bad_request")
        assert refused.json()["error"] == "'at' and 'snapshot' name the same thing: pass one of them"


@pytest.mark.parametrize(("path", "body"), WITH_BODY, ids=lambda value: value if isinstance(value, str) else "")
def test_a_malformed_body_is_refused_in_our_shape(open_server: InProcess, path: str, body: Any) -> None:
    json_type = {"Content-Type": "application/json"}
    cases = [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"{" * 20_000, b'{"branch": 3, "name": 4, "source": 5}']
    for content in cases:
        answer = open_server.ask("POST", path, content=content, headers=json_type)
        assert is_error(answer, 400, "bad_request"), content[:40]
    assert is_error(
        open_server.ask("POST", path, content=b"{}", headers={"Content-Type": "text/xml"}), 415, "bad_request"
    )
    assert is_error(open_server.ask("POST", path, content=b"{}"), 415, "bad_request")
    for name in body:
        wrong = {**body, name: 5 if not isinstance(body[name], int) else "x"}
        assert is_error(open_server.post(path, wrong), 400, "bad_request")
    if path != "export":
        assert open_server.post(path, {**body, "x_unknown": 1}).status_code == EXPECTED.get(path, 200)
    else:
        assert is_error(open_server.post(path, {"unknown": 1}), 400, "bad_request")


def test_bodies_beyond_the_limit_are_413_and_the_next_request_works(serve: Callable[..., InProcess]) -> None:
    server = serve(settings=Settings(body_bytes_max=1_000, load_bytes_max=2_000))
    for path, body in WITH_BODY:
        answer = server.post(path, {**body, "padding": "x" * 3_000})
        assert is_error(answer, 413, "bad_request")
        assert answer.json()["resource_limit"]["limit"] in (1_000, 2_000)

    async def pieces() -> Any:
        for _ in range(40):
            yield b'{"type":"City","data":{"name":"a"}}\n' * 3

    assert is_error(server.ask("POST", "load/ndjson", content=pieces(), headers=NDJSON), 413, "bad_request")
    assert server.post("query", {"query": PEOPLE}).status_code == 200


def test_what_the_engine_refuses_has_its_status_and_facts(open_server: InProcess) -> None:
    def post(path: str, body: Any, **named: Any) -> Any:
        return open_server.post(path, body, **named)

    broken = post("query", {"query": "query q( {"})
    assert is_error(broken, 400, "bad_request")
    assert broken.json()["diagnostic"]["position"].keys() == {"line", "column", "offset", "length"}
    assert is_error(post("query", {"query": PEOPLE, "params": {"x": 1}}), 400, "bad_request")
    assert is_error(post("query", {"query": PEOPLE, "branch": "main", "snapshot": "1"}), 400, "bad_request")
    assert is_error(post("query", {"query": PEOPLE, "branch": "gone"}), 404, "not_found")
    assert is_error(post("query", {"query": PEOPLE, "name": "gone"}), 400, "bad_request")
    mutating = post("query", {"query": ADD, "params": {"name": "x"}})
    assert mutating.json()["error"] == (
        "query 'add' contains mutations (insert/update/delete); use POST /mutate for write queries"
    )
    assert is_error(post("mutate", {"query": PEOPLE}), 400, "bad_request")
    assert is_error(post("mutate", {"query": ADD, "params": {"name": "x"}, "branch": "gone"}), 404, "not_found")
    taken = open_server.ask("POST", "load/ndjson?mode=append", content=LINE.replace("new", "ada"), headers=NDJSON)
    assert is_error(taken, 409, "conflict")
    assert taken.json()["key_conflict"] == {"entity_kind": "node", "type_name": "Person", "entity_id": "ada"}
    assert is_error(post("load", {"data": "{"}), 400, "bad_request")
    assert is_error(post("load", {"data": LINE, "mode": "other"}), 400, "bad_request")
    assert is_error(open_server.ask("POST", "load/ndjson?mode=x", content=LINE, headers=NDJSON), 400, "bad_request")
    assert is_error(open_server.ask("POST", "load/ndjson?x=y", content=LINE, headers=NDJSON), 400, "bad_request")
    assert is_error(open_server.ask("POST", "load/ndjson", content=LINE), 415, "bad_request")
    assert is_error(post("export", {"type_names": ["Nobody"]}), 400, "bad_request")
    assert is_error(post("schema/apply", {"schema_source": "node"}), 400, "bad_request")
    assert post("branches", {"name": "one"}).status_code == 200
    assert is_error(post("branches", {"name": "one"}), 409, "conflict")
    assert is_error(post("branches", {"name": "../etc"}), 400, "bad_request")
    assert is_error(post("branches", {"name": "two", "from": "gone"}), 404, "not_found")
    assert is_error(post("schema/apply", {"schema_source": "node A { n: String @key }"}), 409, "conflict")
    assert is_error(open_server.ask("DELETE", "branches/gone"), 404, "not_found")
    assert is_error(open_server.ask("DELETE", "branches/..%2F..%2Fetc"), 400, "bad_request")
    assert is_error(open_server.ask("DELETE", "branches/main"), 400, "bad_request")
    assert is_error(open_server.get("commits/01K3Z9"), 404, "not_found")
    assert is_error(open_server.get("commits?limit=x"), 400, "bad_request")
    assert is_error(open_server.get("snapshot?branch=gone"), 404, "not_found")
    assert is_error(open_server.get("nowhere"), 404, "not_found")
    assert is_error(open_server.ask("PUT", "query"), 405, "method_not_allowed")
    first = open_server.get("commits").json()["commits"][-1]["graph_commit_id"]
    parentless = open_server.get(f"commits/{first}/changes")
    assert is_error(parentless, 409, "conflict")
    assert parentless.json()["change_diff_refusal"]["reason"] == "parentless_commit"


def test_a_merge_in_conflict_lists_it_and_a_dry_run_foretells_it(open_server: InProcess) -> None:
    open_server.post("branches", {"name": "side"})
    for branch, age in (("side", 1), ("main", 2)):
        body = {"query": SET_AGE, "params": {"name": "ada", "age": age}, "branch": branch}
        assert open_server.post("mutate", body).status_code == 200
    dry = open_server.post("branches/merge", {"source": "side", "dry_run": True}).json()
    assert (dry["dry_run"], dry["conflicts_total"], dry["commit"]) == (True, 1, None)
    refused = open_server.post("branches/merge", {"source": "side"})
    assert is_error(refused, 409, "conflict")
    [conflict] = refused.json()["merge_conflicts"]
    older = {"table_key": "node:Person", "row_id": "ada", "kind": "divergent_update"}
    newer = {"entity_kind": "node", "type_name": "Person", "entity_id": "ada"}
    assert {**older, **newer}.items() <= conflict.items()
    assert open_server.post("branches/conflicts", {"source": "side"}).json()["merge_conflicts"] == [conflict]
    resolved = {"source": "side", "resolve": [{**conflict, "take": "theirs"}]}
    assert open_server.post("branches/merge", resolved).json()["outcome"] == "merged"
    assert open_server.post("branches/merge", {"source": "side"}).json()["outcome"] == "already_up_to_date"


def test_deprecated_routes_name_their_successors(open_server: InProcess) -> None:
    calls = {
        "read": ({"query_source": PEOPLE}, "query"),
        "change": ({"query_source": ADD, "query_name": "add", "params": {"name": "x"}}, "mutate"),
        "ingest": ({"data": LINE}, "load"),
    }
    for path, (body, successor) in calls.items():
        answer = open_server.post(path, body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["deprecation"] == "true"
        assert answer.headers["link"] == f'<{successor}>; rel="successor-version"'
        assert "deprecation" not in open_server.get("schema").headers


def test_conditional_writes(open_server: InProcess) -> None:
    head = open_server.post("query", {"query": PEOPLE}).json()["graph_commit_id"]
    body = {"query": ADD, "params": {"name": "x"}}
    condition = {"Omnigraph-If-Graph-Commit": head}
    assert is_error(open_server.post("mutate", body, headers=condition), 400, "bad_request")
    assert is_error(open_server.post("mutate/if-graph-commit", body), 400, "bad_request")
    assert open_server.post("mutate/if-graph-commit", body, headers=condition).status_code == 200
    late = open_server.post("mutate/if-graph-commit", body, headers=condition)
    assert is_error(late, 412, None)
    assert late.json()["precondition_failure"]["expected"] == head
    stored = open_server.post("queries/add/if-graph-commit", {"params": {"name": "y"}}, headers=condition)
    assert is_error(stored, 412, None)
    read = open_server.post("queries/people/if-graph-commit", {}, headers=condition)
    assert is_error(read, 400, "bad_request")


def test_stored_queries_are_listed_and_run(open_server: InProcess) -> None:
    listed = {query["name"]: query for query in open_server.get("queries").json()["queries"]}
    assert list(listed) == ["add", "people", "person"]
    assert listed["people"] == {
        "name": "people",
        "tool_name": "people",
        "description": "Everybody",
        "instruction": "Ask often",
        "mutation": False,
        "params": [],
    }
    assert listed["person"]["params"] == [
        {"name": "name", "kind": "string", "nullable": False},
        {"name": "limit_age", "kind": "bigint", "nullable": True},
    ]
    assert listed["add"]["mutation"] is True
    plain = open_server.post("query", {"query": PEOPLE}).json()
    for content in (None, b"", b"null", b"{}"):
        headers = {"Content-Type": "application/json"} if content else {}
        assert open_server.ask("POST", "queries/people", content=content, headers=headers).json() == plain
    wrong = open_server.post("queries/add", {"params": {"name": "n"}, "expect_mutation": False})
    assert is_error(wrong, 400, "bad_request")
    assert wrong.json()["error"] == "'add' is a mutation — use omnigraph mutate add"
    assert is_error(open_server.post("queries/add", {"snapshot": "1", "params": {"name": "n"}}), 400, "bad_request")
    assert is_error(open_server.post("queries/person", {}), 400, "bad_request")
    assert open_server.post("queries/add", {"params": {"name": "n"}}).json()["affected_nodes"] == 1
    assert is_error(open_server.post("queries/none"), 404, "not_found")


def test_blobs_have_ranges_tags_and_heads(open_server: InProcess) -> None:
    whole = open_server.get(BLOB)
    assert (whole.status_code, whole.content) == (200, b"hello world")
    assert whole.headers["accept-ranges"] == "bytes"
    tag = whole.headers["etag"]
    head = open_server.ask("HEAD", BLOB, headers={"Range": "bytes=0-1"})
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "11", b"")

    def ranged(text: str, **headers: str) -> tuple[int, bytes]:
        answer = open_server.get(BLOB, headers={"Range": text, **headers})
        return answer.status_code, answer.content

    assert ranged("bytes=0-4") == (206, b"hello")
    assert ranged("bytes=6-") == (206, b"world")
    assert ranged("bytes=-3") == (206, b"rld")
    assert ranged("bytes=0-999") == (206, b"hello world")
    assert ranged(f"Bytes=6-{2**63 + 5}") == (206, b"world")
    assert ranged(f"bytes={2**63}-")[0] == 416
    for odd in ("bytes=0-1,3-4", "bytes=x", "lines=0-1", "bytes=5-2", "bytes=-"):
        assert ranged(odd) == (200, b"hello world")
    assert ranged("bytes=0-4", **{"If-Range": tag}) == (206, b"hello")
    assert ranged("bytes=0-4", **{"If-Range": '"other"'}) == (200, b"hello world")
    outside = open_server.get(BLOB, headers={"Range": "bytes=11-"})
    assert is_error(outside, 416, "bad_request")
    assert outside.headers["content-range"] == "bytes */11"
    assert open_server.get(BLOB, headers={"If-None-Match": f"W/{tag}"}).status_code == 304
    assert open_server.get(BLOB, headers={"If-Match": tag}).status_code == 200
    assert open_server.get(BLOB, headers={"If-Match": '"x"'}).status_code == 412
    assert is_error(open_server.get(BLOB.replace("bob", "ada")), 404, "not_found")
    assert is_error(open_server.get(BLOB.replace("bob", "nobody")), 404, "not_found")
    assert is_error(open_server.get(BLOB.replace("photo", "age")), 400, "bad_request")
    assert is_error(open_server.get("blob?entity=node"), 400, "bad_request")


def test_a_blob_from_outside_is_refused_where_it_is_not_allowed_and_told_where_it_cannot_be_read(
    serve: Callable[..., InProcess], tmp_path: Path
) -> None:
    depot = tmp_path / "depot"
    depot.mkdir()
    (depot / "there").write_bytes(b"bytes")
    server = serve(external_blobs=(depot.as_uri(),))
    adding = "query q($photo: Blob) { insert Person { name: 'x', photo: $photo } }".replace("'", '"')

    def writes(uri: str) -> list[Any]:
        line = json.dumps({"type": "Person", "data": {"name": "x", "photo": uri}})
        return [
            server.post("load", {"data": line}),
            server.ask("POST", "load/ndjson", content=line, headers=NDJSON),
            server.post("mutate", {"query": adding, "params": {"photo": uri}}),
        ]

    for answer in writes((tmp_path / "elsewhere").as_uri()):
        assert is_error(answer, 400, "bad_request")
    for answer in writes((depot / "gone").as_uri()):
        assert is_error(answer, 424, None)
        assert answer.json()["external_blob_source"] == {"uri": (depot / "gone").as_uri(), "reason": "not_found"}
    assert [answer.status_code for answer in writes((depot / "there").as_uri())] == [200] * 3
    assert server.get(BLOB.replace("bob", "x")).content == b"bytes"


def test_a_blob_that_lies_elsewhere_is_pointed_at_and_never_fetched(
    serve: Callable[..., InProcess], tmp_path: Path
) -> None:
    (tmp_path / "photo").write_bytes(b"bytes")
    uri = (tmp_path / "photo").as_uri()
    server = serve(external_blobs=(tmp_path.as_uri(),))
    data = server.post("export", {}).text.replace("base64:aGVsbG8gd29ybGQ=", uri)
    assert server.ask("POST", "load/ndjson?mode=overwrite", content=data, headers=NDJSON).status_code == 200
    for method in ("GET", "HEAD"):
        answer = server.ask(method, BLOB, headers={"Range": "bytes=0-1"})
        assert (answer.status_code, answer.headers["location"], answer.content) == (302, uri, b"")
        assert answer.headers["cache-control"] == "no-store"


def test_changes_of_a_commit_come_by_pages(open_server: InProcess) -> None:
    data = "".join(json.dumps({"type": "City", "data": {"name": f"c{at}"}}) + "\n" for at in range(5))
    commit = open_server.post("load", {"data": data}).json()["commit"]
    whole = open_server.get(f"commits/{commit}/changes").json()
    assert whole["cause"]["graph_commit_id"] == commit
    assert whole["cause"]["authored_branch"] == "main"
    assert [change["op"] for change in whole["changes"]] == ["insert"] * 5
    assert "next_page_token" not in whole
    found, token = [], ""
    for _ in range(3):
        part = open_server.get(f"commits/{commit}/changes?limit=2{token}").json()
        found += part["changes"]
        token = f"&page_token={part.get('next_page_token')}"
    assert found == whole["changes"]
    assert is_error(open_server.get(f"commits/{commit}/changes?page_token=x"), 400, "bad_request")
    assert is_error(open_server.get(f"commits/{commit}/changes?limit=9000"), 413, "bad_request")
    assert is_error(open_server.get(f"commits/{commit}/changes?limit=0"), 400, "bad_request")
    assert open_server.get(f"commits/{commit}/changes?op=delete").json()["changes"] == []


def test_headers_every_answer_has(open_server: InProcess) -> None:
    for path in ("/healthz", "schema", "nowhere"):
        answer = open_server.get(path, headers={"X-Request-Id": "mine-1", "Omnigraph-Http-Api": "0.13"})
        assert answer.headers["x-request-id"] == "mine-1"
        assert answer.headers["omnigraph-http-api"] == "0.13"
        assert len(open_server.get(path, headers={"X-Request-Id": "a b"}).headers["x-request-id"]) == 26
        assert "access-control-allow-origin" not in open_server.get(path, headers={"Origin": "http://x"}).headers


def test_cors_is_for_the_origins_that_are_named(serve: Callable[..., InProcess]) -> None:
    server = serve(settings=Settings(cors_origins=("http://app",)), access=Access(Tokens.of(ACTORS)))
    asked = {"Origin": "http://app", "Access-Control-Request-Method": "POST"}
    assert server.ask("OPTIONS", "query", headers=asked).headers["access-control-allow-origin"] == "http://app"
    assert "access-control-allow-origin" not in server.get("schema", headers={"Origin": "http://other"}).headers
    assert server.get("schema", headers={"Origin": "http://app"}).headers["access-control-allow-origin"] == "http://app"


def test_metrics_count_by_route_when_they_are_on(serve: Callable[..., InProcess]) -> None:
    assert is_error(serve().get("/metrics"), 404, "not_found")
    server = serve(settings=Settings(metrics=True))
    server.get("commits/secret-id")
    text = server.get("/metrics").text
    assert 'route="/graphs/{graph_id}/commits/{commit_id}",status="404"' in text
    assert "secret-id" not in text


@pytest.mark.parametrize("path", ["/graphs%2Fdefault", "/graphs%2Fdefault/schema", "/%67raphs%2Fx/default/schema"])
def test_a_slash_that_is_encoded_divides_nothing(open_server: InProcess, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        assert is_error(open_server.ask(method, path), 404, "not_found")


def test_a_web_page_may_send_and_read_every_header_there_is(serve: Callable[..., InProcess]) -> None:
    server = serve(settings=Settings(cors_origins=("http://app",)))
    asked = {"Origin": "http://app", "Access-Control-Request-Method": "POST"}
    wanted = "omnigraph-if-graph-commit, range, if-match, if-none-match, if-range, idempotency-key, x-request-id"
    allowed = server.ask("OPTIONS", "mutate", headers={**asked, "Access-Control-Request-Headers": wanted})
    assert allowed.status_code == 200
    told = server.get("/healthz", headers={"Origin": "http://app"}).headers["access-control-expose-headers"].lower()
    document = server.server.openapi()["paths"].values()
    named = {
        each["name"].lower()
        for operations in document
        for operation in operations.values()
        for each in operation.get("parameters", ())
        if each["in"] == "header"
    }
    assert named <= {name.lower() for name in CORS_ASKED}
    answer = server.post("query", {"query": PEOPLE})
    blob = server.get(BLOB, headers={"Range": "bytes=0-1"})
    own = {name for found in (answer, blob) for name in found.headers if name.startswith(("omnigraph-", "content-r"))}
    assert own
    assert own <= set(told.split(", "))


def test_a_preflight_request_that_is_refused_is_refused_in_our_shape(serve: Callable[..., InProcess]) -> None:
    server = serve(settings=Settings(cors_origins=("http://app",)))
    asked = {"Origin": "http://other", "Access-Control-Request-Method": "POST"}
    refused = server.ask("OPTIONS", "query", headers=asked)
    assert is_error(refused, 400, "bad_request")
    assert "access-control-allow-origin" not in refused.headers


def test_a_blob_at_a_place_with_any_letters_is_pointed_at(serve: Callable[..., InProcess], tmp_path: Path) -> None:
    (tmp_path / "\u65e5 1%.jpg").write_bytes(b"bytes")
    server = serve(external_blobs=(tmp_path.as_uri(),))
    uri = f"{tmp_path.as_uri()}/\u65e5%201%25.jpg"
    data = server.post("export", {}).text.replace("base64:aGVsbG8gd29ybGQ=", uri)
    loaded = server.ask("POST", "load/ndjson?mode=overwrite", content=data.encode(), headers=NDJSON)
    assert loaded.status_code == 200, loaded.text
    answer = server.get(BLOB)
    assert (answer.status_code, answer.headers["location"]) == (302, f"{tmp_path.as_uri()}/%E6%97%A5%201%25.jpg")


@pytest.mark.parametrize("name", ["a" * 201, "a/" * 80 + "a"])
def test_a_name_that_no_file_could_have_is_refused_before_anything_is_looked_for(
    open_server: InProcess, name: str
) -> None:
    there = quote(name, safe="")
    for path in (f"snapshot?branch={there}", f"commits?branch={there}", f"branches/{there}", f"changes?branch={there}"):
        assert is_error(open_server.get(path), 400, "bad_request")
    for path, body in (
        ("query", {"query": PEOPLE, "branch": name}),
        ("mutate", {"query": ADD, "params": {"name": "x"}, "branch": name}),
        ("load", {"data": LINE, "branch": name, "from": "main"}),
        ("branches", {"name": name}),
        ("branches/merge", {"source": name}),
        ("tags", {"name": name}),
    ):
        assert is_error(open_server.post(path, body), 400, "bad_request")
    assert is_error(open_server.ask("DELETE", f"branches/{there}"), 400, "bad_request")
    assert is_error(open_server.ask("DELETE", f"tags/{there}"), 404, "not_found")
    assert is_error(open_server.get(f"commits/{'b' * 5_000}"), 404, "not_found")


def test_the_longest_name_of_a_branch_and_of_a_tag_can_be_used(open_server: InProcess) -> None:
    branch, tag = "a" * 200, "b" * 200
    assert open_server.post("branches", {"name": branch}, headers={"Idempotency-Key": "k"}).status_code == 200
    assert open_server.post("mutate", {"query": ADD, "params": {"name": "x"}, "branch": branch}).status_code == 200
    assert open_server.post("tags", {"name": tag, "branch": branch}).status_code == 200
    assert open_server.ask("DELETE", f"tags/{tag}").status_code == 200
    assert open_server.ask("DELETE", f"branches/{branch}").status_code == 200


@pytest.mark.parametrize(
    "moment",
    ["0" * 5_000, "9" * 25, "manifest:main:v" + "9" * 25, "manifest:../../x:v1", "manifest:" + "a" * 5_000 + ":v1"],
    ids=["zeros", "nines", "snapshot", "path", "long"],
)
def test_a_moment_that_cannot_be_is_not_found(open_server: InProcess, moment: str) -> None:
    there = quote(moment, safe="")
    for path in (
        f"commits/{there}",
        f"commits/{there}/changes",
        f"changes?start=after:{there}",
        f"diff?from={there}&to=1",
    ):
        assert open_server.get(path).status_code in (400, 404), path
    for path, body in (
        ("query", {"query": PEOPLE, "snapshot": moment}),
        ("branches", {"name": "x", "at": moment}),
        ("tags", {"name": "x", "at": moment}),
        ("revert", {"commit": moment}),
    ):
        assert open_server.post(path, body).status_code in (400, 404), path
    for named in ("expect_source", "expect_target"):
        assert open_server.post("branches/merge", {"source": "main", named: moment}).status_code < 500
