"""Tables are committed strictly at the version a write was staged on."""

import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.engine.storage.hostile import insert_many
from tests.unit.engine.storage.people import (
    PEOPLE,
    SCHEMA,
    ages,
    delete,
    find,
    identities,
    insert,
    people,
    staged_delete,
    staged_insert,
    staged_update,
    update,
)

from omnigraph.engine.storage import steps
from omnigraph.engine.storage.fragments import keep_row_ids
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.lance_internals.files import version_file
from omnigraph.engine.storage.residual import among_refs
from omnigraph.engine.storage.staged import (
    StagedWrite,
    stage_changes,
    stage_fragments,
    stage_overwrite,
    stage_touch,
    write_fragment_files,
    write_rows,
)
from omnigraph.engine.storage.tables import TableStore
from omnigraph.engine.storage.transactions import OPERATION_ID, STEP
from omnigraph.errors import ConflictError, InternalError, StorageError, VersionReclaimedError

SPAWN = multiprocessing.get_context("spawn")


def _staged(base: TableHandle, kind: str) -> StagedWrite:
    writes = {
        "insert": lambda: staged_insert(base, "new"),
        "update": lambda: staged_update(base, "c", age=9),
        "delete": lambda: staged_delete(base, "d"),
        "overwrite": lambda: stage_overwrite(base, people(["whole"])),
        "touch": lambda: stage_touch(base),
    }
    return writes[kind]()


KINDS = ("insert", "update", "delete", "overwrite", "touch")


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_of_two_writes_from_one_version_one_lands_and_the_other_changes_nothing(
    store: TableStore, table: TableHandle, first: str, second: str
) -> None:
    table = insert(store, insert(store, table, "a", "b"), "c", "d")
    one, two = _staged(table, first), _staged(table, second)
    stale = store.open(PEOPLE)
    landed = store.commit(table, one, {})
    with pytest.raises(ConflictError):
        store.commit(stale, two, {})
    head = store.open(PEOPLE)
    assert head.version == landed.version == table.version + 1
    assert identities(head) == identities(landed)


@pytest.mark.parametrize("kind", ["insert", "overwrite", "touch"])
def test_an_empty_table_is_written_as_strictly(store: TableStore, table: TableHandle, kind: str) -> None:
    staged = [_staged(table, kind), staged_insert(table, "rival")]
    store.commit(table, staged[0], {})
    with pytest.raises(ConflictError):
        store.commit(store.open(PEOPLE, version=1), staged[1], {})
    emptied = store.commit(store.open(PEOPLE), stage_overwrite(store.open(PEOPLE), None), {})
    assert emptied.fragments() == ()
    racers = [staged_insert(emptied, "x"), staged_insert(emptied, "x")]
    store.commit(store.open(PEOPLE), racers[0], {})
    with pytest.raises(ConflictError):
        store.commit(emptied, racers[1], {})
    assert ages(store.open(PEOPLE)) == {"x": 1}


@pytest.mark.long
def test_two_processes_inserting_the_same_keys_leave_each_key_once(store: TableStore, table: TableHandle) -> None:
    names = [f"p{number}" for number in range(12)]
    with ProcessPoolExecutor(3, mp_context=SPAWN) as pool:
        jobs = [pool.submit(insert_many, store.root, names) for _ in range(3)]
        won = [name for job in jobs for name in job.result(timeout=120)]
    assert sorted(won) == sorted(names)
    assert sorted(ages(store.open(PEOPLE))) == sorted(names)


def test_threads_racing_from_one_version_have_one_winner(store: TableStore, table: TableHandle) -> None:
    table = insert(store, table, "a")
    start = threading.Barrier(6)

    def attempt(number: int) -> bool:
        base = store.open(PEOPLE, version=table.version)
        staged = staged_insert(base, "same", age=number)
        start.wait(30)
        try:
            store.commit(base, staged, {})
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        won = list(pool.map(attempt, range(6)))
    assert won.count(True) == 1
    assert ages(store.open(PEOPLE)) == {"a": 1, "same": won.index(True)}


