"""A writer of another machine that stops past its lease, is taken over, and goes on: it does no harm, on any store."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.concurrency.elsewhere import stopped_writer
from tests.contract.s3_server import BUCKET, storage_options

from omnigraph import failpoints
from omnigraph.engine.recovery import audit
from omnigraph.engine.recovery.decide import RecoveryKind
from omnigraph.graph import Graph, connect, create
from omnigraph.ids import new_ulid
from omnigraph.testing.crash import check_recovered, content_of

SCHEMA = """
node Company { name: String @key }
node Person { name: String @key }
node Note { text: String }
edge WorksAt: Person -> Company
"""
LATE = """query q() {
  insert Company { name: "late" }
  insert Person { name: "late" }
  insert WorksAt { from: "late", to: "late" }
}"""
FORWARD, BACK = RecoveryKind.ROLLED_FORWARD, RecoveryKind.ROLLED_BACK
LEASE_SECONDS = 1.5

WINDOWS = [
    (failpoints.MUTATION_POST_TABLE_COMMIT, BACK),
    (failpoints.MUTATION_POST_FINALIZE, FORWARD),
    (failpoints.PUBLISH_AFTER_PRECHECK, FORWARD),
    (failpoints.PUBLISH_AFTER_COMMIT, FORWARD),
]


@pytest.fixture(params=["disk", "s3"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Mapping[str, str]]:
    """A root, and the environment that processes need to reach it."""
    if request.param == "disk":
        return str(tmp_path / "graph"), {}
    options = storage_options(request.getfixturevalue("s3_endpoint"))
    environment = {name.upper() if name.startswith("aws_") else f"AWS_{name.upper()}": v for name, v in options.items()}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{new_ulid()}", environment


def note(graph: Graph, text: str) -> None:
    graph.mutate(f'query q() {{ insert Note {{ text: "{text}" }} }}')


@pytest.mark.long
@pytest.mark.parametrize(("stop_at", "kind"), WINDOWS)
def test_a_writer_that_went_silent_and_comes_back_does_no_harm(
    stop_at: str, kind: RecoveryKind, place: tuple[str, Mapping[str, str]], tmp_path: Path
) -> None:
    root, environment = place
    graph = create(root, SCHEMA)
    note(graph, "before")
    began = time.monotonic()
    with stopped_writer(root, LATE, stop_at, tmp_path, lease_seconds=LEASE_SECONDS, options=environment) as writer:
        note(graph, "other tables are not blocked")
        if time.monotonic() - began < LEASE_SECONDS:
            assert audit.rows(graph.context.store) == [], "nobody touches the intent of a living writer"
        time.sleep(LEASE_SECONDS)
        graph.mutate('query q() { insert Company { name: "next" } }')
        [row] = audit.rows(graph.context.store)
        assert (row.kind, row.actor) == (kind, "act-far")
        taken_over = content_of(graph)
        assert ("late" in str(taken_over)) == (kind is FORWARD)
        answer = writer.go_on()
    # Its write was undone, and it began again; or it was finished, and its caller is told of that very commit.
    assert answer["error"] is None, answer
    finished_by_others = kind is FORWARD and stop_at != failpoints.PUBLISH_AFTER_COMMIT
    assert (answer["commit"] == row.commit_id) == finished_by_others
    commits = [commit.graph_commit_id for commit in graph.history.list()]
    assert commits.count(str(answer["commit"])) == 1
    after = content_of(graph)
    assert sum("late" in text for text in after["main/node:Person"]) == 1
    assert sum("late" in text for text in after["main/edge:WorksAt"]) == 1
    assert any("next" in text for text in after["main/node:Company"])
    if kind is FORWARD:
        assert after == taken_over
    check_recovered(root, (after,), audited_before=0)
    note(connect(root), "and the graph goes on")
