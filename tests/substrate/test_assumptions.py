"""What the engine takes for granted about Lance, S1 to S20, each as it really is.

These run first: when an upgrade changes one of them, this is where it shows. A name ending in "not" marks an assumption
that does not hold and that the engine therefore does without.
"""

import pickle
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation, Transaction
from lance.blob import blob_array, blob_field
from lance.commit import CommitConflictError
from lance.optimize import Compaction
from tests.substrate.lance_tables import (
    commit,
    identities,
    ids_of,
    make,
    rows,
    schema,
    staged_append,
    staged_delete,
    staged_overwrite,
    upsert,
)

from omnigraph.engine.storage.lance_internals.files import file_name


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def test_s1_stable_row_ids_survive_every_operation(uri: str) -> None:
    table = make(uri, ["a", "b"], ["c"])
    before = identities(table)
    table = commit(table, staged_append(table, "d"))
    upsert(table).execute(rows("b", "e", n=1))
    table = lance.dataset(uri)
    table.delete("id = 'c'")
    table.optimize.compact_files()
    table = lance.dataset(uri)
    for key in ("a", "b"):
        assert identities(table)[key][0] == before[key][0]
    branch = table.create_branch("side")
    assert identities(branch) == identities(table)
    table = commit(table, Transaction(table.version, LanceOperation.Overwrite(table.lance_schema, [])))
    assert table.has_stable_row_ids
    table = commit(table, staged_overwrite(table, "z"))
    assert table.has_stable_row_ids
    assert identities(table)["z"][0] > max(row_id for row_id, _, _ in before.values()), "row ids are never reused"


def test_s2_the_key_annotation_stays_and_cannot_be_changed(uri: str) -> None:
    table = make(uri, ["a"])
    table = commit(table, staged_append(table, "b"))
    assert table.schema.field("id").metadata == {b"lance-schema:unenforced-primary-key": b"true"}
    with pytest.raises((OSError, ValueError)):
        table.update_field_metadata({"n": {"lance-schema:unenforced-primary-key": "true"}})
    assert lance.dataset(uri).schema.field("n").metadata is None


def test_s3_without_the_annotation_two_inline_inserts_of_one_key_both_land(uri: str) -> None:
    table = make(uri, ["a"], keyed=False)
    first, second = lance.dataset(uri), lance.dataset(uri)
    assert first.version == second.version == table.version
    upsert(first).execute(rows("new", keyed=False))
    upsert(second).execute(rows("new", keyed=False))
    assert ids_of(lance.dataset(uri)) == ["a", "new", "new"]


def test_s3_with_the_annotation_the_second_inline_insert_of_one_key_is_refused(uri: str) -> None:
    make(uri, ["a"])
    first, second = lance.dataset(uri), lance.dataset(uri)
    upsert(first).execute(rows("new"))
    with pytest.raises(OSError, match="Too many concurrent writers"):
        upsert(second).execute(rows("new"))
    assert ids_of(lance.dataset(uri)) == ["a", "new"]


def test_s4_two_updates_of_one_row_from_one_version_exclude_each_other(uri: str) -> None:
    make(uri, ["a", "b"])
    first, second, third = (lance.dataset(uri) for _ in range(3))
    staged, _ = upsert(third).execute_uncommitted(rows("a", n=3))
    upsert(first).execute(rows("a", n=1))
    with pytest.raises(OSError, match="Too many concurrent writers"):
        upsert(second).execute(rows("a", n=2))
    with pytest.raises(CommitConflictError):
        commit(third, staged)


def test_s5_staging_moves_no_head_and_a_dropped_stage_leaves_no_trace(uri: str) -> None:
    table = make(uri, ["a", "b"], ["c"])
    before = identities(table)
    staged_append(table, "x")
    staged_overwrite(table, "x")
    staged_delete(table, 0, [0])
    upsert(table).execute_uncommitted(rows("a", "x", n=9))
    table.create_index_uncommitted("id", "BTREE", name="id_idx", fragment_ids=[0, 1])
    for task in Compaction.plan(table, {"target_rows_per_fragment": 100}).tasks:
        task.execute(table)
    fresh = lance.dataset(uri)
    assert fresh.version == table.version
    assert identities(fresh) == before
    assert fresh.describe_indices() == []


def test_s6_a_staged_merge_keeps_its_key_filter_not(uri: str) -> None:
    table = make(uri, ["a"])
    first, _ = upsert(table).execute_uncommitted(rows("new"))
    second, _ = upsert(table).execute_uncommitted(rows("new"))
    commit(lance.dataset(uri, version=table.version), first)
    commit(lance.dataset(uri, version=table.version), pickle.loads(pickle.dumps(second)))
    assert ids_of(lance.dataset(uri)) == ["a", "new", "new"], "keyed writes need a fence of our own"