def test_one_commit_carries_inserts_updates_and_deletes(store: TableStore, table: TableHandle) -> None:
    table = insert(store, table, "a", "b", "c", "d")
    before = identities(table)
    updated, row_ids = find(table, "c", "a")
    staged = stage_changes(
        table,
        new_rows=people(["e"], 5),
        updated_rows=people(["c", "a"], 7),
        updated_addresses=updated,
        updated_row_ids=row_ids,
        deleted_addresses=find(table, "b")[0],
    )
    assert staged is not None
    assert (staged.rows_added, staged.rows_removed, staged.row_delta) == (3, 3, 0)
    after = store.commit(table, staged, {})
    assert after.version == table.version + 1
    assert ages(after) == {"a": 7, "c": 7, "d": 1, "e": 5}
    rows = identities(after)
    assert {key: rows[key][:2] for key in "acd"} == {key: before[key][:2] for key in "acd"}
    assert rows["d"] == before["d"]
    assert rows["a"][2] == after.version
    assert after.count_rows() == table.count_rows() + staged.row_delta


def test_nothing_to_do_stages_nothing(store: TableStore, table: TableHandle) -> None:
    assert stage_changes(table) is None
    assert stage_changes(table, new_rows=SCHEMA.empty_table(), deleted_addresses=np.empty(0, np.uint64)) is None
    assert stage_fragments(table, []) is None


def test_staging_alone_is_invisible(store: TableStore, table: TableHandle) -> None:
    table = insert(store, table, "a", "b", "c", "d")
    for kind in KINDS:
        _staged(table, kind)
    fresh = TableStore(store.root).open(PEOPLE)
    assert (fresh.version, identities(fresh)) == (table.version, identities(table))


def test_a_write_staged_on_another_version_is_refused_before_anything_happens(
    store: TableStore, table: TableHandle
) -> None:
    staged = staged_insert(table, "a")
    newer = insert(store, table, "b")
    with pytest.raises(InternalError, match="staged on version 1"):
        store.commit(newer, staged, {})
    assert store.open(PEOPLE).version == newer.version


def test_an_emptied_table_goes_on_with_new_row_ids_and_its_column_numbers(
    store: TableStore, table: TableHandle
) -> None:
    table = insert(store, table, "a", "b")
    numbers = table.field_ids
    table = delete(store, table, "a", "b")
    assert (table.count_rows(), table.fragments()) == (0, ())
    table = insert(store, table, "c")
    assert identities(table)["c"][0] == 2
    assert table.field_ids == numbers
    assert table.schema.equals(SCHEMA, check_metadata=True)


def test_an_overwrite_after_a_column_was_dropped_keeps_every_value(store: TableStore, table: TableHandle) -> None:
    table = insert(store, table, "a")
    table.dataset.drop_columns(["bio"])
    table = store.open(PEOPLE)
    assert table.field_ids == {"id": 0, "age": 2}
    narrow = people(["b"], 7).drop_columns(["bio"])
    table = store.commit(table, stage_overwrite(table, narrow), {})
    assert ages(table) == {"b": 7}
    table = delete(store, table, "b")
    staged = stage_changes(table, new_rows=people(["c"], 8).drop_columns(["bio"]))
    assert staged is not None
    table = store.commit(table, staged, {})
    assert ages(table) == {"c": 8}
    assert table.field_ids == {"id": 0, "age": 2}


def test_fragments_written_elsewhere_are_committed_like_rows(store: TableStore, table: TableHandle) -> None:
    table = insert(store, table, "a", "b")
    before = identities(table)
    addresses, row_ids = find(table, "b")
    [changed] = write_fragment_files(table.uri, people(["b"], 9), SCHEMA)
    fresh = write_fragment_files(table.uri, iter(people(["c", "d"]).to_batches()), SCHEMA)
    staged = stage_fragments(table, [keep_row_ids(changed, row_ids), *fresh], deleted_addresses=addresses)
    assert staged is not None
    table = store.commit(table, staged, {})
    assert ages(table) == {"a": 1, "b": 9, "c": 1, "d": 1}
    assert identities(table)["b"][:2] == before["b"][:2]
    whole = stage_fragments(table, write_fragment_files(table.uri, people(["z"]), SCHEMA), overwrite=True)
    assert whole is not None
    assert (whole.rows_added, whole.rows_removed) == (1, 4)
    assert ages(store.commit(table, whole, {})) == {"z": 1}


