"""Every route in the words of both generations of clients: each field of each answer."""

from __future__ import annotations

import io
import json

import pyarrow as pa
from tests.server.serving import ADD, PEOPLE, SET_AGE, InProcess

NAMES = ["ada", "bob", 'cy, "x"']


def test_health_says_how_the_server_decides(open_server: InProcess) -> None:
    body = open_server.get("/healthz").json()
    assert body.keys() == {"status", "version", "source_version", "internal_schema_version", "auth"}
    assert (body["status"], body["auth"]) == ("ok", "open")


def test_a_query_answers_rows_and_the_commit_it_read(open_server: InProcess) -> None:
    answer = open_server.post("query", {"query": PEOPLE})
    assert answer.status_code == 200
    body = answer.json()
    head = open_server.get("commits").json()["commits"][0]["graph_commit_id"]
    assert body["query_name"] == "people"
    assert body["target"] == {"branch": "main", "snapshot": None}
    assert (body["row_count"], body["columns"]) == (3, ["p.name", "p.age"])
    assert [row["p.name"] for row in body["rows"]] == NAMES
    assert body["graph_commit_id"] == head
    at = open_server.post("query", {"query": PEOPLE, "snapshot": head}).json()
    assert at["target"] == {"branch": None, "snapshot": head}
    assert at["rows"] == body["rows"]


def test_rows_come_in_the_format_the_client_accepts(open_server: InProcess) -> None:
    def asked(accept: str) -> bytes:
        answer = open_server.post("query", {"query": PEOPLE}, headers={"Accept": accept})
        assert answer.headers["content-type"].startswith(accept)
        return answer.content

    table = pa.ipc.open_stream(io.BytesIO(asked("application/vnd.apache.arrow.stream"))).read_all()
    assert table.column("p.name").to_pylist() == NAMES
    assert [json.loads(line)["p.name"] for line in asked("application/x-ndjson").splitlines()] == NAMES
    assert asked("text/csv").decode().splitlines()[0] == '"p.name","p.age"'


def test_a_mutation_answers_with_its_commit(open_server: InProcess) -> None:
    body = open_server.post("mutate", {"query": ADD, "params": {"name": "dan"}}).json()
    head = open_server.get("commits").json()["commits"][0]
    assert body == {
        "branch": "main",
        "query_name": "add",
        "affected_nodes": 1,
        "affected_edges": 0,
        "actor_id": None,
        "ids": [{"ids": ["dan"], "more": False}],
        "commit": head["graph_commit_id"],
    }


def test_a_mutation_answers_with_what_it_returns(open_server: InProcess) -> None:
    query = "query q() { match { $p: Person } update $p set { age: coalesce(age, 0) + 1 } return { $p.name } }"
    body = open_server.post("mutate", {"query": query}).json()
    assert body["columns"] == ["p.name"]
    assert [row["p.name"] for row in body["rows"]] == sorted(NAMES)
    assert body["ids"] == [{"ids": sorted(NAMES), "more": False}]


def test_a_message_is_kept_with_the_commit(open_server: InProcess) -> None:
    body = {"query": ADD, "params": {"name": "dan"}, "message": "for the record"}
    assert open_server.post("mutate", body, headers={"Idempotency-Key": "k"}).status_code == 200
    commit = open_server.get("commits").json()["commits"][0]
    assert commit["message"] == "for the record"
    assert "request" in commit["properties"]


def test_a_load_answers_in_both_vocabularies(open_server: InProcess) -> None:
    line = json.dumps({"type": "Person", "data": {"name": "eve"}})
    body = open_server.post("load", {"data": line, "branch": "etl/run", "from": "main"}).json()
    assert (body["branch"], body["base_branch"], body["branch_created"]) == ("etl/run", "main", True)
    assert body["tables"] == [{"table_key": "node:Person", "rows_loaded": 1}]
    assert body["nodes"] == [{"name": "Person", "entities_loaded": 1}]
    assert (body["edges"], body["total_entities"], body["mode"]) == ([], 1, "merge")
    assert body["commit"] == open_server.get("commits?branch=etl/run").json()["commits"][0]["graph_commit_id"]
    assert open_server.ask("DELETE", "branches/etl%2Frun").json()["name"] == "etl/run"


