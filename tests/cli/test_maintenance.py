"""`verify`, `repair`, `optimize`, `cleanup` and `recovery list`, on a graph that somebody else wrote into."""

import json
import re
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from tests.cli.program import call

import omnigraph
from omnigraph.cli.durations import parse_duration
from omnigraph.errors import InputError

SCHEMA = "node Person { name: String @key }\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "g.omni"
    omnigraph.create(path, schema=SCHEMA).close()
    return path


def write_behind_its_back(root: Path) -> None:
    path = next((root / "nodes").iterdir())
    schema = lance.dataset(str(path)).schema
    lance.write_dataset(pa.table({"id": ["eve"], "name": ["eve"]}, schema=schema), str(path), mode="append")


def test_a_sound_graph_is_clean(root: Path) -> None:
    outcome = call("verify", root)
    assert outcome.code == 0
    assert outcome.out == "clean: 1 branches, 1 tables, 0 rows, 1 commits\n"
    assert json.loads(call("verify", root, "--json").out)["clean"] is True


def test_a_foreign_write_is_found_and_can_be_discarded(root: Path) -> None:
    write_behind_its_back(root)
    verified = call("verify", root)
    assert verified.code == 1
    assert "problem: drift main/node:Person: head 2, published 1" in verified.out
    assert "NOT clean" in verified.out
    preview = call("repair", root)
    assert preview.code == 0
    assert "node:Person: suspicious (published 1, head 2) → preview" in preview.out
    refused = call("repair", "--confirm", root)
    assert refused.code == 1
    assert "→ refused" in refused.out
    discarded = json.loads(call("repair", "--confirm", "--discard", "--json", root).out)
    assert discarded["tables"][0]["action"] == "discarded"
    assert discarded["commit"] is not None
    assert call("verify", root).code == 0
    assert "rows=0" in call("snapshot", root).out


def test_a_foreign_write_can_be_published_by_force(root: Path) -> None:
    write_behind_its_back(root)
    outcome = call("repair", "--confirm", "--force", root)
    assert outcome.code == 0
    assert "→ forced" in outcome.out
    assert outcome.err.startswith("omnigraph repair → ")
    assert "rows=1" in call("snapshot", root).out
    assert "actor=omnigraph:repair:force" in call("commit", "list", root).out


def test_force_needs_confirm(root: Path) -> None:
    outcome = call("repair", "--force", root)
    assert outcome.code == 1
    assert "--confirm" in outcome.err


def test_cleanup_lists_what_would_go_and_then_removes_just_that(root: Path) -> None:
    with omnigraph.connect(root) as graph:
        for name in ("a", "b", "c"):
            graph.load([{"type": "Person", "data": {"name": name}}])
    before = sorted(str(path) for path in root.rglob("*") if "_cache" not in path.parts)
    preview = call("cleanup", "--keep", "1", root)
    assert preview.code == 0
    assert re.fullmatch(r"node:Person: 3 versions of \S+ \S+ to \S+ \S+\n", preview.out)
    (table,) = json.loads(call("cleanup", "--keep", "1", "--json", root).out)["tables"]
    assert sorted(str(path) for path in root.rglob("*") if "_cache" not in path.parts) == before
    done = json.loads(call("cleanup", "--keep", "1", "--confirm", "--json", root).out)["tables"]
    assert [row["old_versions_removed"] for row in done] == [len(table["old_versions"])] == [3]
    assert call("cleanup", "--keep", "1", root).out == "nothing to remove\n"


def test_cleanup_is_a_preview_until_it_is_confirmed(root: Path) -> None:
    preview = call("cleanup", "--keep", "3", root)
    assert (preview.code, preview.out) == (0, "nothing to remove\n")
    assert "pass --confirm" in preview.err
    done = call("cleanup", "--keep", "3", "--older-than", "7d", "--confirm", "--json", root)
    assert done.code == 0
    assert [row["error"] for row in json.loads(done.out)["tables"]] == [None]


def test_cleanup_needs_a_bound(root: Path) -> None:
    outcome = call("cleanup", "--confirm", root)
    assert outcome.code == 1
    assert "--keep" in outcome.err


def test_a_destructive_command_on_a_remote_target_needs_consent() -> None:
    outcome = call("cleanup", "--keep", "3", "--confirm", "s3://bucket/g.omni")
    assert outcome.code == 1
    assert "refused to run a destructive 'cleanup' against s3://bucket/g.omni (not local): pass --yes" in outcome.err


def test_optimize_of_a_fresh_graph_has_nothing_to_do(root: Path) -> None:
    assert call("optimize", "--quiet", root).out == "node:Person: nothing to do\nnothing changed, no commit\n"
    body = json.loads(call("optimize", "--json", root).out)
    assert set(body["tables"][0]) >= {
        "table_key",
        "fragments_removed",
        "fragments_added",
        "committed",
        "skipped",
        "manifest_version",
        "lance_head_version",
        "indexes_built",
        "pending_indexes",
    }


def test_recovery_lists_an_intent_that_was_left_behind(root: Path) -> None:
    assert call("recovery", "list", root).out == "no unfinished writes\n"
    folder = root / "__recovery"
    folder.mkdir(exist_ok=True)
    path = next((root / "nodes").iterdir())
    pin = {
        "table_key": "node:Person",
        "table_path": f"nodes/{path.name}",
        "expected_version": 1,
        "post_commit_pin": 2,
        "table_branch": None,
    }
    (folder / "01ARZ3NDEKTSV4RRFFQ69G5FAV.json").write_text(
        json.dumps(
            {
                "schema_version": 2,
                "operation_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
                "started_at": "1718755200000000",
                "branch": None,
                "actor_id": "ana",
                "writer_kind": "Mutation",
                "tables": [pin],
            }
        )
    )
    listed = call("recovery", "list", root)
    assert listed.out == "01ARZ3NDEKTSV4RRFFQ69G5FAV Mutation branch=main tables=node:Person\n"
    (intent,) = json.loads(call("recovery", "list", "--json", root).out)["intents"]
    assert intent["actor_id"] == "ana"


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90", timedelta(seconds=90)),
        ("5s", timedelta(seconds=5)),
        ("3m", timedelta(minutes=3)),
        ("12h", timedelta(hours=12)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
    ],
)
def test_spans_of_time(text: str, span: timedelta) -> None:
    assert parse_duration(text) == span


@pytest.mark.parametrize("text", ["", "d", "-1d", "1.5h", "3 days", "9" * 30])
def test_what_is_no_span_of_time(text: str) -> None:
    with pytest.raises(InputError):
        parse_duration(text)
