"""A disk that fills up, or turns read-only, in the middle of a write: a clear error, nothing lost, fine afterwards."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.crash.writes import LOADS, MUTATIONS

from omnigraph import failpoints
from omnigraph.errors import RecoveryRequiredError, StorageError
from omnigraph.graph import connect
from omnigraph.testing.crash import Write, baseline, check_recovered, content_of, copy_graph
from omnigraph.testing.faults import Fault, FaultyStore

PAGE = 4096
BUSY_SECONDS_MAX = 10.0
DISK_BYTES = 4 << 20
WRITES = [MUTATIONS["insert nodes and an edge"], LOADS["load merge"]]
WRITING = frozenset({"write_text", "write_fragments", "commit", "write_text_if_absent", "delete_rows"})


@contextmanager
def small_disk(at: Path) -> Iterator[bool]:
    """Mount a small file system in memory; False where that is not allowed."""
    at.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(at)]
    mounted = subprocess.run(options, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(at)], check=True)


def fill(disk: Path, pages_left: int) -> Path:
    """Take all space but some pages."""
    filler = disk / "filler"
    free = os.statvfs(disk)
    with filler.open("wb") as file:
        file.write(b"\0" * max(0, free.f_bavail * free.f_frsize - pages_left * PAGE))
    return filler


def write_and_see(write: Write, root: str) -> bool:
    """True when acknowledged, False when refused by an error that says storage failed; anything else is a failure."""
    try:
        write.run(root)
    except (StorageError, RecoveryRequiredError):
        return False
    return True


@pytest.mark.long
@pytest.mark.parametrize("write", WRITES)
def test_a_full_disk_loses_nothing(write: Write, seeded: Path, scratch: Path) -> None:
    base = baseline(write, seeded, scratch)
    with small_disk(scratch / "disk") as mounted:
        if not mounted:
            return  # The next test stands for it where no file system can be mounted.
        refused = 0
        for pages in range(0, 60, 3):
            root = copy_graph(seeded, scratch / "disk" / "graph")
            filler = fill(scratch / "disk", pages)
            acknowledged = write_and_see(write, root)
            refused += not acknowledged
            assert content_of(connect(root, read_only=True)) in (base.before, base.once), "readers are not disturbed"
            filler.unlink()
            check_recovered(root, (base.once,) if acknowledged else (base.before, base.once))
            if base.repeats:
                write.again(connect(root))
                check_recovered(root, (base.once, base.twice))
            subprocess.run(["rm", "-rf", root], check=True)
        assert 0 < refused < 20, "the sizes tried must include too small ones and large enough ones"


@pytest.mark.long
@pytest.mark.parametrize("write", WRITES)
def test_storage_that_refuses_to_write_loses_nothing(write: Write, seeded: Path, scratch: Path) -> None:
    base = baseline(write, seeded, scratch)
    refused = 0
    for number in range(1, 30):
        root = copy_graph(seeded, scratch / f"injected-{number}")
        with FaultyStore(Fault.OUTAGE, number, only=lambda step: step.name in WRITING, partial=True) as store:
            acknowledged = write_and_see(write, root)
            assert content_of(connect(root, read_only=True)) in (base.before, base.once), "readers are not disturbed"
        refused += not acknowledged
        check_recovered(root, (base.once,) if acknowledged else (base.before, base.once))
        if base.repeats:
            write.again(connect(root))
            check_recovered(root, (base.once, base.twice))
        if not store.met:
            break
    assert 0 < refused < 29


@pytest.mark.parametrize(
    "name", [failpoints.MUTATION_POST_STAGE, failpoints.MUTATION_POST_TABLE_COMMIT, failpoints.MUTATION_POST_FINALIZE]
)
def test_a_disk_that_turns_read_only_loses_nothing(name: str, seeded: Path, scratch: Path) -> None:
    write = MUTATIONS["insert nodes and an edge"]
    base = baseline(write, seeded, scratch)
    disk = scratch / "disk"
    with small_disk(disk) as mounted:
        root = copy_graph(seeded, disk / "graph" if mounted else scratch / "graph")

        def freeze(reached: str) -> None:
            if reached == name:
                failpoints.install(None)
                remount(disk, "ro") if mounted else outage.__enter__()

        outage = FaultyStore(Fault.OUTAGE, 1)
        previous = failpoints.install(freeze)
        try:
            assert not write_and_see(write, root)
        finally:
            failpoints.install(previous)
        assert not write_and_see(write, root), "it stays refused while the disk is read-only"
        if mounted:
            assert content_of(connect(root, read_only=True)) == base.before
            remount(disk, "rw")
        else:
            outage.__exit__(None, None, None)
        allowed = (base.once,) if name == failpoints.MUTATION_POST_FINALIZE else (base.before,)
        check_recovered(root, allowed)
        write.again(connect(root))
        check_recovered(root, (base.once, base.twice))


def remount(disk: Path, how: str) -> None:
    limit = time.monotonic() + BUSY_SECONDS_MAX
    while subprocess.run(["mount", "-o", f"remount,{how}", str(disk)]).returncode:
        assert time.monotonic() < limit, "somebody keeps a file open"
        time.sleep(0.01)  # a disk is busy while a manifest is written ahead