def test_s7_uuid_and_properties_of_a_transaction_read_back_by_version(uri: str) -> None:
    table = make(uri, ["a", "b"])
    operations = [
        staged_append(table, "c").operation,
        staged_delete(table, 0, [0]).operation,
        LanceOperation.Overwrite(table.lance_schema, []),
        LanceOperation.Restore(1),
    ]
    for number, operation in enumerate(operations):
        properties = {"omnigraph.operation_id": f"op{number}", "omnigraph.step": "1"}
        transaction = Transaction(table.version, operation, f"uuid-{number}", properties)
        table = commit(table, transaction)
        found = lance.dataset(uri).read_transaction(table.version)
        assert (found.uuid, found.transaction_properties) == (f"uuid-{number}", properties)
        assert type(found.operation) is type(operation)


def test_s7_the_transaction_is_kept_inside_the_version(uri: str, tmp_path: Path) -> None:
    table = make(uri, ["a"])
    table = commit(table, Transaction(table.version, staged_append(table, "b").operation, "uuid-x", {"k": "v"}))
    for file in (tmp_path / "table" / "_transactions").iterdir():
        file.unlink()
    assert lance.dataset(uri).read_transaction(table.version).transaction_properties == {"k": "v"}


def test_s8_a_branch_keeps_the_number_and_a_handle_commits_to_its_own_branch(uri: str, tmp_path: Path) -> None:
    table = make(uri, ["a"], ["b"])
    branch = table.create_branch("review/one")
    assert branch.version == table.version
    checked_out = lance.dataset(uri).checkout_version(("review/one", None))
    checked_out = commit(checked_out, staged_append(checked_out, "on-branch"))
    assert checked_out.version == table.version + 1
    assert ids_of(lance.dataset(uri)) == ["a", "b"]
    commit(lance.dataset(uri), staged_append(lance.dataset(uri), "on-main"))
    assert ids_of(lance.dataset(uri)) == ["a", "b", "on-main"]
    assert ids_of(lance.dataset(uri).checkout_version(("review/one", None))) == ["a", "b", "on-branch"]
    assert (tmp_path / "table" / "tree" / "review" / "one" / "_versions").is_dir()


def test_s9_only_the_pair_of_branch_and_version_says_what_is_meant(uri: str) -> None:
    table = make(uri, ["a"])
    branch = table.create_branch("side")
    commit(branch, staged_append(branch, "on-branch"))
    commit(table, staged_append(table, "on-main"))
    for handle in (lance.dataset(uri), lance.dataset(uri).checkout_version(("side", None))):
        assert ids_of(handle.checkout_version(("side", 2))) == ["a", "on-branch"]
        assert ids_of(handle.checkout_version((None, 2))) == ["a", "on-main"]
    on_branch = lance.dataset(uri).checkout_version(("side", 2))
    assert ids_of(on_branch.checkout_version(2)) == ["a", "on-branch"], "a bare number stays where the handle is"


def test_s10_deleting_a_branch_tells_absence_from_descendants(uri: str) -> None:
    table = make(uri, ["a"])
    with pytest.raises(ValueError, match="Ref not found"):
        table.branches.delete("never")
    table.create_branch("parent")
    parent = lance.dataset(uri).checkout_version(("parent", None))
    parent.create_branch("parent/child", ("parent", None))
    with pytest.raises(OSError, match="Ref conflict"):
        lance.dataset(uri).branches.delete("parent")
    lance.dataset(uri).branches.delete("parent/child")
    lance.dataset(uri).branches.delete("parent")


def test_s10_deleting_a_branch_keeps_to_its_own_folder_not(uri: str) -> None:
    table = make(uri, ["a"])
    for name in ("agents/ann", "agents/bob"):
        table.create_branch(name)
    # As while it is being created: the files of a branch are written before its ref.
    (Path(uri) / "_refs" / "branches" / "agents%2Fbob.json").unlink()
    lance.dataset(uri).branches.delete("agents/ann")
    assert not (Path(uri) / "tree" / "agents").exists()


def test_s10_a_branch_is_its_ref_not(uri: str) -> None:
    table = make(uri, ["a"])
    table.create_branch("side")
    (Path(uri) / "_refs" / "branches" / "side.json").unlink()
    assert "side" not in table.branches.list()
    assert ids_of(lance.dataset(uri).checkout_version(("side", None))) == ["a"]
    assert lance.dataset(uri).branches.list() == {}


