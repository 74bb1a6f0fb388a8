"""Memory of executors does not follow the size of the input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.load import DIMENSIONS
from tests.amounts import EXHAUSTIVE_FIRST

pytestmark = EXHAUSTIVE_FIRST

DRIVER = Path(__file__).with_name("vectors_driver.py")
SMALL, LARGE = 12_000, 60_000
ADDED_MB = (LARGE - SMALL) * DIMENSIONS * 4 / 1e6


def test_five_times_the_vectors_merge_in_much_the_same_memory(disk_path: Path) -> None:
    folder = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(folder)])}
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(disk_path), str(SMALL), str(LARGE)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    found = json.loads(done.stdout)
    assert [found[f"rows {rows}"] for rows in (SMALL, LARGE)] == [SMALL * 3 // 2, LARGE * 3 // 2]
    for mode in ("append", "merge"):
        # Allocators keep some of what they were given back; whoever held the input would hold all that was added.
        assert found[f"{mode} {LARGE}"] < found[f"{mode} {SMALL}"] + ADDED_MB / 2, found
