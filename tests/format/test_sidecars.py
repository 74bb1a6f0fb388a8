"""Sidecars of earlier formats are resolved by the rules they were written under; newer ones are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.engine.recovery.handwriter import COMPANY, PERSON, SCHEMA, names_in

from omnigraph.engine.commit.drift import check
from omnigraph.engine.recovery import RecoveryContext, audit, heal
from omnigraph.engine.recovery.decide import Action, RecoveryKind
from omnigraph.engine.storage.staged import stage_changes
from omnigraph.errors import DriftError, FormatError
from omnigraph.graph import Graph, connect, create
from omnigraph.ids import MAIN, TableKey

HERE = Path(__file__).parent / "sidecars"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return create(tmp_path / "graph", SCHEMA)


@pytest.fixture
def ctx(graph: Graph) -> RecoveryContext:
    return graph.context.recovery


def leave(ctx: RecoveryContext, name: str) -> str:
    text = (HERE / f"{name}.json").read_text()
    operation_id = str(json.loads(text)["operation_id"])
    ctx.store.objects.write_text(f"__recovery/{operation_id}.json", text)
    return operation_id


def move(ctx: RecoveryContext, key: TableKey, *names: str) -> None:
    """Commit rows the way releases without transaction identity did: one version a name, no properties."""
    for name in names:
        base = ctx.store.open(ctx.manifest.snapshot(MAIN).entry(key).path)
        rows = base.schema.empty_table().from_pydict({"id": [name], "name": [name]})
        staged = stage_changes(base, new_rows=rows)
        assert staged is not None
        ctx.store.commit(base, staged, {})


def test_a_v1_merge_is_finished_however_many_commits_it_made(ctx: RecoveryContext) -> None:
    operation_id = leave(ctx, "v1_branch_merge")
    move(ctx, PERSON, "ann", "bob")
    [resolution] = heal(ctx)
    assert resolution.action is Action.ROLL_FORWARD
    assert names_in(ctx, PERSON) == ["ann", "bob"]
    [row] = audit.rows(ctx.store)
    assert (row.operation_id, row.kind) == (operation_id, RecoveryKind.ROLLED_FORWARD)
    commit = ctx.manifest.history.find(row.commit_id)
    assert commit.merged_parent_commit_id == "01J0SOURCE0000000000000000"


def test_a_v1_mutation_of_one_commit_is_finished(ctx: RecoveryContext) -> None:
    leave(ctx, "v1_mutation")
    move(ctx, PERSON, "ann")
    [resolution] = heal(ctx)
    assert resolution.action is Action.ROLL_FORWARD
    assert names_in(ctx, PERSON) == ["ann"]


def test_a_v1_mutation_of_two_commits_is_deferred_by_heal_and_undone_by_open(ctx: RecoveryContext) -> None:
    leave(ctx, "v1_mutation")
    move(ctx, PERSON, "ann", "bob")
    assert [resolution.action for resolution in heal(ctx)] == [Action.DEFER]
    with pytest.raises(DriftError, match="a pending recovery sidecar requires rollback"):
        check(ctx, MAIN, ctx.manifest.snapshot(MAIN).entries.values())
    reopened = connect(ctx.store.root).context.recovery
    assert reopened.intents.list() == []
    assert names_in(reopened, PERSON) == []
    [row] = audit.rows(reopened.store)
    assert [(o.from_version, o.to_version) for o in row.outcomes] == [(3, 1)]
    check(reopened, MAIN, reopened.manifest.snapshot(MAIN).entries.values())


def test_a_confirmed_v2_merge_is_finished(ctx: RecoveryContext) -> None:
    leave(ctx, "v2_branch_merge")
    move(ctx, PERSON, "ann", "bob")
    [resolution] = heal(ctx)
    assert resolution.action is Action.ROLL_FORWARD
    assert names_in(ctx, PERSON) == ["ann", "bob"]


def test_a_v2_merge_that_is_not_where_it_was_confirmed_is_undone_by_open(ctx: RecoveryContext) -> None:
    leave(ctx, "v2_branch_merge")
    move(ctx, PERSON, "ann")
    assert [resolution.action for resolution in heal(ctx)] == [Action.DEFER]
    assert names_in(connect(ctx.store.root).context.recovery, PERSON) == []


def test_a_v2_load_with_one_of_two_tables_written_is_undone_whole_by_open(ctx: RecoveryContext) -> None:
    leave(ctx, "v2_load")
    move(ctx, PERSON, "ann")
    assert [resolution.action for resolution in heal(ctx)] == [Action.DEFER]
    reopened = connect(ctx.store.root).context.recovery
    assert names_in(reopened, PERSON) == names_in(reopened, COMPANY) == []
    [row] = audit.rows(reopened.store)
    assert (row.kind, row.actor) == (RecoveryKind.ROLLED_BACK, "act-bob")


def test_a_v2_load_that_was_published_is_only_recorded(ctx: RecoveryContext) -> None:
    move(ctx, PERSON, "ann")
    move(ctx, COMPANY, "acme")
    leave(ctx, "v2_load")
    heal(ctx)
    assert len(audit.rows(ctx.store)) == 1
    leave(ctx, "v2_load")
    assert [resolution.action for resolution in heal(ctx)] == [Action.STALE]
    assert len(audit.rows(ctx.store)) == 1


@pytest.mark.parametrize("name", ["v99", "corrupt"])
def test_a_newer_or_corrupt_sidecar_stops_writers_but_not_readers(ctx: RecoveryContext, name: str) -> None:
    if name == "corrupt":
        ctx.store.objects.write_text("__recovery/01CORRUPT.json", '{"schema_version": 2, "tables": ')
    else:
        leave(ctx, name)
    kept = ctx.store.objects.list_dir("__recovery")
    with pytest.raises(FormatError, match="upgrade" if name == "v99" else "corrupt"):
        heal(ctx)
    with pytest.raises(FormatError):
        connect(ctx.store.root)
    assert connect(ctx.store.root, read_only=True).snapshot().entries
    assert ctx.store.objects.list_dir("__recovery") == kept