def test_s11_a_restore_is_a_new_version_with_old_content(uri: str) -> None:
    table = make(uri, ["a"])
    first = identities(table)
    table = commit(table, staged_append(table, "b"))
    table = commit(table, Transaction(table.version, LanceOperation.Restore(1)))
    assert table.version == 3
    assert identities(table) == first
    again = commit(table, Transaction(table.version, LanceOperation.Restore(3)))
    assert again.version == 4


def test_s12_a_restore_silently_buries_a_concurrent_append(uri: str) -> None:
    table = make(uri, ["a"])
    table = commit(table, staged_append(table, "b"))
    restore = Transaction(table.version, LanceOperation.Restore(1))
    commit(lance.dataset(uri), staged_append(lance.dataset(uri), "acknowledged"))
    restored = commit(table, restore)
    assert restored.version == 4
    assert ids_of(lance.dataset(uri)) == ["a"], "a restore is only for whoever owns everything above"


def test_s13_row_versions_are_kept_by_merge_and_compaction_and_can_be_filtered(uri: str) -> None:
    table = make(uri, ["a", "b"], ["c"])
    upsert(table).execute(rows("b", n=5))
    table = lance.dataset(uri)
    assert identities(table) == {"a": (0, 1, 1), "b": (1, 1, 3), "c": (2, 2, 2)}
    before = identities(table)
    table.optimize.compact_files()
    table = lance.dataset(uri)
    assert len(table.get_fragments()) == 1
    assert identities(table) == before
    changed = table.to_table(columns=["id"], filter="_row_last_updated_at_version > 1")
    assert sorted(changed["id"].to_pylist()) == ["b", "c"]


def test_s13_a_rewrite_keeps_row_versions_under_new_numbers_also_of_rows_an_index_covers(uri: str) -> None:
    table = make(uri, ["a", "b"], ["c"], ["d"])
    index = table.create_index_uncommitted("id", "BTREE", name="id_idx", fragment_ids=[0, 1, 2])
    table = commit(table, Transaction(table.version, LanceOperation.CreateIndex([index], [])))
    before = identities(table)
    done = [task.execute(table) for task in Compaction.plan(table, {"target_rows_per_fragment": 100}).tasks]
    groups = [LanceOperation.RewriteGroup(each.original_fragments, each.new_fragments) for each in done]
    after = commit(table, Transaction(table.version, LanceOperation.Rewrite(groups, [])))
    assert {fragment.fragment_id for fragment in after.get_fragments()}.isdisjoint({0, 1, 2})
    assert identities(after) == before
    for key in "abcd":
        assert after.to_table(columns=["id"], filter=f"id = '{key}'")["id"].to_pylist() == [key]


def test_s16_removal_of_versions_inside_commits_ends_with_the_settings(tmp_path: Path) -> None:
    table = lance.write_dataset(
        pa.table({"id": ["a"]}), str(tmp_path / "t"), auto_cleanup_options={"interval": 1, "older_than_seconds": 0}
    )
    table.insert(pa.table({"id": ["b"]}))
    table = lance.dataset(str(tmp_path / "t"))
    table.insert(pa.table({"id": ["c"]}))
    table = lance.dataset(str(tmp_path / "t"))
    kept = {ref["version"] for ref in table.version_refs()}
    assert 1 not in kept
    gone = LanceOperation.UpdateMap({name: None for name in table.config() if name.startswith("lance.auto_cleanup.")})
    table = commit(table, Transaction(table.version, LanceOperation.UpdateConfig(config_updates=gone)))
    table.insert(pa.table({"id": ["d"]}))
    assert {ref["version"] for ref in lance.dataset(str(tmp_path / "t")).version_refs()} > kept


def test_the_name_of_a_data_file_is_behind_its_public_property(uri: str) -> None:
    [file] = make(uri, ["a"]).get_fragments()[0].metadata.files
    assert file_name(file) == str(file.path)


def test_s14_an_index_names_its_fragments_and_scans_stay_complete(uri: str) -> None:
    table = make(uri, ["a", "b"], ["c"])
    index = table.create_index_uncommitted("id", "BTREE", name="id_idx", fragment_ids=[0])
    table = commit(table, Transaction(table.version, LanceOperation.CreateIndex([index], [])))
    [found] = table.describe_indices()
    [segment] = found.segments
    assert (found.name, found.index_type, list(found.field_names)) == ("id_idx", "BTree", ["id"])
    assert set(segment.fragment_ids) == {0}
    assert segment.dataset_version_at_last_update == 2
    for key in "abc":
        assert table.to_table(columns=["id"], filter=f"id = '{key}'")["id"].to_pylist() == [key]


