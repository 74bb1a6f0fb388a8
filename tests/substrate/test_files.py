"""What Lance does not promise and `lance_internals` relies on: the names of its files, and what it writes into them."""

import json
import pickle
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance import LanceOperation, Transaction
from lance.fragment import write_fragments
from lance.optimize import Compaction
from lance.schema import LanceSchema
from tests.substrate.lance_tables import commit, identities, make, rows, staged_append, staged_delete

from omnigraph.engine.storage.lance_internals import files, row_versions
from omnigraph.engine.storage.lance_internals.columns import columns_of, schema_of
from omnigraph.engine.storage.lance_internals.compaction import among, in_batches
from omnigraph.engine.storage.lance_internals.deletions import read_deletion_file
from omnigraph.engine.storage.lance_internals.fragments import bare_fragments
from omnigraph.engine.storage.lance_internals.refs import Ref, Refs
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.engine.storage.tables import TableStore


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def test_a_version_is_a_file_named_by_its_number_from_the_end(uri: str) -> None:
    table = make(uri, ["a"], ["b"])
    found = sorted(path.name for path in (Path(uri) / files.VERSIONS).iterdir() if path.suffix == ".manifest")
    assert sorted(Path(files.version_file(n)).name for n in range(1, table.version + 1)) == found
    assert {files.version_of(f"{files.VERSIONS}/{name}") for name in found} == set(range(1, table.version + 1))


def test_a_version_on_no_branch_is_a_file_of_another_kind(uri: str) -> None:
    table = make(uri, ["a"])
    added = write_fragments(rows("z"), uri, schema=table.schema)
    detached = lance.LanceDataset.commit(
        table, Transaction(table.version, LanceOperation.Append(list(added))), detached=True, max_retries=1
    )
    name = files.detached_version_file(detached.version)
    assert (Path(uri) / name).exists()
    assert files.version_of(name) is None


@pytest.mark.parametrize("branch", ["side", "a/b"])
def test_a_branch_is_a_ref_and_a_folder_below_its_table(uri: str, branch: str) -> None:
    table = make(uri, ["a"])
    made = table.create_branch(branch)
    made = commit(made, staged_append(made, "b"))
    ref = Path(files.branch_ref(uri, branch))
    assert json.loads(ref.read_text())["parentVersion"] == table.version
    place = Path(files.branch_location(uri, branch))
    assert (place / files.version_file(made.version)).exists()
    assert {path.name for path in place.iterdir()} <= set(files.TABLE_FOLDERS)


def test_data_files_and_deletion_files_lie_where_they_are_looked_for(uri: str) -> None:
    table = make(uri, ["a", "b", "c"])
    table.delete("id = 'b'")
    [fragment] = lance.dataset(uri).get_fragments()
    for file in fragment.metadata.files:
        assert (Path(uri) / files.data_file(files.file_name(file))).exists()
    deleted = read_deletion_file(f"{uri}/{fragment.deletion_file()}")
    assert deleted is not None
    assert deleted.tolist() == [1]
    assert fragment.deletion_file().startswith(f"{files.DELETIONS}/")


def test_a_ref_tells_the_branch_and_the_version_it_was_made_from(uri: str) -> None:
    table = make(uri, ["a"], ["b"])
    side = table.create_branch("side")
    side = commit(side, staged_append(side, "c"))
    side.create_branch("a/b")
    assert Refs(ObjectStore(str(Path(uri).parent))).of(Path(uri).name) == {
        "side": Ref(None, table.version),
        "a/b": Ref("side", side.version),
    }


def test_many_deleted_rows_are_a_bitmap_and_few_are_a_column(uri: str) -> None:
    table = make(uri, [f"{number}" for number in range(20_001)])
    for gone, suffix in ((list(range(3)), ".arrow"), (list(range(0, 20_000, 2)), ".bin")):
        table = commit(table, staged_delete(table, 0, gone))
        [fragment] = table.get_fragments()
        assert fragment.deletion_file().endswith(suffix)
        found = read_deletion_file(f"{uri}/{fragment.deletion_file()}")
        assert found is not None
        assert set(gone) <= set(found.tolist())
        assert len(found) == fragment.num_deletions


def test_runs_of_row_versions_are_read_as_they_are_written(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_versions, "RUNS_MAX", 4)
    table = make(uri, *([f"{number}"] for number in range(10)))
    [task] = Compaction.plan(table, {"target_rows_per_fragment": 100}).tasks
    done = task.execute(table)
    originals, written = list(done.original_fragments), list(done.new_fragments)
    base = TableStore(str(Path(uri).parent)).open(Path(uri).name)
    row_versions.bound_row_versions(base, [int(fragment.id) for fragment in originals], written)
    moved = LanceOperation.Rewrite([LanceOperation.RewriteGroup(originals, written)], [])
    found = identities(commit(table, Transaction(table.version, moved)))
    made = np.arange(1, 11, dtype=np.uint64)
    down, up = row_versions.round_down(made).tolist(), row_versions.round_up(made, table.version).tolist()
    assert found == {f"{number}": (number, down[number], up[number]) for number in range(10)}
    assert len(set(down)) <= 4


def test_a_schema_is_made_of_the_messages_it_gives(uri: str) -> None:
    kinds = pa.schema([("a", pa.int32()), ("l", pa.list_(pa.string())), ("s", pa.struct([("x", pa.int8())]))])
    schema = LanceSchema.from_pyarrow(kinds)
    metadata, columns = columns_of(schema)
    assert [column.name for column in columns] == kinds.names
    messages = [message for column in columns for message in column.messages]
    again = schema_of(metadata, messages)
    assert again.to_pyarrow() == pickle.loads(pickle.dumps(schema)).to_pyarrow() == kinds
    for nullable in (True, False):
        named = [m for column in columns for m in column.named(f"{column.name}2", nullable=nullable)]
        renamed = schema_of(metadata, named).to_pyarrow()
        assert renamed.names == ["a2", "l2", "s2"]
        assert {field.nullable for field in renamed} == {nullable}
    assert [field.id() for field in schema_of(metadata, columns[0].numbered(40)).fields()] == [40]


def test_a_compaction_task_does_what_its_text_says(uri: str) -> None:
    table = make(uri, ["a"], ["b"], ["c"], ["d"])
    [task] = Compaction.plan(table, {"target_rows_per_fragment": 100}).tasks
    numbers, some = among(task, {0, 1})
    assert numbers == [0, 1]
    assert [fragment.id for fragment in some.fragments] == [0, 1]
    done = in_batches(some, 1).execute(table)
    assert [int(fragment.id) for fragment in done.original_fragments] == [0, 1]
    assert sum(fragment.physical_rows for fragment in done.new_fragments) == 2


def test_bare_fragments_are_those_that_lance_lists(uri: str) -> None:
    table = make(uri, ["a", "b"], ["c"], ["d", "e"])
    table = commit(table, staged_delete(table, 2, [0]))
    listed = table.get_fragments()
    assert len(listed) == 3
    assert [bare.id() for bare in bare_fragments(table)] == [fragment.fragment_id for fragment in listed]
    assert [bare.metadata() for bare in bare_fragments(table)] == [fragment.metadata for fragment in listed]
    files_of = [fragment.deletion_file() for fragment in listed]
    assert [bare.deletion_file() for bare in bare_fragments(table)] == files_of
    assert sum(file is not None for file in files_of) == 1
