"""A write as a value: what becomes of a `CommitRequest`, whoever has made it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.engine.commit.kinds import KINDS, MERGE, MUTATION, REPAIR
from omnigraph.engine.commit.path import commit, commit_once
from omnigraph.engine.commit.request import (
    CommitRequest,
    Requirements,
    Step,
    TableCommit,
    TablePointer,
    intent_of,
)
from omnigraph.engine.commit.stale import StaleWrite
from omnigraph.engine.coordination.intent import WriterKind
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.staged import StagedWrite, stage_changes
from omnigraph.engine.storage.transactions import OPERATION_ID, STEP
from omnigraph.errors import ConflictError, InternalError, StorageError
from omnigraph.ids import MAIN, TableKey

SCHEMA = "node Person { name: String @key  age: I64? }\nnode City { name: String @key }"
PERSON, CITY = TableKey("node:Person"), TableKey("node:City")


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    graph = omnigraph.create(str(tmp_path / "g"), SCHEMA)
    graph.mutate('query q() { insert Person { name: "ann", age: 1 } insert City { name: "rome" } }')
    return graph


def rows(base: TableHandle, *names: str) -> pa.Table:
    columns = {
        field.name: list(names) if field.name in ("id", "name") else [None] * len(names) for field in base.schema
    }
    return pa.table(columns, schema=base.schema)


def adding(*names: str) -> Step:
    def stage(base: TableHandle) -> StagedWrite | None:
        return stage_changes(base, new_rows=rows(base, *names)) if names else None

    return stage


def on(graph: omnigraph.Graph, key: TableKey, *steps: Step) -> TableCommit:
    snapshot = graph.snapshot()
    return TableCommit(snapshot.entry(key), steps, key, snapshot.open(key))


def names(graph: omnigraph.Graph, key: TableKey) -> list[str]:
    return sorted(graph.snapshot().open(key).scan(["name"]).column("name").to_pylist())


def test_a_table_may_be_committed_to_twice_in_one_write(graph: omnigraph.Graph) -> None:
    recovery, before = graph.context.recovery, graph.snapshot()
    table = on(graph, PERSON, adding("bob", "cid"), adding("dan"))
    done = commit(recovery, CommitRequest(MERGE, MAIN, before, (table,), actor="act-mia"))
    entry, was = done.snapshot.entry(PERSON), before.entry(PERSON)
    assert (entry.version, entry.row_count) == (was.version + 2, 4)
    assert names(graph, PERSON) == ["ann", "bob", "cid", "dan"]
    assert recovery.intents.list() == []
    commits = recovery.store.transactions(was.path, None, after=was.version, upto=entry.version)
    assert [each.properties[STEP] for each in commits] == ["1", "2"]
    assert len({each.properties[OPERATION_ID] for each in commits}) == 1
    assert done.snapshot.state.commits[done.commit_id].actor_id == "act-mia"


def test_a_failure_between_two_commits_of_a_table_leaves_neither(graph: omnigraph.Graph) -> None:
    recovery, before = graph.context.recovery, graph.snapshot()

    def fail(base: TableHandle) -> StagedWrite | None:
        raise StorageError("no answer", kind="unavailable")

    tables = (on(graph, CITY, adding("oslo")), on(graph, PERSON, adding("bob"), fail))
    with pytest.raises(StorageError, match="no answer"):
        commit(recovery, CommitRequest(MERGE, MAIN, before, tables))
    assert (names(graph, PERSON), names(graph, CITY)) == (["ann"], ["rome"])
    assert recovery.intents.list() == []
    graph.mutate('query q() { insert Person { name: "eve" } }')
    assert names(graph, PERSON) == ["ann", "eve"]


def test_a_step_that_turns_out_to_be_nothing_is_left_out_only_where_the_kind_allows_it(graph: omnigraph.Graph) -> None:
    recovery = graph.context.recovery
    twice = on(graph, PERSON, adding("bob"), adding())
    done = commit(recovery, CommitRequest(MERGE, MAIN, graph.snapshot(), (twice,)))
    assert done.tables[PERSON].head.version == twice.entry.version + 1
    again = on(graph, PERSON, adding("cid"), adding())
    with pytest.raises(InternalError, match="not staged"):
        commit(recovery, CommitRequest(MUTATION, MAIN, graph.snapshot(), (again,)))
    assert names(graph, PERSON) == ["ann", "bob"]


def test_an_outdated_request_is_stale_and_leaves_nothing(graph: omnigraph.Graph) -> None:
    recovery, before = graph.context.recovery, graph.snapshot()
    table = on(graph, PERSON, adding("bob"))
    graph.mutate('query q() { insert Person { name: "eve" } }')
    with pytest.raises(StaleWrite):
        commit(recovery, CommitRequest(MUTATION, MAIN, before, (table,)))
    with pytest.raises(ConflictError):
        commit_once(recovery, CommitRequest(MUTATION, MAIN, before, (table,)))
    strict = Requirements(strict=frozenset({PERSON}))
    with pytest.raises(ConflictError):
        commit(recovery, CommitRequest(MUTATION, MAIN, before, (table,), requires=strict))
    assert (names(graph, PERSON), recovery.intents.list()) == (["ann", "eve"], [])


def test_a_table_that_was_only_read_makes_a_request_stale(graph: omnigraph.Graph) -> None:
    before = graph.snapshot()
    table = on(graph, PERSON, adding("bob"))
    requires = Requirements(read_set={CITY: before.entry(CITY).version})
    graph.mutate('query q() { insert City { name: "oslo" } }')
    with pytest.raises(StaleWrite):
        commit(graph.context.recovery, CommitRequest(MUTATION, MAIN, before, (table,), requires=requires))


def test_a_pointer_is_published_without_an_intent_or_a_commit(graph: omnigraph.Graph) -> None:
    recovery, before = graph.context.recovery, graph.snapshot()
    entry = before.entry(CITY)
    staged = adding("oslo")
    assert callable(staged)
    found = staged(before.open(CITY))
    assert found is not None
    head = recovery.store.commit(before.open(CITY), found, {})
    request = CommitRequest(REPAIR, MAIN, before, pointers=(TablePointer(entry, head.version, None, 2),))
    assert not request.has_effects
    with pytest.raises(InternalError, match="only publishes"):
        intent_of(request)
    done = commit(recovery, request)
    assert (done.tables, done.snapshot.entry(CITY).row_count) == ({}, 2)
    with pytest.raises(StaleWrite):
        commit(recovery, request)


def test_the_intent_names_all_that_the_request_is_about_to_do(graph: omnigraph.Graph) -> None:
    before = graph.snapshot()
    person = before.entry(PERSON)
    renamed = TableCommit(person, (adding("bob"), adding("cid")), TableKey("node:Human"), before.open(PERSON))
    gone = TableCommit(before.entry(CITY), (adding("oslo"),), None, before.open(CITY))
    demanded = Requirements(head=before.head)
    request = CommitRequest(KINDS[WriterKind.SCHEMA_APPLY], MAIN, before, (renamed, gone), requires=demanded)
    intent = intent_of(request)
    assert [(e.table_key, e.expected_version, e.steps) for e in intent.effects] == [
        (CITY, before.entry(CITY).version, 1),
        (PERSON, person.version, 2),
    ]
    assert [(t.table_key, t.tombstone_version) for t in intent.tombstones] == [
        (CITY, before.entry(CITY).version + 1),
        (PERSON, person.version + 2),
    ]
    [registered] = intent.registrations
    assert (registered.table_key, registered.table_path) == ("node:Human", person.path)
    assert request.expected == {
        CITY: before.entry(CITY).version,
        PERSON: person.version,
        "node:Human": before.state.current_version(TableKey("node:Human")),
    }
    assert intent.expected_head == before.head


def test_a_table_without_anything_staged_is_no_commit(graph: omnigraph.Graph) -> None:
    entry = graph.snapshot().entry(PERSON)
    with pytest.raises(InternalError, match="not staged"):
        TableCommit(entry, (), PERSON, graph.snapshot().open(PERSON))
    with pytest.raises(InternalError, match="not staged"):
        TableCommit(entry, (adding("bob"),), PERSON)
