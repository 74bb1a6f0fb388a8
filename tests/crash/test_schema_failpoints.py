"""The named windows of a schema change, each both ways: an error on a living handle, and a dead process."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.crash.writes import EVOLVED, MUTATIONS, SCHEMA, SCHEMAS, ApplySchema

from omnigraph import failpoints
from omnigraph.engine.recovery import audit
from omnigraph.engine.recovery.decide import RecoveryKind
from omnigraph.engine.storage import layout
from omnigraph.errors import ConflictError, GraphError
from omnigraph.graph import Graph, connect
from omnigraph.ids import SCHEMA_LOCK_BRANCH
from omnigraph.testing.crash import baseline, check_recovered, content_of, copy_graph, crash_at_failpoint
from omnigraph.testing.failpoints import FailpointPlan, configured

ALL = SCHEMAS["apply a schema with steps of every kind"]
PLAIN = SCHEMAS["apply a schema that changes no table"]
FORWARD, BACK = RecoveryKind.ROLLED_FORWARD, RecoveryKind.ROLLED_BACK

ROWS: list[tuple[str, ApplySchema, str, bool, RecoveryKind | None]] = [
    # window, write, failpoint action prefix, the schema is the new one afterwards, what the audit says
    (failpoints.SCHEMA_HOLDING_LOCK, ALL, "", False, None),
    (failpoints.SCHEMA_POST_TABLE_COMMIT, ALL, "", False, BACK),
    (failpoints.SCHEMA_POST_TABLE_COMMIT, ALL, "2*off->", False, BACK),
    (failpoints.SCHEMA_BEFORE_STAGING, ALL, "", False, BACK),
    (failpoints.SCHEMA_BEFORE_STAGING, PLAIN, "", False, BACK),
    (failpoints.SCHEMA_BETWEEN_STAGING_FILES, ALL, "", False, BACK),
    (failpoints.SCHEMA_BETWEEN_STAGING_FILES, ALL, "1*off->", False, BACK),
    (failpoints.SCHEMA_BETWEEN_STAGING_FILES, PLAIN, "1*off->", False, BACK),
    (failpoints.SCHEMA_AFTER_STAGING, ALL, "", True, FORWARD),
    (failpoints.SCHEMA_AFTER_STAGING, PLAIN, "", True, FORWARD),
    (failpoints.SCHEMA_AFTER_MANIFEST_COMMIT, ALL, "", True, FORWARD),
    (failpoints.SCHEMA_AFTER_MANIFEST_COMMIT, PLAIN, "", True, FORWARD),
    (failpoints.SCHEMA_BETWEEN_RENAMES, ALL, "", True, FORWARD),
    (failpoints.SCHEMA_BETWEEN_RENAMES, ALL, "1*off->", True, FORWARD),
]


def check_settled(root: str | Path, write: ApplySchema, counts: bool, kind: RecoveryKind | None) -> None:
    """The schema files agree, the lock is gone, and the audit says once what happened."""
    graph = connect(root)
    assert graph.schema.source == (write.desired if counts else SCHEMA)
    store = graph.context.store
    assert not store.objects.has(layout.SCHEMA_LOCK)
    assert SCHEMA_LOCK_BRANCH not in store.table_branches(layout.MANIFEST)
    rows = audit.rows(store)
    assert [row.kind for row in rows] == ([kind] if kind else [])
    assert all((row.actor, row.writer_kind) == ("act-eva", "SchemaApply") for row in rows)


def insert_memo(graph: Graph) -> None:
    graph.mutate('query q() { insert Memo { text: "first" } }')


@pytest.mark.long
@pytest.mark.parametrize(("name", "write", "prefix", "counts", "kind"), ROWS)
def test_a_failed_change_is_settled_by_the_next_write_on_the_same_handle(
    name: str, write: ApplySchema, prefix: str, counts: bool, kind: RecoveryKind | None, seeded: Path, scratch: Path
) -> None:
    base = baseline(write, seeded, scratch)
    root = copy_graph(seeded, scratch / "graph")
    graph = connect(root)
    with configured(f"{name}={prefix}1*return") as plan, pytest.raises(GraphError, match=r"injected|unfinished"):
        write.again(graph)
    assert plan.hits(name)
    graph.refresh()
    assert content_of(graph) == (base.once if counts else base.before)
    if counts and write is ALL:
        insert_memo(graph)
    else:
        MUTATIONS["insert a keyless node"].again(graph)
    check_recovered(root, (content_of(graph),))
    check_settled(root, write, counts, kind)
    write.again(connect(root))


@pytest.mark.parametrize(("name", "write", "prefix", "counts", "kind"), ROWS)
def test_a_killed_change_is_settled_by_the_next_open(
    name: str, write: ApplySchema, prefix: str, counts: bool, kind: RecoveryKind | None, seeded: Path, scratch: Path
) -> None:
    base = baseline(write, seeded, scratch)
    root = copy_graph(seeded, scratch / "graph")
    assert crash_at_failpoint(write, root, f"{name}={prefix}1*exit")
    reader = connect(root, read_only=True)
    assert content_of(reader) in (base.before, base.once)
    # Whatever is published is read with the schema it was written under.
    people = "query q() { match { $p: Person } return { $p.name as n } order { $p.name } }"
    assert [row["n"] for row in reader.query(people)] == ["ann", "bob"]
    check_recovered(root, (base.once if counts else base.before,))
    check_settled(root, write, counts, kind)
    if counts and write is ALL:
        insert_memo(connect(root))
    write.again(connect(root))
    check_recovered(root, (content_of(connect(root)),))


def test_a_live_handle_goes_on_after_another_process_died(seeded: Path, scratch: Path) -> None:
    root = copy_graph(seeded, scratch / "graph")
    graph = connect(root)
    assert crash_at_failpoint(ALL, root, f"{failpoints.SCHEMA_AFTER_STAGING}=1*exit")
    graph.refresh()
    insert_memo(graph)
    check_settled(root, ALL, True, FORWARD)


def test_a_lock_left_by_a_dead_process_does_not_stop_a_live_handle(seeded: Path, scratch: Path) -> None:
    root = copy_graph(seeded, scratch / "graph")
    graph = connect(root)
    assert crash_at_failpoint(ALL, root, f"{failpoints.SCHEMA_HOLDING_LOCK}=1*exit")
    assert graph.context.store.objects.has(layout.SCHEMA_LOCK)
    MUTATIONS["insert a keyless node"].again(graph)
    ALL.again(graph)
    check_settled(root, ALL, True, None)


def test_a_change_in_progress_is_left_alone_by_everybody(seeded: Path, scratch: Path) -> None:
    root = copy_graph(seeded, scratch / "graph")
    graph, other = connect(root), connect(root)
    name = failpoints.SCHEMA_AFTER_STAGING
    plan = FailpointPlan(f"{name}=pause")
    before = failpoints.install(plan)
    try:
        applying = threading.Thread(target=ALL.again, args=(graph,))
        applying.start()
        assert plan.wait_until_reached(name)
        with pytest.raises(ConflictError, match="in progress"):
            MUTATIONS["insert a keyless node"].again(other)
        other.refresh()
        connect(root)
        store = other.context.store
        assert all(store.objects.has(f"{file}.staging") for file in layout.SCHEMA_FILES), "its files are its own"
        assert other.schema.source == SCHEMA
        plan.release(name)
        applying.join(30)
    finally:
        failpoints.install(before)
    insert_memo(other)
    assert other.schema.source == EVOLVED
    check_settled(root, ALL, True, None)
