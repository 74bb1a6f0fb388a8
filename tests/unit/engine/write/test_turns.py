"""Turns between processes are a courtesy: few files, of one user, and nothing breaks when they are not to be had."""

from __future__ import annotations

import io
import multiprocessing
import os
import shutil
import stat
import time
from pathlib import Path

import pytest

from omnigraph.engine.coordination import file_lock as turns
from omnigraph.engine.coordination.file_lock import TurnFiles, Turns
from omnigraph.engine.coordination.mutex import Mutexes

KEY = ("node:A", None)
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def files(tmp_path: Path) -> TurnFiles:
    return TurnFiles(str(tmp_path / "turns"))


def soon() -> float:
    return time.monotonic() + 0.05


def take_and_give(graph: Turns) -> None:
    turn = graph.take(KEY, soon())
    assert turn
    turn.close()


def _hold(folder: str, held: multiprocessing.Event, done: multiprocessing.Event) -> None:
    mine = Turns("/graph", TurnFiles(folder))
    turn = mine.take(KEY, time.monotonic() + 5)
    assert turn
    held.set()
    done.wait(20)


def test_a_turn_of_another_process_is_waited_for_and_ends_with_its_death(files: TurnFiles) -> None:
    held, done = SPAWN.Event(), SPAWN.Event()
    other = SPAWN.Process(target=_hold, args=(files.folder, held, done))
    other.start()
    try:
        assert held.wait(20)
        mine = Turns("/graph", files)
        assert mine.busy([KEY])
        assert not mine.take(KEY, soon())
        assert not Turns("/another graph", files).busy([KEY])
        other.kill()
        turn = mine.take(KEY, time.monotonic() + 5)
        assert turn
        assert mine.busy([KEY])
        turn.close()
        assert not mine.busy([KEY])
    finally:
        other.kill()
        other.join()


def test_all_graphs_of_a_user_share_one_folder_that_nobody_else_may_enter(files: TurnFiles) -> None:
    for number in range(5):
        take_and_give(Turns(f"/graph-{number}", files))
    assert len(os.listdir(files.folder)) == 5
    assert stat.S_IMODE(os.stat(files.folder).st_mode) == 0o700
    assert {stat.S_IMODE(entry.stat().st_mode) for entry in os.scandir(files.folder)} == {0o600}


def test_asking_whether_a_table_is_busy_makes_no_file(files: TurnFiles) -> None:
    assert not Turns("/graph", files).busy([KEY])
    assert not os.path.exists(files.folder)


def test_files_nobody_used_for_long_go_and_those_in_use_stay(files: TurnFiles) -> None:
    used, left = Turns("/used", files), Turns("/left", files)
    turn = used.take(KEY, soon())
    assert turn
    take_and_give(left)
    for entry in os.scandir(files.folder):
        os.utime(entry.path, (0, 0))
    files.remove_stale()
    assert len(os.listdir(files.folder)) == 1
    assert used.busy([KEY])
    take_and_give(left)
    assert len(os.listdir(files.folder)) == 2, "a removed file is made anew"
    turn.close()


def test_the_number_of_files_is_bounded(files: TurnFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "FILES_MAX", 8)
    monkeypatch.setattr(turns, "LOOK_EVERY", 4)
    for number in range(60):
        take_and_give(Turns(f"/graph-{number}", files))
    assert len(os.listdir(files.folder)) <= 12


def test_a_turn_waited_for_while_its_file_is_removed_is_taken_with_a_new_one(files: TurnFiles) -> None:
    mine = Turns("/graph", files)
    turn = mine.take(KEY, soon())
    assert turn
    (name,) = os.listdir(files.folder)
    waiting = io.FileIO(os.path.join(files.folder, name), "r+")
    os.unlink(os.path.join(files.folder, name))
    turn.close()
    real, given = files.open, [waiting]
    files.open = lambda *args, **options: given.pop() if given else real(*args, **options)  # type: ignore[method-assign]
    take_and_give(mine)
    assert os.listdir(files.folder) == [name]


def test_a_folder_that_vanishes_breaks_nothing(files: TurnFiles) -> None:
    mutexes = Mutexes(Turns("/graph", files))
    mutexes.hold([("node:A", None)], lambda: shutil.rmtree(files.folder))

    def replace_the_folder() -> None:
        assert len(os.listdir(files.folder)) == 2
        shutil.rmtree(files.folder)
        Path(files.folder).write_text("a file where the folder was")

    mutexes.hold([("node:A", None), ("edge:B", None)], replace_the_folder)
    assert not mutexes.hold([("node:A", None)], lambda: mutexes.busy([("edge:B", None)]))


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_others_may_change_is_not_trusted(files: TurnFiles, mode: int) -> None:
    os.mkdir(files.folder)
    os.chmod(files.folder, mode)
    assert not Turns("/graph", files).take(KEY, soon())
    assert os.listdir(files.folder) == []


def test_a_link_in_the_place_of_the_folder_is_not_followed(files: TurnFiles, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    os.symlink(tmp_path / "elsewhere", files.folder)
    assert not Turns("/graph", files).take(KEY, soon())
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_link_in_the_place_of_a_file_is_not_followed(files: TurnFiles, tmp_path: Path) -> None:
    take_and_give(Turns("/graph", files))
    (name,) = os.listdir(files.folder)
    os.unlink(os.path.join(files.folder, name))
    (tmp_path / "secret").write_text("mine")
    os.symlink(tmp_path / "secret", os.path.join(files.folder, name))
    assert Turns("/graph", files).take(KEY, soon()) is None
    assert not Turns("/graph", files).busy([KEY])
