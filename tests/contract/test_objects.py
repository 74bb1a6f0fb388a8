"""What every text-object store promises, on local disk, in memory and on S3."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from tests.contract.forgetful_proxy import forgetful_proxy
from tests.contract.s3_server import BUCKET, storage_options

from omnigraph.engine.storage import durability
from omnigraph.engine.storage.durability import Durability
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import StorageError
from omnigraph.ids import new_ulid


@pytest.fixture(params=["local", "local-full", "memory", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "memory":
        return ObjectStore("memory://graph")
    if request.param == "s3":
        options = storage_options(request.getfixturevalue("s3_endpoint"))
        return ObjectStore(f"s3://{BUCKET}/{new_ulid()}", options=options)
    pushed = Durability.FULL if request.param == "local-full" else Durability.FAST
    return ObjectStore(str(tmp_path / "deep" / "graph"), durability=pushed)


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


def test_what_was_read_is_replaced_and_nothing_else(objects: ObjectStore) -> None:
    objects.write_text("__recovery/a.json", "one")
    text, mark = _marked(objects, "__recovery/a.json")
    assert text == "one"
    assert objects.replace_if_same("__recovery/a.json", "two", mark)
    assert not objects.replace_if_same("__recovery/a.json", "three", mark)
    assert objects.read_text("__recovery/a.json") == "two"
    _, mark = _marked(objects, "__recovery/a.json")
    objects.delete("__recovery/a.json")
    assert not objects.replace_if_same("__recovery/a.json", "four", mark)
    assert not objects.has("__recovery/a.json")
    assert objects.read_marked("__recovery/a.json") is None
    assert objects.list_dir("__recovery") == []


def test_what_was_read_is_removed_and_nothing_else(objects: ObjectStore) -> None:
    objects.write_text("a.lock", "mine")
    _, mark = _marked(objects, "a.lock")
    objects.delete("a.lock")
    assert not objects.delete_if_same("a.lock", mark)
    objects.write_text("a.lock", "another's")
    assert not objects.delete_if_same("a.lock", mark)
    assert objects.read_text("a.lock") == "another's"
    _, mark = _marked(objects, "a.lock")
    assert objects.delete_if_same("a.lock", mark)
    assert not objects.has("a.lock")


def _marked(objects: ObjectStore, path: str) -> tuple[str, object]:
    found = objects.read_marked(path)
    assert found is not None
    return found


def test_a_lost_answer_to_a_replacement_is_no_refusal(s3_endpoint: str) -> None:
    with forgetful_proxy(s3_endpoint, "kept") as proxy:
        objects = ObjectStore(f"s3://{BUCKET}/{new_ulid()}", options=storage_options(proxy.endpoint))
        objects.write_text("kept.json", "one")
        _, mark = _marked(objects, "kept.json")
        proxy.losses = 1
        assert objects.replace_if_same("kept.json", "two", mark)
        assert proxy.lost
        assert objects.read_text("kept.json") == "two"


def test_an_answer_that_breaks_off_is_transient(s3_endpoint: str) -> None:
    with forgetful_proxy(s3_endpoint, "kept") as proxy:
        options = {**storage_options(proxy.endpoint), "client_max_retries": "1", "client_retry_timeout": "1"}
        root = f"s3://{BUCKET}/kept-{new_ulid()}"
        objects, tables = ObjectStore(root, options=options), TableStore(root, storage_options=options)
        objects.write_text("a/kept.json", "text")
        tables.create("nodes/kept", pa.schema([pa.field("id", pa.utf8())]))
        proxy.breaks_off = True
        for look in (
            lambda: objects.read_text("a/kept.json"),
            lambda: objects.list_dir("a"),
            lambda: TableStore(root, storage_options=options).open("nodes/kept"),
            lambda: TableStore(root, storage_options=options).open("nodes/kept", version=1),
        ):
            with pytest.raises(StorageError) as caught:
                look()
            assert caught.value.kind == "transient", caught.value


def test_what_killed_writes_have_left_goes_when_it_is_old_enough(tmp_path: Path) -> None:
    objects = ObjectStore(str(tmp_path))
    objects.write_text("__recovery/a.json", "kept")
    for name, age in (("old", 400), ("young", 100)):
        left = tmp_path / "__recovery" / f"a.json#{name}"
        left.write_text("left", encoding="utf-8")
        os.utime(left, times=(left.stat().st_mtime - age,) * 2)
    assert objects.list_dir("__recovery") == ["a.json"]
    objects.drop_temporaries(["", "__recovery", "__not_there"], 300.0)
    assert sorted(path.name for path in (tmp_path / "__recovery").iterdir()) == ["a.json", "a.json#young"]


def test_a_file_that_goes_right_before_it_is_replaced_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = ObjectStore(str(tmp_path))
    exchanged = durability._exchanged

    def late(one: str, other: str) -> bool:
        os.unlink(tmp_path / "a.json")
        return exchanged(one, other)

    objects.write_text("a.json", "one")
    _, mark = _marked(objects, "a.json")
    monkeypatch.setattr(durability, "_exchanged", late)
    assert not objects.replace_if_same("a.json", "two", mark)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_takes_the_place_of_the_one_to_be_replaced_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = ObjectStore(str(tmp_path))
    exchanged, calls = durability._exchanged, []

    def late(one: str, other: str) -> bool:
        if not calls:
            objects.write_text("a.lock", "another's")
        calls.append(one)
        return exchanged(one, other)

    objects.write_text("a.lock", "mine")
    _, mark = _marked(objects, "a.lock")
    monkeypatch.setattr(durability, "_exchanged", late)
    assert not objects.replace_if_same("a.lock", "mine again", mark)
    assert len(calls) == 2
    assert objects.read_text("a.lock") == "another's"
    assert objects.list_dir("") == ["a.lock"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.lock"]


def test_a_file_that_takes_the_place_of_the_one_to_be_removed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = ObjectStore(str(tmp_path))
    objects.write_text("a.lock", "mine")
    _, mark = _marked(objects, "a.lock")
    rename, calls = os.rename, []

    def late(source: str, target: str) -> None:
        if not calls:
            objects.write_text("a.lock", "another's")
        calls.append(source)
        rename(source, target)

    monkeypatch.setattr(durability.os, "rename", late)
    assert not objects.delete_if_same("a.lock", mark)
    assert calls
    assert objects.read_text("a.lock") == "another's"
    assert [path.name for path in tmp_path.iterdir()] == ["a.lock"]
