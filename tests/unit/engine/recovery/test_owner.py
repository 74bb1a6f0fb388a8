"""Who may still act, seen from this process."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from msgspec.structs import replace

from omnigraph.engine.coordination.owner import (
    Liveness,
    Owner,
    ProcessFacts,
    judge,
    liveness,
    observe_process,
    this_process,
)

HERE = Owner("vm/1", "boot-a", 100, "777", "pid:[1]", lease_until=1_000)
RUNNING, GONE = ProcessFacts(True, "777"), ProcessFacts(False, "")


@pytest.mark.parametrize(
    ("owner", "process", "now", "expected"),
    [
        (HERE, RUNNING, 999, Liveness.LIVE),
        (HERE, RUNNING, 1_000, Liveness.SILENT),
        (HERE, GONE, 0, Liveness.DEAD),
        (HERE, ProcessFacts(True, "778"), 0, Liveness.DEAD),
        (HERE, ProcessFacts(True, ""), 999, Liveness.LIVE),
        (HERE, ProcessFacts(True, ""), 1_000, Liveness.SILENT),
        (replace(HERE, boot_id="boot-b"), RUNNING, 0, Liveness.DEAD),
        (replace(HERE, host="other/2"), RUNNING, 999, Liveness.LIVE),
        (replace(HERE, host="other/2"), RUNNING, 1_000, Liveness.SILENT),
        (replace(HERE, host="other/2"), GONE, 999, Liveness.LIVE),
        (replace(HERE, pid_namespace="pid:[2]"), GONE, 999, Liveness.LIVE),
        (replace(HERE, pid_namespace="pid:[2]", boot_id="boot-b"), GONE, 999, Liveness.LIVE),
    ],
)
def test_liveness(owner: Owner, process: ProcessFacts, now: int, expected: Liveness) -> None:
    assert liveness(owner, replace(HERE, lease_until=0), process, now) is expected


def test_this_process_is_alive_and_survives_the_file_format() -> None:
    owner = this_process().leased(60)
    assert judge(owner) is Liveness.LIVE
    assert Owner.from_json(owner.to_json()) == owner
    assert owner.same_process(this_process())


def test_a_killed_process_is_dead_even_before_its_parent_looks() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    owner = replace(this_process().leased(60), pid=child.pid, process_started=observe_process(child.pid).started)
    assert judge(owner) is Liveness.LIVE
    child.kill()
    deadline = time.monotonic() + 5
    while judge(owner) is not Liveness.DEAD and time.monotonic() < deadline:
        time.sleep(0.01)
    assert judge(owner) is Liveness.DEAD
    assert os.path.exists(f"/proc/{child.pid}/stat"), "the child is a zombie at this point, not yet collected"
    child.wait()
    assert judge(owner) is Liveness.DEAD