def test_a_restore_brings_back_content_and_says_whom_it_undoes(store: TableStore, table: TableHandle) -> None:
    table = insert(store, table, "a")
    before = identities(table)
    store.commit(table, staged_insert(table, "b"), {OPERATION_ID: "op-1", STEP: "1"})
    restored = store.restore(PEOPLE, None, table.version, {OPERATION_ID: "op-1", "omnigraph.compensates": "3"})
    assert restored.version == table.version + 2
    assert identities(restored) == before
    made = store.transactions(PEOPLE, None, after=table.version, upto=restored.version)
    assert [(item.version, item.operation) for item in made] == [(3, "Update"), (4, "Restore")]
    assert [item.properties.get(OPERATION_ID) for item in made] == ["op-1", "op-1"]
    assert store.transactions(PEOPLE, None, after=4, upto=4) == []


def test_the_head_is_found_by_probing_from_a_known_version(store: TableStore, table: TableHandle) -> None:
    for number in range(20):
        table = insert(store, table, f"p{number}")
    for known in (None, 1, 3, 20, 21):
        assert store.head_version(PEOPLE, known=known) == 21
    assert (Path(store.root) / PEOPLE / version_file(21)).is_file()
    assert not (Path(store.root) / PEOPLE / version_file(22)).exists()


def test_pinned_handles_are_shared_until_the_bound(store: TableStore, table: TableHandle) -> None:
    first = store.open_pinned(PEOPLE, branch=None, version=1)
    assert store.open_pinned(PEOPLE, branch=None, version=1) is first
    assert store.open_pinned(PEOPLE, branch=None, version=1, tag="other") is not first
    store.forget()
    assert store.open_pinned(PEOPLE, branch=None, version=1) is not first


def test_a_branch_has_its_own_versions_files_and_head(store: TableStore, table: TableHandle) -> None:
    table = insert(store, table, "a", "b")
    store.residual.create_branch(PEOPLE, "review/one", source=None, version=table.version)
    branch = store.open(PEOPLE, branch="review/one")
    assert (branch.version, ages(branch)) == (table.version, {"a": 1, "b": 1})
    assert branch.uri.endswith("/tree/review/one")
    branch = delete(store, update(store, branch, "a", age=7), "b")
    assert ages(store.open(PEOPLE, branch="review/one", version=branch.version)) == {"a": 7}
    assert ages(store.open(PEOPLE)) == {"a": 1, "b": 1}
    assert store.table_branches(PEOPLE) == ["review/one"]
    assert store.branch_parents(PEOPLE) == {"review/one": None}
    assert store.head_version(PEOPLE, "review/one") == branch.version
    store.residual.delete_branch(PEOPLE, "review/one")
    store.residual.delete_branch(PEOPLE, "review/one")
    with pytest.raises(StorageError):
        store.open(PEOPLE, branch="review/one")


def test_a_branch_that_was_made_again_shows_nothing_of_its_predecessor(store: TableStore, table: TableHandle) -> None:
    table = insert(store, table, "a")
    for name in ("first", "second"):
        store.residual.create_branch(PEOPLE, "side", source=None, version=table.version)
        side = insert(store, store.open(PEOPLE, branch="side"), name)
        assert ages(store.open(PEOPLE, branch="side", version=side.version)) == {"a": 1, name: 1}
        store.residual.delete_branch(PEOPLE, "side")


def test_reads_see_live_rows_in_every_form(store: TableStore, table: TableHandle) -> None:
    table = insert(store, insert(store, table, "a", "b", "c"), "d")
    table = delete(store, table, "b")
    assert table.count_rows() == 3
    assert table.scan(["id"])["id"].to_pylist() == ["a", "c", "d"]
    assert table.scan_batches(["id"]).read_all()["id"].to_pylist() == ["a", "c", "d"]
    assert table.scan(["id"], "age = 1", limit=2).num_rows == 2
    first, second = table.fragments()
    assert (first.physical_rows, first.deleted_rows, first.live_rows) == (3, 1, 2)
    assert second.deletion_key is None
    assert table.read_fragment_columns(first, ["id"])["id"].to_pylist() == ["a", "b", "c"]
    assert table.deleted_offsets(first).tolist() == [1]
    assert table.deleted_offsets(second).tolist() == []
    addresses, _ = find(table, "d", "a", "c")
    assert table.take_addresses(addresses, ["id"])["id"].to_pylist() == ["d", "a", "c"]
    assert table.take_addresses(np.empty(0, np.uint64), ["id"]) == SCHEMA.empty_table().select(["id"])