def _blobs(uri: str) -> lance.LanceDataset:
    fields = pa.schema([pa.field("id", pa.string(), nullable=False), blob_field("body")])
    content: list[tuple[str, bytes | None]] = [
        ("null", None),
        ("empty", b""),
        ("small", b"x"),
        ("large", b"y" * 100_000),
    ]
    table = None
    for key, body in content:
        part = pa.table([pa.array([key]), blob_array([body])], schema=fields)
        mode = "create" if table is None else "append"
        table = lance.write_dataset(part, uri, mode=mode, enable_stable_row_ids=True, data_storage_version="2.2")
    assert table is not None
    return table


def _bodies(table: lance.LanceDataset) -> dict[str, bytes | None]:
    found = table.scanner(columns=["id", "body"], blob_handling="all_binary").to_table()
    return dict(zip(found["id"].to_pylist(), found["body"].to_pylist(), strict=True))


def test_s15_compaction_keeps_null_empty_and_filled_blobs_apart(uri: str) -> None:
    table = _blobs(uri)
    expected = {"null": None, "empty": b"", "small": b"x", "large": b"y" * 100_000}
    assert _bodies(table) == expected
    table.optimize.compact_files()
    table = lance.dataset(uri)
    assert len(table.get_fragments()) == 1
    assert _bodies(table) == expected


def test_s16_no_version_is_cleaned_automatically(uri: str) -> None:
    table = make(uri, ["a"])
    assert not [key for key in table.config() if "auto_cleanup" in key]
    for number in range(30):
        table = commit(table, staged_append(table, f"r{number}"))
    assert len(table.versions()) == 31


def test_s17_every_version_tells_its_operation_not(uri: str) -> None:
    table = make(uri, ["a"], ["b"])
    table = commit(table, staged_append(table, "c"))
    assert [type(table.read_transaction(v).operation).__name__ for v in (2, 3)] == ["Append", "Append"]
    index = table.create_index_uncommitted("id", "BTREE", name="id_idx", fragment_ids=[0, 1, 2])
    table = commit(table, Transaction(table.version, LanceOperation.CreateIndex([index], [])))
    table.optimize.compact_files()
    table = lance.dataset(uri)
    told, silent = [], []
    for version in range(4, table.version + 1):
        try:
            told.append(type(table.read_transaction(version).operation).__name__)
        except TypeError:
            silent.append(version)
    assert silent or "BaseOperation" in told, "compactions of indexed tables have become readable: use it"


def test_s18_repeated_merges_over_the_same_rows_succeed(uri: str) -> None:
    table = make(uri, ["a", "b"], ["c"])
    table.create_scalar_index("id", "BTREE")
    for n in range(1, 4):
        upsert(lance.dataset(uri)).execute(rows("a", "c", n=n))
    found = lance.dataset(uri).to_table().sort_by("id").to_pylist()
    assert found == [{"id": "a", "n": 3}, {"id": "b", "n": 0}, {"id": "c", "n": 3}]


def test_s19_failures_have_the_classes_and_texts_the_classifier_knows(uri: str, tmp_path: Path) -> None:
    table = make(uri, ["a"])
    stale = [staged_overwrite(table, "b"), staged_overwrite(table, "c")]
    commit(table, stale[0])
    with pytest.raises(CommitConflictError) as conflict:
        commit(lance.dataset(uri, version=1), stale[1])
    assert isinstance(conflict.value, OSError)
    with pytest.raises(ValueError, match="was not found"):
        lance.dataset(str(tmp_path / "none"))
    with pytest.raises(ValueError, match="was not found"):
        lance.dataset(uri, version=77)
    with pytest.raises(ValueError, match="Not found"):
        lance.dataset(uri).checkout_version(("nowhere", None))
    with pytest.raises(OSError, match="Dataset already exists"):
        lance.write_dataset(rows("x"), uri, mode="create")


def test_s20_blobs_come_back_in_the_order_they_are_asked_for(uri: str) -> None:
    table = _blobs(uri)
    ids = {row["id"]: row["_rowid"] for row in table.scanner(columns=["id"], with_row_id=True).to_table().to_pylist()}
    wanted = ["large", "small", "large", "empty"]
    files = table.take_blobs("body", ids=[ids[name] for name in wanted])
    assert [len(file.readall()) for file in files] == [100_000, 1, 100_000, 0]
    with pytest.raises((OSError, ValueError)):
        table.take_blobs("body", ids=[10_000])


def test_the_schema_of_an_overwrite_decides_about_the_annotation(uri: str) -> None:
    table = make(uri, ["a"])
    kept = commit(table, Transaction(table.version, LanceOperation.Overwrite(table.lance_schema, [])))
    assert kept.schema.field("id").metadata is not None
    bare = LanceOperation.Overwrite(schema(keyed=False), [])
    lost = commit(kept, Transaction(kept.version, bare))
    assert not lost.schema.field("id").metadata, "every overwrite must bring the annotation along"
