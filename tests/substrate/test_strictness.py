"""Which commits exclude each other, and the traps around them: what the key fence and the publish rest on."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.fragment import RowIdSequence, write_fragments
from lance.optimize import Compaction
from tests.substrate.lance_tables import (
    commit,
    fenced,
    identities,
    ids_of,
    make,
    rows,
    staged_append,
    staged_delete,
    staged_overwrite,
    upsert,
)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def _emptied_fence(table: LanceDataset) -> Transaction:
    """A write that removes every row of the lowest fragment."""
    return Transaction(table.version, LanceOperation.Update([0], [], [], update_mode="rewrite_rows"))


def _deleted_from_fence(table: LanceDataset) -> Transaction:
    changed = table.get_fragment(0).delete_rows([0])
    return Transaction(table.version, LanceOperation.Update([], [changed], [], update_mode="rewrite_rows"))


def _fence_alone(table: LanceDataset) -> Transaction:
    fence = table.get_fragment(0).metadata
    return Transaction(table.version, LanceOperation.Update([], [fence], [], update_mode="rewrite_rows"))


def _folded(table: LanceDataset) -> Transaction:
    """A rewrite of all fragments as one."""
    done = Compaction.plan(table, {"target_rows_per_fragment": 100}).tasks[0].execute(table)
    fragment = done.new_fragments[0]
    fragment.id = 0
    return Transaction(table.version, LanceOperation.Update([1], [fragment], [], update_mode="rewrite_rows"))


OURS: dict[str, Callable[[LanceDataset], Transaction]] = {
    "insert": lambda table: fenced(table, "new"),
    "update that empties the fence": _emptied_fence,
    "delete from the fence": _deleted_from_fence,
    "fence alone": _fence_alone,
    "fold": _folded,
    "overwrite": lambda table: staged_overwrite(table, "whole"),
}


@pytest.mark.parametrize("second", sorted(OURS))
@pytest.mark.parametrize("first", sorted(OURS))
def test_of_two_writes_from_one_version_the_second_is_always_refused(uri: str, first: str, second: str) -> None:
    table = make(uri, ["a", "b"], ["c"])
    one, two = OURS[first](table), OURS[second](table)
    landed = commit(lance.dataset(uri, version=table.version), one)
    with pytest.raises(CommitConflictError):
        commit(lance.dataset(uri, version=table.version), two)
    assert lance.dataset(uri).version == landed.version == table.version + 1
    assert identities(lance.dataset(uri)) == identities(landed)


@pytest.mark.parametrize("kind", sorted(OURS))
def test_a_write_is_refused_after_a_restore(uri: str, kind: str) -> None:
    table = make(uri, ["a", "b"], ["c"])
    staged = OURS[kind](table)
    commit(lance.dataset(uri), Transaction(table.version, LanceOperation.Restore(1)))
    with pytest.raises(CommitConflictError):
        commit(table, staged)


def test_of_many_racing_threads_exactly_one_commits(uri: str) -> None:
    for kind in ("insert", "overwrite"):
        table = make(f"{uri}-{kind}", ["a", "b"], ["c"])
        staged = [OURS[kind](table) for _ in range(8)]
        handles = [lance.dataset(f"{uri}-{kind}") for _ in staged]

        def attempt(number: int, handles: list[LanceDataset] = handles, staged: list[Transaction] = staged) -> bool:
            try:
                commit(handles[number], staged[number])
            except CommitConflictError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(attempt, range(8))).count(True) == 1
        assert lance.dataset(f"{uri}-{kind}").version == table.version + 1


def test_a_fence_does_not_exclude_a_foreign_append_or_an_index_build(uri: str) -> None:
    table = make(uri, ["a"], ["b"])
    staged = fenced(table, "new")
    index = table.create_index_uncommitted("id", "BTREE", name="id_idx", fragment_ids=[0, 1])
    commit(lance.dataset(uri), staged_append(lance.dataset(uri), "foreign"))
    commit(lance.dataset(uri), Transaction(table.version, LanceOperation.CreateIndex([index], [])))
    assert commit(table, staged).version == table.version + 3, "only the number betrays it"


def test_a_fence_committed_first_makes_an_index_build_strict(uri: str) -> None:
    table = make(uri, ["a"], ["b"])
    rival = fenced(table, "new")
    taken = commit(lance.dataset(uri), _fence_alone(table))
    with pytest.raises(CommitConflictError):
        commit(table, rival)
    index = taken.create_index_uncommitted("id", "BTREE", name="id_idx", fragment_ids=[0, 1])
    built = commit(taken, Transaction(taken.version, LanceOperation.CreateIndex([index], [])))
    assert built.version == taken.version + 1
    assert identities(built) == identities(table)


def test_a_fence_keeps_index_coverage_row_ids_and_row_versions(uri: str) -> None:
    table = make(uri, ["a", "b"], ["c"])
    index = table.create_index_uncommitted("id", "BTREE", name="id_idx", fragment_ids=[0, 1])
    table = commit(table, Transaction(table.version, LanceOperation.CreateIndex([index], [])))
    before = identities(table)
    after = commit(table, _fence_alone(table))
    assert identities(after) == before
    assert set(after.describe_indices()[0].segments[0].fragment_ids) == {0, 1}


def test_retries_of_zero_are_not_compare_and_swap_except_for_an_overwrite(uri: str) -> None:
    table = make(uri, ["a"])
    append, overwrite = staged_append(table, "late"), staged_overwrite(table, "late")
    for name in ("b", "c"):
        commit(lance.dataset(uri), staged_append(lance.dataset(uri), name))
    assert commit(lance.dataset(uri, version=1), append).version == 4
    with pytest.raises(CommitConflictError):
        commit(lance.dataset(uri, version=1), overwrite)


def test_an_overwrite_with_retries_discards_what_others_committed(uri: str) -> None:
    table = make(uri, ["a"])
    overwrite = staged_overwrite(table, "late")
    commit(lance.dataset(uri), staged_append(lance.dataset(uri), "acknowledged"))
    commit(table, overwrite, max_retries=5)
    assert ids_of(lance.dataset(uri)) == ["late"]


def test_an_overwrite_into_a_gap_of_cleaned_versions_reports_success_and_shows_nothing(uri: str) -> None:
    table = make(uri, ["a"])
    stale = lance.dataset(uri)
    overwrite = staged_overwrite(table, "lost")
    for name in ("b", "c", "d"):
        commit(lance.dataset(uri), staged_append(lance.dataset(uri), name))
    lance.dataset(uri).cleanup_old_versions(versions=[2, 3])
    assert commit(stale, overwrite).version == 2
    assert ids_of(lance.dataset(uri)) == ["a", "b", "c", "d"], "hence nothing young is ever cleaned"


def test_cleanup_blinds_a_stale_handle_to_a_conflict(uri: str) -> None:
    table = make(uri, ["a", "b"])
    stale = lance.dataset(uri)
    staged, _ = upsert(stale).execute_uncommitted(rows("a", n=2))
    upsert(lance.dataset(uri)).execute(rows("a", n=1))
    commit(lance.dataset(uri), staged_append(lance.dataset(uri), "c"))
    lance.dataset(uri).cleanup_old_versions(versions=[2])
    commit(stale, staged)
    assert ids_of(lance.dataset(uri)).count("a") == 2
    assert table.version == 1


def test_a_transaction_committed_twice_applies_twice(uri: str) -> None:
    table = make(uri, ["a"])
    append = staged_append(table, "b")
    commit(lance.dataset(uri), append)
    commit(lance.dataset(uri), append)
    assert ids_of(lance.dataset(uri)) == ["a", "b", "b"]


def test_a_write_staged_on_a_branch_must_not_be_committed_by_the_root(uri: str) -> None:
    table = make(uri, ["a"])
    branch = table.create_branch("side")
    staged = staged_append(branch, "b")
    wrong = LanceDataset.commit(uri, staged, max_retries=0)
    with pytest.raises((OSError, ValueError)):
        wrong.to_table()


def test_carried_row_ids_of_rows_that_are_new_do_not_advance_the_counter(uri: str) -> None:
    table = make(uri, ["a"])
    added = write_fragments(rows("b"), table, mode="append")
    added[0].row_id_meta = RowIdSequence([50]).to_inline_metadata()
    operation = LanceOperation.Update([], [table.get_fragment(0).metadata], added, update_mode="rewrite_rows")
    table = commit(table, Transaction(table.version, operation))
    table = commit(table, staged_append(table, *[f"r{number}" for number in range(60)]))
    found = [row_id for row_id, _, _ in identities(table).values()]
    assert found.count(50) == 2, "row ids are carried only for rows the same transaction removes"


def test_a_schema_without_field_ids_detaches_the_columns_behind_a_dropped_one(uri: str) -> None:
    table = lance.write_dataset(rows("a").append_column("m", [[7]]), uri, enable_stable_row_ids=True)
    table.drop_columns(["n"])
    for schema, expected in ((lance.dataset(uri).schema, [None]), (lance.dataset(uri).lance_schema, [8])):
        table = lance.dataset(uri)
        assert [field.id() for field in table.lance_schema.fields()] == [0, 2]
        added = write_fragments(rows("b").drop_columns(["n"]).append_column("m", [[8]]), table, mode="append")
        after = commit(table, Transaction(table.version, LanceOperation.Overwrite(schema, added)))
        assert after.to_table()["m"].to_pylist() == expected
        commit(after, Transaction(after.version, LanceOperation.Restore(2)))


def test_a_rewritten_fragment_keeps_row_versions_only_under_a_number_it_replaces(uri: str) -> None:
    table = make(uri, ["a", "b"], ["c"])
    before = identities(table)
    assert identities(commit(table, _folded(table))) == before
    renumbered = make(f"{uri}-2", ["a", "b"], ["c"])
    done = Compaction.plan(renumbered, {"target_rows_per_fragment": 100}).tasks[0].execute(renumbered)
    operation = LanceOperation.Update([0, 1], [], done.new_fragments, update_mode="rewrite_rows")
    after = identities(commit(renumbered, Transaction(renumbered.version, operation)))
    assert {key: row_id for key, (row_id, _, _) in after.items()} == {"a": 0, "b": 1, "c": 2}
    assert {updated for _, _, updated in after.values()} == {3}


def test_rows_folded_under_a_number_that_an_index_covers_are_not_found(uri: str) -> None:
    table = make(uri, ["a", "b"], ["c"])
    index = table.create_index_uncommitted("id", "BTREE", name="id_idx", fragment_ids=[0, 1])
    table = commit(table, Transaction(table.version, LanceOperation.CreateIndex([index], [])))
    folded = commit(table, _folded(table))
    assert folded.to_table(filter="id = 'c'").num_rows == 0, "hence only uncovered numbers are kept"
    assert folded.scanner(filter="id = 'c'", use_scalar_index=False).to_table().num_rows == 1


def test_the_two_halves_of_a_mixed_delete_commit_as_one_version(uri: str) -> None:
    table = make(uri, ["a", "b"], ["c"])
    staged = staged_delete(table, 0, [0])
    both = Transaction(
        table.version,
        LanceOperation.Update([1], staged.operation.updated_fragments, [], update_mode="rewrite_rows"),
    )
    assert ids_of(commit(table, both)) == ["b"]