def test_creating_is_strict_and_leaves_the_first_table_alone(store: TableStore) -> None:
    assert not store.exists(PEOPLE)
    store.create(PEOPLE, SCHEMA, people(["a"]))
    assert store.exists(PEOPLE)
    with pytest.raises(StorageError) as caught:
        store.create(PEOPLE, SCHEMA)
    assert caught.value.kind == "precondition"
    assert ages(store.open(PEOPLE)) == {"a": 1}


def test_of_racing_creators_one_wins(store: TableStore) -> None:
    def attempt(number: int) -> str:
        try:
            TableStore(store.root).create(PEOPLE, SCHEMA, people([f"p{number}"]))
        except StorageError as exc:
            return exc.kind
        return "won"

    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(attempt, range(6)))
    assert sorted(outcomes) == ["precondition"] * 5 + ["won"]
    assert list(ages(store.open(PEOPLE))) == [f"p{outcomes.index('won')}"]


def test_every_created_table_has_the_fixed_options(store: TableStore, table: TableHandle) -> None:
    found = table.dataset
    assert found.has_stable_row_ids
    assert found.data_storage_version == "2.2"
    assert found.config() == {}
    assert found.schema.equals(SCHEMA, check_metadata=True)
    assert isinstance(found.schema.field("id").type, pa.DataType)


def test_stores_of_one_root_are_shared_in_a_process(tmp_path: Path) -> None:
    assert TableStore.at(str(tmp_path)) is TableStore.at(str(tmp_path))
    assert TableStore.at(str(tmp_path)) is not TableStore.at(str(tmp_path / "other"))


def test_what_reads_all_refs_is_asked_again_when_one_of_them_vanishes() -> None:
    answers: list[str | OSError] = [OSError("Not found: t/_refs/branches/gone.json")] * 2
    answers += ["done", OSError("Permission denied"), "not reached"]

    def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert among_refs("listing", ask) == "done"
    with pytest.raises(StorageError, match="listing: Permission denied"):
        among_refs("listing", ask)
    assert answers == ["not reached"]
    answers[:] = [OSError("Not found: t/_refs/branches/gone.json")] * 100
    with pytest.raises(StorageError) as caught:
        among_refs("listing", ask)
    assert caught.value.kind == "not_found"


@pytest.mark.parametrize("kind", KINDS)
def test_a_version_that_was_just_made_says_of_its_columns_what_it_says_when_opened(
    store: TableStore, table: TableHandle, kind: str
) -> None:
    base = insert(store, table, "c", "d")
    facts = [lambda h: h.schema, lambda h: h.field_ids, lambda h: h.column_origins, lambda h: h.first_numbers]
    for fact in facts:
        fact(base)
    made = store.commit(base, _staged(base, kind), {})
    opened = store.open(PEOPLE)
    assert made.version == opened.version == base.version + 1
    assert made.schema.equals(opened.schema, check_metadata=True)
    assert [fact(made) for fact in facts[1:]] == [fact(opened) for fact in facts[1:]]
    assert made.fragments() == opened.fragments()


def test_an_error_that_stops_a_stream_of_rows_goes_on_as_what_it_is(table: TableHandle) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield from people(["new"]).to_batches()
        raise VersionReclaimedError("the version they are read from is gone", table_key=PEOPLE, version=1)

    stream = pa.RecordBatchReader.from_batches(SCHEMA, rows())
    with pytest.raises(VersionReclaimedError, match="they are read from"):
        write_rows(table, stream)


def test_a_branch_that_is_deleted_during_a_cleanup_does_not_make_it_fail(store: TableStore, table: TableHandle) -> None:
    insert(store, insert(store, table, "x"), "y")
    store.residual.create_branch(PEOPLE, "b", source=None, version=2)

    class Deleting:
        """Deletes the branch right after Lance has removed what it could."""

        def before(self, name: str, target: str) -> None:
            pass

        def after(self, name: str, target: str) -> None:
            if name == "cleanup_versions":
                store.residual.delete_branch(PEOPLE, "b")

    previous = steps.observe(Deleting())
    try:
        store.residual.cleanup_versions(PEOPLE, versions=[1, 2])
    finally:
        steps.observe(previous)
    assert store.versions(PEOPLE)[0] == 2, "the branch needed it until then"
