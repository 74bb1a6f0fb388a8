"""What every text-object store promises, on local disk, in memory and on S3."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.contract.s3_server import BUCKET, storage_options

from omnigraph.engine.storage.durability import Durability
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import StorageError
from omnigraph.ids import new_ulid


@pytest.fixture(params=["local", "local-full", "memory", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "memory":
        return ObjectStore("memory://graph")
    if request.param == "s3":
        options = storage_options(request.getfixturevalue("s3_endpoint"))
        return ObjectStore(f"s3://{BUCKET}/{new_ulid()}", options=options)
    durability = Durability.FULL if request.param == "local-full" else Durability.FAST
    return ObjectStore(str(tmp_path / "deep" / "graph"), durability=durability)


def test_a_written_object_reads_back_whole(objects: ObjectStore) -> None:
    text = "größer\n" * 5000
    objects.write_text("__recovery/a.json", text)
    assert objects.read_text("__recovery/a.json") == text
    objects.write_text("__recovery/a.json", "short")
    assert objects.read_text("__recovery/a.json") == "short"


def test_a_missing_object_is_typed_as_missing(objects: ObjectStore) -> None:
    assert objects.read_text_if_exists("__recovery/none.json") is None
    with pytest.raises(StorageError) as caught:
        objects.read_text("__recovery/none.json")
    assert caught.value.kind == "not_found"


def test_a_folder_is_no_object(objects: ObjectStore) -> None:
    objects.write_text("folder/a.json", "a")
    assert objects.read_text_if_exists("folder") is None
    with pytest.raises(StorageError) as caught:
        objects.read_text("folder")
    assert caught.value.kind == "not_found"


def test_a_failure_that_is_not_absence_is_never_read_as_absence(tmp_path: Path) -> None:
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    objects = ObjectStore(str(tmp_path))
    for name in ("loop.json", "bytes.json"):
        with pytest.raises(StorageError) as caught:
            objects.read_text_if_exists(name)
        assert caught.value.kind != "not_found"
    with pytest.raises(StorageError):
        objects.exists("loop.json")
    with pytest.raises(StorageError):
        objects.list_dir("loop.json")


def test_exactly_one_of_many_creators_wins(objects: ObjectStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: objects.write_text_if_absent("claim.json", str(number)), range(8)))
    assert won.count(True) == 1
    assert objects.read_text("claim.json") == str(won.index(True))
    assert not objects.write_text_if_absent("claim.json", "late")


def test_readers_see_the_old_or_the_new_text_and_never_a_torn_one(objects: ObjectStore) -> None:
    texts = {letter * 20_000 for letter in "abcd"}
    objects.write_text("hot.json", "a" * 20_000)
    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(objects.write_text, "hot.json", text) for text in sorted(texts) * 3]
        seen = {objects.read_text("hot.json") for _ in range(20)}
        for writer in writers:
            writer.result()
    assert seen <= texts


def test_existence_means_an_object_or_a_folder_with_something_in_it(objects: ObjectStore) -> None:
    objects.write_text("nodes/one/_versions/1.manifest", "x")
    assert objects.exists("nodes/one/_versions/1.manifest")
    assert objects.exists("nodes/one/_versions")
    assert objects.exists("nodes")
    assert not objects.exists("nodes/two")
    assert not objects.exists("nodes/on")
    assert not objects.exists("nodes/one/_versions/1.manifest/below")
    objects.delete_prefix("nodes/one")
    assert not objects.exists("nodes/one/_versions")
    assert not objects.exists("nodes/one")
    assert not objects.exists("nodes")


def test_an_empty_local_folder_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "empty" / "deeper").mkdir(parents=True)
    assert not ObjectStore(str(tmp_path)).exists("empty")


def test_a_rename_replaces_its_target_and_leaves_no_source(objects: ObjectStore) -> None:
    objects.write_text("_schema.pg.staging", "new")
    objects.write_text("_schema.pg", "old")
    objects.rename_text("_schema.pg.staging", "_schema.pg")
    assert objects.read_text("_schema.pg") == "new"
    assert not objects.exists("_schema.pg.staging")
    with pytest.raises(StorageError) as caught:
        objects.rename_text("_schema.pg.staging", "_schema.pg")
    assert caught.value.kind == "not_found"
    assert objects.read_text("_schema.pg") == "new"


def test_deleting_is_fine_whether_the_object_is_there_or_not(objects: ObjectStore) -> None:
    objects.write_text("a.json", "x")
    objects.delete("a.json")
    objects.delete("a.json")
    objects.delete("never/there.json")
    assert not objects.exists("a.json")


def test_listing_names_the_files_of_exactly_one_folder(objects: ObjectStore) -> None:
    for name in ("__recovery/a.json", "__recovery/b.txt", "__recovery/sub/c.json", "__recovery2/d.json", "e.json"):
        objects.write_text(name, "x")
    assert sorted(objects.list_dir("__recovery")) == ["a.json", "b.txt"]
    assert objects.list_dir("__recovery/sub") == ["c.json"]
    assert objects.list_dir("__reco") == []
    assert objects.list_dir("nowhere") == []


def test_listing_leaves_out_the_temporary_files_of_a_write_in_flight(tmp_path: Path) -> None:
    objects = ObjectStore(str(tmp_path))
    objects.write_text("__recovery/a.json", "x")
    (tmp_path / "__recovery" / "b.json#1").write_text("half")
    assert objects.list_dir("__recovery") == ["a.json"]


def test_removing_a_folder_is_complete_repeatable_and_spares_its_neighbours(objects: ObjectStore) -> None:
    for name in ("nodes/a/data/1", "nodes/a/data/2", "nodes/a/_versions/1", "nodes/ab/data/1"):
        objects.write_text(name, "x")
    objects.delete_prefix("nodes/a")
    objects.delete_prefix("nodes/a")
    objects.delete_prefix("not/there")
    assert not objects.exists("nodes/a")
    assert objects.exists("nodes/ab/data/1")


def test_the_fingerprint_changes_with_the_objects_and_only_with_them(objects: ObjectStore) -> None:
    objects.write_text("_schema.pg", "one")
    before = objects.fingerprint(["_schema.pg", "absent"])
    assert objects.fingerprint(["_schema.pg", "absent"]) == before
    objects.write_text("_schema.pg", "two!")
    assert objects.fingerprint(["_schema.pg", "absent"]) != before


def test_names_may_hold_spaces_and_signs(tmp_path: Path) -> None:
    objects = ObjectStore(str(tmp_path / "a graph, 100% grün #1"))
    objects.write_text("__recovery/a.json", "x")
    assert objects.read_text("__recovery/a.json") == "x"
    assert objects.exists("__recovery")
    assert objects.list_dir("__recovery") == ["a.json"]
    assert os.listdir(tmp_path) == ["a graph, 100% grün #1"]


def test_looking_leaves_no_trace_on_disk(tmp_path: Path) -> None:
    objects = ObjectStore(str(tmp_path / "none"))
    assert not objects.exists("__manifest/_versions")
    assert objects.list_dir("__recovery") == []
    assert objects.read_text_if_exists("_schema.pg") is None
    assert os.listdir(tmp_path) == []
