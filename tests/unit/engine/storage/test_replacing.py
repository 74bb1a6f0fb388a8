"""A small object on a local disk is the old one or the new one, whatever happens in between."""

import os
import threading
from pathlib import Path

import pytest

from omnigraph.engine.storage import durability
from omnigraph.engine.storage.objects import ObjectStore
from omnigraph.errors import StorageError


def test_an_object_is_made_with_its_folder_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    objects = ObjectStore(str(tmp_path / "root"))
    objects.write_text("deep/er/a.json", "one")
    objects.write_text("deep/er/a.json", "two")
    assert objects.read_text("deep/er/a.json") == "two"
    assert os.listdir(tmp_path / "root" / "deep" / "er") == ["a.json"]
    objects.delete("deep/er/a.json")
    objects.delete("deep/er/a.json")
    assert os.listdir(tmp_path / "root" / "deep" / "er") == []


def test_a_write_that_fails_leaves_the_old_object_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = ObjectStore(str(tmp_path))
    objects.write_text("a.json", "old")

    def fail(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durability.os, "replace", fail)
    with pytest.raises(StorageError):
        objects.write_text("a.json", "new")
    monkeypatch.undo()
    assert objects.read_text("a.json") == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_nobody_reads_a_part_of_an_object_that_is_replaced(tmp_path: Path) -> None:
    objects = ObjectStore(str(tmp_path))
    objects.write_text("a.json", "0" * 50_000)
    done = threading.Event()
    seen: set[str] = set()

    def read() -> None:
        while not done.is_set():
            text = objects.read_text("a.json")
            assert len(text) == 50_000
            seen.update(text)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(300):
        objects.write_text("a.json", str(number % 10) * 50_000)
    done.set()
    reader.join()
    assert seen <= set("0123456789")
    assert objects.list_dir("") == ["a.json"]