def test_an_export_loads_back(open_server: InProcess) -> None:
    answer = open_server.post("export", {})
    assert answer.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    loaded = open_server.ask(
        "POST",
        "load/ndjson?mode=overwrite",
        content=answer.content,
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert loaded.status_code == 200, loaded.text
    assert loaded.json()["total_entities"] == 6
    assert open_server.post("export", {}).content == answer.content


def test_a_branch_tells_where_it_stands(open_server: InProcess) -> None:
    open_server.post("branches", {"name": "etl/run"})
    commit = open_server.post("mutate", {"query": ADD, "params": {"name": "dan"}, "branch": "etl/run"}).json()["commit"]
    body = open_server.get("branches/etl%2Frun").json()
    assert body.keys() == {"name", "head", "created_from", "created_at_version", "compared_with", "ahead", "behind"}
    assert (body["name"], body["created_from"], body["compared_with"]) == ("etl/run", "main", "main")
    assert (body["ahead"], body["behind"], body["head"]["graph_commit_id"]) == (1, 0, commit)
    assert body["head"]["graph_branch"] == body["head"]["manifest_branch"] == "etl/run"
    back = open_server.get("branches/main", params={"into": "etl/run"}).json()
    assert (back["created_from"], back["ahead"], back["behind"]) == (None, 0, 1)
    first = open_server.get("commits").json()["commits"][0]["graph_commit_id"]
    open_server.post("mutate", {"query": ADD, "params": {"name": "eve"}})
    assert open_server.post("branches", {"name": "past", "at": first}).status_code == 200
    assert open_server.get("branches/past").json()["behind"] == 1
    assert open_server.post("branches", {"name": "never", "at": "nowhere"}).status_code == 404
    assert open_server.ask("DELETE", "branches/past?force=perhaps").status_code == 400
    assert open_server.ask("DELETE", "branches/past?force=true").status_code == 200
    assert open_server.get("branches/gone").status_code == 404
    assert open_server.get("branches/main?into=gone").status_code == 404
    assert open_server.get("branches/main?to=main").status_code == 400
    assert open_server.get("branches/..%2Fetc").status_code == 400


def test_tags_name_commits_until_they_are_deleted(open_server: InProcess) -> None:
    first = open_server.get("commits").json()["commits"][0]
    made = open_server.post("tags", {"name": "v1/a", "message": "shown"}).json()
    assert made.keys() == {
        *("name", "graph_commit_id", "manifest_branch", "manifest_version", "created_at", "actor_id", "message"),
    }
    assert (made["name"], made["graph_commit_id"]) == ("v1/a", first["graph_commit_id"])
    assert (made["manifest_branch"], made["message"], made["actor_id"]) == (None, "shown", None)
    open_server.post("mutate", {"query": ADD, "params": {"name": "dan"}})
    assert (
        open_server.post("tags", {"name": "v0", "at": first["graph_commit_id"][:20]}).json()["graph_commit_id"]
        == (first["graph_commit_id"])
    )
    assert [tag["name"] for tag in open_server.get("tags").json()["tags"]] == ["v0", "v1/a"]
    assert open_server.post("query", {"query": PEOPLE, "snapshot": "v1/a"}).json()["row_count"] == 3
    assert open_server.post("tags", {"name": "v1/a"}).status_code == 409
    assert open_server.post("tags", {"name": "main"}).status_code in (400, 409)
    assert open_server.post("tags", {"name": "x", "at": "nowhere"}).status_code == 404
    assert open_server.post("tags", {"name": "x", "branch": "gone"}).status_code == 404
    gone = open_server.ask("DELETE", "tags/v1%2Fa").json()
    assert (gone["name"], gone["actor_id"]) == ("v1/a", None)
    assert open_server.ask("DELETE", "tags/v1%2Fa").status_code == 404


def test_a_commit_is_undone_by_another(open_server: InProcess) -> None:
    commit = open_server.post("mutate", {"query": ADD, "params": {"name": "dan", "age": 1}}).json()["commit"]
    changed = open_server.post("mutate", {"query": SET_AGE, "params": {"name": "dan", "age": 2}}).json()["commit"]
    refused = open_server.post("revert", {"commit": commit})
    assert refused.status_code == 409
    [conflict] = refused.json()["merge_conflicts"]
    assert (conflict["entity_id"], conflict["kind"]) == ("dan", "delete_vs_update")
    assert open_server.post("revert", {"commit": changed, "expect_head": commit}).status_code == 412
    undone = open_server.post("revert", {"commit": changed, "message": "no"}).json()
    head = open_server.get("commits").json()["commits"][0]
    assert (undone["commit"], undone["target"]) == (head["graph_commit_id"], "main")
    assert (head["message"], head["properties"]["revert.commit"]) == ("no", changed)
    assert open_server.post("revert", {"commit": commit, "strategy": "theirs"}).json()["outcome"] == "merged"
    rows = open_server.post("query", {"query": PEOPLE}).json()["rows"]
    assert "dan" not in [row["p.name"] for row in rows]
    assert open_server.post("revert", {"commit": "nothing"}).status_code == 404
    oldest = open_server.get("commits").json()["commits"][-1]["graph_commit_id"]
    assert open_server.post("revert", {"commit": oldest}).status_code == 400
